"""Commands that draw: the report, and figures for papers."""

from pathlib import Path

from goal.cli.common import console
from goal.common.errors import GoalError


def report(*folders: Path, out: Path | None = None) -> None:
    """Write one HTML file about runs: curves, galleries, maps, geometry, settings.

    It opens from disk and needs no network. Runs that differ in their seed alone are averaged.

    Args:
        folders: Run folders, or folders that hold some.
        out: The file to write. Default: report.html in the first folder.
    """
    from goal.models.places import outside_models
    from goal.report.page import write_report

    if not folders:
        raise GoalError("Give at least one folder with finished runs.")
    target = out or folders[0] / "report.html"
    outside_models(target)
    path = write_report(list(folders), target)
    console.say(f"Report: {path.resolve()}")


def figures(*folders: Path, out: Path) -> None:
    """Draw figures for papers, as PDF and PNG.

    Accuracy by stage in both conventions, forgetting against discovery, the alignment ablation
    where its runs are there, and the curve of every `goal sweep` folder.

    Args:
        folders: Run folders, or folders that hold some.
        out: Folder for the figures.
    """
    from goal.models.places import outside_models
    from goal.report.figures import write_figures

    if not folders:
        raise GoalError("Give at least one folder with finished runs.")
    outside_models(out)
    for path in write_figures(list(folders), out):
        console.say(str(path))

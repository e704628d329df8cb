"""Commands that draw: the report."""

from pathlib import Path

from goal.cli.common import console
from goal.errors import GoalError


def report(*folders: Path, out: Path | None = None) -> None:
    """Write one HTML file about runs: curves, galleries, maps, geometry, settings.

    It opens from disk and needs no network. Runs that differ in their seed alone are averaged.

    Args:
        folders: Run folders, or folders that hold some.
        out: The file to write. Default: report.html in the first folder.
    """
    from goal.report.page import write_report

    if not folders:
        raise GoalError("Give at least one folder with finished runs.")
    path = write_report(list(folders), out or folders[0] / "report.html")
    console.print(f"Report: {path.resolve()}", soft_wrap=True)

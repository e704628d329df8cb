"""Commands that run experiments and compare them."""

import shlex
from pathlib import Path
from typing import Literal

from goal.cli.common import (
    Log,
    Set,
    console,
    errors,
    flags,
    integers,
    logging,
    print_table,
    print_tables,
    rank,
    refuse_ranks,
    reporter,
    resumable,
)
from goal.common.errors import GoalError


def demo(*, out: Path = Path("runs/demo"), seed: int = 0) -> None:
    """Run GOAL and GOAL+ on embedded digits: 4 labelled classes, then 3 stages of 2 new ones.

    Beside them runs the floor, k-means on the frozen backbone. Takes half a minute and ends with
    a table, a report to open in a browser, and a model of the same digits for `goal review`.

    Args:
        out: Folder for the three runs and the report; the model is made beside it.
        seed: Training seed.
    """
    refuse_ranks("demo")
    from goal.models.demo import make_demo_model
    from goal.report.page import write_report
    from goal.report.tables import comparison_table
    from goal.runs.run import start
    from goal.settings.recipes import assemble

    folders = []
    for method in ("goal-plus", "goal", "kmeans"):
        console.print(f"{method}: digits, seed {seed}", style="bold")
        settings = assemble(None, "digits", method, {"seed": seed})
        folder = out / f"{method}-seed{seed}"
        start(settings, folder, reporter())
        folders.append(folder)
    console.print(comparison_table(folders))
    model = out.with_name(f"{out.name}-model")
    make_demo_model(model, out.with_name(f"{out.name}-images"), seed, reporter())
    console.say(f"Report: {write_report(folders, out / 'report.html').resolve()}")
    again = shlex.join(["goal", "review", "--model", str(model)])
    console.say(f"A model that discovered digits, to agree with: `{again}`")


def run(
    recipe: str | None = None,
    /,
    *,
    out: Path,
    dataset: str | None = None,
    method: str | None = None,
    backbone: str | None = None,
    data_root: Path | None = None,
    seed: int | None = None,
    device: str | None = None,
    download: bool = False,
    log: Log = (),
    overrides: Set = (),
) -> None:
    """Run an experiment: from a recipe, or from a dataset and a method.

    Without a recipe, the shipped one for that dataset and method is used, if there is one. The
    same command run again on a finished or interrupted folder goes on where it stopped.

    Args:
        recipe: A YAML file, or the name of a shipped recipe such as digits/goal.
        out: Run folder: settings, results, checkpoint.
        dataset: Dataset, see `goal list datasets`. Default: digits.
        method: Method, see `goal list methods`. Default: goal.
        backbone: Hub id, transformers folder, DINO .pth file, or embedded backbone.
        data_root: Folder that holds the datasets.
        seed: Training seed.
        device: Where to compute: cpu, cuda, cuda:1, ...
        download: Fetch dataset and backbone if they are missing and public.
        log: Also write live curves into the run folder.
        overrides: Any other setting.
    """
    from goal.runs.run import start
    from goal.settings.recipes import assemble

    given = flags(backbone, data_root, seed=seed, device=device, download=download)
    settings = assemble(recipe, dataset, method, given, overrides)
    with resumable(out), logging(log, out) as shown:
        start(settings, out, shown)
    _report(out)


def resume(folder: Path, /, *, download: bool = False, log: Log = ()) -> None:
    """Go on with an interrupted run; the result is as if it had never stopped.

    Args:
        folder: The run folder.
        download: Fetch dataset and backbone if they are missing and public.
        log: Also write live curves into the run folder.
    """
    from goal.runs.run import resume as resume_run

    with resumable(folder), logging(log, folder) as shown:
        resume_run(folder, shown, download)
    _report(folder)


def _report(folder: Path) -> None:
    """Write a run's report, on the first rank, and say where it is."""
    from goal.report.page import write_report

    if not rank():
        report = write_report([folder], folder / "report.html")
        console.say(f"Report: {report.resolve()}")


def bench(
    *,
    methods: str,
    out: Path,
    datasets: str = "digits",
    seeds: str = "0,1,2",
    engine: Literal["local", "ray"] = "local",
    cpus_per_cell: float = 1,
    backbone: str | None = None,
    data_root: Path | None = None,
    overrides: Set = (),
) -> None:
    """Run a grid of experiments: methods x datasets x seeds, each in a folder of its own.

    Run again, it goes on where it stopped. A cell that fails does not stop the others; failures
    are listed at the end and the exit code is 1.

    Args:
        methods: Methods, separated by commas.
        out: Folder for all runs.
        datasets: Datasets, separated by commas.
        seeds: Training seeds, separated by commas.
        engine: Run in this process, or as Ray tasks (on this machine, or the cluster that
            RAY_ADDRESS names).
        cpus_per_cell: CPUs that a Ray task asks for.
        backbone: Backbone for all cells, instead of the recipes'.
        data_root: Folder that holds the datasets.
        overrides: Any other setting, for all cells that have it.
    """
    refuse_ranks("bench")
    from goal.runs.grid import grid, run_cells

    cells = grid(
        methods.split(","),
        datasets.split(","),
        integers(seeds),
        out,
        flags(backbone=backbone, data_root=data_root),
        overrides,
    )
    failures = run_cells(cells, engine, reporter(), cpus_per_cell)
    if len(failures) < len(cells):
        print_tables([out], None)
        _report(out)
    for failure in failures:
        errors.print(f"{failure.title}: {failure.reason}", style="red")
    if failures:
        raise GoalError(f"{len(failures)} of {len(cells)} experiments failed; see above.")


def compare(
    *folders: Path,
    markdown: bool = False,
    latex: bool = False,
    csv: bool = False,
    json: bool = False,
    caption: str | None = None,
    label: str | None = None,
) -> None:
    """Print the papers' tables from run folders, published rows beside ours.

    Table 1 is accuracy per stage, Table 2 forgetting and discovery, Table 3 ten stages, Table 4
    the alignment ablation; each over all seeds found, in both conventions of old and new.

    Args:
        folders: Run folders, or folders that hold some.
        markdown: Print Markdown.
        latex: Print LaTeX, the best figures in bold.
        csv: Print one tidy table as CSV: a row for each figure, a column for each number.
        json: Print the same rows as JSON.
        caption: Caption of the LaTeX table, in LaTeX.
        label: Label of the LaTeX table; several tables are numbered.
    """
    formats = {"markdown": markdown, "latex": latex, "csv": csv, "json": json}
    chosen = [name for name, on in formats.items() if on]
    if len(chosen) > 1:
        raise GoalError(f"Choose one format, not {' and '.join(chosen)}.")
    if not folders:
        raise GoalError("Give at least one folder with finished runs.")
    if not latex and (caption is not None or label is not None):
        raise GoalError("--caption and --label are for --latex.")
    print_tables(list(folders), chosen[0] if chosen else None, caption, label)


def sweep(
    recipe: str | None = None,
    /,
    *,
    over: str,
    out: Path,
    dataset: str | None = None,
    method: str | None = None,
    seeds: str = "0",
    backbone: str | None = None,
    data_root: Path | None = None,
    overrides: Set = (),
) -> None:
    """Vary one setting and print the curve, such as the paper's figure of alpha.

    Args:
        recipe: A YAML file, or the name of a shipped recipe such as digits/goal.
        over: The setting and its values: method.alpha=0.1,0.3,0.5,0.7,0.9
        out: Folder for all runs; the curve is written to curve.csv and curve.json in it.
        dataset: Dataset, see `goal list datasets`.
        method: Method, see `goal list methods`.
        seeds: Training seeds, separated by commas.
        backbone: Backbone, instead of the recipe's.
        data_root: Folder that holds the datasets.
        overrides: Any other setting.
    """
    refuse_ranks("sweep")
    from urllib.parse import unquote

    from goal.report.compare import sweep_table
    from goal.report.formats import TIDY
    from goal.report.tidy import sweep_rows
    from goal.runs.grid import run_cells, sweep_cells
    from goal.settings.recipes import assemble
    from goal.storage.files import write_text

    key, equals, values = over.partition("=")
    if not equals or not values:
        raise GoalError(f"Cannot read --over {over!r}: write it as key.sub=value,value,...")
    given = flags(backbone=backbone, data_root=data_root)
    base = assemble(recipe, dataset, method, given, overrides)
    cells = sweep_cells(key, values.split(","), base, integers(seeds), out)
    if failures := run_cells(cells, "local", reporter()):
        raise GoalError(f"{failures[0].title} failed: {failures[0].reason}")
    places = [(unquote(cell.folder.parent.name), cell.folder) for cell in cells]
    for name, write in TIDY.items():
        write_text(out / f"curve.{name}", write(sweep_rows(key, places)))
    print_table(sweep_table(key, places))
    _report(out)

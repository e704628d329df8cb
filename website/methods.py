"""A page per method: what its file says, our figures, and the published ones."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from goal.methods.registry import METHODS, MethodSpec
from goal.report.published import forgetting_discovery, stage_row
from website.pages import ROOT

TABLES = ("benchmarks/cifar100/REPRODUCTION.md", "benchmarks/DIGITS.md", "benchmarks/cub/CUB.md")
_DATASETS = ("cifar100", "tinyimagenet", "imagenet100", "cub")
_ABOUT_THE_RUN = re.compile(r"published|verified|minutes|MB")


def own_methods() -> dict[str, MethodSpec]:
    """The methods of this package, without those of plug-ins."""
    return {
        name: spec
        for name, spec in METHODS.items()
        if isinstance(spec.where, str) and spec.where.startswith("goal.")
    }


def overview() -> str:
    """The page that lists the methods."""
    rows = [f"| [{name}]({name}.md) | {spec.summary} |" for name, spec in own_methods().items()]
    return (
        "# Methods\n\nEvery method is one file in `src/goal/methods`, and its page is made of "
        "that file's docstring: the objective, the paper, every point where we deviate or had to "
        "choose; "
        "then our figures, and the published ones. Our figures compare with each other; where "
        "backbone or size of the data differ from the papers', which each table says, they do not "
        "compare with the published ones.\n\n| method | |\n|---|---|\n" + "\n".join(rows) + "\n"
    )


def page(name: str, spec: MethodSpec) -> str:
    """The page of a method."""
    parts = [f"# {name}", spec.summary + ".", _settings(spec), _objective(spec)]
    parts += ["## Our figures", *_own_figures(name), "## Published figures", *_published(name)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _module(spec: MethodSpec) -> Path:
    module = str(spec.where).partition(":")[0]
    return ROOT / "src" / (module.replace(".", "/") + ".py")


def _objective(spec: MethodSpec) -> str:
    """The docstring of the method's file as Markdown: indented parts are formulas or lists."""
    text = ast.get_docstring(ast.parse(_module(spec).read_text(encoding="utf-8"))) or ""
    source = _module(spec).relative_to(ROOT).as_posix()
    return f"## Objective, paper, deviations\n\n{formatted(text)}\n\nThe whole of it: `{source}`."


def formatted(docstring: str) -> str:
    """A docstring as Markdown: lists stay lists, other indented lines become blocks of code."""
    found: list[str] = []
    for block in re.split(r"\n\n+", docstring):
        lines = block.split("\n")
        plain = [line for line in lines if not line.startswith("    ")]
        indented = lines[len(plain) :]
        if plain != lines[: len(plain)]:
            found.append("```text\n" + block + "\n```")
            continue
        if plain:
            found.append("\n".join(plain))
        if indented:
            inner = "\n".join(line.removeprefix("    ") for line in indented)
            found.append(inner if inner.startswith("- ") else f"```text\n{inner}\n```")
    return _quotes("\n\n".join(found))


def _quotes(text: str) -> str:
    """Double backticks of docstrings as single ones."""
    return re.sub(r"(?<!`)``(?!`)", "`", text)


def _settings(spec: MethodSpec) -> str:
    if not spec.preset:
        return ""
    rows = "\n".join(f"| `{key}` | `{value}` |" for key, value in spec.preset.items())
    said = "It is a preset of the same file as another method:"
    return f"{said}\n\n| setting | value |\n|---|---|\n{rows}"


def _own_figures(name: str) -> Iterator[str]:
    """Rows of the benchmarks' tables that are about the method, each under its table's title."""
    found = False
    for table in TABLES:
        path = ROOT / table
        if path.exists():
            for title, header, rows in _tables(path.read_text(encoding="utf-8")):
                kept = [row for row in rows if row[0].strip("* ") == name]
                if kept and header[0] in ("row", "method"):
                    found = True
                    yield f"**{title}** ([settings and command](../{table}))"
                    yield _table(header, kept)
    if not found:
        yield "None yet."


def _tables(markdown: str) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Title, header and rows of each table of a page."""
    title, rows = "", []
    for line in [*markdown.splitlines(), ""]:
        if line.startswith("#"):
            title = line.lstrip("# ")
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip().strip("|").split("|")])
        elif rows:
            yield title, rows[0], rows[2:]
            rows = []


def _table(header: list[str], rows: list[list[str]]) -> str:
    """A table without the columns that are about the run and not about the method."""
    kept = [at for at, name in enumerate(header) if not _ABOUT_THE_RUN.search(name)]
    lines = [[row[at] for at in kept] for row in [header, ["---"] + ["---:"] * (len(header) - 1)]]
    lines += [[row[at] for at in kept] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _published(name: str) -> Iterator[str]:
    rows = []
    for dataset in _DATASETS:
        for stages in (5, 10):
            row = stage_row(dataset, name, stages)
            if row is not None:
                figures = [_figure(row.average.get(key)) for key in ("all", "old", "new")]
                pair = forgetting_discovery(dataset, name) if stages == 5 else None
                figures += [_figure(value) for value in pair or (None, None)]
                cells = [dataset, str(stages), row.convention, _figure(row.stage0_all), *figures]
                rows.append(f"| {' | '.join(cells)} |")
    if not rows:
        yield "None on this protocol."
        return
    yield (
        "Averages over the stages, in percent. `old` and `new` are in the "
        "[convention](../concepts/old-and-new.md) that the table was printed in.\n\n"
        "| dataset | stages | convention | stage 0 | All | old | new | M_f | M_d |\n"
        "|---|---:|---|---:|---:|---:|---:|---:|---:|\n" + "\n".join(rows)
    )


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"

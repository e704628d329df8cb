"""Tables as texts: Markdown and LaTeX for readers, CSV and JSON for programs."""

import csv
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence

from goal.common.escaping import csv_cell, visible
from goal.report.compare import TextTable

_LATEX = str.maketrans(
    {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "$": r"\$", "±": r"$\pm$", "–": "--"}
    | {"{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"\\": r"\textbackslash{}"}
)

_NUMBER = re.compile(r"[-+]?[\d.]+([eE][-+]?\d+)?")

Row = Mapping[str, str | int | float | None]


def markdown(table: TextTable) -> str:
    """GitHub-flavoured Markdown."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"

    rule = "|---|" + "---:|" * (len(table.headings) - 1)
    rows = [line(table.headings), rule, *(line(row) for row in table.rows)]
    return "\n".join([f"### {table.title}", "", *rows, "", table.note, ""])


def latex(table: TextTable, caption: str | None = None, label: str | None = None) -> str:
    """A tabular with booktabs rules, the best figure of each column in bold.

    Args:
        table: The table.
        caption: LaTeX in place of title and note.
        label: What references call it.
    """

    def cell(row: int, column: int) -> str:
        text = table.rows[row][column].translate(_LATEX)
        return rf"\textbf{{{text}}}" if (row, column) in table.best else text

    def line(cells: Sequence[str]) -> str:
        return " & ".join(cells) + r" \\"

    width = len(table.headings)
    own = f"{table.title.translate(_LATEX)}. {table.note.translate(_LATEX)}"
    return "\n".join(
        [
            r"\begin{table}",
            rf"\begin{{tabular}}{{l{'r' * (width - 1)}}}",
            r"\toprule",
            line([heading.translate(_LATEX) for heading in table.headings]),
            r"\midrule",
            *(line([cell(row, i) for i in range(width)]) for row in range(len(table.rows))),
            r"\bottomrule",
            r"\end{tabular}",
            rf"\caption{{{own if caption is None else caption}}}",
            *([] if label is None else [rf"\label{{{label}}}"]),
            r"\end{table}",
            "",
        ]
    )


def latex_tables(
    tables: Sequence[TextTable], caption: str | None = None, label: str | None = None
) -> str:
    """All tables; where there are several, a label of one's own is numbered, a caption titled."""
    several = len(tables) > 1
    texts = []
    for number, table in enumerate(tables, 1):
        title = f" {table.title.translate(_LATEX)}." if several else ""
        mine = None if caption is None else f"{caption}{title}"
        named = f"{label}-{number}" if label is not None and several else label
        texts.append(latex(table, mine, named))
    return "\n".join(texts)


def comma_separated(rows: Sequence[Row]) -> str:
    """CSV, one line of headings; texts that a spreadsheet would run as a formula are quoted."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(rows[0])
    for row in rows:
        writer.writerow([_cell(value) for value in row.values()])
    return buffer.getvalue()


def _cell(value: str | int | float | None) -> str | int | float | None:
    if not isinstance(value, str) or _NUMBER.fullmatch(value):
        return value
    return csv_cell(visible(value))


def as_json(rows: Sequence[Row]) -> str:
    """The same rows as a JSON list of objects; what a row lacks is null."""
    return json.dumps([dict(row) for row in rows], indent=1, allow_nan=False) + "\n"


TIDY: dict[str, Callable[[Sequence[Row]], str]] = {"csv": comma_separated, "json": as_json}

"""One table, four formats."""

import csv
import io
import re
from collections.abc import Callable, Sequence

from goal.common.escaping import csv_cell
from goal.report.compare import TextTable

_LATEX = str.maketrans(
    {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "$": r"\$", "±": r"$\pm$", "–": "--"}
    | {"{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"\\": r"\textbackslash{}"}
)

_FIGURE = re.compile(r"[-+]?[\d.]+( ± [\d.]+)?")


def markdown(table: TextTable) -> str:
    """GitHub-flavoured Markdown."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"

    rule = "|---|" + "---:|" * (len(table.headings) - 1)
    rows = [line(table.headings), rule, *(line(row) for row in table.rows)]
    return "\n".join([f"### {table.title}", "", *rows, "", table.note, ""])


def latex(table: TextTable) -> str:
    """A tabular with booktabs rules."""

    def line(cells: Sequence[str]) -> str:
        return " & ".join(cell.translate(_LATEX) for cell in cells) + r" \\"

    columns = "l" + "r" * (len(table.headings) - 1)
    body = [line(row) for row in table.rows]
    return "\n".join(
        [
            r"\begin{table}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            line(table.headings),
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            rf"\caption{{{table.title.translate(_LATEX)}. {table.note.translate(_LATEX)}}}",
            r"\end{table}",
            "",
        ]
    )


def comma_separated(table: TextTable) -> str:
    """CSV, the title first; cells that a spreadsheet would run as a formula are quoted."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    for row in ([table.title], table.headings, *table.rows):
        writer.writerow([cell if _FIGURE.fullmatch(cell) else csv_cell(cell) for cell in row])
    return buffer.getvalue()


FORMATS: dict[str, Callable[[TextTable], str]] = {
    "markdown": markdown,
    "latex": latex,
    "csv": comma_separated,
}

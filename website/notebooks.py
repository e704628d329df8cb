"""Notebooks as pages: text, code, and what the code printed."""

import json
from pathlib import Path
from typing import Any

from website.pages import ROOT

FOLDER = ROOT / "examples" / "notebooks"


def notebooks() -> dict[str, Path]:
    """Notebooks by name of their page."""
    return {f"notebooks/{path.stem}.md": path for path in sorted(FOLDER.glob("*.ipynb"))}


def page(path: Path) -> str:
    """A notebook as Markdown."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    made = f"*This page is the notebook `examples/notebooks/{path.name}`.*"
    title, *rest = [_cell(cell) for cell in cells]
    return "\n\n".join([title, made, *rest]) + "\n"


def _cell(cell: dict[str, Any]) -> str:
    source = "".join(cell["source"])
    if cell["cell_type"] != "code":
        return source
    return "\n\n".join([f"```python\n{source}\n```", *map(_output, cell["outputs"])])


def _output(output: dict[str, Any]) -> str:
    if output.get("name") == "stderr":  # warnings
        return ""
    data = output.get("data", {})
    if kind := next((k for k in ("image/png", "image/jpeg") if k in data), None):
        content = "".join(data[kind]).replace("\n", "")
        return f"![What the code drew](data:{kind};base64,{content})"
    text = "".join(output.get("text") or data.get("text/plain", ""))
    return f"```text\n{text.rstrip()}\n```" if text.strip() else ""

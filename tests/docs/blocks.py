"""The commands and snippets of the documentation; those that no test runs, and why."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "benchmarks", "examples")
KINDS = ("console", "bash", "sh", "python")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Snippet:
    """A command, or a block of Python."""

    page: str
    kind: str
    text: str

    @property
    def why_not(self) -> str | None:
        """Why no test runs it; None if one does."""
        for place, start, reason in NOT_RUN:
            if self.page.startswith(place) and self.text.startswith(start):
                return reason
        return None


# Page (or the beginning of its path), beginning of the command or snippet, and why it is not run.
NOT_RUN = [
    ("", "make demo", "sets up an environment; tests/wheel_check.sh runs the demo in one"),
    ("", "make test", "is what runs this test"),
    ("", "goal demo", "trains for half a minute; tests/wheel_check.sh runs it"),
    ("docs/guide", "pip install", "changes the environment"),
    ("docs/guide", "goal serve", "serves until Ctrl-C; tests/review asks it"),
    ("docs/guide", "curl", "asks that server; tests/review asks it the same"),
    ("docs/guide", "goal review", "serves until Ctrl-C; tests/review opens it in a browser"),
    ("docs/distributed.md", "torchrun", "tests/runs/test_distributed.py runs torchrun"),
    ("benchmarks/", "python -m benchmarks", "hours, on images that are not public domain"),
    ("benchmarks/", "goal run benchmarks", "hours, on images that are not public domain"),
    ("examples/plugin", "pip install", "changes the environment; tests/house/test_plugins.py"),
    ("examples/plugin", "goal run --dataset stripes", "needs the plug-in installed; the same test"),
    ("examples/plugin", "python -m pytest", "needs the plug-in installed; the same test"),
    ("docs/plugins.md", "", "parts of examples/plugin, with which test_plugins.py compares them"),
    ("docs/guide/other-tools.md", "", "tests/house/test_guide.py runs it, with stand-ins"),
]

# Commands that need what tests do not have: they must end in an error of the right kind, which
# shows that their words are right.
REFUSED = {
    "--dataset cifar100": "the dataset is not here, and tests use no network",
    "--backbone facebook/dino-vits16": "the backbone is not here, and tests use no network",
}


def pages() -> list[str]:
    """All pages, from the root."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md")]
    found += ROOT.glob("*.md")
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def snippets(page: str) -> list[Snippet]:
    """The commands and snippets of a page, in order."""
    found = []
    for kind, text in _BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
        if kind == "python":
            found.append(Snippet(page, kind, text))
        elif kind in KINDS:
            joined = text.replace("\\\n", " ")
            commands = re.findall(r"^\$ (.*)$", joined, re.MULTILINE) or joined.splitlines()
            found += [Snippet(page, kind, _without_comment(command)) for command in commands]
    return [snippet for snippet in found if snippet.text.strip()]


def _without_comment(command: str) -> str:
    return re.sub(r"\s+# .*$", "", command).strip()

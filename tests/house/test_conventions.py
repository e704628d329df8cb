"""What strangers and their machines read first agrees with the project."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import goal

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = [ROOT / ".github" / "ISSUE_TEMPLATE" / name for name in ("bug.yml", "question.yml")]


def read(path: Path) -> dict[Any, Any]:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(content, dict), path
    return content


def jobs(path: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = read(path)["jobs"]
    return found


def steps(path: Path) -> Iterator[dict[str, Any]]:
    for job in jobs(path).values():
        yield from job.get("steps", [])


def make_targets(command: str) -> Iterator[list[str]]:
    """Targets of each call of make in a command."""
    for line in command.splitlines():
        words = shlex.split(line)
        if words and words[0] == "make":
            yield [word for word in words[1:] if "=" not in word and not word.startswith("-")]


def commands() -> Iterator[str]:
    for path in WORKFLOWS:
        yield from (step["run"] for step in steps(path) if "run" in step)
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    yield container["postCreateCommand"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_is_whole_and_may_do_little(path: Path) -> None:
    workflow = read(path)
    assert True in workflow  # `on:`, which YAML 1.1 reads as a boolean
    assert workflow["permissions"] in ({}, {"contents": "read"})
    for name, job in jobs(path).items():
        assert ("runs-on" in job and "timeout-minutes" in job and job["steps"]) or "uses" in job
        needs = job.get("needs", [])
        assert set([needs] if isinstance(needs, str) else needs) <= set(jobs(path)), name
        called = job.get("uses", "./")
        assert called.startswith("./") and (ROOT / called).exists()
    for step in steps(path):
        assert ("uses" in step) != ("run" in step), step
        assert re.fullmatch(r"[\w.-]+/[\w.-]+@(v\d+|release/v\d+)", step.get("uses", "a/b@v1"))


def test_only_the_publishing_job_can_prove_who_it_is() -> None:
    mighty = [
        (path.stem, name)
        for path in WORKFLOWS
        for name, job in jobs(path).items()
        if "write" in job.get("permissions", {}).values()
    ]
    assert mighty == [("release", "publish")]
    publish = jobs(ROOT / ".github" / "workflows" / "release.yml")["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["environment"]["url"].endswith(f"/{PROJECT['name']}")
    assert not any("run" in step for step in publish["steps"])


def test_make_knows_every_target_that_is_called() -> None:
    called = [targets for command in commands() for targets in make_targets(command)]
    assert {"check", "test", "wheel-check", "docs"} <= {
        target for targets in called for target in targets
    }
    for targets in called:
        # -n prints what would be done.
        done = subprocess.run(
            ["make", "-n", *targets], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def versions() -> list[str]:
    matrix = jobs(ROOT / ".github" / "workflows" / "ci.yml")["test"]["strategy"]["matrix"]
    found: list[str] = matrix["python"]
    return found


def test_the_tested_pythons_are_the_promised_ones() -> None:
    prefix = "Programming Language :: Python :: 3."
    promised = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if prefix in text]
    assert versions() == promised
    lowest = re.fullmatch(r">=3\.(\d+)(\.\d+)?", PROJECT["requires-python"])
    assert lowest is not None
    assert versions()[0] == f"3.{lowest[1]}"
    numbers = [int(version.removeprefix("3.")) for version in versions()]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_every_other_python_is_one_of_them() -> None:
    used = [
        step["with"]["python-version"]
        for path in WORKFLOWS
        for step in steps(path)
        if "setup-python" in step.get("uses", "")
    ]
    images = (ROOT / "Dockerfile").read_text()
    images += (ROOT / ".devcontainer" / "devcontainer.json").read_text()
    used += re.findall(r"python:([\d.]+)", images)
    assert len(used) >= 7
    assert set(used) - {"${{ matrix.python }}"} <= set(versions())
    policy = (ROOT / "docs" / "policy.md").read_text()
    assert "{}, {} and {}".format(*versions()) in policy
    assert f"Python {PROJECT['requires-python'].removeprefix('>=')} and newer" in policy


def test_the_citation_fits_the_package() -> None:
    citation = read(ROOT / "CITATION.cff")
    assert citation["cff-version"] == "1.2.0" and citation["type"] == "software"
    assert citation["version"] == goal.__version__
    assert citation["license"] == PROJECT["license"]
    assert citation["authors"] == PROJECT["authors"]
    assert citation["keywords"] == PROJECT["keywords"]
    assert PROJECT["name"] in citation["title"] and citation["message"]
    (paper,) = citation["references"]
    assert paper["type"] == "conference-paper" and paper["conference"]["name"]
    assert all(set(author) == {"given-names", "family-names"} for author in paper["authors"])
    assert paper["authors"][0]["family-names"] == "Han" and paper["year"] == 2026


def test_the_image_runs_goal_as_an_ordinary_user() -> None:
    lines = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    last = max(index for index, line in enumerate(lines) if line.startswith("FROM "))
    final = [line.split(maxsplit=1) for line in lines[last:] if line[:1].isupper()]
    users = [rest for word, rest in final if word == "USER"]
    assert users and users[-1] not in ("root", "0")
    made = next(rest for word, rest in final if word == "RUN" and "useradd" in rest)
    assert users[-1] in shlex.split(made.partition("&&")[0])
    (entry,) = [json.loads(rest) for word, rest in final if word == "ENTRYPOINT"]
    assert entry[0] in PROJECT["scripts"]


def test_the_image_is_made_of_files_that_exist_and_are_let_in() -> None:
    let_in = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    sources = [word for words in copied for word in words.split()]
    assert sorted(sources) == sorted(let_in)
    assert all((ROOT / name).exists() for name in sources)
    assert {PROJECT["readme"], *PROJECT["license-files"]} <= set(sources)


def test_local_hooks_run_installed_tools() -> None:
    hooks = [
        hook
        for repository in read(ROOT / ".pre-commit-config.yaml")["repos"]
        if repository["repo"] == "local"
        for hook in repository["hooks"]
    ]
    makefile = (ROOT / "Makefile").read_text()
    check = makefile.partition("\ncheck:")[2].partition("\n\n")[0]
    assert len(hooks) == check.count("$(BIN)/") == 3
    for hook in hooks:
        program, *rest = shlex.split(hook["entry"])
        folder, _, tool = program.rpartition("/")
        assert folder == ".venv/bin" and " ".join(["$(BIN)/" + tool, *rest[:1]]) in check
        assert shutil.which(tool, path=str(Path(sys.executable).parent))


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_asks_for_something(path: Path) -> None:
    form = read(path)
    assert form["name"] and form["description"]
    asked = [part for part in form["body"] if part["type"] != "markdown"]
    assert len({part["id"] for part in asked}) == len(asked)
    assert all(part["attributes"]["label"] for part in asked)
    assert any(part["validations"]["required"] for part in asked if "validations" in part)
    assert {part["type"] for part in form["body"]} <= {"markdown", "textarea", "dropdown"}


def test_the_other_files_of_the_repository_parse() -> None:
    assert read(ROOT / ".github" / "dependabot.yml")["version"] == 2
    assert read(ROOT / ".github" / "ISSUE_TEMPLATE" / "config.yml")
    named = set(re.findall(r"\b[A-Z_]{4,}\.md\b|docs/\w+\.md", "".join(_texts())))
    assert named and all((ROOT / name).exists() for name in named), named


def _texts() -> Iterator[str]:
    for path in (ROOT / ".github").rglob("*.*"):
        yield path.read_text(encoding="utf-8")

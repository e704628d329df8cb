"""What SECURITY.md promises, held: no code from files, no way out, no network unasked."""

import ast
import csv
import io
import json
import pickle
import re
import socket
import struct
import zlib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import goal
from goal.backbone.load import load_backbone
from goal.backbone.trunk import BackboneSettings
from goal.cli import main
from goal.common.errors import GoalError
from goal.data import unpickle
from goal.data.images import FileImages
from goal.data.sets import cifar100, tinyimagenet
from goal.data.sets.cub import SOURCE as CUB
from goal.report.formats import comma_separated
from goal.report.page import render, write_report
from goal.report.runs import load_run
from goal.report.tidy import tidy_rows
from goal.runs.grid import sweep_cells
from goal.runs.run import start
from goal.settings.settings import compose
from goal.storage import checkpoint
from goal.storage.yaml_files import parse_yaml
from tests.report.runs import write_pictures, write_run

SOURCES = sorted(Path(goal.__file__).parent.rglob("*.py"))
PROMISES = Path(__file__).parents[2] / "SECURITY.md"


def calls(path: Path) -> Iterator[tuple[str, dict[str, ast.expr]]]:
    """Dotted name and keyword arguments of every call in a module."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            keywords = {word.arg: word.value for word in node.keywords if word.arg}
            yield ast.unparse(node.func), keywords


def is_constant(node: ast.expr | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def dangers(name: str, given: dict[str, ast.expr]) -> str | None:
    """Say what is dangerous about a call, if anything is."""
    tail = name.rpartition(".")[2]
    if name in ("eval", "exec", "compile", "__import__", "os.system", "os.popen"):
        return "runs code"
    if name.split(".")[0] in ("pickle", "cPickle", "dill", "joblib", "marshal", "shelve"):
        return "unpickles"
    if name == "torch.load" and not is_constant(given.get("weights_only"), True):
        return "torch.load without weights_only=True"
    if name in ("np.load", "numpy.load") and not is_constant(given.get("allow_pickle"), False):
        return "np.load without allow_pickle=False"
    if name in ("yaml.unsafe_load", "yaml.full_load", "yaml.load_all"):
        return "unsafe YAML"
    if name == "yaml.load" and ast.unparse(given.get("Loader", ast.Constant(0))) != "_Loader":
        return "yaml.load without our safe loader"
    automatic = tail == "from_pretrained" and ".Auto" in name  # only these look for foreign code
    if automatic and not is_constant(given.get("trust_remote_code"), False):
        return "from_pretrained without trust_remote_code=False"
    if name == "Image.open" and ast.unparse(given.get("formats", ast.Constant(0))) != "FORMATS":
        return "Image.open without formats=FORMATS: Pillow hands some to outside programs"
    if is_constant(given.get("shell"), True):
        return "a shell"
    return "extractall" if tail == "extractall" else None


def test_no_call_in_the_package_can_run_foreign_code() -> None:
    found = [
        f"{path.name}: {name}: {danger}"
        for path in SOURCES
        for name, given in calls(path)
        if (danger := dangers(name, given))
    ]
    assert found == []
    assert dangers("torch.load", {}) and dangers("yaml.load", {}) and dangers("eval", {})


# Pipes, devices, bombs and links that lead out are looked for in one place: storage. What goes
# around it is listed here, with what keeps it safe.
READING = {"open", "fdopen", "read_text", "read_bytes", "read_table", "read_schema", "ParquetFile"}
ROOTS = {"files.py", "archives.py", "tables.py"}
AROUND = {
    ("dino_pth.py", "path.open"),  # looked at before: a regular file
    ("pretrained.py", "path.read_bytes"),  # looked at before: a regular file, and its size
    ("page.py", "path.open"),  # looked at before: a regular file; some KB of it
    ("places.py", "(source / name).read_bytes"),  # looked at before: a regular file, no link
    ("process.py", "Path('/proc/self/status').read_text"),
    ("html.py", "(files('goal.pages') / 'assets' / name).read_text"),
    ("published.py", "(files('goal.report') / 'published.json').read_text"),
    ("collections.py", "self._system.open"),  # a store at an address; as much as allowed
    ("decoding.py", "Image.open"),  # of a file that is open
    ("tar_files.py", "tarfile.open"),  # of a stream that bounds headers
    ("fetching.py", "gzip.open"),  # of an archive with the right checksum
    ("fetching.py", "Path(output_file).open"),  # in a folder of its own
    ("learner.py", "self.bank.open"),
    ("run.py", "self.learner.bank.open"),
    ("classes.py", "webbrowser.open"),
    ("review.py", "webbrowser.open"),
}


def test_files_are_read_in_one_place() -> None:
    found = {
        (path.name, name)
        for path in SOURCES
        for name, _ in calls(path)
        if path.name not in ROOTS and "." in name and name.rpartition(".")[2] in READING
        if not name.startswith(("files.read", "archives."))
    }
    assert found - AROUND == set(), "read it by goal.storage.files, or say why it is safe"
    assert AROUND - found == set(), "no longer there"


UNPICKLING = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}


def test_one_module_alone_can_unpickle_and_it_finds_no_functions() -> None:
    """Its unpickler takes names from an allow-list, as labels: nothing is ever looked up."""
    importing = {
        path.name
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        for name in imports(node)
        if name.split(".")[0] in UNPICKLING
    }
    assert importing == {"unpickle.py"}
    reader = unpickle._Reader(io.BytesIO())
    for name in sorted(unpickle.ALLOWED):
        assert type(reader.find_class(*name.split(" "))) is unpickle._Name
    for module, name in (("os", "system"), ("builtins", "eval"), ("numpy", "load")):
        with pytest.raises(unpickle._RefusedError, match=f"names '{module}.{name}'"):
            reader.find_class(module, name)


def imports(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


class Strike:
    """Makes a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def test_a_hostile_checkpoint_runs_nothing(tmp_path: Path) -> None:
    mark, path = tmp_path / "struck", tmp_path / "checkpoint.pt"
    torch.save({"format": 1, "digest": "", "state": {"a": Strike(mark)}}, path)
    with pytest.raises(GoalError, match="damaged"):
        checkpoint.load(path)
    path.write_bytes(pickle.dumps({"format": 1, "digest": "", "state": Strike(mark)}))
    with pytest.raises(GoalError, match="damaged"):
        checkpoint.load(path)
    assert not mark.exists()


def test_a_hostile_stage_file_runs_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "struck"
    run = write_pictures(write_run(tmp_path / "run", [80.0, 60.0]))
    trap = np.array([Strike(mark)], dtype=object)
    np.savez(run / "stages" / "stage-1.npz", truth=trap, predictions=trap, owner=trap)
    try:
        render([load_run(run)])
    except GoalError as error:
        assert "stage-1.npz" in str(error)
    assert not mark.exists()


def test_a_hostile_backbone_folder_runs_nothing(tmp_path: Path) -> None:
    mark, folder = tmp_path / "struck", tmp_path / "model"
    folder.mkdir()
    config = {"model_type": "vit", "auto_map": {"AutoModel": "trap.Trap", "AutoConfig": "trap.C"}}
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "trap"}))
    (folder / "trap.py").write_text(f"from pathlib import Path\nPath({str(mark)!r}).touch()\n")
    with pytest.raises(GoalError):
        load_backbone(BackboneSettings(name=str(folder)))
    assert not mark.exists()


@pytest.mark.parametrize("text", ["!!python/object/apply:os.system [ls]", "!!python/name:os.x"])
def test_yaml_builds_no_objects(text: str) -> None:
    with pytest.raises(GoalError, match="not valid YAML"):
        parse_yaml(text, "a file")


def test_an_image_bomb_is_refused_at_once(tmp_path: Path) -> None:
    def chunk(kind: bytes, content: bytes) -> bytes:
        check = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    path = tmp_path / "bomb.png"
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(bytes(10**6)))
        + chunk(b"IEND", b"")
    )
    with pytest.raises(GoalError, match=r"bomb\.png"):
        FileImages([path], np.zeros(1, np.int64)).image(0)


def test_a_swept_value_stays_inside_its_folder(tmp_path: Path) -> None:
    base = compose({"data": {"name": "folder", "root": "x"}, "method": {"name": "kmeans"}})
    for value in ("../../outside", "/etc", "a/b"):
        (cell,) = sweep_cells("data.root", [value], base, [0], tmp_path)
        assert cell.folder.resolve().parent.parent == tmp_path.resolve()


HOSTILE = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "'\"><svg onload=alert(1)>",
    "<!--",
]


class Elements(HTMLParser):
    """Counts elements and finds event handlers."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.handlers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]


def renamed(run: Path, name: str) -> Path:
    """Put a name into every text of a run."""
    path = run / "summary.json"
    summary = json.loads(path.read_text())
    for key in ("dataset", "method", "backbone", "selection"):
        summary[key] = name
    summary["versions"] = {name: name}
    summary["forgetting"] |= {name: 1.0}
    path.write_text(json.dumps(summary))
    return run


@pytest.mark.parametrize("name", HOSTILE)
def test_names_cannot_inject_into_the_report(name: str, tmp_path: Path) -> None:
    pages = []
    for index, text in enumerate(("harmless", name)):
        run = write_pictures(write_run(tmp_path / str(index), [80.0, 60.0]), strange_name=text)
        (run / "settings.yaml").write_text(f"# {text}\n{(run / 'settings.yaml').read_text()}")
        elements = Elements()
        elements.feed(render([load_run(renamed(run, text))]))
        pages.append(elements)
    assert pages[0].tags == pages[1].tags
    assert pages[1].handlers == pages[0].handlers == []


def test_figures_of_strangers_must_be_figures(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [80.0, 60.0])
    path = run / "results.jsonl"
    path.write_text(path.read_text().replace("60.0", '"<script>"', 1))
    with pytest.raises(GoalError, match="damaged"):
        load_run(run)


@pytest.mark.parametrize("name", ["=1+1", "+1", "@SUM(A1)", "-1+cmd|' /C calc'!A0", "\t=1", "\r=1"])
def test_names_are_no_formulas_in_csv(name: str, tmp_path: Path) -> None:
    run = renamed(write_run(tmp_path / "run", [80.0, 60.0]), name)
    for row in csv.reader(io.StringIO(comma_separated(tidy_rows([run])))):
        for cell in row:
            figure = re.fullmatch(r"[-+]?[\d.]+", cell)
            assert figure or not cell.startswith(("=", "+", "-", "@", "\t", "\r")), cell
            assert cell != "'"


@pytest.mark.parametrize("name", ["\x1b]0;owned\x07", "\x1b[2J", "\x9b31m", "[/red]", "\u202egnp"])
def test_names_cannot_steer_the_terminal(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = renamed(write_run(tmp_path / "run", [80.0, 60.0]), name)
    for arguments in (["compare", str(run)], ["compare", str(run), "--markdown"], ["resume", name]):
        with pytest.raises(SystemExit):
            main(arguments)
        output = "".join(capsys.readouterr())
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", output)
        assert "bug in goal" not in output


def test_downloads_are_over_https_with_checksums() -> None:
    sources = [CUB, cifar100.SOURCE, tinyimagenet.SOURCE]
    for source in sources:
        assert source.url.startswith("https://")
        assert re.fullmatch(r"md5:[0-9a-f]{32}|sha256:[0-9a-f]{64}", source.checksum)


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    tried: list[object] = []

    def refuse(*arguments: object, **_: object) -> None:
        tried.append(arguments)
        raise OSError("no network in this test")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return tried


def test_a_run_never_asks_for_the_network(no_network: list[object], tmp_path: Path) -> None:
    settings = compose({"method": {"name": "kmeans"}, "bank": {"views": 1}})
    start(settings, tmp_path / "out")
    write_report([tmp_path / "out"], tmp_path / "report.html")
    assert no_network == []


def test_offline_is_respected(no_network: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(GoalError, match="could not be fetched"):
        load_backbone(BackboneSettings(name="somebody/a-model-that-is-nowhere"), download=True)
    assert no_network == []


def test_a_hub_id_is_fetched_only_when_a_person_asks(no_network: list[object]) -> None:
    with pytest.raises(GoalError, match="give --download"):
        load_backbone(BackboneSettings(name="somebody/a-model-that-is-nowhere"))
    assert no_network == []


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "dpt", "is_hybrid": False},
        {"model_type": "detr", "use_timm_backbone": False},
        {"model_type": "upernet"},
    ],
    ids=lambda config: config["model_type"],
)
def test_a_backbone_folder_that_names_another_asks_nobody(
    config: dict[str, object], no_network: list[object], tmp_path: Path
) -> None:
    inner = {"backbone": "microsoft/resnet-50", "use_pretrained_backbone": True}
    (tmp_path / "config.json").write_text(json.dumps(config | inner))
    save_file({"x": torch.zeros(1_000_000)}, tmp_path / "model.safetensors")
    with pytest.raises(GoalError, match="Cannot load the backbone"):
        load_backbone(BackboneSettings(name=str(tmp_path)))
    assert no_network == []


def test_compiled_code_from_a_hub_is_refused(no_network: list[object], tmp_path: Path) -> None:
    for key in ("_attn_implementation", "attn_implementation"):
        for config in ({key: "somebody/kernels"}, {"vision_config": {key: "a/b@main"}}):
            (tmp_path / "config.json").write_text(json.dumps({"model_type": "vit", **config}))
            with pytest.raises(GoalError, match="code from elsewhere"):
                load_backbone(BackboneSettings(name=str(tmp_path)))
    assert no_network == []


def test_every_promise_names_tests_that_exist() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PROMISES.read_text())
    assert len(named) >= 12
    root = PROMISES.parent
    for file, test in named:
        assert f"def {test}(" in (root / file).read_text() if test else (root / file).exists(), test

"""Everything that is read from files, with bytes changed at random.

Each target prepares a good file once and returns an attempt: damage it, read it, and demand a
`GoalError` or a defined outcome. Any other exception, or wrong content taken for good, fails.
"""

import csv
import html
import io
import json
import pickle
import random
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import torch
from PIL import Image

from goal.backbone.tokens import Tokens
from goal.bank.shelf import Shelf
from goal.common.errors import GoalError
from goal.common.escaping import file_name, visible
from goal.common.progress import Reporter
from goal.data.collections import open_images
from goal.data.fetching import unpack
from goal.data.images import DataSettings, FileImages
from goal.data.sets import load_dataset
from goal.features.given import known_features, read_features
from goal.features.origin import Origin
from goal.features.store import FeatureStore
from goal.models.classes import Roster
from goal.models.names import read_names
from goal.models.page import write_page
from goal.models.predictions import Predictions
from goal.models.store import Judgement, StageRecord, Store
from goal.protocol.stages import ProtocolSettings, class_order
from goal.report.compare import paper_tables
from goal.report.formats import TIDY, latex_tables, markdown
from goal.report.page import render
from goal.report.runs import load_run
from goal.report.tidy import tidy_rows
from goal.settings.plain import parse_assignments, read_settings
from goal.settings.recipes import read_recipe, recipe_titles
from goal.settings.settings import compose
from goal.storage import checkpoint
from tests.data.helpers import write_image, write_text
from tests.report.runs import write_pictures, write_run

Attempt = Callable[[random.Random], str]
NASTY = [
    *b"null NaN -1 1e999 [ { } : - ../../x <script> =cmd() *a &a !!map".split(b" "),
    *(b"\0", b"\xff", b"\xed\xa0\x80", b"\x1b[2J", b" ", b"\n", b"'", b'"', b"\r\n"),
    *(b"9" * 5000, b"[" * 2000, b"{a: " * 500),
]


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Change a few bytes: flip, cut, drop, repeat, overwrite, or put something nasty in."""
    result = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 3, 8))):
        start = rng.randrange(len(result) + 1)
        end = min(len(result), start + rng.choice((1, 2, 8, 64, 512)))
        kind = rng.randrange(6)
        if kind == 0 and result:
            result[start % len(result)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del result[start:]
        elif kind == 2:
            del result[start:end]
        elif kind == 3:
            result[start:start] = result[start:end]
        elif kind == 4:
            result[start:end] = rng.randbytes(end - start)
        else:
            result[start:start] = rng.choice(NASTY)
    return bytes(result)


def tried(action: Callable[[], object]) -> str:
    """Do it: ``fine``, or ``error`` if it ends in an error with a message."""
    try:
        action()
    except GoalError as error:
        assert str(error).strip()
        return "error"
    return "fine"


def settings_file(folder: Path) -> Attempt:
    names = sorted(recipe_titles())
    path = folder / "settings.yaml"

    def attempt(rng: random.Random) -> str:
        content = json.dumps(read_recipe(rng.choice(names))).encode()
        path.write_bytes(damaged(content, rng))
        return tried(lambda: compose(read_settings(path)).hash())

    return attempt


def assignment(folder: Path) -> Attempt:
    good = [b"method.alpha=0.5", b"seed=1", b"data.root=x", b"protocol.stages=2", b"bank.views=2"]

    def attempt(rng: random.Random) -> str:
        text = damaged(rng.choice(good), rng).decode("utf-8", "surrogateescape")
        return tried(lambda: compose(parse_assignments([text])).hash())

    return attempt


def results_files(folder: Path) -> Attempt:
    good = write_pictures(write_run(folder / "good", [80.0, 60.0]))
    run = folder / "run"
    shutil.copytree(good, run)
    names = [path.relative_to(good) for path in sorted(good.rglob("*")) if path.is_file()]

    def attempt(rng: random.Random) -> str:
        name = rng.choice(names)
        (run / name).write_bytes(damaged((good / name).read_bytes(), rng))
        outcome = tried(lambda: _all_reports(run))
        shutil.copy(good / name, run / name)
        return outcome

    return attempt


def _all_reports(run: Path) -> None:
    page = render([load_run(run)])
    assert "<script>=" not in page and "<script><" not in page
    tables = paper_tables([run])
    for text in (latex_tables(tables), *map(markdown, tables)):
        assert isinstance(text, str)
    for write in TIDY.values():
        write(tidy_rows([run]))


def checkpoint_file(folder: Path) -> Attempt:
    state = {"a": torch.arange(300.0), "b": [1, {"c": "text"}], "d": torch.ones(3, 4).half()}
    checkpoint.save(folder / "good.pt", state)
    content, expected = (folder / "good.pt").read_bytes(), checkpoint.digest(state)
    path = folder / "bad.pt"

    def read() -> None:
        assert checkpoint.digest(checkpoint.load(path)) == expected, "wrong state taken for good"

    def attempt(rng: random.Random) -> str:
        path.write_bytes(damaged(content, rng))
        return tried(read)

    return attempt


def bank_shelf(folder: Path) -> Attempt:
    about = {"dtype": "float16", "tokens": 3, "width": 4, "view": "clean", "trunk": "t"}
    rng = torch.Generator().manual_seed(0)
    tokens = Tokens(torch.randn(9, 3, 4, generator=rng).half().float(), torch.ones(9, 4))
    digests = [bytes([number] * 16) for number in range(9)]
    good = Shelf(folder / "good", about, Reporter())
    good.append(tokens, digests)
    (copy := folder / "copy" / good.folder.name).mkdir(parents=True)

    def read() -> None:
        shelf = Shelf(folder / "copy", about, Reporter())
        missing = np.flatnonzero(shelf.find(digests, Reporter()) < 0)
        if len(missing):
            part = Tokens(tokens.normalised[missing], tokens.cls[missing])
            shelf.append(part, [digests[number] for number in missing])
        rows = shelf.find(digests, Reporter())
        found = np.fromfile(shelf.folder / "tokens.bin", dtype=shelf._row)[rows]
        assert np.array_equal(found["normalised"], tokens.normalised.numpy())

    def attempt(rng: random.Random) -> str:
        shutil.rmtree(copy)
        shutil.copytree(good.folder, copy)
        name = rng.choice(("about.json", "rows.bin", "tokens.bin"))
        (copy / name).write_bytes(damaged((good.folder / name).read_bytes(), rng))
        return tried(read)

    return attempt


def cifar_pickles(folder: Path) -> Attempt:
    place = folder / "cifar-100-python"
    place.mkdir()
    table = {b"data": np.zeros((4, 3072), np.uint8), b"fine_labels": [0, 1, 0, 1]}
    contents = {
        "train": pickle.dumps(table, 2),
        "test": pickle.dumps(table, 4),
        "meta": pickle.dumps({b"fine_label_names": [b"a", b"b"]}, 2),
    }

    def attempt(rng: random.Random) -> str:
        chosen = rng.choice(list(contents))
        for name, content in contents.items():
            (place / name).write_bytes(damaged(content, rng) if name == chosen else content)
        return tried(lambda: load_dataset(DataSettings(name="cifar100", root=str(folder))))

    return attempt


def image_file(folder: Path) -> Attempt:
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 256, (24, 17, 3), dtype=np.uint8))
    contents: dict[str, bytes] = {}
    for kind in ("png", "jpeg", "gif", "bmp", "tiff", "webp", "ppm"):
        buffer = io.BytesIO()
        image.save(buffer, kind)
        contents[kind] = buffer.getvalue()

    def attempt(rng: random.Random) -> str:
        kind = rng.choice(sorted(contents))
        path = folder / f"image.{kind}"
        path.write_bytes(damaged(contents[kind], rng))
        images = FileImages([path], np.zeros(1, np.int64))

        def read() -> None:
            assert images.image(0).mode == "RGB" and len(images.digest(0)) == 16

        return tried(read)

    return attempt


def label_lists(folder: Path) -> Attempt:
    place = folder / "CUB_200_2011"
    lists = {
        "classes.txt": ["1 001.Auk", "2 002.Wren"],
        "images.txt": ["1 001.Auk/a.jpg", "2 002.Wren/b.jpg"],
        "image_class_labels.txt": ["1 1", "2 2"],
        "train_test_split.txt": ["1 0", "2 1"],
    }
    for name in ("001.Auk/a.jpg", "002.Wren/b.jpg"):
        write_image(place / "images" / name)

    def attempt(rng: random.Random) -> str:
        chosen = rng.choice(list(lists))
        for name, lines in lists.items():
            path = write_text(place / name, *lines)
            if name == chosen:
                path.write_bytes(damaged(path.read_bytes(), rng))
        return tried(lambda: load_dataset(DataSettings(name="cub", root=str(folder))))

    return attempt


def archive(folder: Path) -> Attempt:
    (source := folder / "data").mkdir()
    (source / "a.txt").write_text("a" * 999)
    with tarfile.open(folder / "a.tar.gz", "w:gz") as packed:
        packed.add(source, "data")
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.write(source / "a.txt", "data/a.txt")
    contents = [(folder / name).read_bytes() for name in ("a.tar.gz", "a.zip")]
    before = sorted(folder.iterdir())

    def attempt(rng: random.Random) -> str:
        path = folder / "bad"
        path.write_bytes(damaged(rng.choice(contents), rng))
        outcome = tried(lambda: unpack(path, folder / "out", 10_000))
        path.unlink()
        shutil.rmtree(folder / "out", ignore_errors=True)
        assert sorted(folder.iterdir()) == before
        return outcome

    return attempt


def class_names(folder: Path) -> Attempt:
    """Names from people go into tables, pages and the terminal, or are refused."""
    record = StageRecord(
        kind="fit",
        step=0,
        index=0,
        created="",
        version="",
        key="",
        num_known=0,
        names=["cat", "dog"],
        vertices=[None, None],
        trunk="",
    )
    before = Roster([record], Judgement())
    good = [b"tractor", "L\u00f6we".encode(), b"new-1", b" 3 ", b"=1+1"]

    def attempt(rng: random.Random) -> str:
        text = damaged(rng.choice(good), rng).decode("utf-8", "surrogateescape")

        def read() -> None:
            roster = Roster([record], Judgement().after(before.renamed("cat", text)))
            name, file = roster.names[0], file_name(f"{text}.png")
            assert visible(name) == name and name == name.strip()
            table = Predictions([file], np.zeros(1, np.int64), np.ones(1), roster, 0, [])
            (row,) = csv.DictReader(io.StringIO(table.csv().decode(), newline=""))
            for shown, meant in ((row["class"], name), (row["file"], file)):
                assert shown in (meant, f"'{meant}")
                assert not shown.lstrip(" ").startswith(("=", "+", "-", "@"))
            parquet = pyarrow.parquet.read_table(io.BytesIO(table.parquet())).to_pylist()
            assert (parquet[0]["class"], parquet[0]["file"]) == (name, file)
            page = write_page(Store(folder), [record], roster).read_text("utf-8")
            assert name in html.unescape(page) and "<script>=" not in page

        return tried(read)

    return attempt


def lists_of_names(folder: Path) -> Attempt:
    path = folder / "list.txt"
    ids = [str(number) for number in range(4)]

    def attempt(rng: random.Random) -> str:
        numbers = rng.random() < 0.5
        good = "\n".join(["# a list", *ids] if numbers else ["tractor  # red", "plough", ""])
        path.write_bytes(damaged(good.encode(), rng))
        if not numbers:
            return tried(lambda: read_names(path))
        protocol = ProtocolSettings(base_classes=4, base_list=str(path))
        return tried(lambda: class_order(10, protocol))

    return attempt


def given_features(folder: Path) -> Attempt:
    """Arrays, archives and tables that people bring."""
    values = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    labels = np.array(["cat", "dog", "owl"] * 3)
    np.save(folder / "x.npy", values)
    np.savez_compressed(folder / "x.npz", X=values, y=labels)
    lists = pyarrow.array(values.tolist(), pyarrow.list_(pyarrow.float32()))
    table = pyarrow.table({"feature": lists, "label": labels})
    pyarrow.parquet.write_table(table, folder / "x.parquet")
    contents = {name: (folder / name).read_bytes() for name in ("x.npy", "x.npz", "x.parquet")}

    def attempt(rng: random.Random) -> str:
        name = rng.choice(sorted(contents))
        path = folder / f"bad{Path(name).suffix}"
        path.write_bytes(damaged(contents[name], rng))

        def read() -> None:
            found = known_features(read_features(path).images.images)
            assert found is not None and np.isfinite(found.features).all()

        return tried(read)

    return attempt


def feature_store(folder: Path) -> Attempt:
    origin = Origin(backbone="b", fingerprint="f", reads="CLS", width=4)
    good = FeatureStore.ready(folder / "good", origin)
    values = np.random.default_rng(0).normal(size=(9, 4))
    good.append([f"{n}.png" for n in range(9)], [bytes([n]) * 16 for n in range(9)], values)
    names = [path.name for path in sorted(good.folder.iterdir())]
    shutil.copytree(good.folder, folder / "bad")

    def read() -> None:
        store = FeatureStore(folder / "bad")
        assert store.features().shape == (9, 4) and len(store.names()) == 9
        assert np.isfinite(store.features()).all() and len(store.find(good.digests())) == 9

    def attempt(rng: random.Random) -> str:
        name = rng.choice(names)
        (folder / "bad" / name).write_bytes(damaged((good.folder / name).read_bytes(), rng))
        outcome = tried(read)
        shutil.copy(good.folder / name, folder / "bad" / name)
        return outcome

    return attempt


def collections(folder: Path) -> Attempt:
    """Tar shards and lists of files."""
    write_image(folder / "a.png")
    with tarfile.open(folder / "x.tar", "w") as packed:
        packed.add(folder / "a.png", "a.png")
    (folder / "x.csv").write_text("file,label\na.png,cat\n")
    (folder / "x.txt").write_text("a.png\n")
    table = pyarrow.table({"file": ["a.png", "b.png"], "rest": [1, 2]})
    pyarrow.parquet.write_table(table, folder / "x.parquet")
    contents = {path.suffix: path.read_bytes() for path in folder.glob("x.*")}

    def attempt(rng: random.Random) -> str:
        suffix = rng.choice(sorted(contents))
        path = folder / f"bad{suffix}"
        path.write_bytes(damaged(contents[suffix], rng))

        def read() -> None:
            given = open_images([path], Reporter())
            for at in range(min(3, len(given))):
                assert given.images.image(at).mode == "RGB"

        return tried(read)

    return attempt


TARGETS: dict[str, Callable[[Path], Attempt]] = {
    "settings files": settings_file,
    "assignments": assignment,
    "results files": results_files,
    "checkpoints": checkpoint_file,
    "token banks": bank_shelf,
    "CIFAR pickles": cifar_pickles,
    "images": image_file,
    "label lists": label_lists,
    "archives": archive,
    "class names and tables": class_names,
    "lists of names": lists_of_names,
    "given features": given_features,
    "feature stores": feature_store,
    "tar shards and lists": collections,
}

"""The token bank against plain passes of the trunk: shared, resumed, torn and damaged."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from filelock import FileLock
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rich.filesize import decimal
from torch import Tensor
from transformers import ViTConfig, ViTModel

import goal.bank.bank
from goal.backbone.tokens import Tokens, TokenSource
from goal.backbone.trunk import BackboneSettings, Trunk, split
from goal.bank.bank import BankSettings, TokenBank, bank_root
from goal.bank.shelf import clear, decode, encode, inspect, row_dtype
from goal.common.errors import GoalError
from goal.common.progress import Reporter
from goal.data.images import ArrayImages
from goal.data.transforms import TransformSettings, augmented, clean

TRANSFORM = TransformSettings(image_size=8, resize=24)
TOKENS, WIDTH = 5, 16
ROW_BYTES = {
    "float16": TOKENS * WIDTH * 2 + WIDTH * 4,
    "float32": (TOKENS + 1) * WIDTH * 4,
    "int8": TOKENS * (WIDTH + 4) + WIDTH * 4,
}
RECORD_BYTES = 20
CLEAN = "clean"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads only slow so small a network down, tenfold on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make_trunk(seed: int = 0) -> Trunk:
    config = ViTConfig(
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=8,
        patch_size=4,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = ViTModel(config, add_pooling_layer=False)
    return split(model, BackboneSettings(), (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)).trunk


def make_images(count: int) -> ArrayImages:
    pixels = np.random.default_rng(1).integers(0, 256, (count, 12, 14, 3), dtype=np.uint8)
    return ArrayImages(pixels, np.zeros(count, dtype=np.int64))


def all_ids(images: ArrayImages) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.arange(len(images.labels))


class Recorder(Reporter):
    """Keeps what is said, in order, together with what the trunk does."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.spoke = threading.Event()

    def say(self, text: str) -> None:
        self.events.append(("say", text))
        self.spoke.set()

    def warn(self, text: str) -> None:
        self.events.append(("warn", text))

    def of(self, kind: str) -> list[str]:
        return [text for event, text in self.events if event == kind]


@dataclass
class Opened:
    """Tokens, how many images the trunk was run on to get them, and what was said."""

    tokens: TokenSource
    computed: int
    reporter: Recorder


@cache
def shared_trunk() -> Trunk:
    return make_trunk()


def open_bank(
    folder: Path,
    images: ArrayImages,
    ids: Any = None,
    *,
    trunk: Trunk | None = None,
    transform: TransformSettings = TRANSFORM,
    augmented_views: bool = True,
    reporter: Recorder | None = None,
    **values: Any,
) -> Opened:
    """Open a bank as a new run would; batches of one make equality exact."""
    reporter, trunk = reporter or Recorder(), trunk or shared_trunk()
    chosen = BankSettings(**{"folder": str(folder), "views": 2, "batch_size": 1, **values})
    bank = TokenBank(trunk, transform, chosen, reporter)
    computed: list[int] = []

    def count(_: Any, arguments: tuple[Tensor]) -> None:
        computed.append(len(arguments[0]))
        reporter.events.append(("trunk", str(len(arguments[0]))))

    hook = trunk.register_forward_pre_hook(count)
    try:
        tokens = bank.open(images, all_ids(images) if ids is None else ids, augmented_views)
    finally:
        hook.remove()
    return Opened(tokens, sum(computed), reporter)


def crop_of(images: ArrayImages, index: int, view: int | str, view_seed: int = 0) -> Any:
    """The pixels of a view, as the bank documents them."""
    if view == CLEAN:
        return clean(images.image(index), TRANSFORM)
    digest = int.from_bytes(images.digest(index), "big")
    sequence = np.random.SeedSequence([view_seed, int(view), digest])
    return augmented(images.image(index), TRANSFORM, np.random.default_rng(sequence))


def one_pass(trunk: Trunk, crop: Any) -> Tokens:
    tokens: Tokens = trunk(torch.from_numpy(crop)[None])
    return tokens


@cache
def one_shared_pass(content: bytes) -> Tokens:
    return one_pass(shared_trunk(), np.frombuffer(content, dtype=np.uint8).reshape(3, 8, 8).copy())


def plain(
    images: ArrayImages, ids: Any, view: int | str = CLEAN, trunk: Trunk | None = None, **seed: int
) -> Tokens:
    """A pass of the trunk over the crops of the images, one by one."""
    crops = [crop_of(images, int(index), view, **seed) for index in ids]
    if trunk is not None:
        return Tokens.cat([one_pass(trunk, crop) for crop in crops])
    return Tokens.cat([one_shared_pass(crop.tobytes()) for crop in crops])


def everything(source: TokenSource) -> Tokens:
    return source.clean(torch.arange(len(source)))


def same(given: Tokens, expected: Tokens, tolerance: float = 0.0) -> bool:
    return torch.allclose(
        given.normalised.float(), expected.normalised.float(), rtol=0, atol=tolerance
    ) and torch.allclose(given.cls, expected.cls, rtol=0, atol=tolerance)


def agrees(opened: Opened, images: ArrayImages, ids: Any = None) -> bool:
    """Whether the clean view and, with one banked view, that view equal plain passes (float16)."""
    ids = all_ids(images) if ids is None else ids
    view, second = opened.tokens.pair(torch.arange(len(ids)), torch.Generator())
    cleaned = plain(images, ids)
    return (
        same(everything(opened.tokens), cleaned, 2e-3)
        and same(second, cleaned, 2e-3)
        and same(view, plain(images, ids, 0), 2e-3)
    )


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# What the tokens are.


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_clean_tokens_equal_a_plain_pass_in_the_order_of_ids(tmp_path: Path, dtype: str) -> None:
    images = make_images(6)
    images.pixels[3] = images.pixels[0]
    ids = np.array([4, 0, 3, 0, 5, 2])
    opened = open_bank(tmp_path, images, ids, dtype=dtype, views=1)
    expected = plain(images, ids)
    given = everything(opened.tokens)
    assert len(opened.tokens) == len(given) == 6
    assert opened.computed == 4 * 2, "equal images share their rows"
    assert torch.equal(given.cls, expected.cls)
    if dtype == "float32":
        assert torch.equal(given.normalised, expected.normalised)
    else:
        error = (given.normalised - expected.normalised).abs()
        assert error.max() > 0
        assert (error <= expected.normalised.abs() * 2.0**-11 + 2.0**-24).all()

    positions = torch.tensor([5, 1, 1, 0])
    chosen = opened.tokens.clean(positions)
    assert torch.equal(chosen.cls, expected.cls[positions])
    assert torch.equal(chosen.normalised, given.normalised[positions])


def test_int8_tokens_are_127ths_of_each_tokens_peak(tmp_path: Path) -> None:
    images = make_images(3)
    given = everything(open_bank(tmp_path, images, dtype="int8", views=1).tokens)
    expected = plain(images, range(3))
    assert torch.equal(given.cls, expected.cls)
    errors = []
    for image in range(3):
        for token in range(TOKENS):
            values = expected.normalised[image, token].tolist()
            step = max(abs(value) for value in values) / 127
            for value, read in zip(values, given.normalised[image, token].tolist(), strict=True):
                assert read == pytest.approx(step * round(value / step), abs=1e-5 * step)
                errors.append(abs(read - value) / step)
    assert 0.4 < max(errors) <= 0.5 + 1e-4, "rounded to the nearest, never further"


def test_int8_keeps_tokens_of_zeros_and_of_any_size() -> None:
    layout = row_dtype({"tokens": 3, "width": 4, "dtype": "int8"})
    normalised = torch.tensor([[[0.0] * 4, [1e-20, -1e-20, 0, 0], [3e20, -1e20, 0, 1]]])
    read = decode(encode(Tokens(normalised, torch.ones(1, 4)), layout)).normalised
    assert torch.equal(read[0, 0], torch.zeros(4))
    peaks = normalised.abs().amax(dim=2, keepdim=True)
    assert bool(((read - normalised).abs() <= peaks / 127 * 0.501).all())


def test_a_row_that_is_gone_is_an_error_not_noise(tmp_path: Path) -> None:
    opened = open_bank(tmp_path, make_images(3), views=1)
    os.truncate(shelf_of(tmp_path, CLEAN) / "tokens.bin", ROW + 5)
    assert len(opened.tokens.clean(torch.tensor([0]))) == 1
    with pytest.raises(OSError, match=r"tokens\.bin was cut short"):
        opened.tokens.clean(torch.tensor([0, 1]))


def test_an_image_that_cannot_be_read_ends_the_build_and_keeps_what_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = make_images(4)
    monkeypatch.setattr(goal.bank.bank, "_CHUNK_BYTES", 0)

    def broken(index: int) -> Any:
        if index == 2:
            raise GoalError("Cannot read the image two")
        return ArrayImages.image(images, index)

    monkeypatch.setattr(images, "image", broken)
    with pytest.raises(GoalError, match="image two"):
        open_bank(tmp_path, images, views=1)
    monkeypatch.undo()
    again = open_bank(tmp_path, images, views=1)
    assert again.computed in (2 * 2, 2 * 2 + 2), "two images are left, at most one was lost"
    assert agrees(again, images)


def test_a_part_of_a_pair_is_that_part(tmp_path: Path) -> None:
    positions, mine = torch.tensor([4, 0, 2, 1, 3]), torch.tensor([3, 4, 4])
    for views in (1, 3, "fresh"):
        source = open_bank(tmp_path / str(views), make_images(5), views=views).tokens
        whole, rng = generator(0), generator(0)
        both = source.pair(positions, whole)
        part = source.pair(positions, rng, mine)
        for all_, some in zip(both, part, strict=True):
            assert same(some, Tokens(all_.normalised[mine], all_.cls[mine]), 1e-6)
        assert torch.equal(whole.get_state(), rng.get_state())


def test_batches_of_images_change_nothing_but_rounding(tmp_path: Path) -> None:
    images = make_images(7)
    opened = open_bank(tmp_path, images, batch_size=3, dtype="float32")
    assert same(everything(opened.tokens), plain(images, range(7)), 1e-5)


def test_pairs_are_two_different_views_as_documented(tmp_path: Path) -> None:
    images, views = make_images(4), 3
    opened = open_bank(tmp_path, images, views=views, view_seed=5, dtype="float32")
    expected = [plain(images, range(4), view, view_seed=5) for view in range(views)]
    cleaned = plain(images, range(4))
    rng, drawn = generator(0), set()
    for _ in range(30):
        pair = opened.tokens.pair(torch.arange(4), rng)
        for image in range(4):
            hits = [
                [
                    view
                    for view in range(views)
                    if torch.equal(tokens.normalised[image], expected[view].normalised[image])
                    and torch.equal(tokens.cls[image], expected[view].cls[image])
                ]
                for tokens in pair
            ]
            assert [len(found) for found in hits] == [1, 1], "one of the views, and only one"
            assert not any(torch.equal(tokens.cls[image], cleaned.cls[image]) for tokens in pair)
            drawn.add((image, hits[0][0], hits[1][0]))
    assert drawn == {(i, a, b) for i in range(4) for a in range(3) for b in range(3) if a != b}


def test_pairs_follow_their_generator_alone(tmp_path: Path) -> None:
    source = open_bank(tmp_path, make_images(5), views=4).tokens
    positions = torch.tensor([3, 0, 0, 4, 2, 1])
    before = torch.random.get_rng_state()
    first = source.pair(positions, generator(1))
    again = source.pair(positions, generator(1))
    other = source.pair(positions, generator(2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(same(a, b) for a, b in zip(first, again, strict=True))
    assert not all(same(a, b) for a, b in zip(first, other, strict=True))


def test_one_view_is_paired_with_the_clean_one(tmp_path: Path) -> None:
    images = make_images(3)
    opened = open_bank(tmp_path, images, views=1, dtype="float32")
    first, second = opened.tokens.pair(torch.tensor([2, 0]), generator(0))
    assert same(first, plain(images, [2, 0], 0))
    assert same(second, plain(images, [2, 0]))


def test_pairs_need_augmented_views(tmp_path: Path) -> None:
    opened = open_bank(tmp_path, make_images(2), augmented_views=False)
    assert opened.computed == 2
    with pytest.raises(ValueError, match="without augmented views"):
        opened.tokens.pair(torch.arange(2), generator(0))


def test_no_images_at_all(tmp_path: Path) -> None:
    opened = open_bank(tmp_path, make_images(2), np.empty(0, dtype=np.int64))
    assert len(opened.tokens) == opened.computed == 0
    assert everything(opened.tokens).normalised.shape == (0, TOKENS, WIDTH)


# What is computed, and what is found.

Step = tuple[list[int], bool, int]  # ids, augmented views?, how many


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    steps=st.lists(
        st.tuples(
            st.lists(st.integers(0, 5), min_size=1, max_size=8), st.booleans(), st.integers(1, 3)
        ),
        min_size=1,
        max_size=4,
    )
)
@example(steps=[([0, 1, 2, 3], True, 2), ([0, 1, 2, 3], True, 2)])  # the same again
@example(steps=[([0, 1, 2, 3], True, 2), ([3, 1], True, 2)])  # a subset
@example(steps=[([0, 1], True, 2), ([3, 0, 2, 1], True, 2)])  # a superset
@example(steps=[([0, 1, 2], True, 1), ([0, 1, 2], True, 3)])  # more views
@example(steps=[([0, 1, 2], False, 1), ([2, 4], True, 2)])  # clean for some, views for others
def test_only_what_is_missing_is_computed(steps: list[Step], tmp_path: Path) -> None:
    images = make_images(6)
    images.pixels[5] = images.pixels[4]
    known: set[tuple[int | str, bytes]] = set()
    with TemporaryDirectory(dir=tmp_path) as folder:
        for ids, augmented_views, count in steps:
            views = [CLEAN, *range(count)] if augmented_views else [CLEAN]
            wanted = {(view, images.digest(index)) for view in views for index in ids}
            opened = open_bank(
                Path(folder),
                images,
                np.array(ids),
                views=count,
                augmented_views=augmented_views,
                dtype="float32",
            )
            assert opened.computed == len(wanted - known)
            assert same(everything(opened.tokens), plain(images, ids))
            assert not opened.reporter.of("warn")
            known |= wanted


CHANGES: dict[str, Callable[[], dict[str, Any]]] = {
    "weights": lambda: {"trunk": make_trunk(seed=1)},
    "resize": lambda: {"transform": TransformSettings(image_size=8, resize=25)},
    "flip": lambda: {"transform": TransformSettings(image_size=8, resize=24, flip=False)},
    "dtype": lambda: {"dtype": "float16"},
    "view_seed": lambda: {"view_seed": 1},
}


@pytest.mark.parametrize("changed", CHANGES)
def test_other_circumstances_have_other_shelves(changed: str, tmp_path: Path) -> None:
    images, change = make_images(3), CHANGES[changed]()
    first = open_bank(tmp_path, images, dtype="float32")
    other = open_bank(tmp_path, images, **{"dtype": "float32", **change})
    expected = 3 * 2 if changed == "view_seed" else 3 * 3  # the clean view has no seed
    assert other.computed == expected
    if changed == "weights":
        assert same(everything(other.tokens), plain(images, range(3), trunk=change["trunk"]))
    if changed == "view_seed":
        one = open_bank(tmp_path, images, views=1, view_seed=1, dtype="float32")
        view, _ = one.tokens.pair(torch.arange(3), generator(0))
        assert same(view, plain(images, range(3), 0, view_seed=1))
    again = open_bank(tmp_path, images, dtype="float32")
    assert again.computed == 0
    assert same(everything(again.tokens), everything(first.tokens))


def test_where_the_bank_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("GOAL_CACHE", raising=False)
    assert bank_root(BankSettings()) == tmp_path / "home" / ".cache" / "goal" / "bank"
    monkeypatch.setenv("GOAL_CACHE", str(tmp_path / "cache"))
    assert bank_root(BankSettings()) == tmp_path / "cache" / "bank"
    assert bank_root(BankSettings(folder="~/mine")) == tmp_path / "home" / "mine" / "bank"


# Several processes, and processes that die.


def build_and_die(folder: Path) -> None:
    """Build a bank of 7 images and 2 views, and be killed in the sixth pass of the trunk."""
    calls = 0

    def die(*_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 1 + 6:  # the first one asks for the shape of the tokens
            os.kill(os.getpid(), signal.SIGKILL)

    shared_trunk().register_forward_pre_hook(die)
    open_bank(folder, make_images(7), views=1)


def build_at_once(folder: Path, me: Path, other: Path) -> None:
    """Open a bank together with another process, and save what is read from it."""
    shared_trunk().register_forward_pre_hook(lambda *_: time.sleep(0.005))  # a longer build
    me.touch()
    while not other.exists():
        time.sleep(0.0001)
    opened = open_bank(folder, make_images(12), views=1)
    view, cleaned = opened.tokens.pair(torch.arange(12), generator(0))
    tokens = [view.normalised, view.cls, cleaned.normalised, cleaned.cls]
    torch.save([tokens, opened.computed, opened.reporter.of("warn")], me.with_suffix(".pt"))


def fork(work: Callable[..., None], *paths: Path) -> int:
    """Do the work in a process of its own; return its id."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        torch.set_num_threads(1)
        goal.bank.bank._CHUNK_BYTES = 0  # a chunk per image
        work(*paths)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def family(folder: Path) -> None:
    """Run the processes of the tests below, write their exit codes to a file."""
    one, two = folder / "one", folder / "two"
    processes = {
        "killed": fork(build_and_die, folder / "killed"),
        "one": fork(build_at_once, folder / "shared", one, two),
        "two": fork(build_at_once, folder / "shared", two, one),
    }
    codes = {
        name: os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        for name, process in processes.items()
    }
    (folder / "codes.json").write_text(json.dumps(codes))


@dataclass
class Family:
    folder: Path
    codes: dict[str, int]
    complaints: str


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Family:
    """Real processes, forked from a new interpreter so that all share one slow import of torch."""
    folder = tmp_path_factory.mktemp("processes")
    source, here = Path(goal.__file__).parents[1], Path(__file__).parents[2]
    script = f"from tests.bank.test_bank import family, Path; family(Path({str(folder)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(source), str(here)])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return Family(folder, json.loads((folder / "codes.json").read_text()), done.stderr)


def test_a_killed_build_resumes(processes: Family) -> None:
    assert processes.codes["killed"] == -signal.SIGKILL, processes.complaints
    folder, images = processes.folder / "killed", make_images(7)
    kept = {shelf.about["view"]: shelf.rows for shelf in inspect(folder / "bank")}
    # The third clean row was handed to the writer, which may have died before it was written.
    assert kept in ({CLEAN: 2, 0: 2}, {CLEAN: 3, 0: 2})
    opened = open_bank(folder, images, views=1)
    assert opened.computed == 7 * 2 - sum(kept.values())
    assert not opened.reporter.of("warn")
    assert agrees(opened, images)
    assert open_bank(folder, images, views=1).computed == 0


def test_two_processes_at_once(processes: Family) -> None:
    assert (processes.codes["one"], processes.codes["two"]) == (0, 0), processes.complaints
    images, total = make_images(12), 0
    for name in ("one", "two"):
        tokens, computed, warnings = torch.load(processes.folder / f"{name}.pt")
        assert same(Tokens(*tokens[:2]), plain(images, range(12), 0), 2e-3)
        assert same(Tokens(*tokens[2:]), plain(images, range(12)), 2e-3)
        assert not warnings
        total += computed
    assert total == 12 * 2, "what one has made the other finds"


def test_a_shelf_that_another_process_is_making_is_left_alone(tmp_path: Path) -> None:
    """A shelf whose about.json is not there yet is damaged only if nobody holds the lock."""
    images, recorder = make_images(3), Recorder()
    open_bank(tmp_path, images)
    shelf = inspect(tmp_path / "bank")[0].folder
    content = (shelf / "about.json").read_bytes()
    result: list[Opened] = []
    waiting = threading.Thread(
        target=lambda: result.append(open_bank(tmp_path, images, reporter=recorder))
    )
    with FileLock(shelf.parent / ".lock"):
        (shelf / "about.json").unlink()
        waiting.start()
        assert recorder.spoke.wait(timeout=20)
        (shelf / "about.json").write_bytes(content)
    waiting.join(timeout=20)
    assert "waiting" in recorder.of("say")[0]
    assert result and result[0].computed == 0
    assert not recorder.of("warn")


# Torn and damaged files.


def shelf_of(folder: Path, view: int | str) -> Path:
    [found] = [shelf for shelf in inspect(folder / "bank") if shelf.about["view"] == view]
    return found.folder


def extend(path: Path, count: int) -> None:
    with path.open("ab") as stream:
        stream.write(b"\xa5" * count)


def shorten(path: Path, count: int) -> None:
    os.truncate(path, path.stat().st_size - count)


ROW = ROW_BYTES["float16"]
TORN: dict[str, tuple[Callable[[Path], None], int]] = {
    "data beyond the last record": (lambda at: extend(at / "tokens.bin", 3 * ROW + 7), 0),
    "half a record more": (lambda at: extend(at / "rows.bin", RECORD_BYTES // 2), 0),
    "half a record less": (lambda at: shorten(at / "rows.bin", RECORD_BYTES // 2), 1),
    "a record without data": (lambda at: extend(at / "rows.bin", RECORD_BYTES), 0),
    "half a row less": (lambda at: shorten(at / "tokens.bin", ROW // 2), 1),
    "two rows and a half less": (lambda at: shorten(at / "tokens.bin", 5 * ROW // 2), 3),
    "no data": (lambda at: shorten(at / "tokens.bin", 4 * ROW), 4),
    "no file of tokens": (lambda at: (at / "tokens.bin").unlink(), 4),
    "no file of rows": (lambda at: (at / "rows.bin").unlink(), 4),
}


@pytest.mark.parametrize("view", [CLEAN, 0])
@pytest.mark.parametrize("how", TORN)
def test_torn_files_are_repaired(how: str, view: int | str, tmp_path: Path) -> None:
    images = make_images(6)
    open_bank(tmp_path, images, range(4), views=1)
    tear, lost = TORN[how]
    tear(shelf_of(tmp_path, view))
    opened = open_bank(tmp_path, images, range(4), views=1)
    assert opened.computed == lost
    assert agrees(opened, images, range(4))
    larger = open_bank(tmp_path, images, views=1)
    assert larger.computed == 2 * 2
    assert agrees(larger, images)
    for shelf in inspect(tmp_path / "bank"):
        assert (shelf.folder / "rows.bin").stat().st_size == 6 * RECORD_BYTES
        assert (shelf.folder / "tokens.bin").stat().st_size == 6 * ROW
    assert open_bank(tmp_path, images, views=1).computed == 0


def flip(path: Path, offset: int, bits: int = 0x10) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= bits
    path.write_bytes(content)


FLIPS = {
    "normalised token": ("tokens.bin", 2 * ROW + 33),
    "raw CLS": ("tokens.bin", 3 * ROW - 1),
    "digest": ("rows.bin", 2 * RECORD_BYTES + 5),
    "checksum": ("rows.bin", 3 * RECORD_BYTES - 1),
}


@pytest.mark.parametrize("view", [CLEAN, 0])
@pytest.mark.parametrize("where", FLIPS)
def test_a_damaged_row_is_found_and_computed_again(
    where: str, view: int | str, tmp_path: Path
) -> None:
    images = make_images(5)
    open_bank(tmp_path, images, views=1)
    name, offset = FLIPS[where]
    shelf = shelf_of(tmp_path, view)
    flip(shelf / name, offset)

    others = [0, 1, 3, 4]
    unaware = open_bank(tmp_path, images, others, views=1)
    assert unaware.computed == 0 and not unaware.reporter.of("warn")
    assert agrees(unaware, images, others)

    opened = open_bank(tmp_path, images, views=1)
    assert opened.computed == 1
    assert agrees(opened, images)
    if where != "digest":  # a row under another digest is another image's, and merely not found
        [warning] = opened.reporter.of("warn")
        assert str(shelf / "tokens.bin") in warning and "row 2" in warning

    again = open_bank(tmp_path, images, views=1)
    assert again.computed == 0 and not again.reporter.of("warn")
    assert agrees(again, images)


def test_a_damaged_description_is_found(tmp_path: Path) -> None:
    images = make_images(3)
    open_bank(tmp_path, images, views=1)
    shelf = shelf_of(tmp_path, 0)
    about = (shelf / "about.json").read_bytes()
    flip(shelf / "about.json", about.index(b"resize="), bits=0x01)
    opened = open_bank(tmp_path, images, views=1)
    [warning] = opened.reporter.of("warn")
    assert str(shelf) in warning
    assert opened.computed <= 3, "the other shelf is whole"
    assert agrees(opened, images)
    assert (shelf / "about.json").read_bytes() == about
    assert open_bank(tmp_path, images, views=1).computed == 0


def test_no_flipped_byte_gives_wrong_tokens(tmp_path: Path) -> None:
    images, rng = make_images(3), np.random.default_rng(2)
    open_bank(tmp_path / "whole", images, views=1)
    files = [path for path in sorted((tmp_path / "whole").rglob("*.*")) if path.stat().st_size > 0]
    files = [path for path in files if path.is_file()]
    assert {path.name for path in files} == {"about.json", "rows.bin", "tokens.bin"}
    for path in files * 4:
        shutil.copytree(tmp_path / "whole", tmp_path / "copy")
        damaged = tmp_path / "copy" / path.relative_to(tmp_path / "whole")
        offset, bits = int(rng.integers(path.stat().st_size)), int(rng.integers(1, 256))
        flip(damaged, offset, bits)
        opened = open_bank(tmp_path / "copy", images, views=1)
        assert agrees(opened, images), (path.name, offset, bits)
        assert opened.computed <= (3 if path.name == "about.json" else 1)
        assert open_bank(tmp_path / "copy", images, views=1).computed == 0
        shutil.rmtree(tmp_path / "copy")


# Space.


def data_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("tokens.bin"))


@pytest.mark.parametrize("dtype", ROW_BYTES)
def test_the_size_is_announced_before_building(dtype: str, tmp_path: Path) -> None:
    images = make_images(6)
    opened = open_bank(tmp_path, images, dtype=dtype)
    [announcement] = opened.reporter.of("say")
    assert opened.reporter.events[0] == ("say", announcement), "before the first trunk pass"
    size = data_bytes(tmp_path)
    assert size == 6 * 3 * ROW_BYTES[dtype]
    assert f"{size / 1000:.1f} kB" in announcement and str(tmp_path) in announcement

    more = open_bank(tmp_path, images, dtype=dtype, views=3)
    growth = data_bytes(tmp_path) - size
    assert decimal(growth) in more.reporter.of("say")[0], "only what is missing"
    assert not open_bank(tmp_path, images, dtype=dtype, views=3).reporter.events


def test_a_full_disk_is_refused_before_building(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, recorder = make_images(4), Recorder()
    open_bank(tmp_path, images, range(2), views=1)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1234))
        assert open_bank(tmp_path, images, range(2), views=1).computed == 0
        with pytest.raises(GoalError) as caught:
            open_bank(tmp_path, images, views=1, reporter=recorder)
    text = str(caught.value)
    assert "1.2 kB free" in text and f"{2 * 2 * ROW} bytes" in text and str(tmp_path) in text
    assert all(word in text for word in ("bank.views", "fresh", "bank.folder", "goal bank clear"))
    assert not recorder.of("trunk")
    opened = open_bank(tmp_path, images, views=1)
    assert opened.computed == 2 * 2 and not opened.reporter.of("warn")
    assert agrees(opened, images)


def test_the_budget_holds_for_the_whole_bank(tmp_path: Path) -> None:
    images, recorder = make_images(4), Recorder()
    budget = 6000e-9
    open_bank(tmp_path, images, range(2), views=1, budget_gb=budget)
    open_bank(tmp_path, images, range(2), views=1, budget_gb=budget, trunk=make_trunk(seed=1))
    size = sum(shelf.size for shelf in inspect(tmp_path / "bank"))
    tight = (size + 100) / 1e9
    with pytest.raises(GoalError) as caught:
        open_bank(tmp_path, images, views=1, budget_gb=tight, reporter=recorder)
    text = str(caught.value)
    assert "budget" in text and str(tight) in text and "goal bank clear" in text
    assert not recorder.of("trunk")
    assert open_bank(tmp_path, images, range(2), views=1, budget_gb=tight).computed == 0
    enough = (size + 2 * 2 * ROW) / 1e9 + 1e-9
    opened = open_bank(tmp_path, images, views=1, budget_gb=enough)
    assert opened.computed == 2 * 2
    assert agrees(opened, images)


def obstructed(
    kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch, images: ArrayImages
) -> None:
    """Make the bank's folder impossible to write to, also for root."""
    original: Callable[..., Any] = Path.mkdir if kind == "mkdir" else Path.open

    def refuse(self: Path, *arguments: Any, **options: Any) -> Any:
        if folder in self.parents and (kind == "mkdir" or "b" in str(arguments)):
            raise PermissionError(13, "Permission denied", str(self))
        return original(self, *arguments, **options)

    if kind == "a file in the way":
        folder.write_text("not a folder")
    elif kind == "open":
        open_bank(folder, images, range(1))
        monkeypatch.setattr(Path, kind, refuse)
    else:
        monkeypatch.setattr(Path, kind, refuse)


@pytest.mark.parametrize("kind", ["mkdir", "open", "a file in the way"])
def test_a_folder_that_cannot_be_written_is_named(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, images = tmp_path / "cache", make_images(2)
    obstructed(kind, folder, monkeypatch, images)
    with pytest.raises(GoalError) as caught:
        open_bank(folder, images)
    text = str(caught.value)
    assert str(folder) in text and ("bank.folder" in text or "GOAL_CACHE" in text)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to read-only folders")
def test_a_read_only_folder_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(GoalError, match=str(tmp_path)):
            open_bank(tmp_path / "cache", make_images(2))
    finally:
        tmp_path.chmod(0o700)


# Looking after the bank.


def test_inspect_lists_the_shelves(tmp_path: Path) -> None:
    assert inspect(tmp_path / "bank") == []
    open_bank(tmp_path, make_images(3), views=1)
    shelves = inspect(tmp_path / "bank")
    assert {shelf.about["view"] for shelf in shelves} == {CLEAN, 0}
    for shelf in shelves:
        assert shelf.rows == 3
        assert shelf.about["trunk"] == shared_trunk().fingerprint()
        assert shelf.about["transform"].count("24") == 1
        on_disk = sum(path.stat().st_size for path in shelf.folder.iterdir())
        assert shelf.size == on_disk > 3 * (ROW + RECORD_BYTES)
    (shelves[0].folder / "about.json").write_text("{")
    assert [shelf.about for shelf in inspect(tmp_path / "bank")] == [{}, shelves[1].about]


def whole_name(trunk: Trunk) -> str:
    return trunk.fingerprint()


def name_of_folder(trunk: Trunk) -> str:
    return trunk.fingerprint()[:16]


def first_letters(trunk: Trunk) -> str:
    return trunk.fingerprint()[:6]


@pytest.mark.parametrize("name", [whole_name, name_of_folder, first_letters])
def test_clear_deletes_the_shelves_of_the_named_trunk(
    name: Callable[[Trunk], str], tmp_path: Path
) -> None:
    images, mine, other, root = make_images(2), shared_trunk(), make_trunk(1), tmp_path / "bank"
    open_bank(tmp_path, images)
    open_bank(tmp_path, images, trunk=other)
    assert mine.fingerprint()[:6] != other.fingerprint()[:6]
    size = sum(shelf.size for shelf in inspect(root) if shelf.about["trunk"] == mine.fingerprint())
    assert clear(root, name(mine)) == size > 0
    assert {shelf.about["trunk"] for shelf in inspect(root)} == {other.fingerprint()}
    assert open_bank(tmp_path, images, trunk=other).computed == 0
    assert open_bank(tmp_path, images).computed == 2 * 3


def test_clear_leaves_foreign_files_alone(tmp_path: Path) -> None:
    images, root = make_images(2), tmp_path / "bank"
    open_bank(tmp_path, images)
    trunk = inspect(root)[0].folder.parent
    foreign = [root / "notes.txt", trunk / "notes.txt", trunk / "mine" / "a.txt", root / "x" / "y"]
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        path.write_text("keep me")
    assert clear(root, "no-such-trunk") == 0
    assert len(inspect(root)) == 3
    assert clear(root) > 0
    assert inspect(root) == []
    assert all(path.read_text() == "keep me" for path in foreign)
    assert open_bank(tmp_path, images).computed == 2 * 3


# Fresh views.

FEW_CROPS = TransformSettings(image_size=8, resize=9)


def every_crop(images: ArrayImages, index: int) -> Iterator[Tokens]:
    """Tokens of all crops and their mirror images."""
    resized = images.image(index).resize((10, 9), resample=3)
    pixels = np.asarray(resized).transpose(2, 0, 1)
    for top in range(2):
        for left in range(3):
            crop = pixels[:, top : top + 8, left : left + 8]
            for mirrored in (crop, crop[:, :, ::-1]):
                yield one_shared_pass(mirrored.tobytes())


def test_fresh_tokens_are_those_of_new_random_crops(tmp_path: Path) -> None:
    images, ids = make_images(5), np.array([4, 0, 2])
    source = open_bank(tmp_path, images, ids, views="fresh", transform=FEW_CROPS).tokens
    positions = torch.tensor([2, 0, 2])
    drawn = set()
    rng = generator(0)
    for _ in range(20):
        for tokens in source.pair(positions, rng):
            assert len(tokens) == 3
            for row, index in enumerate((2, 4, 2)):
                hits = [
                    number
                    for number, candidate in enumerate(every_crop(images, index))
                    if torch.allclose(tokens.normalised[row], candidate.normalised[0], atol=1e-5)
                    and torch.allclose(tokens.cls[row], candidate.cls[0], atol=1e-5)
                ]
                assert len(hits) == 1
                drawn.add(hits[0])
    assert drawn == set(range(12))


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_fresh_tokens_leave_no_trace(batch_size: int, tmp_path: Path) -> None:
    images, ids = make_images(5), np.array([4, 0, 0, 2])
    opened = open_bank(tmp_path / "cache", images, ids, views="fresh", batch_size=batch_size)
    source, positions = opened.tokens, torch.arange(4)
    assert len(source) == 4 and opened.computed == 0
    assert same(everything(source), plain(images, ids), 1e-5)
    rng = generator(1)
    first, second = source.pair(positions, rng), source.pair(positions, rng)
    again = source.pair(positions, generator(1))
    assert all(same(a, b) for a, b in zip(first, again, strict=True))
    assert not any(same(a, b) for a, b in zip(first, second, strict=True))
    assert not same(*first)
    assert not (tmp_path / "cache").exists()

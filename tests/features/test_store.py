"""The feature store: what is written comes back, whatever is killed or damaged when."""

import hashlib
import io
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow
import pyarrow.parquet
import pytest

from goal.common.errors import GoalError
from goal.features.origin import Origin
from goal.features.store import CONTENTS, FeatureStore, verify_all
from goal.storage import files
from goal.storage.manifest import Findings
from goal.storage.seal import write_sealed

ORIGIN = Origin(backbone="tiny", fingerprint="f" * 32, reads="CLS", width=6)


def digests(first: int, count: int) -> list[bytes]:
    return [hashlib.sha256(str(n).encode()).digest()[:16] for n in range(first, first + count)]


def features(first: int, count: int) -> npt.NDArray[np.float16]:
    return np.random.default_rng(first).normal(size=(count, 6)).astype(np.float16)


def filled(folder: Path) -> FeatureStore:
    store = FeatureStore.ready(folder, ORIGIN)
    store.append([f"a{n}" for n in range(5)], digests(0, 5), features(0, 5))
    store.append([f"b{n}" for n in range(3)], digests(5, 3), features(5, 3))
    return store


def test_rows_come_back_in_order_and_by_digest(tmp_path: Path) -> None:
    filled(tmp_path / "s")
    store = FeatureStore(tmp_path / "s")
    whole = np.concatenate([features(0, 5), features(5, 3)])
    assert len(store) == 8
    assert np.array_equal(store.features(), whole)
    assert store.names() == ["a0", "a1", "a2", "a3", "a4", "b0", "b1", "b2"]
    assert store.digests() == digests(0, 8)
    chosen = np.array([7, 0, 5, 5, 4])
    assert np.array_equal(store.features(chosen), whole[chosen])
    wanted = [digests(6, 1)[0], b"\0" * 16, digests(0, 1)[0]]
    assert store.find(wanted).tolist() == [6, -1, 0]
    assert store.find([]).tolist() == []


def test_anybody_can_read_a_shard(tmp_path: Path) -> None:
    filled(tmp_path / "s")
    table = pyarrow.parquet.read_table(tmp_path / "s" / "shard-00000.parquet")
    assert table.column_names == ["name", "digest", "feature"]
    found = np.array(table.column("feature").to_pylist(), dtype=np.float16)
    assert np.array_equal(found, features(0, 5))


def test_disk_per_image_is_two_bytes_a_number_and_less_than_a_kilobyte(tmp_path: Path) -> None:
    width, count = 384, 500
    store = FeatureStore.ready(tmp_path / "s", ORIGIN.model_copy(update={"width": width}))
    values = np.random.default_rng(0).normal(size=(count, width))
    names = [f"a/rather/long/folder/photograph-{n:08d}.jpeg" for n in range(count)]
    store.append(names, digests(0, count), values)
    size = sum(path.stat().st_size for path in (tmp_path / "s").iterdir())
    assert size < count * (2 * width + 1024)


def test_a_store_of_another_backbone_or_width_is_refused(tmp_path: Path) -> None:
    filled(tmp_path / "s")
    other = ORIGIN.model_copy(update={"fingerprint": "0" * 32, "backbone": "other"})
    with pytest.raises(GoalError, match="made by tiny, those expected by other"):
        FeatureStore.ready(tmp_path / "s", other)
    wide = ORIGIN.model_copy(update={"width": 7})
    with pytest.raises(GoalError, match=r"6 numbers each .* expected are 7"):
        FeatureStore.ready(tmp_path / "s", wide)
    with pytest.raises(GoalError, match="goal embed"):
        FeatureStore(tmp_path)


def test_a_writer_killed_between_shard_and_list_loses_that_shard_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(tmp_path / "s")
    write = files.write_text

    def killed(path: Path, content: str) -> None:
        if path.name == CONTENTS:
            raise KeyboardInterrupt
        write(path, content)

    monkeypatch.setattr(files, "write_text", killed)
    with pytest.raises(KeyboardInterrupt):
        store.append(["c"], digests(8, 1), features(8, 1))
    monkeypatch.undo()
    again = FeatureStore(tmp_path / "s")
    assert len(again) == 8
    again.append(["d"], digests(9, 1), features(9, 1))
    last = FeatureStore(tmp_path / "s")
    assert last.names()[-1] == "d" and np.array_equal(last.features()[-1:], features(9, 1))


def test_every_flipped_byte_is_found(tmp_path: Path) -> None:
    filled(tmp_path / "s")
    clean = Findings()
    verify_all(tmp_path, clean)
    assert not clean.problems and len(clean.checked) == 3
    for path in sorted((tmp_path / "s").iterdir()):
        content = path.read_bytes()
        for place in range(0, len(content), max(1, len(content) // 40)):
            damaged = bytearray(content)
            damaged[place] ^= 1
            path.write_bytes(bytes(damaged))
            found = Findings()
            verify_all(tmp_path, found)
            assert found.problems, (path.name, place)
        path.write_bytes(content)


def test_a_shard_that_is_gone_or_short_is_an_error(tmp_path: Path) -> None:
    filled(tmp_path / "s")
    shard = tmp_path / "s" / "shard-00001.parquet"
    content = shard.read_bytes()
    shard.write_bytes(content[:-1])
    with pytest.raises(GoalError, match="are not those of 3 features"):
        FeatureStore(tmp_path / "s").features()
    shard.unlink()
    with pytest.raises(GoalError, match="Cannot read"):
        FeatureStore(tmp_path / "s").features()
    (tmp_path / "elsewhere").write_bytes(content)
    shard.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(GoalError, match="leads out of its folder"):
        FeatureStore(tmp_path / "s").features()


def hostile(folder: Path, content: bytes, rows: int, width: int = 6) -> FeatureStore:
    """A store of one shard of a stranger's, listed and sealed as if it were in order."""
    folder.mkdir(exist_ok=True)
    (folder / "shard-00000.parquet").write_bytes(content)
    shard = {
        "name": "shard-00000.parquet",
        "rows": rows,
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    origin = ORIGIN.model_copy(update={"width": width}).model_dump()
    write_sealed(folder / CONTENTS, {"format": 1, "origin": origin, "shards": [shard]})
    return FeatureStore(folder)


def shard(width: int = 6, **columns: object) -> bytes:
    listed = {
        "name": ["a", "b"],
        "digest": digests(0, 2),
        "feature": pyarrow.array(
            np.ones((2, width), np.float16).tolist(), pyarrow.list_(pyarrow.float16(), width)
        ),
    }
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({**listed, **columns}), buffer)
    return buffer.getvalue()


def test_what_a_strangers_shard_holds_is_looked_at(tmp_path: Path) -> None:
    assert hostile(tmp_path / "s", shard(), 2).features().tolist() == [[1.0] * 6] * 2
    with pytest.raises(GoalError, match=r"1,000,000,000,000 features"):  # before room is made
        hostile(tmp_path / "s", shard(), 10**12).features()
    with pytest.raises(GoalError, match="features are not 6 numbers of 16 bits"):
        hostile(tmp_path / "s", shard(width=5), 2).features()
    with pytest.raises(GoalError, match="does not have 1 values"):
        hostile(tmp_path / "s", shard(), 1).features()
    for value in (np.nan, np.inf):
        bad = pyarrow.array([[value] * 6] * 2, pyarrow.list_(pyarrow.float16(), 6))
        with pytest.raises(GoalError, match="not finite"):
            hostile(tmp_path / "s", shard(feature=bad), 2).features()
    for column in ([b"short", b"shorter"], [None, b"0" * 16], [1, 2]):
        with pytest.raises(GoalError, match=r"damaged|Cannot read"):
            hostile(tmp_path / "s", shard(digest=column), 2).find(digests(0, 1))
    with pytest.raises(GoalError, match=r"origin\.width"):
        hostile(tmp_path / "s", shard(), 2, width=10**6)
    names = hostile(tmp_path / "s", shard(name=["a\x1b[2J", "b\u202e"]), 2).names()
    assert names == ["a\\x1b[2J", "b\\u202e"]


def test_a_folder_of_other_things_does_not_become_a_store(tmp_path: Path) -> None:
    (tmp_path / "shard-00000.parquet").write_text("precious")
    with pytest.raises(GoalError, match=r"is not empty .* shard-00000\.parquet"):
        FeatureStore.ready(tmp_path, ORIGIN)
    assert [path.name for path in tmp_path.iterdir()] == ["shard-00000.parquet"]

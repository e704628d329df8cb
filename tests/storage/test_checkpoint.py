"""Checkpoints come back as they were saved, and damage of every kind is refused."""

import io
import random
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from goal.common.errors import GoalError
from goal.storage import checkpoint

STATE: dict[str, Any] = {
    "model": {"weight": torch.arange(6.0).reshape(2, 3), "owners": torch.tensor([2, -1, 0])},
    "optimiser": {0: torch.tensor(0.5), 1: None},
    "epoch": 3,
    "lr": 1e-4,
    "done": True,
    "best": None,
    "name": "goal",
    "history": [{"loss": 2.5, "terms": []}],
    "extra": {},
    "shape": (2, 3),
}


def same(left: Any, right: Any) -> bool:
    """Equal in type, order, keys, shapes and bits."""
    if type(left) is not type(right):
        return False
    if isinstance(left, Tensor):
        kinds = left.dtype == right.dtype and left.shape == right.shape
        return kinds and torch.equal(left.nan_to_num(7), right.nan_to_num(7))
    if isinstance(left, dict):
        return same(list(left), list(right)) and same([*left.values()], [*right.values()])
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    return repr(left) == repr(right)


keys = st.text(max_size=3) | st.integers(0, 3)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats()
    | st.text(max_size=4)
    | st.lists(st.floats(width=32), max_size=3).map(torch.tensor)
    | st.integers(0, 9).map(torch.tensor)
)
trees = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3)
)


@settings(deadline=None, max_examples=30)
@given(state=st.dictionaries(st.text(max_size=3), trees, max_size=4))
def test_any_tree_comes_back_as_it_was(
    state: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "tree.pt"
    checkpoint.save(path, state)
    assert same(checkpoint.load(path), state)
    assert same(torch.load(path, weights_only=True)["state"], state)


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.uint8, torch.bool],
    ids=str,
)
def test_every_kind_of_tensor_comes_back(tmp_path: Path, dtype: torch.dtype) -> None:
    tensor = torch.tensor([[1, 0, 3], [0, 1, 2]]).to(dtype)
    state = {"plain": tensor, "turned": tensor.T, "empty": tensor[:0], "one": tensor[0, 0]}
    checkpoint.save(tmp_path / "a.pt", state)
    assert same(checkpoint.load(tmp_path / "a.pt"), state)


def test_parameters_and_generators_resume(tmp_path: Path) -> None:
    rng = torch.Generator().manual_seed(3)
    layer = torch.nn.Linear(2, 2)
    checkpoint.save(tmp_path / "a.pt", {"layer": layer.state_dict(), "rng": rng.get_state()})
    state = checkpoint.load(tmp_path / "a.pt")
    other = torch.Generator()
    other.set_state(state["rng"])
    assert torch.equal(torch.rand(3, generator=rng), torch.rand(3, generator=other))
    torch.nn.Linear(2, 2).load_state_dict(state["layer"])


NEAR_TWINS: list[tuple[dict[Any, Any], dict[Any, Any]]] = [
    ({"a": 1.0}, {"a": 1}),
    ({"a": 1}, {"a": True}),
    ({"a": "1"}, {"a": 1}),
    ({"a": torch.tensor([1, 2])}, {"a": torch.tensor([[1, 2]])}),
    ({"a": torch.zeros(2)}, {"a": torch.zeros(2, dtype=torch.int32)}),
    ({"a": torch.tensor(0.0)}, {"a": torch.tensor(-0.0)}),
    ({"a": [1, 2]}, {"a": [12]}),
    ({"a1": 2}, {"a": 12}),
    ({"a": {"b": 1}}, {"a/b": 1}),
    ({"a": []}, {"a": {}}),
    ({"a": {}}, {}),
    ({"a": [1]}, {"a": (1,)}),
    ({"a": [1]}, {"a": {0: 1}}),
    ({0: 1}, {"0": 1}),
]


@pytest.mark.parametrize(("left", "right"), NEAR_TWINS, ids=lambda tree: str(tree)[:24])
def test_a_near_twin_cannot_take_the_place_of_a_state(
    tmp_path: Path, left: dict[Any, Any], right: dict[Any, Any]
) -> None:
    path = tmp_path / "a.pt"
    checkpoint.save(path, left)
    torch.save({**torch.load(path, weights_only=True), "state": right}, path)
    with pytest.raises(GoalError, match="is damaged"):
        checkpoint.load(path)


def outcome(path: Path, content: bytes) -> str:
    """How loading the damaged content ends: `refused`, `same`, or whatever else went wrong."""
    path.write_bytes(content)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch wonders about unusual pickle protocols
            state = checkpoint.load(path)
    except GoalError:
        return "refused"
    except Exception as error:
        return repr(error)
    return "same" if same(state, STATE) else f"silently different: {state}"


def test_a_flipped_byte_never_passes_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    checkpoint.save(path, STATE)
    content = path.read_bytes()
    assert outcome(path, content) == "same"
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        pickled = next(info for info in archive.infolist() if info.filename.endswith("data.pkl"))
    # All of the pickle, where most meaning is; a sample of headers, padding and tensors.
    rng = random.Random(0)
    inside = range(pickled.header_offset, pickled.header_offset + pickled.file_size + 150)
    positions = [*inside, *rng.sample(range(len(content)), 100)]
    seen: dict[str, list[tuple[int, int]]] = {}
    for position in positions:
        mask = 1 << rng.choice([0, 1, 2, 3, 4, 5, 5, 5, 5, 6, 7])  # bit 5 turns [] into {}
        damaged = bytearray(content)
        damaged[position] ^= mask
        seen.setdefault(outcome(path, bytes(damaged)), []).append((position, mask))
    assert len(seen["refused"]) > 100
    assert not {what: where[:3] for what, where in seen.items() if what not in ("refused", "same")}


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    checkpoint.save(path, STATE)
    content = path.read_bytes()
    lengths = [0, 1, 4, *range(10, len(content), 41), len(content) - 1]
    assert {outcome(path, content[:length]) for length in lengths} == {"refused"}


def test_a_changed_number_is_told_from_its_checksum(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    checkpoint.save(path, STATE)
    content = torch.load(path, weights_only=True)
    content["state"]["model"]["weight"][0, 0] = 1
    torch.save(content, path)
    with pytest.raises(GoalError, match=r"a\.pt is damaged: its checksum is wrong\. Restore"):
        checkpoint.load(path)


def test_a_future_format_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    checkpoint.save(path, STATE)
    content = torch.load(path, weights_only=True)
    torch.save({**content, "format": 99}, path)
    with pytest.raises(GoalError, match="has format 99; this version reads format 1"):
        checkpoint.load(path)


@pytest.mark.parametrize(
    "content", [torch.zeros(3), [1, 2], {"state": {}}, 5, "text"], ids=lambda c: type(c).__name__
)
def test_a_file_that_is_no_checkpoint(tmp_path: Path, content: Any) -> None:
    torch.save(content, tmp_path / "a.pt")
    with pytest.raises(GoalError, match=r"a\.pt is damaged"):
        checkpoint.load(tmp_path / "a.pt")


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "no.pt", tmp_path):
        with pytest.raises(GoalError, match=f"Cannot read {path}"):
            checkpoint.load(path)


class Bomb:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.marker,)


def test_code_in_a_checkpoint_is_refused_and_not_run(tmp_path: Path) -> None:
    marker, path = tmp_path / "ran", tmp_path / "a.pt"
    torch.save({"format": 1, "digest": "", "state": {"a": Bomb(marker)}}, path)
    torch.load(path, weights_only=False)
    assert marker.exists()  # the bomb is a real one
    marker.unlink()
    with pytest.raises(GoalError, match="is damaged"):
        checkpoint.load(path)
    assert not marker.exists()


def test_saving_over_a_checkpoint_leaves_one_file(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    checkpoint.save(path, STATE)
    checkpoint.save(path, {"epoch": 4})
    assert checkpoint.load(path) == {"epoch": 4}
    assert [*tmp_path.iterdir()] == [path]


def test_a_state_that_cannot_be_written_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    checkpoint.save(path, {"epoch": 4})
    with pytest.raises(Exception, match="lambda"):
        checkpoint.save(path, {"bad": lambda: None})
    assert checkpoint.load(path) == {"epoch": 4}
    assert [*tmp_path.iterdir()] == [path]

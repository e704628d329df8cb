"""What a person says of images and classes: it holds, it teaches, and it can be taken back."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from goal.common.errors import GoalError
from goal.data.own_images import ImageSet
from goal.models.history import Action
from goal.models.model import Model
from goal.models.table import Table
from goal.storage import checkpoint
from tests.models.planted import labelled_model, week

COUNTS = {**dict.fromkeys(range(4), 12), 4: 60, 5: 50}


def labels(counts: dict[int, int]) -> npt.NDArray[np.int64]:
    return np.repeat(list(counts), list(counts.values()))


class World:
    """A model that knows classes 0 to 3 and has seen a week with 4 and 5 in it."""

    def __init__(self, root: Path, new: int) -> None:
        self.root = root
        self.model = labelled_model(root)
        self.week = week(root / "week.npz", COUNTS, seed=1)
        self.model.discover(self.week, new)
        digests = self.week.contents({})
        self.truth = dict(zip(digests, labels(COUNTS).tolist(), strict=True))
        self.fresh = week(root / "fresh.npz", dict.fromkeys(range(6), 40), seed=2)

    def copy(self, root: Path) -> "World":
        other = object.__new__(World)
        vars(other).update(vars(self))
        other.root, other.model = root, Model(root / "model")
        shutil.copytree(self.root / "model", root / "model")
        return other

    def of(self, label: int, count: int | None = None) -> list[str]:
        """Some images of the week that are of a class in truth."""
        return [d.hex() for d, one in self.truth.items() if one == label][:count]

    def table(self) -> dict[bytes, int]:
        found = self.model.table()
        return dict(zip(found.digests, found.class_id.tolist(), strict=True))

    def classes(self, label: int) -> set[int]:
        """Classes in which the week's images of a true class are."""
        found = self.table()
        return {found[digest] for digest, one in self.truth.items() if one == label}

    def predicted(self) -> npt.NDArray[np.int64]:
        return self.model.predict(self.fresh).ids


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> World:
    """4 and 5 were taken for one class."""
    return World(tmp_path_factory.mktemp("mixed"), 1)


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> World:
    """4 and 5 were found, as two classes."""
    return World(tmp_path_factory.mktemp("apart"), 2)


def memory_of(model: Model) -> dict[str, torch.Tensor]:
    state = model.learner().method.state_dict()
    return {**state, "counted": model.learner().counter.means}


def assert_same(first: Model, second: Model, given: ImageSet) -> None:
    """The very same model, bit for bit."""
    ours, theirs = memory_of(first), memory_of(second)
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name
    mine, others = first.predict(given, 0.01), second.predict(given, 0.01)
    assert mine.csv() == others.csv()
    assert np.array_equal(mine.confidence, others.confidence)
    left, right = first.table(), second.table()
    for name in Table.__dataclass_fields__:
        assert np.array_equal(getattr(left, name), getattr(right, name)), name


# -- what they teach ------------------------------------------------------------------------------


def test_a_few_labelled_images_find_the_others(mixed: World, tmp_path: Path) -> None:
    """Five of each of two classes that were taken for one: all others follow, fresh ones too."""
    world = mixed.copy(tmp_path)
    assert world.classes(4) == world.classes(5) == {4}
    positions = np.concatenate([np.flatnonzero(labels(COUNTS) == one)[:5] for one in (4, 5)])
    few = world.week.chosen(positions.tolist())
    action = world.model.teach(few, ["truck"] * 5 + ["ship"] * 5)
    assert action.made == {"5": "truck", "6": "ship"}
    assert world.classes(4) == {5} and world.classes(5) == {6}
    predicted, truth = world.predicted(), labels(dict.fromkeys(range(6), 40))
    assert (predicted[truth == 4] == 5).all() and (predicted[truth == 5] == 6).all()
    assert (predicted[truth < 4] == truth[truth < 4]).all()
    sizes = {known.name: known.size for known in world.model.roster.classes()}
    assert (sizes["truck"], sizes["ship"], sizes["new-1"]) == (60, 50, 0)


def test_new_images_can_teach_and_count_as_learned(mixed: World, tmp_path: Path) -> None:
    world = mixed.copy(tmp_path)
    few = week(tmp_path / "few.npz", {5: 6}, seed=9)
    world.model.teach(few, ["ship"] * 6)
    assert world.classes(5) == {5} and world.classes(4) == {4}
    found = world.model.table()
    assert (found.stage[-6:] == -1).all() and (found.class_id[-6:] == 5).all()
    assert found.answered.sum() == 6 and len(found) == 4 * 60 + len(world.truth) + 6
    assert world.model.discover(few) is None  # nothing of it is fresh
    known_again = world.model.teach(week(tmp_path / "one.npz", {0: 1}, seed=8), ["class-0"])
    assert known_again.made == {} and known_again.targets == [0]


def test_a_split_parts_what_was_taken_for_one(mixed: World, tmp_path: Path) -> None:
    world = mixed.copy(tmp_path)
    action = world.model.split("new-1")
    assert action.made == {"5": "new-2"}
    assert world.classes(4) == {4} and world.classes(5) == {5}  # the largest keeps its id
    assert [known.name for known in world.model.roster.classes()][-2:] == ["new-1", "new-2"]
    world.model.undo()
    assert world.classes(5) == {4}
    again = world.model.split("new-1", 3)
    assert list(again.made) == ["6", "7"]  # 5 is never given again


def test_moved_images_are_what_was_said_and_their_class_learns(
    apart: World, tmp_path: Path
) -> None:
    world = apart.copy(tmp_path)
    (four,), (five,) = world.classes(4), world.classes(5)
    wrong = world.of(4, 3)
    names = world.model.roster.names
    world.model.move(wrong, names[five])
    found = world.table()
    assert {found[bytes.fromhex(image)] for image in wrong} == {five}
    others = [found[bytes.fromhex(image)] for image in world.of(4)[3:]]
    assert set(others) == {four}
    before = apart.model.learner().method.state_dict()["memory.known"]
    after = world.model.learner().method.state_dict()["memory.known"]
    assert torch.equal(before[:4], after[:4])
    assert not torch.equal(before[five], after[five])


def test_base_means_take_in_what_a_person_adds_and_else_stay(apart: World, tmp_path: Path) -> None:
    """The mean over its labelled images and the added ones, as if all had been labelled."""
    world = apart.copy(tmp_path)
    added = world.of(4, 5)
    before = world.model.learner().method.state_dict()["memory.known"].clone()
    method: Any = world.model.learner().method
    world.model.move(added, "class-2")
    after = world.model.learner().method.state_dict()["memory.known"]
    positions = [list(world.truth).index(bytes.fromhex(image)) for image in added]
    features = np.load(apart.root / "week.npz")["features"][positions].astype(np.float16)
    looking = method.memory.looking(
        method.deciding(torch.from_numpy(features.astype(np.float32)))[0]
    )
    expected = (60 * before[2] + looking.sum(dim=0)) / 65
    assert torch.allclose(after[2], expected, atol=1e-9)
    assert all(torch.equal(before[one], after[one]) for one in (0, 1, 3))


def test_rejected_images_go_elsewhere(apart: World, tmp_path: Path) -> None:
    world = apart.copy(tmp_path)
    (four,) = world.classes(4)
    out = world.of(4, 2)
    world.model.reject(out)
    found = world.model.table()
    rows = [found.position[bytes.fromhex(image)] for image in out]
    assert four not in found.class_id[rows] and found.answered[rows].all()
    world.model.reject(out[:1], world.model.roster.names[found.class_id[rows[0]]])
    assert world.table()[bytes.fromhex(out[0])] not in (four, found.class_id[rows[0]])


def test_junk_is_of_no_class_and_is_not_found_again(apart: World, tmp_path: Path) -> None:
    world = apart.copy(tmp_path)
    (five,) = world.classes(5)
    name = world.model.roster.names[five]
    world.model.junk(name)
    assert world.classes(5) == {-1}
    table = world.model.table()
    assert table.unknown.sum() == 50
    truth = labels(dict.fromkeys(range(6), 40))
    assert set(world.predicted()[truth == 5].tolist()) == {-1}
    assert name not in [known.name for known in world.model.roster.classes()]
    more = week(tmp_path / "more.npz", {0: 20, 5: 40, 7: 40}, seed=5)
    record = world.model.discover(more, 1)
    assert record is not None
    ids = world.model.predict(more).ids
    assert set(ids[20:60].tolist()) == {-1} and set(ids[60:].tolist()) == {record.num_known}
    world.model.confirm(name)
    assert world.classes(5) == {five}


def test_a_confirmed_class_is_doubted_no_more(apart: World, tmp_path: Path) -> None:
    world = apart.copy(tmp_path)
    (four,) = world.classes(4)
    assert memory_of(world.model)["memory.wary"][four] > 0
    world.model.confirm(world.model.roster.names[four])
    assert memory_of(world.model)["memory.wary"][four] == 0
    pinned = world.model.confirm(world.model.roster.names[four], world.of(4, 4))
    assert pinned.targets == [four] * 4
    assert world.model.table().answered.sum() == 4


def test_later_stages_keep_to_decisions_and_their_states_hold_none(
    mixed: World, tmp_path: Path
) -> None:
    world = mixed.copy(tmp_path)
    world.model.split("new-1")
    later = week(tmp_path / "later.npz", {0: 20, 4: 30, 5: 30, 8: 60}, seed=6)
    record = world.model.discover(later, 1)
    assert record is not None and record.num_known == 6 and record.names == ["new-3"]
    ids = world.model.predict(later).ids
    assert set(ids[20:50].tolist()) == {4} and set(ids[50:80].tolist()) == {5}
    assert set(ids[80:].tolist()) == {6}
    raw = world.model.store.state(2)["method"]
    former = world.model.store.state(1)["method"]
    assert torch.equal(raw["memory.known"][:5], former["memory.known"])
    assert torch.isinf(raw["memory.wary"][5]) and len(raw["memory.wary"]) == 7
    assert checkpoint.digest(raw) != checkpoint.digest(former)
    world.model.undo(3)  # the split: the class found beside its parts stays
    ids = world.model.predict(later).ids
    assert set(ids[20:80].tolist()) == {4} and set(ids[80:].tolist()) == {6}
    assert [known.id for known in world.model.roster.classes()] == [0, 1, 2, 3, 4, 6]
    assert world.classes(5) == {4}


# -- taken back -----------------------------------------------------------------------------------

DECISIONS: dict[str, Callable[[World], Action]] = {
    "move": lambda world: world.model.move(world.of(4, 3), "class-1"),
    "reject": lambda world: world.model.reject(world.of(5, 3)),
    "confirm": lambda world: world.model.confirm("new-1"),
    "confirm images": lambda world: world.model.confirm("new-1", world.of(4, 5)),
    "split": lambda world: world.model.split("new-1", 2),
    "junk": lambda world: world.model.junk("new-1"),
    "teach": lambda world: world.model.teach(world.week.chosen([50, 120]), ["truck", "class-0"]),
    "merge": lambda world: world.model.merge("class-0", ["class-3"]),
    "rename": lambda world: world.model.rename("class-0", "cat"),
}


@pytest.mark.parametrize("kind", DECISIONS)
def test_undo_gives_back_the_model_without_it_bit_for_bit(
    kind: str, mixed: World, tmp_path: Path
) -> None:
    world = mixed.copy(tmp_path)
    DECISIONS[kind](world)
    with pytest.raises(AssertionError):
        assert_same(world.model, mixed.model, world.fresh)
    world.model.undo()
    assert_same(world.model, mixed.model, world.fresh)
    assert_same(Model(world.model.store.folder), mixed.model, world.fresh)


def test_each_is_taken_back_alone_bit_for_bit(mixed: World, tmp_path: Path) -> None:
    """All but one, against a model that never had that one."""
    kinds = ("move", "reject", "confirm", "teach", "rename")
    for out in kinds:
        (place := tmp_path / out).mkdir()
        whole, without = mixed.copy(place / "whole"), mixed.copy(place / "without")
        for kind in kinds:
            noted = DECISIONS[kind](whole)
            if kind == out:
                number = noted.id
            else:
                DECISIONS[kind](without)
        whole.model.undo(number)
        assert_same(whole.model, without.model, mixed.fresh)
        whole.model.redo()
        assert DECISIONS[out](without).kind == noted.kind or out != kinds[-1]


def test_the_later_of_two_that_contradict_counts_and_says_so(apart: World, tmp_path: Path) -> None:
    world = apart.copy(tmp_path)
    one = world.of(4, 1)
    world.model.move(one, "class-1")
    said = world.model.move(one, "class-2").said
    assert "(before, some were said to be class-1)" in said
    assert world.table()[bytes.fromhex(one[0])] == 2
    said = world.model.reject(one).said
    assert "1 of them had been said to be of it" in said
    assert world.table()[bytes.fromhex(one[0])] != 2
    said = world.model.move(one, "class-2").said
    assert "1 were said not to be" in said
    assert world.table()[bytes.fromhex(one[0])] == 2
    world.model.confirm("new-1")
    assert "it had been confirmed" in world.model.junk("new-1").said
    assert "it had been said to be junk" in world.model.confirm("new-1").said
    assert "new-1" in [known.name for known in world.model.roster.classes()]


# -- requests that make no sense ------------------------------------------------------------------


def test_bad_requests_are_answered_and_change_nothing(apart: World, tmp_path: Path) -> None:
    world = apart.copy(tmp_path)
    model, one = world.model, world.of(4, 1)
    model.merge("class-0", ["class-1"])
    log = (model.store.folder / "decisions.jsonl").read_bytes()
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: model.move(["lost.png"], "class-0"), "lost.png is in no stage.*`goal teach`"),
        (lambda: model.move(["f" * 32], "class-0"), "in no stage"),
        (lambda: model.move([], "class-0"), "at least one image"),
        (lambda: model.move(["row 0"], "class-0"), "2 images are called row 0"),
        (lambda: model.move(one, "clas-2"), "no class 'clas-2'. Did you mean 'class-2'"),
        (lambda: model.reject(one, "nothing"), "no class 'nothing'"),
        (lambda: model.confirm("new-9"), "Did you mean 'new-"),
        (lambda: model.split("class-2"), "learned from labels"),
        (lambda: model.split("new-1", 1), "2 or more"),
        (lambda: model.split("new-1", 40), "40 parts need 2 each"),
        (lambda: model.teach(world.week.chosen([0]), []), "1 images need as many names"),
        (lambda: model.teach(world.week.chosen([0, 0]), ["a", "b"]), "given as b and as a"),
        (lambda: model.teach(world.week.chosen([0]), [" "]), "visible character"),
    ]
    for attempt, match in refused:
        with pytest.raises(GoalError, match=match):
            attempt()
    assert (model.store.folder / "decisions.jsonl").read_bytes() == log


def test_moving_to_a_merged_class_goes_where_it_counts(apart: World, tmp_path: Path) -> None:
    world = apart.copy(tmp_path)
    world.model.merge("class-0", ["class-1"])
    said = world.model.move(world.of(4, 1), "class-1").said
    assert "to class-0 (class-1 is merged into it)" in said
    assert world.table()[bytes.fromhex(world.of(4, 1)[0])] == 0


def test_a_class_of_two_images_is_not_split(tmp_path: Path) -> None:
    model = labelled_model(tmp_path)
    model.discover(week(tmp_path / "week.npz", {0: 30, 4: 30}, seed=1), 1)
    few = week(tmp_path / "few.npz", {9: 2}, seed=2)
    model.teach(few, ["rare"] * 2)
    assert model.table().members(5).tolist() == [len(model.table()) - 2, len(model.table()) - 1]
    with pytest.raises(GoalError, match="rare has 2 images: 2 parts need 2 each"):
        model.split("rare")


def test_what_others_stand_on_is_not_taken_back_alone(mixed: World, tmp_path: Path) -> None:
    world = mixed.copy(tmp_path)
    split = world.model.split("new-1")
    move = world.model.move(world.of(0, 1), "new-2")
    with pytest.raises(GoalError, match=rf"first: {move.id} \(the moving of row"):
        world.model.undo(split.id)
    world.model.undo(move.id)
    world.model.undo(split.id)
    assert_same(world.model, mixed.model, world.fresh)


def test_undoing_a_stage_keeps_what_was_said_of_earlier_classes(
    apart: World, tmp_path: Path
) -> None:
    world, twin = apart.copy(tmp_path / "world"), apart.copy(tmp_path / "twin")
    for one in (world, twin):
        one.model.move(one.of(4, 3), "class-1")
    later = week(tmp_path / "later.npz", {0: 20, 8: 40}, seed=6)
    world.model.discover(later, 1)
    world.model.confirm("new-3")
    world.model.move(later_images(later, 2), "class-2")
    world.model.undo(stage=True)
    assert [e.said for e in world.model.history() if e.kind == "confirm" and not e.undone] == []
    assert_same(world.model, twin.model, world.fresh)  # what it said of lost images sleeps
    world.model.redo()
    assert "new-3" in world.model.roster.names


def later_images(given: ImageSet, count: int) -> list[str]:
    return [digest.hex() for digest in given.contents({})[-count:]]


def test_the_log_can_be_read_by_a_person(apart: World, tmp_path: Path) -> None:
    world = apart.copy(tmp_path)
    world.model.move(world.of(4, 1), "class-1")
    line = json.loads((tmp_path / "model" / "decisions.jsonl").read_text().splitlines()[-1])
    assert line["kind"] == "move" and line["images"] == world.of(4, 1) and line["targets"] == [1]
    assert line["files"] == ["row 48"] and line["said"] == "the moving of row 48 to class-1"

"""Classes come in the published order, or after the base classes that a file lists."""

from pathlib import Path

import numpy as np
import pytest

from goal.common.errors import GoalError
from goal.protocol.stages import ProtocolSettings, build_stages, class_order, targets
from tests.protocol.helpers import build, even


def test_class_order_of_cifar100() -> None:
    order = class_order(100, ProtocolSettings(base_classes=50, stages=5))
    assert order[:50].tolist() == list(range(50))
    assert order[50:62].tolist() == [78, 61, 60, 91, 52, 77, 88, 81, 72, 54, 83, 85]
    assert sorted(order.tolist()) == list(range(100))
    assert order.dtype == np.int64
    other = class_order(100, ProtocolSettings(base_classes=50, stages=5, class_order_seed=1))
    assert np.array_equal(order[:50], other[:50]) and not np.array_equal(order, other)


def test_class_order_leaves_the_global_generator_alone() -> None:
    before = np.random.get_state(legacy=False)  # noqa: NPY002
    class_order(100, ProtocolSettings(base_classes=50, stages=5))
    build(even(10, 20), even(10, 2), train_per_class=10)
    after = np.random.get_state(legacy=False)  # noqa: NPY002
    assert isinstance(before, dict) and isinstance(after, dict)
    assert before["state"]["pos"] == after["state"]["pos"]
    assert np.array_equal(before["state"]["key"], after["state"]["key"])


def test_classes_left_over_have_no_target() -> None:
    protocol = ProtocolSettings(base_classes=50, stages=2, new_per_stage=5)
    order = class_order(100, protocol)
    assert order[50:].tolist() == [78, 61, 60, 91, 52, 77, 88, 81, 72, 54]
    labels = np.array([78, 3, 54, 83, 61])  # 83 is the eleventh novel class: no stage has it
    assert targets(labels, order).tolist() == [50, 3, 59, -1, 51]
    last = build_stages(even(100, 10), even(100, 2), 100, protocol)[-1]
    assert (targets(even(100, 2)[last.test_ids], order) >= 0).all()
    assert last.num_seen == 60 and len(last.test_ids) == 120
    with pytest.raises(GoalError, match="start at 0"):
        targets(np.array([0, -1]), order)


def test_base_list_sets_the_base_classes(tmp_path: Path) -> None:
    path = tmp_path / "base.txt"
    path.write_text("# the known classes\n7\n\n 2  # a comment\n5\n9\n", encoding="utf-8")
    order = class_order(10, ProtocolSettings(base_list=str(path))).tolist()
    assert order[:4] == [2, 5, 7, 9] and sorted(order[4:]) == [0, 1, 3, 4, 6, 8]
    first = build(even(10, 10), even(10, 1), base_list=str(path))[0]
    assert set(even(10, 10)[first.train_ids].tolist()) == {2, 5, 7, 9}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\ntwo\n3\n4\n", "line 2: 'two' is not a class id"),
        ("1\n2\n2\n4\n", r"\[2\] are listed more than once"),
        ("1\n2\n3\n10\n", r"\[10\] are outside 0..9"),
        ("-1\n2\n3\n4\n", r"\[-1\] are outside 0..9"),
        ("1\n2\n3\n", "lists 3 classes, but base_classes is 4"),
        ("", "lists 0 classes"),
    ],
)
def test_bad_base_list(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "base.txt").write_text(text, encoding="utf-8")
    with pytest.raises(GoalError, match=message):
        class_order(10, ProtocolSettings(base_list=str(tmp_path / "base.txt")))


@pytest.mark.parametrize("name", ["nowhere.txt", ".", "binary"])
def test_unreadable_base_list(tmp_path: Path, name: str) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(GoalError, match=f"Cannot read base_list {tmp_path / name}"):
        class_order(10, ProtocolSettings(base_list=str(tmp_path / name)))


def test_a_shipped_list_that_does_not_fit_says_what_to_do() -> None:
    with pytest.raises(GoalError, match=r"cub-ssb: it lists 100 classes.*base_list=null"):
        class_order(200, ProtocolSettings(base_classes=50, stages=5, base_list="cub-ssb"))

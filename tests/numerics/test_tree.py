"""The tree of classes, against average linkage by loops."""

import itertools

import numpy as np
import pytest

from goal.numerics.tree import Branch, Places, class_tree, merge_candidates


def joined_by_loops(means: Places) -> list[tuple[frozenset[int], float]]:
    """Groups in the order of joining: the two that are nearest on average over all their pairs."""
    groups = [frozenset({index}) for index in range(len(means))]
    joined = []
    while len(groups) > 1:
        best = None
        for first, second in itertools.combinations(groups, 2):
            apart = [float(np.linalg.norm(means[i] - means[j])) for i in first for j in second]
            height = sum(apart) / len(apart)
            if best is None or height < best[0]:
                best = height, first, second
        assert best is not None
        height, first, second = best
        groups = [group for group in groups if group not in (first, second)] + [first | second]
        joined.append((first | second, height))
    return joined


def branches(tree: Branch) -> list[Branch]:
    return [tree, *(inner for side in tree.sides for inner in branches(side))]


def test_the_tree_is_average_linkage() -> None:
    means = np.random.default_rng(0).normal(size=(9, 4))
    found = {
        frozenset(branch.classes): branch.height
        for branch in branches(class_tree(means))
        if branch.sides
    }
    expected = dict(joined_by_loops(means))
    assert found.keys() == expected.keys()
    assert np.allclose([found[key] for key in expected], list(expected.values()))


def test_one_class_is_a_tree_and_none_is_not() -> None:
    assert class_tree(np.zeros((1, 3))) == Branch((0,), 0.0, ())
    with pytest.raises(ValueError, match="at least one"):
        class_tree(np.zeros((0, 3)))


def test_near_pairs_with_a_discovered_class_are_candidates() -> None:
    # Labelled 0 and 1 are 4 apart. 2 lies at 1's side, 3 and 4 together, 5 far from all.
    places = [0.0, 4.0, 5.5, 20.0, 21.0, 50.0]
    means = np.array([[place, 0.0] for place in places])
    assert merge_candidates(means, 2) == [(3, 4), (1, 2)]
    assert merge_candidates(means, 2, most=1) == [(3, 4)]
    assert merge_candidates(means[:2], 2) == []  # two labelled classes are two
    assert merge_candidates(means[:1], 1) == []

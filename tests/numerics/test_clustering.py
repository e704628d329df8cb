"""Clustering and matching against Lloyd's loop, brute force, plain loops and planted clusters."""

import itertools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from goal.methods.parts.heads import farthest_centroids, novelty_centroids
from goal.numerics.clustering import (
    assign,
    assign_greedily,
    class_means,
    draw_seed,
    kmeans,
    lowest_per_class,
    overlap,
    split_high,
)

FloatArray = npt.NDArray[np.float64]
Start = Callable[[Tensor, Tensor, int, torch.Generator], Tensor]


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def lloyd(points: FloatArray, centres: FloatArray) -> tuple[list[int], FloatArray]:
    """Assign each point to its nearest centre, move centres to their means, until nothing moves."""
    labels: list[int] = []
    while True:
        nearest = [
            min(range(len(centres)), key=lambda c: float(((point - centres[c]) ** 2).sum()))
            for point in points
        ]
        if nearest == labels:
            return labels, centres
        labels = nearest
        centres = np.stack(
            [points[[label == c for label in labels]].mean(axis=0) for c in range(len(centres))]
        )


@pytest.mark.parametrize(("clusters", "seed"), [(1, 0), (3, 1), (5, 2), (8, 3), (60, 4)])
def test_kmeans_from_a_start_is_lloyds_loop(clusters: int, seed: int) -> None:
    points = torch.randn(60, 3, generator=seeded(seed), dtype=torch.float64)
    expected, means = lloyd(points.numpy(), points[:clusters].numpy())
    labels, centres = kmeans(points, clusters, seeded(9), start=points[:clusters])
    assert labels.tolist() == expected
    np.testing.assert_allclose(centres.numpy(), means, atol=1e-9)


def test_kmeans_recovers_planted_clusters() -> None:
    truth = torch.arange(8).repeat(20)
    corners = 10 * torch.tensor(list(itertools.product([0.0, 1.0], repeat=3)))
    points = corners[truth] + torch.randn(160, 3, generator=seeded(0))
    labels, centres = kmeans(points, 8, seeded(1))
    assert centres.dtype == points.dtype
    pairs = set(zip(labels.tolist(), truth.tolist(), strict=True))
    assert len(pairs) == 8  # clusters and corners, one to one
    for cluster, corner in pairs:
        assert (centres[cluster] - corners[corner]).norm() < 1


def test_more_starts_give_a_tighter_clustering() -> None:
    points = torch.rand(100, 2, generator=seeded(0))

    def spread(restarts: int, seed: int) -> float:
        labels, centres = kmeans(points, 12, seeded(seed), restarts=restarts)
        return float((points - centres[labels]).square().sum())

    assert sum(spread(10, seed) for seed in range(5)) < 0.99 * sum(spread(1, s) for s in range(5))


def test_kmeans_draws_from_the_generator_alone() -> None:
    points = torch.rand(80, 2, generator=seeded(0))
    torch_state, numpy_state = torch.get_rng_state(), str(np.random.get_state())  # noqa: NPY002
    rng = seeded(5)
    results = [kmeans(points, 9, source, restarts=1) for source in (rng, seeded(5), rng)]
    assert torch.equal(results[0][0], results[1][0]) and torch.equal(results[0][1], results[1][1])
    assert not torch.equal(results[0][1], results[2][1])  # the next draw is another one
    assert torch.equal(torch_state, torch.get_rng_state())
    assert numpy_state == str(np.random.get_state())  # noqa: NPY002


def test_draw_seed_follows_the_generator() -> None:
    rng = seeded(3)
    seeds = [draw_seed(rng) for _ in range(20)]
    assert len(set(seeds)) == 20 and all(0 <= seed < 2**31 for seed in seeds)
    assert draw_seed(seeded(3)) == seeds[0]


sizes = st.integers(1, 5)


def best_total(table: list[list[float]]) -> float:
    rows, columns = len(table), len(table[0])
    if rows > columns:
        return best_total([list(column) for column in zip(*table, strict=True)])
    ways = itertools.permutations(range(columns), rows)
    return max(sum(table[row][way[row]] for row in range(rows)) for way in ways)


@settings(deadline=None, max_examples=60)
@given(sizes, sizes, st.data())
def test_assign_is_the_best_of_all_permutations(
    rows: int, columns: int, data: st.DataObject
) -> None:
    row = st.lists(st.integers(-9, 9), min_size=columns, max_size=columns)
    table: list[list[float]] = [[*data.draw(row)] for _ in range(rows)]
    chosen = assign(torch.tensor(table, dtype=torch.float64)).tolist()
    taken = [column for column in chosen if column >= 0]
    assert len(chosen) == rows and len(taken) == len(set(taken)) == min(rows, columns)
    assert all(column >= -1 for column in chosen)
    total = sum(table[i][column] for i, column in enumerate(chosen) if column >= 0)
    assert total == best_total(table)


@settings(deadline=None, max_examples=40)
@given(sizes, sizes, st.integers(0, 999))
def test_greedy_assignment_is_the_plain_loop(rows: int, columns: int, seed: int) -> None:
    similarity = torch.randn(rows, columns, generator=seeded(seed), dtype=torch.float64)
    values = similarity.tolist()
    expected = [-1] * rows
    for row, column in sorted(
        itertools.product(range(rows), range(columns)), key=lambda at: -values[at[0]][at[1]]
    ):
        if expected[row] == -1 and column not in expected:
            expected[row] = column
    before = similarity.clone()
    assert assign_greedily(similarity).tolist() == expected
    assert torch.equal(similarity, before)


def test_greedy_and_best_assignment_differ_where_greed_costs() -> None:
    similarity = torch.tensor([[0.9, 0.8], [0.8, 0.1]])
    assert assign(similarity).tolist() == [1, 0]  # 0.8 + 0.8
    assert assign_greedily(similarity).tolist() == [0, 1]  # 0.9 + 0.1


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3))))
def test_overlap_counts_pairs(pairs: list[tuple[int, int]]) -> None:
    first = torch.tensor([a for a, _ in pairs], dtype=torch.int64)
    second = torch.tensor([b for _, b in pairs], dtype=torch.int64)
    expected = [[pairs.count((i, j)) for j in range(4)] for i in range(4)]
    assert overlap(first, second, 4).tolist() == expected


@pytest.mark.parametrize(("low", "high"), [(500, 500), (900, 100), (150, 850)])
def test_split_of_two_gaussians(low: int, high: int) -> None:
    truth = torch.arange(low + high) >= low
    truth = truth[torch.randperm(len(truth), generator=seeded(0))]
    noise = torch.randn(len(truth), generator=seeded(1))
    scores = 0.2 + 0.3 * truth + 0.06 * noise  # five deviations apart: 0.6% overlap
    found = split_high(scores, seeded(2))
    assert found.dtype == torch.bool
    assert (found != truth).float().mean() < 0.03
    assert torch.equal(found, split_high(scores, seeded(2)))


def test_split_of_hardly_any_scores() -> None:
    assert split_high(torch.full((5,), 0.3), seeded(0)).tolist() == [True] * 5
    assert split_high(torch.tensor([0.3]), seeded(0)).tolist() == [True]
    assert split_high(torch.tensor([]), seeded(0)).tolist() == []
    assert split_high(torch.tensor([0.9, 0.1]), seeded(0)).tolist() == [True, False]


@given(st.lists(st.integers(0, 4), max_size=12), st.integers(0, 99))
def test_class_means_by_loop(labels: list[int], seed: int) -> None:
    points = torch.randn(len(labels), 3, generator=seeded(seed), dtype=torch.float64)
    means = class_means(points, torch.tensor(labels, dtype=torch.int64), 5)
    for label in range(5):
        rows = [points[i].numpy() for i in range(len(labels)) if labels[i] == label]
        expected = sum(rows) / len(rows) if rows else np.zeros(3)
        np.testing.assert_allclose(means[label].numpy(), expected, atol=1e-12)


def test_lowest_per_class_of_the_hand_made_example() -> None:
    classes = torch.tensor([0, 0, 0, 0, 1, 1, 2, 0])
    values = torch.tensor([0.4, 0.1, 0.3, 0.2, 0.9, 0.8, 0.7, 0.0])
    candidates = torch.tensor([0, 1, 2, 3, 4, 5, 6])  # the last one is not asked
    half = lowest_per_class(candidates, classes, values, 0.5)
    assert sorted(half.tolist()) == [1, 3, 5, 6]  # 2 of 4, 1 of 2, and one of one all the same
    assert sorted(lowest_per_class(candidates, classes, values, 1.0).tolist()) == [*range(7)]
    nobody = torch.tensor([], dtype=torch.int64)
    assert lowest_per_class(nobody, classes, values, 0.5).tolist() == []


@pytest.mark.parametrize(("share", "count", "kept"), [(0.7, 10, 7), (0.7, 90, 63), (0.29, 100, 29)])
def test_a_share_that_comes_out_even_is_kept_whole(share: float, count: int, kept: int) -> None:
    same = torch.zeros(count, dtype=torch.int64)
    values = torch.randperm(count, generator=seeded(0))
    chosen = lowest_per_class(torch.arange(count), same, values, share)
    assert sorted(values[chosen].tolist()) == [*range(kept)]


# -- how the weights of new classes start ---------------------------------------------------


STARTS: list[Start] = [farthest_centroids, novelty_centroids]


def planted(num_known: int, num_new: int, per_known: int, per_new: int) -> tuple[Tensor, Tensor]:
    """Directions of known and new classes, and unit features scattered around them."""
    directions = F.normalize(torch.randn(num_known + num_new, 24, generator=seeded(0)), dim=1)
    counts = torch.tensor([per_known] * num_known + [per_new] * num_new)
    labels = torch.arange(num_known + num_new).repeat_interleave(counts)
    noise = 0.05 * torch.randn(len(labels), 24, generator=seeded(1))
    features = F.normalize(directions[labels] + noise, dim=1)
    return directions, features[torch.randperm(len(labels), generator=seeded(2))]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize(
    ("num_known", "num_new", "per_known", "per_new"),
    [(4, 3, 15, 15), (6, 1, 10, 20), (1, 5, 9, 12)],
)
def test_planted_new_classes_are_found(
    start: Start, num_known: int, num_new: int, per_known: int, per_new: int
) -> None:
    directions, features = planted(num_known, num_new, per_known, per_new)
    found = start(features, directions[:num_known], num_new, seeded(3))
    torch.testing.assert_close(found.norm(dim=1), torch.ones(num_new))
    cosines = (directions[num_known:] @ found.T).numpy()
    assert sorted(cosines.argmax(axis=1)) == [*range(num_new)]  # one to one
    assert cosines.max(axis=1).min() > 0.98
    assert torch.equal(found, start(features, directions[:num_known], num_new, seeded(3)))


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("images", [1, 2, 4])
def test_fewer_images_than_new_classes(start: Start, images: int) -> None:
    directions, features = planted(2, 4, 3, 3)
    few = features[:images]
    rows = start(few, directions[:2], 5, seeded(0))
    assert rows.shape == (5, 24)
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(5))
    assert (few @ rows.T).max(dim=1).values.min() > 0.999  # every image is a start
    assert (rows @ rows.T - torch.eye(5)).max() < 0.999  # and no two starts are the same


@pytest.mark.parametrize("start", STARTS)
def test_images_that_are_all_the_same_still_give_starts(start: Start) -> None:
    features = F.normalize(torch.ones(6, 4), dim=1)
    with pytest.warns(match="distinct clusters"):
        rows = start(features, torch.eye(4)[:1], 3, seeded(0))
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(3))

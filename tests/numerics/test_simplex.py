"""The simplex against its definition, and the ledger against a plain dict."""

import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from goal.common.errors import GoalError
from goal.methods.base import restore
from goal.numerics.simplex import UNOWNED, VertexLedger, simplex_etf


def ids(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int64)


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 40), st.integers(0, 30), st.integers(0, 2**40))
def test_gram_matrix_of_the_simplex(num_vertices: int, slack: int, seed: int) -> None:
    frame = simplex_etf(num_vertices, num_vertices + slack, seed)
    assert frame.dtype == torch.float64 and frame.shape == (num_vertices, num_vertices + slack)
    points = frame.numpy()
    expected = np.full((num_vertices, num_vertices), -1 / (num_vertices - 1))
    np.fill_diagonal(expected, 1)
    np.testing.assert_allclose(points @ points.T, expected, atol=1e-6)
    np.testing.assert_allclose(points.sum(axis=0), 0, atol=1e-6)


@pytest.mark.parametrize(("num_vertices", "dim"), [(2, 2), (2, 768), (200, 200), (200, 768)])
def test_gram_matrix_at_the_sizes_in_use(num_vertices: int, dim: int) -> None:
    points = simplex_etf(num_vertices, dim, 0).numpy()
    cosines = points @ points.T
    np.testing.assert_allclose(np.diag(cosines), 1, atol=1e-12)
    off = cosines[~np.eye(num_vertices, dtype=bool)]
    np.testing.assert_allclose(off, -1 / (num_vertices - 1), atol=1e-12)


def test_the_seed_alone_chooses_the_frame() -> None:
    before = torch.get_rng_state()
    frame = simplex_etf(4, 6, 7)
    assert torch.equal(frame, simplex_etf(4, 6, 7))
    assert not torch.allclose(frame, simplex_etf(4, 6, 8))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("num_vertices", [1, 0, -3])
def test_too_few_vertices(num_vertices: int) -> None:
    with pytest.raises(GoalError, match=f"at least 2 vertices; {num_vertices} were"):
        simplex_etf(num_vertices, 8, 0)


def test_more_vertices_than_dimensions() -> None:
    with pytest.raises(GoalError, match="129 vertices do not fit into 128 dimensions"):
        simplex_etf(129, 128, 0)


@settings(deadline=None, max_examples=30)
@given(st.permutations(range(9)), st.permutations(range(5, 14)), st.lists(st.integers(0, 4)))
def test_claims_never_move(vertices: list[int], classes: list[int], sizes: list[int]) -> None:
    ledger = VertexLedger(9, 10, 0)
    frame = ledger.vertices.clone()
    owned: dict[int, int] = {}
    for size in sizes:
        take = slice(len(owned), len(owned) + size)
        ledger.claim(ids(*classes[take]), ids(*vertices[take]))
        owned.update(zip(classes[take], vertices[take], strict=True))
        everyone = [ledger.vertex_of(ids(label)).item() for label in range(15)]
        assert everyone == [owned.get(label, UNOWNED) for label in range(15)]
        assert ledger.vertex_of(torch.arange(15)).tolist() == everyone
        assert ledger.free().tolist() == sorted(set(range(9)) - set(owned.values()))
    assert torch.equal(ledger.vertices, frame)
    if owned:
        directions = ledger.directions(ids(*owned))
        assert torch.equal(directions, frame[ids(*owned.values())])


def settled() -> VertexLedger:
    ledger = VertexLedger(6, 8, 0)
    ledger.claim(ids(0, 1, 2), ids(4, 0, 3))
    return ledger


@pytest.mark.parametrize(
    ("classes", "vertices", "complaint"),
    [
        (ids(3), ids(4), r"vertices \[4\] already have an owner"),
        (ids(3, 4), ids(5, 0), r"vertices \[0\] already have an owner"),
        (ids(1), ids(5), r"classes \[1\] already own a vertex"),
        (ids(1), ids(0), "already"),  # what it has already is not given again either
        (ids(3, 4), ids(5, 5), "twice"),
        (ids(3, 3), ids(5, 1), "twice"),
        (ids(3, 4), ids(5), "2 classes cannot claim 1 vertices"),
        (ids(3, 4), ids(5, -1), "."),  # -1 would be vertex 5 once more
        (ids(UNOWNED), ids(5), "."),
    ],
)
def test_double_booking_is_refused_and_changes_nothing(
    classes: Tensor, vertices: Tensor, complaint: str
) -> None:
    ledger = settled()
    before = ledger.owners.clone()
    with pytest.raises(ValueError, match=complaint):
        ledger.claim(classes, vertices)
    assert torch.equal(ledger.owners, before)


def test_a_vertex_that_does_not_exist_is_refused() -> None:
    ledger = settled()
    before = ledger.owners.clone()
    with pytest.raises((IndexError, ValueError)):
        ledger.claim(ids(3, 4), ids(5, 6))
    assert torch.equal(ledger.owners, before)


def test_directions_of_a_class_without_a_vertex() -> None:
    with pytest.raises(ValueError, match=r"classes \[3, 9\] own no vertex"):
        settled().directions(ids(0, 3, 9))


def test_lookups_of_nobody() -> None:
    ledger = settled()
    assert ledger.vertex_of(ids()).shape == (0,)
    assert ledger.directions(ids()).shape == (0, 8)


def test_a_negative_id_is_no_class() -> None:
    assert settled().vertex_of(ids(UNOWNED)).tolist() == [UNOWNED]


def test_require_free_counts_what_is_left() -> None:
    ledger = settled()
    ledger.require_free(3)
    with pytest.raises(GoalError, match=r"4 new classes .* only 3 of 6 are free.*at most 8"):
        ledger.require_free(4)


def test_the_ledger_survives_its_state_dict() -> None:
    ledger, buffer = settled(), io.BytesIO()
    torch.save(ledger.state_dict(), buffer)
    buffer.seek(0)
    other = VertexLedger(6, 8, seed=1)  # another frame, no claims
    other.load_state_dict(torch.load(buffer, weights_only=True))
    assert torch.equal(other.vertices, ledger.vertices)
    assert other.vertex_of(torch.arange(4)).tolist() == [4, 0, 3, UNOWNED]
    with pytest.raises(ValueError, match="already own"):
        other.claim(ids(2), ids(5))
    other.claim(ids(3), ids(5))
    assert ledger.free().tolist() == [1, 2, 5]  # a copy, not a share


# -- adaptive expansion ------------------------------------------------------------------------


def claimed(size: int, dim: int, owned: list[int], seed: int = 0) -> VertexLedger:
    ledger = VertexLedger(size, dim, seed)
    ledger.claim(torch.arange(len(owned)), ids(*owned))
    return ledger


@settings(deadline=None, max_examples=30)
@given(st.data(), st.integers(2, 12), st.integers(1, 12), st.integers(0, 6), st.integers(0, 99))
def test_an_extended_simplex_is_exact_and_keeps_its_owners(
    data: st.DataObject, size: int, added: int, slack: int, seed: int
) -> None:
    owned = data.draw(st.lists(st.integers(0, size - 1), unique=True))
    ledger = claimed(size, size + added + slack, owned, seed)
    degrees = ledger.extend(size + added)
    total = size + added
    points = ledger.vertices.double().numpy()
    expected = np.full((total, total), -1 / (total - 1))
    np.fill_diagonal(expected, 1)
    np.testing.assert_allclose(points @ points.T, expected, atol=1e-5)
    assert ledger.vertices.dtype == torch.float32 and len(degrees) == len(owned)
    assert ledger.vertex_of(torch.arange(len(owned))).tolist() == owned
    assert len(ledger.free()) == total - len(owned)


@pytest.mark.parametrize("owned", [[0, 1, 2, 3], [4, 1], [0, 1, 2, 3, 4, 5]])
def test_no_other_rotation_moves_the_owned_vertices_less(owned: list[int]) -> None:
    ledger = claimed(6, 12, owned)
    before = ledger.vertices.double()[owned]
    degrees = ledger.extend(10)
    after = ledger.vertices.double()
    moved = float((after[owned] - before).square().sum())
    cosines = (after[owned] * before).sum(dim=1).clamp(-1, 1)
    expected = torch.rad2deg(torch.arccos(cosines))
    torch.testing.assert_close(degrees.sort().values, expected.sort().values, atol=0.05, rtol=0)
    rng = torch.Generator().manual_seed(1)
    for scale in (1e-3, 1e-2, 0.1, 1.0, 10.0):
        for _ in range(40):
            noise = scale * torch.randn(12, 12, generator=rng, dtype=torch.float64)
            rotation = torch.linalg.matrix_exp(noise - noise.T)
            assert float((after[owned] @ rotation - before).square().sum()) >= moved - 1e-5


def test_a_full_simplex_turns_by_the_angle_geometry_says() -> None:
    """K unit vectors with cosine a are nearest to those with cosine b around the same axis.

    Their sum has length sqrt(K + K(K-1) c); with c = -1/(K-1) it is 0, so all of a vertex lies
    across the axis. Afterwards a part s/K of it lies along the axis, and the angle is its arcsine.
    """
    size, total = 6, 10
    degrees = claimed(size, 12, list(range(size))).extend(total)
    along = np.sqrt(size - size * (size - 1) / (total - 1)) / size
    np.testing.assert_allclose(degrees.numpy(), np.degrees(np.arcsin(along)), atol=1e-3)


@pytest.mark.parametrize("wanted", [5, 6, 13])
def test_a_simplex_cannot_shrink_or_outgrow_its_space(wanted: int) -> None:
    ledger = claimed(6, 12, [0])
    with pytest.raises(GoalError, match=r"at most 12.*wider projector"):
        ledger.extend(wanted)
    assert ledger.vertices.shape == (6, 12)


def test_an_extended_ledger_is_restored() -> None:
    ledger = claimed(4, 12, [2, 0])
    ledger.extend(9)
    twin = VertexLedger(4, 12, seed=5)
    restore(twin, ledger.state_dict())
    assert torch.equal(twin.vertices, ledger.vertices) and torch.equal(twin.owners, ledger.owners)

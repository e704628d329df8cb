"""What a person says of images changes the classes it is about, and no others."""

import copy

import pytest
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from goal.common.errors import GoalError
from goal.methods.parts.asking import Asking, Questions
from goal.methods.parts.feature_memory import FeatureMemory, FeatureMemorySettings
from goal.methods.parts.taught import Answers, settled, taught
from goal.protocol.person import SimulatedPerson

WIDTH = 12
SETTINGS = FeatureMemorySettings(unit_length=False, restarts=3)


def blob(place: dict[int, float], count: int, seed: int) -> Tensor:
    """Images around a point given by some of its coordinates."""
    rng = torch.Generator().manual_seed(seed)
    points = torch.randn(count, WIDTH, generator=rng)
    for axis, value in place.items():
        points[:, axis] += value
    return points.double()


BASE = [{axis: 30.0} for axis in range(3)]
# Two new classes that are nearly one, and one that is two lobes far apart.
LEFT, RIGHT = {5: 25.0, 6: -2.5}, {5: 25.0, 6: 2.5}
LOBES = [{8: 25.0, 9: -9.0}, {8: 25.0, 9: 9.0}]


@pytest.fixture(scope="module")
def base() -> FeatureMemory:
    memory = FeatureMemory(SETTINGS, 1)
    features = torch.cat([blob(place, 40, seed) for seed, place in enumerate(BASE)])
    memory.fit([features], torch.arange(3).repeat_interleave(40), 3)
    return memory


def a_stage(seed: int) -> tuple[Tensor, Tensor]:
    """Images of the base classes 0 to 2, of two alike (3 and 4), and of one with two lobes (5)."""
    parts = [blob(place, 8, seed + at) for at, place in enumerate(BASE)]
    new = [LEFT, RIGHT, *LOBES]
    parts += [blob(place, 40, seed + 10 + at) for at, place in enumerate(new)]
    sizes = torch.tensor([8, 8, 8, 40, 40, 40, 40])
    return torch.cat(parts), torch.tensor([0, 1, 2, 3, 4, 5, 5]).repeat_interleave(sizes)


def discovered(base: FeatureMemory, features: Tensor, count: int) -> tuple[FeatureMemory, Tensor]:
    memory = copy.deepcopy(base)
    found = memory.discover([features], count, torch.Generator().manual_seed(0))
    return memory, found.shares_NM


def agreement(predicted: Tensor, truth: Tensor) -> float:
    """Share of images whose class has most images of their true class, one to one."""
    size = int(max(predicted.max(), truth.max())) + 1
    table = torch.zeros(size, size)
    for one, other in zip(predicted.tolist(), truth.tolist(), strict=True):
        table[one, other] += 1
    rows, columns = linear_sum_assignment(-table.numpy())
    return float(table[rows, columns].sum()) / len(truth)


def test_all_images_answered_give_their_own_means(base: FeatureMemory) -> None:
    features, truth = a_stage(100)
    memory, _ = discovered(base, features, 3)
    answers = Answers.of(list(range(len(truth))), truth.tolist())
    learned = taught(memory, [features], [3, 4, 5], answers)
    points = memory.looking(features).double()
    for label in (3, 4, 5):
        mean = points[truth == label].mean(dim=0)
        assert torch.allclose(learned.known[label].double(), mean, atol=1e-4)
        assert float(learned.wary[label]) == 0  # nothing was guessed
    predicted = learned([features]).argmax(dim=1)
    assert float((predicted == truth).double().mean()) > 0.97


def test_untouched_classes_and_the_given_memory_stay_bit_for_bit(base: FeatureMemory) -> None:
    features, truth = a_stage(100)
    memory, _ = discovered(base, features, 3)
    before = {key: value.clone() for key, value in memory.state_dict().items()}
    at = int((truth == 3).nonzero()[0])
    learned = taught(memory, [features], [4], Answers.of([at], [4]))
    assert all(torch.equal(value, before[key]) for key, value in memory.state_dict().items())
    for name in ("known", "wary", "shapes.means", "shapes.directions", "shapes.spreads"):
        old, new = before[name], learned.state_dict()[name]
        rest = [0, 1, 2, 3, 5]
        assert torch.equal(new[rest], old[rest]), name
    assert not torch.equal(learned.known[4], memory.known[4])
    again = taught(memory, [features], [4], Answers.of([at], [4]))
    assert all(torch.equal(a, b) for a, b in zip(again.buffers(), learned.buffers(), strict=True))


def test_a_cluster_that_holds_two_classes_is_parted_by_answers(base: FeatureMemory) -> None:
    features, truth = a_stage(100)
    both = (truth == 3) | (truth == 4)
    part, labels = features[both | (truth < 3)], truth[both | (truth < 3)]
    memory, _ = discovered(base, part, 1)
    left, right = (labels == 3).nonzero()[:4, 0].tolist(), (labels == 4).nonzero()[:4, 0].tolist()
    answers = Answers.of([*left, *right], [3] * 4 + [4] * 4)
    learned = taught(memory, [part], [3, 4], answers)
    assert len(learned) == 5
    fresh, classes = a_stage(500)
    shown = (classes == 3) | (classes == 4)
    predicted = learned([fresh[shown]]).argmax(dim=1)
    assert float((predicted == classes[shown]).double().mean()) > 0.9


def test_an_image_said_not_to_be_of_a_class_is_not(base: FeatureMemory) -> None:
    features, truth = a_stage(100)
    memory, shares = discovered(base, features, 3)
    at = int((truth == 3).nonzero()[0])
    one = int(shares[at].argmax())
    refused = Answers(torch.tensor([at]), torch.tensor([3 + one]), torch.tensor([False]))
    after, _ = settled(memory, [features], [3, 4, 5], refused)
    assert float(shares[at, one]) > 0.5 and float(after[at, one]) == 0
    base_too = Answers.of([at], [0])
    after, _ = settled(memory, [features], [3, 4, 5], base_too)
    assert float(after[at].sum()) == 0


def test_of_contradicting_answers_the_later_counts() -> None:
    answers = Answers.of([4, 2, 4], [7, 1, 8])
    assert answers.pinned(6).tolist() == [-1, -1, 1, -1, 8, -1]


def test_questions_begin_with_the_typical_image_of_each_class_and_never_repeat(
    base: FeatureMemory,
) -> None:
    features, _ = a_stage(100)
    memory, shares = discovered(base, features, 3)
    points = memory.looking(features).double()
    order = list(Questions(points, shares, []))
    assert sorted(order) == list(range(len(points)))
    own = shares.argmax(dim=1)
    assert sorted(own[order[:3]].tolist()) == [0, 1, 2]
    for position in order[:3]:
        mine = (shares[:, own[position]] > 0.5).nonzero()[:, 0]
        mean = points[mine].mean(dim=0)
        away = (points[mine] - mean).norm(dim=1)
        assert float((points[position] - mean).norm()) <= float(away.quantile(0.2))
    rest = list(Questions(points, shares, order[:5]))
    assert not set(rest) & set(order[:5])


def test_answers_mend_what_discovery_got_wrong(base: FeatureMemory) -> None:
    features, truth = a_stage(100)
    memory, shares = discovered(base, features, 3)
    fresh, classes = a_stage(500)
    before = agreement(memory([fresh]).argmax(dim=1), classes)
    person = SimulatedPerson(truth.numpy(), 24)
    asking = Asking(memory, [features], 3, shares, torch.arange(3))
    learned, after, named = asking.run(person, torch.arange(len(truth)))
    assert person.left == 0 and len(set(person.asked)) == 24
    assert agreement(learned([fresh]).argmax(dim=1), classes) > max(before, 0.9)
    assert named[:3].tolist() == [0, 1, 2] and sorted(named[3:].tolist()) == [3, 4, 5]
    assert after.shape == shares.shape


def test_a_person_answers_no_more_than_was_agreed() -> None:
    person = SimulatedPerson(torch.tensor([5, 6, 7]).numpy(), 2)
    assert [person.says(2), person.says(0)] == [7, 5] and person.left == 0
    with pytest.raises(GoalError, match="all of 2"):
        person.says(1)

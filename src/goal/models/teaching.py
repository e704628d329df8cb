"""From decisions to what a model knows: which classes they touch, and what images say of these."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from goal.common.arrays import IntArray
from goal.common.errors import GoalError
from goal.features.store import FeatureStore, is_store
from goal.learning.learner import Learner
from goal.methods.goal_plus import GoalPlus
from goal.methods.parts.discovery import SAMPLE
from goal.methods.parts.feature_memory import CLASS_ROWS, FeatureMemory
from goal.methods.parts.reestimation import ANYWHERE, Evidence, Touched, reestimated
from goal.models.classes import Roster
from goal.models.facts import Facts
from goal.models.records import StageRecord
from goal.models.rows import Rows
from goal.models.store import Store


@dataclass(frozen=True)
class Known:
    """What a step left, before any decision: the memory, and means to count new classes by."""

    memory: FeatureMemory
    means: Tensor


def frozen_memory(learner: Learner) -> GoalPlus | None:
    """The method, if it learns from corrections: its features never change."""
    method = learner.method
    return method if isinstance(method, GoalPlus) and method.settings.frozen else None


def known_by(learner: Learner) -> Known | None:
    """What a step left, of a learner that has just been restored."""
    method = frozen_memory(learner)
    return None if method is None else Known(method.memory, learner.counter.means)


def teach_learner(
    learner: Learner,
    known: Known,
    store: Store,
    records: Sequence[StageRecord],
    roster: Roster,
    facts: Facts,
    rows: Rows,
) -> None:
    """Let a learner know what decisions say; without any it is as the last step left it."""
    method = frozen_memory(learner)
    assert method is not None
    told = _Told(records, roster, facts, rows)
    features, digests = _features(store, told.digests(), len(known.means[0]))
    evidence = told.evidence(digests, method.deciding(features), method)
    touched = told.touched(evidence)
    with torch.no_grad():
        memory, shares = reestimated(known.memory, evidence, touched)
    method.memory = memory
    made = [at for at, id in enumerate(touched.moving) if id in touched.made]
    part = shares[:, made].to(features) / shares[:, made].sum(dim=0).clamp_min(1e-12).to(features)
    unit = torch.nn.functional.normalize(features, dim=1)
    learner.counter.means = torch.cat([known.means, (part.T @ unit).to(known.means)])


def state_of(
    learner: Learner, known: Known | None = None, before: int = 0, counted: int = 0
) -> dict[str, Any]:
    """Everything that a step leaves: classes of before as they were learned, not as corrected.

    Args:
        learner: The learner after the step.
        known: What the step before had left; None if it learned from no corrections.
        before: Number of classes then, those that decisions brought included.
        counted: Number of means then that new classes were counted beside.
    """
    state = {"method": learner.method.state_dict(), **learner.counter.state_dict()}
    if known is None or frozen_memory(learner) is None:
        return state
    raw = copy.deepcopy(known.memory)
    raw.extend(before)
    rows, plain = raw.state_dict(), dict(state["method"])
    for name in CLASS_ROWS:
        plain[f"memory.{name}"] = torch.cat([rows[name], plain[f"memory.{name}"][before:]])
    means = torch.cat([known.means, state["means"][counted:]])
    return {**state, "method": plain, "means": means}


def make_room(learner: Learner, total: int) -> None:
    """Let a method that learns from corrections keep a place for each class there ever was."""
    method = frozen_memory(learner)
    if method is not None:
        method.memory.extend(total)


class _Told:
    """What decisions say, as far as the model has the images and classes that it is about."""

    def __init__(
        self, records: Sequence[StageRecord], roster: Roster, facts: Facts, rows: Rows
    ) -> None:
        self._records, self._roster, self._rows = records, roster, rows
        self._base = records[0].num_seen
        self._given = facts.given.keys()
        here = rows.position.keys() | self._given
        present = {id for id, there in enumerate(roster.present) if there}
        self._pins = {d: id for d, id in facts.classes.items() if d in here and id in present}
        self._barred = {d: sorted(ids) for d, ids in facts.barred.items() if d in here}
        self._seeds = {
            id: [d for d in digests if d in here]
            for id, digests in facts.seeds.items()
            if id in present
        }
        self._told = {id for id in facts.told if id in present}
        self._made = {int(key) for key in roster.judgement.made}

    def _moving(self) -> set[int]:
        """Discovered and made classes that answers are about."""
        left = [self._row_id(digest) for digest in (*self._pins, *self._barred)]
        said = {*self._pins.values(), *self._told, *left}
        known = {*self._pins.values(), *(id for id, seeds in self._seeds.items() if seeds)}
        return {
            id
            for id in said
            if id >= self._base and (id not in self._made or id in known) and self._there(id)
        }

    def _there(self, id: int) -> bool:
        return id < len(self._roster.present) and self._roster.present[id]

    def _row_id(self, digest: bytes) -> int:
        row = self._rows.position.get(digest)
        return -1 if row is None else int(self._rows.ids[row])

    def _steps(self) -> IntArray:
        """Stages whose images the touched classes may be in."""
        moving = self._moving()
        images = {*self._pins, *self._barred, *(d for ds in self._seeds.values() for d in ds)}
        own = {
            int(self._rows.step[self._rows.position[digest]])
            for digest in images
            if digest in self._rows.position
        }
        steps = [
            record.step
            for record in self._records
            if record.kind == "discover"
            and (
                record.step in own
                or moving & self._made
                or any(record.num_known <= id < record.num_seen for id in moving)
            )
        ]
        return np.array(steps, np.int64)

    def digests(self) -> list[bytes]:
        """The images that are looked at: a sample of the stages', and all that were answered."""
        of_stages = np.flatnonzero(np.isin(self._rows.step, self._steps()))
        self._candidates = len(of_stages)
        chosen = [self._rows.digests[row] for row in _drawn(self._rows, of_stages)]
        seeds = [digest for digests in self._seeds.values() for digest in digests]
        return sorted({*chosen, *self._pins, *self._barred, *seeds})

    def evidence(
        self, digests: Sequence[bytes], features: Sequence[Tensor], method: GoalPlus
    ) -> Evidence:
        """What they show, and what was said of them."""
        place = {digest: at for at, digest in enumerate(digests)}
        seen = [self._seen(digest) for digest in digests]
        pinned = [self._pins.get(digest, ANYWHERE) for digest in digests]
        device = features[0].device
        return Evidence(
            features,
            torch.tensor(seen, device=device, dtype=torch.int64),
            torch.tensor(pinned, device=device, dtype=torch.int64),
            {place[d]: ids for d, ids in self._barred.items() if d in place},
            {id: [place[d] for d in ds if d in place] for id, ds in self._seeds.items()},
            max(1.0, self._candidates / SAMPLE),
        )

    def _seen(self, digest: bytes) -> int:
        row = self._rows.position.get(digest)
        step = len(self._records) - 1 if row is None else int(self._rows.step[row])
        return self._records[step].num_seen

    def touched(self, evidence: Evidence) -> Touched:
        """The classes to estimate anew, as far as there is anything to estimate them from."""
        pinned = set(evidence.pinned_N.tolist())
        seeded = {id for id, seeds in evidence.seeds.items() if seeds}
        moving = {
            id for id in self._moving() if id not in self._made or id in pinned or id in seeded
        }
        sizes = self._records[0].sizes
        return Touched(
            sorted(moving),
            frozenset(self._made),
            frozenset(
                id
                for id in map(self._row_id, self._pins)
                if id in moving and id not in pinned and id not in seeded
            ),
            len(self._roster.present),
            [max(1, sizes.get(str(id), 1)) for id in range(self._base)],
            frozenset(id for id in self._roster.judgement.confirmed if self._there(id)),
        )


def _drawn(rows: Rows, chosen: IntArray) -> IntArray:
    """At most a sample of some rows: those of the smallest digests, which are as good as random."""
    if len(chosen) <= SAMPLE:
        return chosen
    heads = np.frombuffer(b"".join(digest[:8] for digest in rows.digests), ">u8")
    return chosen[np.argpartition(heads[chosen], SAMPLE)[:SAMPLE]]


def _features(store: Store, digests: Sequence[bytes], width: int) -> tuple[Tensor, list[bytes]]:
    """Features that the model keeps, and of which of the images it has any."""
    if not digests:
        return torch.zeros(0, width), []
    if not is_store(store.features):
        raise GoalError(
            "The model keeps no features of its images, so it cannot learn from corrections. "
            "Models that this version fits keep them."
        )
    kept = FeatureStore(store.features)
    found = kept.find(digests)
    have = np.flatnonzero(found >= 0)
    features = torch.from_numpy(kept.features(found[have]).astype(np.float32))
    return features, [digests[at] for at in have.tolist()]

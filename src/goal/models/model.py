"""The life of a model: fitted once, then discovering, predicting and corrected for months."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch
import yaml

from goal import __version__
from goal.common.arrays import IntArray
from goal.common.errors import GoalError
from goal.common.process import cpu_threads
from goal.common.wording import counted
from goal.data.own_images import ImageSet
from goal.distributed import usable
from goal.features.bank import FeatureBank
from goal.features.source import FeatureSource
from goal.learning.learner import Learner
from goal.learning.trainer import EpochRecord
from goal.methods.base import LabelledStage, Stage
from goal.models.classes import Roster, class_names
from goal.models.exploring import Exploring
from goal.models.looking import look_banked
from goal.models.nearness import NEAR, places_of
from goal.models.origins import on_features, origin, vertex_room
from goal.models.page import pictures
from goal.models.piles import (
    IMAGES,
    Pile,
    Work,
    images_table,
    labels_of,
    sort_out,
    stages_of,
)
from goal.models.predictions import Predictions, skipped_csv
from goal.models.records import Estimate
from goal.models.requests import (
    AUTO,
    requested,
    require_all_classes,
    require_enough,
    require_share,
    tell_of,
    tell_of_two_labels,
)
from goal.models.store import StageRecord
from goal.models.teaching import known_by, make_room, state_of
from goal.models.waiting import PATIENCE, UNSURE, features_of, waiting_in
from goal.settings.settings import Settings
from goal.storage import checkpoint

__all__ = ["AUTO", "Model"]


class Model(Exploring):
    """A model folder, opened, that learns."""

    # -- learning ---------------------------------------------------------------------------------

    def fit(
        self,
        given: ImageSet,
        labels: IntArray,
        names: Sequence[str],
        settings: Settings,
        numbers: bool = False,
    ) -> StageRecord:
        """Learn labelled classes: the first step of a model.

        Args:
            given: The images; one that comes twice counts once.
            labels: Class of each, as a position in `names`.
            names: Names of the classes.
            settings: All settings; they hold for the model's whole life.
            numbers: Whether the names stand for whole numbers.
        """
        settings = settings.model_copy(update={"device": self._device or settings.device})
        usable(settings.device)  # before anything is written
        names = class_names(names)
        key = given.key(labels.tolist(), names, settings.identity())
        with self.changing(), cpu_threads(settings.threads):
            records = self.store.records()
            if records:
                return self._fitted_already(records, key)
            self.store.require_empty()
            settings, given_origin = on_features(settings, given)
            learner = self._build(settings, len(names), given_origin)
            pile = sort_out(given, {})
            work = self._gather(learner, pile, 0)
            chosen = labels_of(work.kept, given, labels)
            tell_of(pile, self.reporter)
            tell_of_two_labels(pile, given, labels, self.reporter)
            require_all_classes(chosen, names)
            self.store.begin({"step": 0, "key": work.kept.key(key)})
            epochs, truth = settings.training.base_epochs, torch.from_numpy(chosen)
            stage = LabelledStage(0, 0, len(names), epochs, work.tokens, truth)
            text = yaml.safe_dump(settings.plain(), sort_keys=False)
            facts = {"kind": "fit", "key": key, "names": names, "num_known": 0, "numbers": numbers}
            about, found, history = self._learned(learner, stage, work, facts)
            extra = {"settings.yaml": text.encode(), "history.jsonl": history}
            return self._conclude(learner, work, about, found, extra, chosen)

    def discover(
        self, given: ImageSet, n_new: int | str = AUTO, unknown: float | None = None
    ) -> StageRecord | None:
        """Learn unlabelled images as a new stage; None if nothing is added.

        Images that were learned before keep their class and teach nothing again.

        Args:
            given: The images, of known classes and new ones.
            n_new: Number of new classes, or ``auto``. A class that no image comes out as is not
                added, even if it was asked for.
            unknown: Share of known images that may be said to be of no class; None for none.
                Images of no class wait and join the next stage, and a stage that has some is kept
                even if it brings no new class.
        """
        self.store.require()
        wanted = requested(n_new)
        require_enough(wanted, given)
        key = given.key(wanted)
        with self.changing(), cpu_threads(self.settings.threads):
            records = self.records
            last = records[-1]
            if last.kind == "discover" and last.key == key:
                self.reporter.say("The model has learned exactly these images in its last stage.")
                return last
            pile = sort_out(given, self._learned_before(records))
            if not len(pile.fresh):
                self._nothing_fresh(pile)
                return None
            tell_of(pile, self.reporter)
            require_enough(wanted, pile.fresh)
            self._require_room(last, 1 if wanted == AUTO else int(wanted))
            learner = self._current()
            require_share(unknown, learner.method)
            work = self._gather(learner, pile, last.index + 1, unknown)
            if not len(work.kept):
                raise GoalError("None of the images can be read.")
            estimate = self._estimate(learner, work, last) if wanted == AUTO else None
            count = int(wanted) if estimate is None else estimate.count
            facts = {"kind": "discover", "key": key, "requested": wanted, "estimate": estimate}
            return self._discover(work, last, count, facts)

    def _discover(
        self, work: Work, last: StageRecord, count: int, facts: dict[str, Any]
    ) -> StageRecord | None:
        """Learn a stage, with fewer classes again if some come out without an image."""
        plan = {"step": last.step + 1, "key": work.kept.key(facts["key"])}
        begun = self.store.plan() or {}
        if begun.items() >= plan.items():  # interrupted when it had come down to fewer
            count = min(count, int(begun["count"]))
        epochs = self.settings.training.stage_epochs
        while count:
            self.store.begin({**plan, "count": count})
            learner = self._current()
            self._learner = None  # it changes now, and is worth nothing until the step is finished
            first = self.roster.next_id
            make_room(learner, first)
            stage = Stage(last.index + 1, first, count, epochs, work.once)
            names = self.roster.fresh_names(count)
            about, found, history = self._learned(
                learner, stage, work, {**facts, "names": names, "num_known": first}
            )
            used = len(np.unique(found.ids[found.ids >= first]))
            if used == count:
                return self._conclude(learner, work, about, found, {"history.jsonl": history})
            self.reporter.say(f"Of {count} new classes, {used} came out with images.")
            count = used
        return self._nothing_new(work, last, {**facts, "num_known": self.roster.next_id}, plan)

    def _nothing_new(
        self, work: Work, last: StageRecord, facts: dict[str, Any], plan: dict[str, Any]
    ) -> StageRecord | None:
        """Keep a stage without new classes if some of its images are of no class: they wait."""
        if work.unknown is not None:
            self.store.begin({**plan, "count": 0})
            learner = self._current()
            stage = Stage(last.index + 1, self.roster.next_id, 0, 0, work.once)
            about, found = self._described(learner, stage, work, facts)
            if found.unknown.any():
                self.reporter.say("No new class found; what is of no class waits for more images.")
                return self._conclude(learner, work, about, found, {"history.jsonl": b""})
        self.store.drop_work()
        self.reporter.say(
            "No new class found, so nothing was added. `goal predict` tells which known classes "
            "the images show."
        )
        return None

    def _gather(
        self, learner: Learner, pile: Pile, index: int, unknown: float | None = None
    ) -> Work:
        """Tokens of all readable fresh images of stage `index`, and which these are.

        Where images may be of no class, those that have waited for this stage come along.
        """
        lost: dict[int, str] = {}
        tokens = learner.tokens(pile.fresh.images, np.arange(len(pile.fresh)), index, lost)
        kept = pile.fresh.without(lost)
        self.skipped = kept.skipped
        if isinstance(learner.bank, FeatureBank):
            learner.bank.keep(kept)
        waiting = waiting_in(self.store).without([*pile.contents, *self._facts().classes])
        if unknown is None:
            return Work(pile, lost, kept, tokens, idle=waiting, once=learner.once(tokens))
        waited = waiting.since_stage(index - PATIENCE)
        if len(waited):
            self.reporter.say(f"{counted(len(waited), 'image')} of earlier stages had waited.")
            tokens = FeatureSource(np.concatenate([features_of(tokens), waited.features_ND]))
        return Work(pile, lost, kept, tokens, learner.once(tokens), waited, unknown=unknown)

    def _nothing_fresh(self, pile: Pile) -> None:
        self.skipped = pile.given.skipped
        if not pile.contents:
            raise GoalError(f"There is no image to learn from ({len(self.skipped)} skipped).")
        self.reporter.say(
            f"All of these images were learned in {stages_of(pile)}, so nothing was changed. To "
            "learn those of the last stage in another way: `goal undo`, then `goal discover`."
        )

    def _estimate(self, learner: Learner, work: Work, last: StageRecord) -> Estimate:
        """Count new classes; say how sure that is, and how to choose another number."""
        found = learner.count_new(work.once, last.index + 1)
        sure = Estimate(
            count=found.count, runner_up=found.runner_up, confidence=round(found.confidence, 4)
        )
        if sure.count:
            other = sure.runner_up or sure.count + 1
            self.reporter.say(
                f"{sure.text()} To choose: `goal undo`, then `goal discover ... --new {other}`."
            )
        if sure.count and sure.count == last.free:
            self.reporter.warn(
                "There may be more new classes than vertices; `goal extend-vertices` adds some."
            )
        return sure

    def _learn(self, learner: Learner, stage: Stage) -> list[EpochRecord]:
        """Learn a stage, going on from the checkpoint of an interrupted try if there is one."""
        path = self.store.work / "checkpoint.pt"
        saved = checkpoint.load(path) if path.exists() else None
        history: list[EpochRecord] = json.loads(saved["history"]) if saved else []
        if saved:
            self.reporter.say(f"Going on at epoch {saved['trainer']['epoch'] + 1}.")

        def keep(state: dict[str, Any]) -> None:
            checkpoint.save(path, {**state, "history": json.dumps(history)})

        learner.learn(stage, history, saved=saved, keep=keep)
        learner.note_classes(stage)
        return history

    def _learned(
        self, learner: Learner, stage: Stage, work: Work, facts: dict[str, Any]
    ) -> tuple[StageRecord, Predictions, bytes]:
        """Learn a stage and look at its images: what it is, their classes, and the losses."""
        history = self._learn(learner, stage)
        lines = "".join(json.dumps(row) + "\n" for row in history).encode()
        return *self._described(learner, stage, work, facts), lines

    def _described(
        self, learner: Learner, stage: Stage, work: Work, facts: dict[str, Any]
    ) -> tuple[StageRecord, Predictions]:
        """What a stage is, and the classes of its images."""
        records = self.store.records()
        about = StageRecord(
            step=len(records),
            index=stage.index,
            created=_now(),
            version=__version__,
            images=len(work.kept),
            waited=len(work.waited),
            skipped=len(work.kept.skipped),
            source=work.kept.source,
            minded=[action.id for action in self.store.history().teaching],
            seen=work.pile.seen,
            repeated=work.pile.repeated,
            blank=work.kept.blank(),
            trunk=learner.bank.fingerprint,
            origin=origin(learner),
            **vertex_room(learner),
            vertices=learner.vertices(stage.num_known, stage.num_seen),
            **facts,
        )
        roster = Roster([*records, about], self.store.judgement())
        seen = self._reduced(look_banked(learner, work.tokens), learner, roster)
        found = Predictions.join(seen, work.kept, roster, about.index, work.unknown)
        return about, replace(found, names=work.names)

    def _conclude(
        self,
        learner: Learner,
        work: Work,
        about: StageRecord,
        found: Predictions,
        contents: dict[str, bytes],
        labels: IntArray | None = None,
    ) -> StageRecord:
        """Write a step whose images have been learned and looked at."""
        seen = found.part(0, len(work.kept))
        images, table, fresh = work.pile.whole(seen, work.lost)
        table = table.without_junk()
        if labels is not None:
            found = found.labelled(labels)
        sizes = Counter(found.ids[~found.unknown].tolist())
        unsure = work.unsure(found.unknown, about.index)
        facts = {"sizes": {str(id): sizes[id] for id in sorted(sizes)}, "unsure": len(unsure)}
        about = about.model_copy(update=facts)
        shown = np.full(len(table.ids), -1)
        shown[fresh] = table.ids[fresh]
        new = replace(table, ids=shown)
        contents = {
            **contents,
            "predictions.csv": table.csv(),
            "predictions.parquet": table.parquet(),
            NEAR: places_of(learner.counter.means, learner.counter.within_class.within_DD),
            IMAGES: images_table(work, found),
            "skipped.csv": skipped_csv(images.skipped),
            "gallery.json": json.dumps(
                pictures(work.kept, seen, about.num_known, labels)
                if labels is not None
                else pictures(images, new, about.num_known)
            ).encode(),
        }
        if len(unsure):
            contents[UNSURE] = unsure.content()
        self.store.commit(about, contents, self._state(learner, about.num_known))
        if not self._taught:  # else it is what decisions made of the step
            self._learner = (self.store.seal(about.step), learner)
            self._plain = known_by(learner)
        return self.records[-1]

    def extend_vertices(self, total: int) -> StageRecord:
        """Make room for more classes: a step of its own, so that it can be undone."""
        with self.changing():
            last = self.records[-1]
            learner = self._current()
            if learner.ledger is None:
                raise GoalError(
                    f"The method {self.settings.method.name} has no vertices and needs none: its "
                    "classes can grow for ever."
                )
            self._learner = None
            turned = learner.ledger.extend(total)
            self.reporter.say(
                f"Owned vertices turned by {float(turned.max()):.2f} degrees at most."
            )
            about = StageRecord(
                kind="extend",
                step=last.step + 1,
                index=last.index,
                created=_now(),
                version=__version__,
                key=f"extend {total}",
                requested=total,
                num_known=self.roster.next_id,
                trunk=learner.bank.fingerprint,
                **vertex_room(learner),
            )
            self.store.begin({"step": about.step, "key": about.key})
            self.store.commit(about, {}, self._state(learner, about.num_known))
            return self.records[-1]

    def _state(self, learner: Learner, before: int) -> dict[str, Any]:
        """Everything that a step leaves to the next one; corrections are no part of it."""
        known = self._plain if self._taught else None
        return state_of(learner, known, before, self._counted)

    def _fitted_already(self, records: list[StageRecord], key: str) -> StageRecord:
        if len(records) == 1 and records[0].key == key:
            self.reporter.say("The model has been fitted to exactly these images already.")
            return records[0]
        raise self._occupied()

    def _require_room(self, last: StageRecord, count: int) -> None:
        if last.free is not None and last.free < count:
            raise GoalError(
                f"{count} new classes need a vertex each, but only {last.free} of "
                f"{last.capacity} are free. Add some: `goal extend-vertices --model "
                f"{self.store.folder} --to {2 * (last.capacity or 1)}`."
            )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")

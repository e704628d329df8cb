"""The life of a model: fitted once, then discovering, predicting and corrected for months."""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor

from goal import __version__
from goal.backbone.load import load_backbone
from goal.backbone.tokens import TokenSource
from goal.common.arrays import IntArray
from goal.common.errors import GoalError
from goal.common.process import cpu_threads
from goal.common.progress import Reporter
from goal.data.own_images import ImageSet
from goal.distributed import usable
from goal.learning.learner import Learner, require_backbone, room_for
from goal.learning.trainer import EpochRecord
from goal.methods.base import LabelledStage, Outputs, Stage
from goal.models.classes import Roster, class_names
from goal.models.folder import ModelFolder
from goal.models.looking import look_at, look_banked, pooled
from goal.models.page import pictures
from goal.models.predictions import Predictions, skipped_csv
from goal.models.store import StageRecord
from goal.settings.plain import read_settings
from goal.settings.settings import Settings, compose
from goal.storage import checkpoint

AUTO = "auto"


class Model(ModelFolder):
    """A model folder, opened. The backbone is loaded by what needs it, and then kept."""

    def __init__(
        self, folder: Path, reporter: Reporter | None = None, device: str | None = None
    ) -> None:
        super().__init__(folder)
        self.reporter = reporter or Reporter()
        self._device = device
        self._learner: tuple[int, Learner] | None = None
        self.skipped: list[tuple[str, str]] = []  # by the last call, and why

    @cached_property
    def settings(self) -> Settings:
        """The settings it was fitted with."""
        self.store.require()
        settings = compose(read_settings(self.store.path(0) / "settings.yaml"))
        return settings.model_copy(update={"device": self._device or settings.device})

    # -- learning ---------------------------------------------------------------------------------

    def fit(
        self, given: ImageSet, labels: IntArray, names: Sequence[str], settings: Settings
    ) -> StageRecord:
        """Learn labelled classes: the first step of a model.

        Args:
            given: The images.
            labels: Class of each, as a position in `names`.
            names: Names of the classes.
            settings: All settings; they hold for the model's whole life.
        """
        settings = settings.model_copy(update={"device": self._device or settings.device})
        usable(settings.device)  # before anything is written
        names = class_names(names)
        key = given.key(labels.tolist(), names, settings.identity())
        with self.store.writing(), cpu_threads(settings.threads):
            records = self.store.records()
            if records:
                return self._fitted_already(records, key)
            self.store.require_empty()
            learner = self._build(settings, len(names))
            tokens, kept = self._tokens(learner, given, 0)
            positions = {position: index for index, position in enumerate(given.kept)}
            chosen = labels[[positions[position] for position in kept.kept]]
            _require_all_classes(chosen, names)
            plan = {"step": 0, "key": kept.key(key)}
            self.store.begin(plan)
            stage = LabelledStage(
                0,
                0,
                len(names),
                settings.training.base_epochs,
                tokens,
                torch.from_numpy(chosen),
            )
            text = yaml.safe_dump(settings.plain(), sort_keys=False)
            facts = {"kind": "fit", "key": key, "names": names, "num_known": 0}
            extra = {"settings.yaml": text.encode()}
            return self._conclude(learner, stage, tokens, kept, facts, extra)

    def discover(self, given: ImageSet, n_new: int | str = AUTO) -> StageRecord | None:
        """Learn unlabelled images as a new stage; None if `auto` finds nothing new in them.

        Args:
            given: The images, of known classes and new ones.
            n_new: Number of new classes, or ``auto``.
        """
        self.store.require()
        self._check_request(n_new, given)
        key = given.key(n_new)
        with self.store.writing(), cpu_threads(self.settings.threads):
            last = self.records[-1]
            if last.kind == "discover" and last.key == key:
                self.reporter.say("The model has learned exactly these images in its last stage.")
                return last
            self._require_room(last, 1 if n_new == AUTO else int(n_new))
            learner = self._current()
            tokens, kept = self._tokens(learner, given, last.index + 1)
            if not len(kept):
                raise GoalError("None of the images can be read.")
            count = self._how_many(learner, tokens, last, n_new)
            if count == 0:
                self.store.drop_work()
                return None
            plan = {"step": last.step + 1, "key": kept.key(key, count)}
            self.store.begin(plan)
            epochs = self.settings.training.stage_epochs
            stage = Stage(last.index + 1, last.num_seen, count, epochs, tokens)
            facts = {
                "kind": "discover",
                "key": key,
                "requested": n_new,
                "names": self.roster.fresh_names(count),
                "num_known": last.num_seen,
            }
            self._learner = None  # it is changed now, and worth nothing until the step is finished
            return self._conclude(learner, stage, tokens, kept, facts, {})

    def _tokens(
        self, learner: Learner, given: ImageSet, index: int
    ) -> tuple[TokenSource, ImageSet]:
        """Tokens of all readable images of stage `index`, and which these are."""
        lost: dict[int, str] = {}
        tokens = learner.tokens(given.images, np.arange(len(given)), index, lost)
        kept = given.without(lost)
        self.skipped = kept.skipped
        return tokens, kept

    def _how_many(
        self, learner: Learner, tokens: TokenSource, last: StageRecord, n_new: int | str
    ) -> int:
        if n_new != AUTO:
            return int(n_new)
        count = learner.count_new(tokens, last.index + 1)
        if count:
            self.reporter.say(f"Estimated number of new classes: {count}.")
        if count == last.free:
            self.reporter.warn(
                "There may be more new classes than vertices; `goal extend-vertices` adds some."
            )
        return count

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

    def _conclude(
        self,
        learner: Learner,
        stage: Stage,
        tokens: TokenSource,
        kept: ImageSet,
        facts: dict[str, Any],
        extra: dict[str, bytes],
    ) -> StageRecord:
        """Learn the stage, look at its images, and write the step."""
        history = self._learn(learner, stage)
        step = len(self.store.records())
        about = StageRecord(
            step=step,
            index=stage.index,
            created=_now(),
            version=__version__,
            images=len(kept),
            skipped=len(kept.skipped),
            trunk=learner.bank.fingerprint,
            **_room(learner),
            vertices=learner.vertices(stage.num_known, stage.num_seen),
            **facts,
        )
        roster = Roster([*self.store.records(), about], self.store.judgement())
        seen = self._reduced(look_banked(learner, tokens), learner, roster)
        found = Predictions.join(seen, kept, roster, about.index)
        if isinstance(stage, LabelledStage):
            counts = np.bincount(stage.labels.numpy(), minlength=stage.num_new)
        else:
            counts = np.bincount(found.ids, minlength=stage.num_seen)
        sizes = {str(id): int(count) for id, count in enumerate(counts) if count}
        about = about.model_copy(update={"sizes": sizes})
        labels = stage.labels.numpy() if isinstance(stage, LabelledStage) else None
        gallery = pictures(kept, found, stage.num_known, labels)
        contents = {
            **extra,
            "predictions.csv": found.csv(),
            "predictions.parquet": found.parquet(),
            "skipped.csv": skipped_csv(kept.skipped),
            "history.jsonl": "".join(json.dumps(row) + "\n" for row in history).encode(),
            "gallery.json": json.dumps(gallery).encode(),
        }
        self.store.commit(about, contents, _state(learner))
        self._learner = (step, learner)
        self.write_page()
        return about

    def extend_vertices(self, total: int) -> StageRecord:
        """Make room for more classes: a step of its own, so that it can be undone."""
        with self.store.writing():
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
                num_known=last.num_seen,
                trunk=learner.bank.fingerprint,
                **_room(learner),
            )
            self.store.begin({"step": about.step, "key": about.key})
            self.store.commit(about, {}, _state(learner))
            self.write_page()
            return about

    def export(self, path: Path) -> None:
        """Write the model as one ONNX graph; merged classes have the same name in it."""
        from goal.models.export import export_onnx  # needs an extra

        learner, roster = self._current(), self.roster
        names = [roster.names[owner] for owner in roster.owner]
        export_onnx(learner.trunk, learner.method, names, self.settings.transform, path)

    # -- predicting -------------------------------------------------------------------------------

    def predict(self, given: ImageSet) -> Predictions:
        """Class and confidence of each readable image; each depends on that image alone."""
        roster, latest = self.roster, self.records[-1].index
        with cpu_threads(self.settings.threads):
            learner = self._current()
            lost: dict[int, str] = {}
            seen = list(self._reduced(look_at(learner, given, lost), learner, roster))
        return Predictions.join(seen, given.without(lost), roster, latest)

    def look(self, given: ImageSet) -> tuple[Tensor, Tensor, ImageSet]:
        """Unit features (N, D) and class probabilities (N, classes) of the readable images."""
        roster = self.roster
        features, probabilities = [], []
        with cpu_threads(self.settings.threads):
            learner = self._current()
            lost: dict[int, str] = {}
            for outputs, scores in look_at(learner, given, lost):
                features.append(outputs.features.cpu())
                merged = pooled(scores, roster.owner)
                probabilities.append(learner.method.probabilities(merged).cpu())
        if not features:
            raise GoalError("None of the images can be read.")
        return torch.cat(features), torch.cat(probabilities), given.without(lost)

    def _reduced(
        self, seen: Iterator[tuple[Outputs, Tensor]], learner: Learner, roster: Roster
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Best class and its probability, batch by batch: all that is kept of an image."""
        for _, scores in seen:
            best = learner.method.probabilities(pooled(scores, roster.owner)).max(dim=1)
            yield best.indices.cpu(), best.values.cpu()

    # -- inside -----------------------------------------------------------------------------------

    def learner(self) -> Learner:
        """The model as its last step left it, for export and the like."""
        return self._current()

    def _build(self, settings: Settings, base_classes: int) -> Learner:
        device, backbone = usable(settings.device), load_backbone(settings.backbone)
        return Learner(settings, backbone, room_for(settings, base_classes), device, self.reporter)

    def _current(self) -> Learner:
        records = self.records
        last = records[-1]
        if self._learner is None or self._learner[0] != last.step:
            learner = self._build(self.settings, records[0].num_seen)
            require_backbone(learner, last.trunk)
            state = self.store.state(last.step)
            learner.restore(state.pop("method"))
            learner.counter.load_state_dict(state)
            self._learner = (last.step, learner)
        return self._learner[1]

    def _fitted_already(self, records: list[StageRecord], key: str) -> StageRecord:
        if len(records) == 1 and records[0].key == key:
            self.reporter.say("The model has been fitted to exactly these images already.")
            return records[0]
        raise GoalError(
            f"{self.store.folder} holds a model already. Choose another folder, or teach this one "
            "new images by `goal discover`."
        )

    def _check_request(self, n_new: int | str, given: ImageSet) -> None:
        if n_new != AUTO and (isinstance(n_new, str | bool) or n_new < 1):
            raise GoalError(f"The number of new classes is a whole number from 1, or {AUTO!r}.")
        if not len(given):
            raise GoalError(f"There is no image to learn from ({len(given.skipped)} skipped).")
        if n_new != AUTO and len(given) < int(n_new):
            raise GoalError(f"{len(given)} images cannot show {n_new} new classes.")

    def _require_room(self, last: StageRecord, count: int) -> None:
        if last.free is not None and last.free < count:
            raise GoalError(
                f"{count} new classes need a vertex each, but only {last.free} of "
                f"{last.capacity} are free. Add some: `goal extend-vertices --model "
                f"{self.store.folder} --to {2 * (last.capacity or 1)}`."
            )


def _state(learner: Learner) -> dict[str, Any]:
    """Everything that a step leaves to the next one."""
    return {"method": learner.method.state_dict(), **learner.counter.state_dict()}


def _room(learner: Learner) -> dict[str, Any]:
    """Number of vertices and of free ones; nothing for methods without."""
    if learner.ledger is None:
        return {}
    return {"capacity": len(learner.ledger.owners), "free": learner.free}


def _require_all_classes(labels: IntArray, names: Sequence[str]) -> None:
    missing = sorted(set(range(len(names))) - set(labels.tolist()))
    if missing:
        raise GoalError(f"No image of the class {names[missing[0]]!r} can be read. Add some.")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")

"""A whole experiment in one folder: stages in, records out, resumable at any moment.

settings.yaml    every setting, resolved
results.jsonl    one record per stage
history.jsonl    the mean of every loss term, per epoch
summary.json     averages, forgetting and discovery in all their forms, versions, times
classes.json     names of the classes in the order of their appearance
stages/          test predictions of each stage, and what the report shows of it
checkpoint.pt    where to go on
manifest.json    checksums of all these, once they are final
"""

import hashlib
import json
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from goal import __version__
from goal.backbone.load import load_backbone
from goal.bank.necks import fit_neck
from goal.common.errors import GoalError
from goal.common.process import cpu_threads, forget_peak_memory, peak_memory
from goal.common.progress import Reporter
from goal.data.sets import load_dataset
from goal.distributed import by_first, first_goes_ahead, joined, ranks, sole_user
from goal.evaluation.metrics import StageScore, last_accuracies, summarise
from goal.evaluation.scoring import Evaluation, evaluate, judge_confident_set
from goal.evaluation.snapshot import gallery_images, snapshot, write_thumbnails
from goal.learning.learner import learner_on_tokens, room_for
from goal.learning.shared_base import SharedBase, base_key, base_settings
from goal.learning.trainer import EpochRecord
from goal.methods.base import AskedStage, LabelledStage, Stage
from goal.protocol.person import SimulatedPerson
from goal.protocol.rehearsal import rehearse
from goal.protocol.stages import ProtocolSettings, StageIds, build_stages, class_order, targets
from goal.runs.records import EpochLine, StageLine, checked, read_results, read_summary
from goal.settings.plain import read_settings
from goal.settings.settings import Settings, compose, difference
from goal.storage import checkpoint, files, manifest

_ALL_STAGES = "All stages"
_FINAL = ("results.jsonl", "history.jsonl", "checkpoint.pt", "summary.json")
_VERSIONED = ("torch", "transformers", "numpy", "scipy", "scikit-learn")


def start(settings: Settings, folder: Path, reporter: Reporter | None = None) -> dict[str, Any]:
    """Run an experiment in `folder`, or go on with the same one begun there; return its summary."""
    with joined(settings.device) as device, sole_user(folder), cpu_threads(settings.threads):
        by_first(lambda: _require_same_run(settings, folder))
        return Run(settings, folder, reporter or Reporter(), device).execute()


def _require_same_run(settings: Settings, folder: Path) -> None:
    path = folder / "settings.yaml"
    if path.exists():
        if lines := difference(_stored_settings(folder), settings):
            raise GoalError(
                f"{folder} holds a run with other settings:\n"
                + "\n".join(f"  - {line}" for line in lines)
                + "\nChoose another --out, or go on with that run by `goal resume`."
            )
    elif any(e.name != ".lock" and not files.is_leftover(e.name) for e in folder.iterdir()):
        raise GoalError(f"{folder} is not empty and holds no run. Choose another --out.")


def resume(
    folder: Path, reporter: Reporter | None = None, download: bool = False
) -> dict[str, Any]:
    """Go on with the run in `folder`; return its summary.

    Whatever its settings say, dataset and backbone are fetched only with `download`.
    """
    path = folder / "settings.yaml"
    if not path.is_file():
        raise GoalError(f"{folder} holds no run to resume: there is no {path.name} in it.")
    settings = _stored_settings(folder)
    data = settings.data.model_copy(update={"download": download})
    settings = settings.model_copy(update={"data": data})
    with joined(settings.device) as device, sole_user(folder), cpu_threads(settings.threads):
        return Run(settings, folder, reporter or Reporter(), device).execute()


def _stored_settings(folder: Path) -> Settings:
    manifest.read(folder)  # before all else: a newer format needs a newer goal
    return compose(read_settings(folder / "settings.yaml"))


class Run:
    """The experiment while it runs."""

    def __init__(
        self, settings: Settings, folder: Path, reporter: Reporter, device: torch.device
    ) -> None:
        self.settings = settings
        self.folder = folder
        self.device = device
        self.writes = ranks().first
        self.reporter = reporter if self.writes else Reporter()
        self.records: list[dict[str, Any]] = []
        self.history: list[EpochRecord] = []
        self._seconds_before = 0.0
        self._began = time.monotonic()
        self._stage_seconds: list[float] = []

    def execute(self) -> dict[str, Any]:
        """Run the stages that are not done yet."""
        sealed = by_first(lambda: manifest.read(self.folder))
        finished = self.folder / "summary.json"
        if by_first(finished.exists):
            self.reporter.say(f"The run in {self.folder} is finished already.")
            done = by_first(lambda: read_results(self.folder))
            self.reporter.stage_done(done)
            self.reporter.run_done(done)
            if self.writes and (sealed is None or finished.name not in sealed):
                self._seal(*_FINAL)  # killed in its last moment
            return by_first(lambda: read_summary(self.folder))
        forget_peak_memory()
        self._prepare()
        # Written only now: settings that cannot even start must not claim the folder.
        if self.writes:
            text = yaml.safe_dump(self.settings.plain(), sort_keys=False)
            files.write_text(self.folder / "settings.yaml", text)
            files.write_json(self.folder / "classes.json", {"names": self.class_names})
        first, unfinished = self._restore()
        if self.writes:
            self._seal()
        todo = self.stages[first:]
        for ids in self.reporter.track(todo, len(todo), _ALL_STAGES):
            stage = self._stage(ids, unfinished)
            if stage.num_new:
                self._learn(stage, unfinished)
            unfinished = None
            self._conclude(ids, stage)
        self.reporter.run_done(self.records)
        return self._summary()

    # -- set-up -----------------------------------------------------------------------------------

    def _prepare(self) -> None:
        s = self.settings
        if s.protocol.queries and not s.method.frozen:
            raise GoalError(
                f"The method {s.method.name} asks nobody: protocol.queries is for goal-plus with "
                "method.alignment none or analytic. Set it to 0."
            )
        with first_goes_ahead():  # whoever downloads, does it once
            self.dataset, protocol = load_dataset(s.data, self.reporter), s.protocol
            backbone = load_backbone(s.backbone, s.data.download)
        trunk = backbone.trunk.to(self.device)
        if trunk.neck is not None:  # a rehearsal takes the neck, and so the bank, of the real thing
            base = self._cut(protocol)[0].train_ids
            with first_goes_ahead():
                fit_neck(trunk, self.dataset.train, base, s.transform, s.bank, self.reporter)
        if protocol.rehearsal:
            self.dataset, protocol = rehearse(self.dataset, protocol)
        order = class_order(len(self.dataset.class_names), protocol)
        self.class_names = [self.dataset.class_names[index] for index in order.tolist()]
        self.train_targets = targets(self.dataset.train.labels, order)
        self.test_targets = targets(self.dataset.test.labels, order)
        self.stages = self._cut(protocol)
        self.counts_classes = protocol.estimate_new
        self.capacity = self.stages[-1].num_seen
        if self.counts_classes:
            self.capacity = room_for(s, self.stages[0].num_new)
        self.learner = learner_on_tokens(s, backbone, self.capacity, self.device, self.reporter)

    def _cut(self, protocol: ProtocolSettings) -> tuple[StageIds, ...]:
        labels = (self.dataset.train.labels, self.dataset.test.labels)
        return build_stages(*labels, len(self.dataset.class_names), protocol)

    def _stage(self, ids: StageIds, unfinished: dict[str, Any] | None = None) -> Stage:
        """Build the stage as the method may see it: labels at stage 0, and never again."""
        training = self.settings.training
        tokens = self.learner.tokens(self.dataset.train, ids.train_ids, ids.index)
        if ids.index > 0:
            known, new = ids.num_known, ids.num_new
            if self.counts_classes and unfinished is not None:
                known, new = unfinished["classes"]
            elif self.counts_classes:
                known = self.learner.method.num_classes
                new = self.learner.count_new(tokens, ids.index).count
            stage = Stage(ids.index, known, new, training.stage_epochs, tokens)
            queries = self.settings.protocol.queries
            if not queries:
                return stage
            person = SimulatedPerson(self.train_targets[ids.train_ids], queries)
            return AskedStage(**vars(stage), person=person)
        labels = torch.from_numpy(self.train_targets[ids.train_ids])
        return LabelledStage(0, 0, ids.num_new, training.base_epochs, tokens, labels)

    # -- one stage --------------------------------------------------------------------------------

    def _learn(self, stage: Stage, unfinished: dict[str, Any] | None) -> None:
        def keep(state: dict[str, Any]) -> None:
            if self.writes:
                self._save(stage.index, state)

        def judge() -> float:
            """Score the test set, to repeat what others published: never for choosing."""
            return float(self._evaluate(self.stages[stage.index]).record["all"])

        self.learner.learn(
            stage,
            self.history,
            saved=unfinished,
            keep=keep,
            judge=judge if self.settings.training.selection == "best_on_test" else None,
            shared=self._shared_base() if stage.index == 0 else None,
        )
        if self.counts_classes:
            self.learner.note_classes(stage)

    def _shared_base(self) -> SharedBase | None:
        """Return where the base model of this run is shared, None if it must not be."""
        s, ids = self.settings, self.stages[0].train_ids
        if not s.training.share_base or s.training.selection != "last":
            return None
        images = hashlib.sha256()
        for index in ids.tolist():
            images.update(self.dataset.train.digest(index))
        facts = {
            "images": images.hexdigest(),
            "labels": self.train_targets[ids].tolist(),
            "trunk": self.learner.bank.fingerprint,
            "transform": s.transform.model_dump(mode="json"),
            "backbone": s.backbone.model_dump(mode="json", exclude={"name"}),
            "bank": s.bank.model_dump(mode="json", exclude={"folder", "budget_gb"}),
            "training": s.training.model_dump(
                mode="json",
                exclude={"stage_epochs", "stage_lr", "checkpoint_seconds", "share_base"}
                | {"prefetch"},
            ),
            "method": base_settings(type(self.learner.method), s.method),
            "capacity": self.capacity,
            "seed": s.seed,
            "device": s.device,
        }
        return SharedBase(s.bank, base_key(facts))

    def _conclude(self, ids: StageIds, stage: Stage) -> None:
        """Score the stage. One in which nothing new was found leaves the method as it is."""
        trusted: dict[str, float | int] = {}
        if stage.num_new:
            trusted = judge_confident_set(
                self.learner.method.confident_set(),
                self.train_targets[ids.train_ids],
                stage.num_known,
                ids.num_known,
            )
        found = self._evaluate(ids)
        marked: dict[str, Any] = {"selection": self.settings.training.selection}
        if self.counts_classes:
            marked["num_found"] = stage.num_new
        if isinstance(stage, AskedStage):
            marked["num_asked"] = self.settings.protocol.queries - stage.person.left
        self.records.append(found.record | trusted | marked)
        self._stage_seconds.append(round(self._seconds() - sum(self._stage_seconds), 2))
        if self.writes:
            self._write_stage(ids, found)
            self._save(ids.index, None)
            self._seal()
        self.reporter.stage_done(self.records)
        self.reporter.note(_ALL_STAGES, last_accuracies(self.records[-1]))

    def _evaluate(self, ids: StageIds) -> Evaluation:
        tokens = self.learner.bank.open(self.dataset.test, ids.test_ids, augmented_views=False)
        truth = self.test_targets[ids.test_ids]
        return evaluate(self.learner.method, tokens, truth, ids, self.stages[0].num_new)

    # -- files ------------------------------------------------------------------------------------

    def _write_stage(self, ids: StageIds, found: Evaluation) -> None:
        """Write the stage's predictions, and what the report shows of it."""
        folder = files.inside(self.folder, "stages")
        folder.mkdir(exist_ok=True)
        truth = self.test_targets[ids.test_ids]
        arrays = {"test_ids": ids.test_ids, "predictions": found.predictions, "truth": truth}
        arrays |= snapshot(self.learner.method, found, truth)
        with files.replacing(folder / f"stage-{ids.index}.npz") as stream_:
            np.savez(stream_, allow_pickle=False, **arrays)
        shown = gallery_images(arrays, self.stages[0].num_new)
        path = folder / f"thumbnails-{ids.index}.zip"
        write_thumbnails(path, self.dataset.test, ids.test_ids, shown, self.reporter)

    def _save(self, index: int, unfinished: dict[str, Any] | None) -> None:
        """Write the checkpoint, then the files that follow from it."""
        state = {
            "stage": index,
            "method": self.learner.method.state_dict(),
            "trainer": unfinished["trainer"] if unfinished else None,
            "best": unfinished["best"] if unfinished else None,
            "classes": unfinished["classes"] if unfinished else None,
            "records": json.dumps(self.records),
            "history": json.dumps(self.history),
            "seconds": self._seconds(),
            "stage_seconds": self._stage_seconds,
        }
        if self.counts_classes and (index or not unfinished):
            state["counter"] = self.learner.counter.state_dict()
        checkpoint.save(self.folder / "checkpoint.pt", state)
        self._write_journals()

    def _restore(self) -> tuple[int, dict[str, Any] | None]:
        """Return the stage to go on with, and what was kept of it if it is half done."""
        path = self.folder / "checkpoint.pt"
        state = by_first(lambda: checkpoint.load(path) if path.exists() else None)
        if state is None:
            return 0, None
        try:
            self.learner.restore(state["method"])
            if self.counts_classes and (state["stage"] or state["trainer"] is None):
                self.learner.counter.load_state_dict(state["counter"])
            rows, history = json.loads(state["records"]), json.loads(state["history"])
            self.records = checked(rows, StageLine, f"records in {path}")
            self.history = checked(history, EpochLine, f"history in {path}")
            self._seconds_before = state["seconds"]
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise GoalError(
                f"The checkpoint {path} is whole but does not belong to these settings: {error!r}. "
                f"Restore it or settings.yaml from a copy, or start again in a new folder."
            ) from error
        self._stage_seconds = state.get("stage_seconds", [])
        if self.writes:
            self._write_journals()
        if state["trainer"] is None:
            return state["stage"] + 1, None
        self.reporter.say(
            f"Going on at stage {state['stage']}, epoch {state['trainer']['epoch'] + 1}."
        )
        return state["stage"], state

    def _write_journals(self) -> None:
        files.write_jsonl(self.folder / "results.jsonl", self.records)
        files.write_jsonl(self.folder / "history.jsonl", self.history)

    def _seal(self, *more: str) -> None:
        """Write checksums of the files that are final by now."""
        stages = (self.folder / "stages").glob("[!.]*")
        names = [path.relative_to(self.folder).as_posix() for path in stages]
        manifest.seal(self.folder, ["settings.yaml", "classes.json", *names, *more])

    def _seconds(self) -> float:
        return self._seconds_before + max(0.0, time.monotonic() - self._began)

    def _summary(self) -> dict[str, Any]:
        fields = StageScore.__dataclass_fields__
        scores = [StageScore(**{key: row[key] for key in fields}) for row in self.records]
        summary = {
            "format": manifest.FORMAT,
            "dataset": self.settings.data.name,
            "method": self.settings.method.name,
            "backbone": self.settings.backbone.name,
            "seed": self.settings.seed,
            "selection": self.settings.training.selection,
            **summarise(scores),
            "wall_seconds": round(self._seconds(), 1),
            "stage_seconds": self._stage_seconds,
            "peak_memory_mb": peak_memory(),
            "ranks": ranks().count,
            "settings_hash": self.settings.hash(),
            "versions": {"goal": __version__, "python": platform.python_version()}
            | {name: version(name) for name in _VERSIONED},
        }
        if self.writes:
            files.write_json(self.folder / "summary.json", summary)
            self._seal(*_FINAL)
        return summary

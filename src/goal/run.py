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
from torch import Tensor

from goal import __version__, checkpoint, files, manifest
from goal.backbone import load_backbone
from goal.bank import TokenBank
from goal.census import Census
from goal.config import Settings, compose, difference, read_settings
from goal.data import load_dataset
from goal.errors import GoalError, pick
from goal.evaluation import Evaluation, evaluate, judge_confident_set
from goal.methods import METHODS
from goal.methods.base import LabelledStage, Method, Stage, restore
from goal.metrics import StageScore, summarise
from goal.necks import fit_neck
from goal.process import cpu_threads, forget_peak_memory, peak_memory, sole_user
from goal.progress import Reporter, last_accuracies
from goal.protocol import ProtocolSettings, build_stages, class_order, targets
from goal.protocol import Stage as StageIds
from goal.randomness import stream
from goal.rehearsal import rehearse
from goal.shared_base import SharedBase, base_key, base_settings
from goal.sharing import agree, by_first, first_goes_ahead, joined, ranks
from goal.snapshot import gallery_images, snapshot, write_thumbnails
from goal.tokens import TokenSource
from goal.training import EpochRecord, StageTrainer

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
    ours = (".lock", files.neighbour_of(path).name)
    if path.exists():
        if lines := difference(_stored_settings(folder), settings):
            raise GoalError(
                f"{folder} holds a run with other settings:\n"
                + "\n".join(f"  - {line}" for line in lines)
                + "\nChoose another --out, or go on with that run by `goal resume`."
            )
    elif any(entry.name not in ours for entry in folder.iterdir()):
        raise GoalError(f"{folder} is not empty and holds no run. Choose another --out.")


def resume(folder: Path, reporter: Reporter | None = None) -> dict[str, Any]:
    """Go on with the run in `folder`; return its summary."""
    path = folder / "settings.yaml"
    if not path.is_file():
        raise GoalError(f"{folder} holds no run to resume: there is no {path.name} in it.")
    settings = _stored_settings(folder)
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
        self._saved = time.monotonic()
        self._best: dict[str, Any] | None = None
        self._stage_seconds: list[float] = []

    def execute(self) -> dict[str, Any]:
        """Run the stages that are not done yet."""
        sealed = by_first(lambda: manifest.read(self.folder))
        finished = self.folder / "summary.json"
        if by_first(finished.exists):
            self.reporter.say(f"The run in {self.folder} is finished already.")
            done = by_first(lambda: files.read_jsonl(self.folder / "results.jsonl"))
            self.reporter.stage_done(done)
            if self.writes and (sealed is None or finished.name not in sealed):
                self._seal(*_FINAL)  # killed in its last moment
            return by_first(lambda: files.read_json(finished))
        forget_peak_memory()
        self._prepare()
        # Written only now: settings that cannot even start must not claim the folder.
        if self.writes:
            text = yaml.safe_dump(self.settings.plain(), sort_keys=False)
            files.write_text(self.folder / "settings.yaml", text)
            files.write_json(self.folder / "classes.json", {"names": self.class_names})
        first, trainer_state = self._restore()
        if self.writes:
            self._seal()
        todo = self.stages[first:]
        for ids in self.reporter.track(todo, len(todo), _ALL_STAGES):
            stage = self._stage(ids)
            rng = stream(self.settings.seed, "stage", ids.index)
            if stage.num_new == 0:
                self._conclude(ids, stage, rng)
                continue
            if trainer_state is None:
                self.method.begin_stage(stage, rng)
                self._best = None
            trainer = StageTrainer(self.method, stage, self.settings.training, rng)
            if trainer_state is not None:
                trainer.load_state_dict(trainer_state)
                trainer_state = None
            self._learn(trainer)
            self._conclude(ids, stage, rng)
        return self._summary()

    # -- set-up -----------------------------------------------------------------------------------

    def _prepare(self) -> None:
        s = self.settings
        with first_goes_ahead():  # whoever downloads, does it once
            self.dataset, protocol = load_dataset(s.data, self.reporter), s.protocol
            backbone = load_backbone(s.backbone)
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
        self.bank = TokenBank(trunk, s.transform, s.bank, self.reporter)
        self.capacity = self.stages[-1].num_seen
        self.census: Census | None = None
        if protocol.estimate_new:
            labelled = self.stages[0].num_new
            self.census = Census(backbone.tail.to(self.device), max(10, labelled // 2), s.seed)
            self.capacity = labelled + protocol.stages * self.census.most
        self.method: Method = pick(METHODS, s.method.name, "method").method.build(
            s.method, backbone.tail, self.capacity, stream(s.seed, "method")
        )
        self.method.to(self.device).eval()

    def _cut(self, protocol: ProtocolSettings) -> tuple[StageIds, ...]:
        labels = (self.dataset.train.labels, self.dataset.test.labels)
        return build_stages(*labels, len(self.dataset.class_names), protocol)

    def _stage(self, ids: StageIds) -> Stage:
        """Build the stage as the method may see it: labels at stage 0, and never again."""
        training = self.settings.training
        views = self.method.trains(ids.index)
        tokens = self.bank.open(self.dataset.train, ids.train_ids, augmented_views=views)
        if ids.index > 0:
            known, new = ids.num_known, ids.num_new
            if self.census is not None:
                known, new = self.census.numbers(ids.index, self._look)
            return Stage(ids.index, known, new, training.stage_epochs, tokens)
        labels = torch.from_numpy(self.train_targets[ids.train_ids])
        return LabelledStage(0, 0, ids.num_new, training.base_epochs, tokens, labels)

    def _look(self, index: int) -> tuple[TokenSource, Tensor | None]:
        """Clean tokens of a stage, and labels at stage 0, for a census."""
        ids = self.stages[index].train_ids
        tokens = self.bank.open(self.dataset.train, ids, augmented_views=False)
        return tokens, None if index else torch.from_numpy(self.train_targets[ids])

    # -- one stage --------------------------------------------------------------------------------

    def _learn(self, trainer: StageTrainer) -> None:
        def after_epoch(record: EpochRecord) -> None:
            self.history.append(record)
            self.reporter.epoch_done(record, len(self.history))
            if self.settings.training.selection == "best_on_test":
                self._remember_best(trainer.stage.index)
            waited = time.monotonic() - self._saved
            if self.writes and waited >= self.settings.training.checkpoint_seconds:
                self._save(trainer.stage.index, trainer.state_dict())

        def run_epochs() -> None:
            shared = self._shared_base() if trainer.stage.index == 0 else None
            found = shared.load(trainer, self.reporter) if shared and trainer.epoch == 0 else None
            if found is not None:
                self.reporter.say("Stage 0: taking the base model that an earlier run trained.")
                for record in found:
                    self.history.append(record)
                    self.reporter.epoch_done(record, len(self.history))
                return
            trainer.run(after_epoch, self.reporter)
            if self._best is not None:
                restore(self.method, self._best["method"])
            if shared:
                shared.save(trainer, self.history)

        if self.method.trains(trainer.stage.index):
            self.method.fit_stage(trainer.stage, run_epochs)

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
            "trunk": self.bank.fingerprint,
            "transform": s.transform.model_dump(mode="json"),
            "backbone": s.backbone.model_dump(mode="json", exclude={"name"}),
            "bank": s.bank.model_dump(mode="json", exclude={"folder", "budget_gb"}),
            "training": s.training.model_dump(
                mode="json",
                exclude={"stage_epochs", "stage_lr", "checkpoint_seconds", "share_base"}
                | {"prefetch"},
            ),
            "method": base_settings(type(self.method), s.method),
            "capacity": self.capacity,
            "seed": s.seed,
            "device": s.device,
        }
        return SharedBase(s.bank, base_key(facts))

    def _remember_best(self, index: int) -> None:
        """Keep the epoch with the highest test accuracy: "as published" mode only."""
        accuracy = self._evaluate(self.stages[index]).record["all"]
        if self._best is None or accuracy > self._best["all"]:
            state = {key: value.clone() for key, value in self.method.state_dict().items()}
            self._best = {"all": accuracy, "method": state}

    def _conclude(self, ids: StageIds, stage: Stage, rng: torch.Generator) -> None:
        """Score the stage. One in which nothing new was found leaves the method as it is."""
        trusted: dict[str, float | int] = {}
        if stage.num_new:
            self.method.end_stage(stage, rng)
            agree(self.method.state_dict().values())
            trusted = judge_confident_set(
                self.method.confident_set(),
                self.train_targets[ids.train_ids],
                stage.num_known,
                ids.num_known,
            )
        found = self._evaluate(ids)
        marked: dict[str, Any] = {"selection": self.settings.training.selection}
        if self.census is not None:
            marked["num_found"] = stage.num_new
        self.records.append(found.record | trusted | marked)
        self._stage_seconds.append(round(self._seconds() - sum(self._stage_seconds), 2))
        if self.writes:
            self._write_stage(ids, found)
            self._save(ids.index, None)
            self._seal()
        self.reporter.stage_done(self.records)
        self.reporter.note(_ALL_STAGES, last_accuracies(self.records[-1]))

    def _evaluate(self, ids: StageIds) -> Evaluation:
        tokens = self.bank.open(self.dataset.test, ids.test_ids, augmented_views=False)
        truth = self.test_targets[ids.test_ids]
        return evaluate(self.method, tokens, truth, ids, self.stages[0].num_new)

    # -- files ------------------------------------------------------------------------------------

    def _write_stage(self, ids: StageIds, found: Evaluation) -> None:
        """Write the stage's predictions, and what the report shows of it."""
        folder = self.folder / "stages"
        folder.mkdir(exist_ok=True)
        truth = self.test_targets[ids.test_ids]
        arrays = {"test_ids": ids.test_ids, "predictions": found.predictions, "truth": truth}
        arrays |= snapshot(self.method, found.outputs, found.predictions, truth, ids)
        with files.replacing(folder / f"stage-{ids.index}.npz") as stream_:
            np.savez(stream_, allow_pickle=False, **arrays)
        shown = gallery_images(arrays, self.stages[0].num_new)
        path = folder / f"thumbnails-{ids.index}.zip"
        write_thumbnails(path, self.dataset.test, ids.test_ids, shown, self.reporter)

    def _save(self, index: int, trainer: dict[str, Any] | None) -> None:
        """Write the checkpoint, then the files that follow from it."""
        state = {
            "stage": index,
            "method": self.method.state_dict(),
            "trainer": trainer,
            "best": self._best if trainer is not None else None,
            "records": json.dumps(self.records),
            "history": json.dumps(self.history),
            "seconds": self._seconds(),
            "stage_seconds": self._stage_seconds,
        }
        checkpoint.save(self.folder / "checkpoint.pt", state)
        self._saved = time.monotonic()
        self._write_journals()

    def _restore(self) -> tuple[int, dict[str, Any] | None]:
        """Return the stage to go on with, and the trainer's state if it is half done."""
        path = self.folder / "checkpoint.pt"
        state = by_first(lambda: checkpoint.load(path) if path.exists() else None)
        if state is None:
            return 0, None
        try:
            restore(self.method, state["method"])
            self.records, self.history = json.loads(state["records"]), json.loads(state["history"])
            self._seconds_before, self._best = state["seconds"], state["best"]
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
        return state["stage"], state["trainer"]

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

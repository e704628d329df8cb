"""The part of a model that computes: backbone, token bank and method."""

import copy
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from goal import checkpoint
from goal.backbone import load_backbone
from goal.bank import TokenBank
from goal.clustering import class_means
from goal.config import Settings
from goal.data.decoding import UnreadableImage
from goal.data.given import ImageSet
from goal.data.transforms import clean
from goal.errors import GoalError, pick
from goal.estimate_k import Spread, estimate_new, measure_known
from goal.geometry import UNOWNED, VertexLedger
from goal.methods import METHODS
from goal.methods.base import LabelledStage, Method, Outputs, Stage, restore
from goal.model.settings import capacity
from goal.process import Pause
from goal.progress import Reporter
from goal.randomness import stream
from goal.shelf import decode, encode, row_dtype
from goal.sources import run_trunk
from goal.tokens import Tokens, TokenSource
from goal.training import EpochRecord, StageTrainer

_BATCH = 512
_READERS = 8


class Engine:
    """Learns stages and looks at images; knows nothing of names and folders."""

    means: Tensor  # of all classes that have images, (classes, D), and
    spread: Spread  # of the labelled ones, both in the pretrained features, which never drift

    def __init__(self, settings: Settings, base_classes: int, reporter: Reporter) -> None:
        self.settings = settings
        self.reporter = reporter
        backbone = load_backbone(settings.backbone)
        device = torch.device(settings.device)
        self.trunk = backbone.trunk.to(device)
        self.fingerprint = self.trunk.fingerprint()
        self._pretrained = copy.deepcopy(backbone.tail).requires_grad_(False).to(device).eval()
        build = pick(METHODS, settings.method.name, "method").method.build
        room = capacity(settings, base_classes)
        self.method: Method = build(
            settings.method, backbone.tail, room, stream(settings.seed, "method")
        )
        self.method.to(device).eval()

    # -- vertices ---------------------------------------------------------------------------------

    @property
    def ledger(self) -> VertexLedger | None:
        """Which class owns which vertex, where the method has any."""
        ledger = getattr(self.method, "ledger", None)
        return ledger if isinstance(ledger, VertexLedger) else None

    def room(self) -> dict[str, Any]:
        """Number of vertices and of free ones; nothing for methods without."""
        ledger = self.ledger
        if ledger is None:
            return {}
        return {"capacity": len(ledger.owners), "free": len(ledger.free())}

    def vertices(self, first: int, end: int) -> list[int | None]:
        """Vertex of each class from id `first` up to `end`."""
        ledger = self.ledger
        if ledger is None:
            return [None] * (end - first)
        found = ledger.vertex_of(torch.arange(first, end, device=ledger.owners.device))
        return [None if vertex == UNOWNED else vertex for vertex in found.tolist()]

    # -- state ------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything that a step leaves to the next one."""
        return {
            "method": self.method.state_dict(),
            "means": self.means,
            "within": self.spread.within_DD,
            "gap": self.spread.gap,
        }

    def adopt(self, state: dict[str, Any], fingerprint: str) -> None:
        """Take over what a step left; an error if the backbone is no longer the one it used."""
        if fingerprint != self.fingerprint:
            raise GoalError(
                f"The backbone {self.settings.backbone.name} is not the one this model was fitted "
                f"with: its weights have changed. Put the former ones back."
            )
        self._restore(state["method"])
        self.means = state["means"]
        self.spread = Spread(state["within"], state["gap"])

    def _restore(self, state: dict[str, Tensor]) -> None:
        restore(self.method, state)
        self.method.to(self.settings.device).eval()

    # -- learning ---------------------------------------------------------------------------------

    def bank(self, given: ImageSet, index: int) -> tuple[TokenSource, ImageSet]:
        """Tokens of all readable images of stage `index`, and which these are."""
        lost: dict[int, str] = {}
        bank = TokenBank(self.trunk, self.settings.transform, self.settings.bank, self.reporter)
        views = self.method.trains(index)
        tokens = bank.open(given.images, np.arange(len(given)), views, lost)
        return tokens, given.without(lost)

    def estimate(self, tokens: TokenSource, most: int, index: int) -> int:
        """Guess the number of new classes, 0 to `most`."""
        rng = stream(self.settings.seed, "estimate", index)
        return estimate_new(self._plain_features(tokens), self.means, self.spread, most, rng)

    @torch.no_grad()
    def _plain_features(self, tokens: TokenSource) -> Tensor:
        """Unit features of the pretrained backbone, which no stage changes."""
        device = torch.device(self.settings.device)
        parts = torch.arange(len(tokens)).split(_BATCH)
        features = [self._pretrained(tokens.clean(part).to(device)).cpu() for part in parts]
        return F.normalize(torch.cat(features), dim=1)

    def learn(self, stage: Stage, work: Path) -> list[EpochRecord]:
        """Learn a stage, going on from the checkpoint in `work` if there is one."""
        rng = stream(self.settings.seed, "stage", stage.index)
        path = work / "checkpoint.pt"
        history: list[EpochRecord] = []
        saved = checkpoint.load(path) if path.exists() else None
        if saved is None:
            self.method.begin_stage(stage, rng)
        else:
            self._restore(saved["method"])
            history = json.loads(saved["history"])
            self.reporter.say(f"Going on at epoch {saved['trainer']['epoch'] + 1}.")
        trainer = StageTrainer(self.method, stage, self.settings.training, rng)
        if saved is not None:
            trainer.load_state_dict(saved["trainer"])
        self._train(trainer, history, path)
        self.method.end_stage(stage, rng)
        self._measure(stage)
        return history

    def _train(self, trainer: StageTrainer, history: list[EpochRecord], path: Path) -> None:
        pause = Pause(self.settings.training.checkpoint_seconds)

        def after_epoch(record: EpochRecord) -> None:
            history.append(record)
            if pause.over():
                state = {
                    "method": self.method.state_dict(),
                    "trainer": trainer.state_dict(),
                    "history": json.dumps(history),
                }
                checkpoint.save(path, state)
                pause.restart()

        if self.method.trains(trainer.stage.index):
            self.method.fit_stage(trainer.stage, lambda: trainer.run(after_epoch, self.reporter))

    def _measure(self, stage: Stage) -> None:
        """Note the means of the stage's classes, for later estimates."""
        features = self._plain_features(stage.tokens)
        if isinstance(stage, LabelledStage):
            self.means, self.spread = measure_known(features, stage.labels, stage.num_new)
            return
        scores = torch.cat([scores.cpu() for _, scores in self.look(stage.tokens)])
        classes = scores.argmax(dim=1) - stage.num_known
        features, classes = features[classes >= 0], classes[classes >= 0]
        found = torch.bincount(classes, minlength=stage.num_new) > 0
        new = class_means(features, classes, stage.num_new)[found]
        self.means = torch.cat([self.means, new])

    # -- looking ----------------------------------------------------------------------------------

    def look(self, tokens: TokenSource) -> Iterator[tuple[Outputs, Tensor]]:
        """What the method makes of banked images, batch by batch, and their scores."""
        for part in torch.arange(len(tokens)).split(_BATCH):
            yield self._seen(tokens.clean(part))

    def look_at(self, given: ImageSet, lost: dict[int, str]) -> Iterator[tuple[Outputs, Tensor]]:
        """The same for images that are not banked: read, used and forgotten.

        Ones that prove unreadable are entered in `lost`, by position.
        """
        transform, size = self.settings.transform, self.settings.bank.batch_size

        def crop(index: int) -> npt.NDArray[np.uint8] | None:
            try:
                return clean(given.images.image(index), transform)
            except UnreadableImage as error:
                lost[index] = error.reason
                return None

        starts = range(0, len(given), size)
        with ThreadPoolExecutor(_READERS) as pool:
            for start in self.reporter.track(starts, len(starts), "Looking at images"):
                part = range(start, min(start + size, len(given)))
                crops = [crop for crop in pool.map(crop, part) if crop is not None]
                if crops:
                    tokens = run_trunk(self.trunk, np.stack(crops), min(size, len(part)))
                    yield self._seen(self._rounded(tokens))

    def _rounded(self, tokens: Tokens) -> Tokens:
        """Tokens as the bank would give them back."""
        _, count, width = tokens.normalised.shape
        layout = {"dtype": self.settings.bank.dtype, "tokens": count, "width": width}
        return decode(encode(tokens, row_dtype(layout)))

    @torch.no_grad()
    def _seen(self, tokens: Tokens) -> tuple[Outputs, Tensor]:
        outputs = self.method.infer(tokens.to(torch.device(self.settings.device)))
        return outputs, self.method.class_scores(outputs)


def pooled(scores_NK: Tensor, owner: list[int]) -> Tensor:
    """Best score among the classes merged into one, (N, classes that are not merged)."""
    kept = sorted(set(owner))
    column = torch.tensor([kept.index(id) for id in owner], device=scores_NK.device)
    best = torch.full((len(scores_NK), len(kept)), -torch.inf).to(scores_NK)
    return best.scatter_reduce(1, column.expand_as(scores_NK), scores_NK, "amax")

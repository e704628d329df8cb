"""Stage 0 trained once: methods that train the same base model share it between runs.

The key is a hash of everything stage 0 depends on: images and labels, trunk, transform, views,
the loop's settings, the seed, those settings of the method that matter there, and the versions
and number of threads that the last bits depend on. Kept are the trained parameters, the
generator's state and the loss history after the last epoch, so a run that finds them goes on
exactly as if it had trained them itself.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from goal import __version__
from goal.bank.bank import BankSettings
from goal.common.errors import GoalError
from goal.common.progress import Reporter
from goal.distributed import by_first, ranks
from goal.learning.trainer import EpochRecord, StageTrainer
from goal.methods.base import Method, MethodSettings
from goal.storage import checkpoint
from goal.storage.cache import cache_folder
from goal.storage.files import inside


def base_key(facts: Mapping[str, Any]) -> str:
    """Hash of the facts a base model depends on, and of what computes it: versions and threads."""
    versions = {"goal": __version__, "torch": str(torch.__version__)}
    computed_by = {**versions, "threads": torch.get_num_threads()}
    text = json.dumps({**facts, **computed_by}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def base_settings(method: type[Method], settings: MethodSettings) -> dict[str, Any]:
    """Family and settings of a method as far as they matter at stage 0."""
    values = settings.model_dump(mode="json", exclude={"name"})
    keys = method.base_keys
    kept = values if keys is None else {key: values[key] for key in sorted(keys)}
    return {"family": method.base_family or method.__name__, **kept}


class SharedBase:
    """The stored base model under one key."""

    def __init__(self, settings: BankSettings, key: str) -> None:
        self.path: Path = inside(cache_folder(settings.folder), f"base/{key}.pt")

    def load(self, trainer: StageTrainer, reporter: Reporter) -> list[EpochRecord] | None:
        """Put the stored model in place of training; return its history, None if there is none."""
        state = by_first(lambda: self._read(reporter))
        if state is None:
            return None
        trained = trained_parameters(trainer.method)
        assert trained.keys() == state["parameters"].keys(), "one family, other parameters"
        with torch.no_grad():
            for name, parameter in trained.items():
                parameter.copy_(state["parameters"][name])
        trainer.rng.set_state(state["rng"])
        trainer.epoch = trainer.stage.epochs
        history: list[EpochRecord] = json.loads(state["history"])
        return history

    def _read(self, reporter: Reporter) -> dict[str, Any] | None:
        if not self.path.exists():
            return None
        try:
            return checkpoint.load(self.path)
        except GoalError as error:
            reporter.warn(f"{error} Training the base model again.")
            return None

    def save(self, trainer: StageTrainer, history: list[EpochRecord]) -> None:
        """Store what the last epoch left."""
        if not ranks().first:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        parameters = trained_parameters(trainer.method)
        state = {
            "parameters": {name: value.detach().clone() for name, value in parameters.items()},
            "rng": trainer.rng.get_state(),
            "history": json.dumps(history),
        }
        checkpoint.save(self.path, state)


def trained_parameters(method: Method) -> dict[str, torch.nn.Parameter]:
    """Parameters that gradient steps change, by name."""
    return {name: value for name, value in method.named_parameters() if value.requires_grad}

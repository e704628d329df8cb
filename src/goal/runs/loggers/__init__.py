"""Live curves while a run goes on, one module per tool. Nothing leaves the machine by itself."""

from pathlib import Path

from goal.runs.loggers.base import CurveLogger
from goal.runs.loggers.mlflow import MlflowLogger
from goal.runs.loggers.tensorboard import TensorboardLogger
from goal.runs.loggers.wandb import WandbLogger

_LOGGERS: dict[str, type[CurveLogger]] = {
    "tensorboard": TensorboardLogger,
    "wandb": WandbLogger,
    "mlflow": MlflowLogger,
}


def make_logger(name: str, folder: Path) -> CurveLogger:
    """Return the logger of that name for the run in `folder`, or say what must be installed."""
    return _LOGGERS[name](folder)

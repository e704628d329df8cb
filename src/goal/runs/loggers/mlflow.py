"""Live curves for MLflow, in a database of the run's own."""

import os
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from goal.runs.loggers.base import Axis, CurveLogger

_TAG = "goal.run"


class MlflowLogger(CurveLogger):
    """Writes to SQLite; ``MLFLOW_TRACKING_URI`` is how a person asks for a server."""

    tool = "mlflow"

    def __init__(self, run: Path) -> None:
        """Check that MLflow is there."""
        super().__init__(run)
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when it is imported
        self._client_type = self._require("mlflow").MlflowClient
        self._require("sqlalchemy")  # what the slim package lacks
        self._opened: tuple[Any, str] | None = None

    @property
    def how_to_look(self) -> str:
        """The command that shows the curves."""
        return shlex.join(["mlflow", "ui", "--backend-store-uri", self._place])

    @property
    def _place(self) -> str:
        own = f"sqlite:///{self._folder.resolve() / 'mlflow.db'}"
        return os.environ.get("MLFLOW_TRACKING_URI", own)

    def write(self, values: Mapping[str, float], axis: Axis, step: int) -> None:
        """Write one curve for each."""
        if self._opened is None:
            self._opened = self._open()
        client, identity = self._opened
        now = int(time.time() * 1000)
        for name, value in values.items():
            client.log_metric(identity, name, float(value), timestamp=now, step=step)

    def close(self) -> None:
        """Mark the run as ended."""
        if self._opened is not None:
            client, identity = self._opened
            client.set_terminated(identity)

    def _open(self) -> tuple[Any, str]:
        """Go on with the run of this folder, or begin it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        client = self._client_type(tracking_uri=self._place)
        known = client.get_experiment_by_name("goal")
        artifacts = (self._folder.resolve() / "artifacts").as_uri()
        experiment = known.experiment_id if known else client.create_experiment("goal", artifacts)
        found = client.search_runs([experiment], f"tags.`{_TAG}` = '{self._identity}'")
        if found:
            return client, found[0].info.run_id
        made = client.create_run(
            experiment, tags={_TAG: self._identity}, run_name=self._folder.parent.name
        )
        return client, made.info.run_id

"""A run in MLflow. Its own environment variables (MLFLOW_TRACKING_URI, MLFLOW_TRACKING_TOKEN, ...) hold. Needs the extra `mlflow`."""

import os
import re
import time
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from extensions.tracking.trackers import Order, Status, numbers

MOST = 1000  # metrics in one request, as the server takes them
PARAMETERS = 100  # settings in one request
LONGEST = 6000  # characters of a setting
STATUS = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}


class MlflowRun:
    """One run; the experiment there is called as the experiment here, vision/digits, and made where it is missing."""

    def __init__(self, order: Order, settings: Mapping[str, Any], known: str | None):
        for name, value in (("MLFLOW_HTTP_REQUEST_TIMEOUT", "10"), ("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1"),
                            ("MLFLOW_DISABLE_TELEMETRY", "true")):
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        self.client = MlflowClient(order.server)
        self.id = known or ""
        if known:
            try:
                experiment = self.client.get_run(known).info.experiment_id
                self.client.update_run(known, status="RUNNING")
            except MlflowException as error:
                if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                    raise
                self.id = ""
        if not self.id:
            experiment = self._experiment(order.project)
            began = None if order.began is None else int(order.began * 1000)
            self.id = self.client.create_run(experiment, began, {"mlflow.source.name": "quartet"}, order.name).info.run_id
            self._settings(settings)
        address = self.client.tracking_uri.rstrip("/")
        self.place = f"{address}/#/experiments/{experiment}/runs/{self.id}" if address.startswith("http") else f"{address}, run {self.id}"

    def log(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """In as few requests as it takes."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        points = (Metric(plain(name), value, now, int(row["step"])) for row in rows for name, value in numbers(row).items())
        while batch := list(islice(points, MOST)):
            self.client.log_batch(self.id, metrics=batch, synchronous=True)

    def finish(self, status: Status, metrics: Mapping[str, float], files: Mapping[Path, str], step: int) -> None:
        self.log([{"step": step, **metrics}])
        for file, folder in files.items():
            self.client.log_artifact(self.id, str(file), folder or None)
        self.client.set_terminated(self.id, STATUS[status])

    def _experiment(self, name: str) -> str:
        from mlflow.exceptions import MlflowException

        found = self.client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        try:
            return str(self.client.create_experiment(name))
        except MlflowException:  # another run made it meanwhile
            found = self.client.get_experiment_by_name(name)
            if found is None:
                raise
            return str(found.experiment_id)

    def _settings(self, settings: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        values = iter([Param(plain(name), str(value)[:LONGEST]) for name, value in settings.items()])
        while batch := list(islice(values, PARAMETERS)):
            self.client.log_batch(self.id, params=batch, synchronous=True)


def plain(name: str) -> str:
    """A name of such characters as MLflow takes: recall_at_10 for recall@10."""
    return re.sub(r"[^\w./: -]", "_", name.replace("@", "_at_"), flags=re.ASCII)

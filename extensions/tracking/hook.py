"""What tracking adds to a run: it is sent to a tracker, its data are described, and its card has the metadata of hubs."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from extensions.tracking.beside import Tracking, require_extra
from extensions.tracking.croissant import FILE, croissant
from extensions.tracking.hub_card import front_matter
from extensions.tracking.settings import Track
from extensions.tracking.trackers import Order
from pipelines.base.files import write_whole
from pipelines.base.formatting import split_name
from pipelines.base.stored import read_bytes
from pipelines.config.schema import Experiment
from pipelines.config.train_settings import protected_by
from pipelines.data.divide import Splits
from pipelines.runs.folder import RunFolder
from pipelines.runs.run_hook import HookedRun, RunHook, Status
from pipelines.training.loop import Loop


class Tracked(RunHook):
    """Sends the run to the tracker that monitor.track names. Raises ConfigError where its package is not installed."""

    def __init__(self, run: HookedRun):
        super().__init__(run)
        self.settings = run.experiment.monitor.added(Track)
        self.tracking: Tracking | None = None
        if self.settings.track is not None:
            require_extra(self.settings.track)

    def on_start(self, loop: Loop) -> None:
        run, settings = self.run, self.settings
        if settings.track is not None:
            self.tracking = Tracking(Order(settings.track, str(run.folder.path.absolute()), run.name, run.folder.path.name,
                                           settings.track_server, settings.track_files, settings.track_seconds, time.time()),
                                     run.note, run.warn)

    def on_rest(self, loop: Loop) -> None:
        if self.tracking is not None:
            self.tracking.look()

    def ended(self, status: Status, report: dict[str, Any]) -> None:
        if self.tracking is not None:
            send = report and self.settings.track_files and not self.run.private
            self.tracking.end(status, metrics(report) if report else {}, files(self.run.folder) if send else {})


class Described(RunHook):
    """croissant.json: the data as Croissant describes them."""

    @classmethod
    def describe_data(cls, experiment: Experiment, splits: Splits, name: str) -> dict[str, Any]:
        if protected_by(experiment.train):  # no noise protects counts of classes
            return {}
        parts = {"train": splits.train, "validation": splits.validation, "test": splits.test}
        return {FILE: croissant(experiment.data, parts, name=name, task=experiment.task, classes=splits.facts.get("classes") or (),
                                notes=splits.notes)}


class HubCard(RunHook):
    """The metadata that hubs of models read, before the text of README.md, the model card."""

    def ended(self, status: Status, report: dict[str, Any]) -> None:
        card = self.run.folder.path / "README.md"
        if status == "finished":
            write_whole(card, front_matter(report, self.run.task_class.hub_name) + read_bytes(card).decode("utf-8"))


def metrics(report: Mapping[str, Any]) -> dict[str, float]:
    """The report's metrics with their intervals. `final/validation/...` is of the weights that are kept, beside its chart by epochs."""
    found = {}
    for name, metric in report["metrics"].items():
        split, _ = split_name(name)
        for bound, value in (("", metric["value"]), ("_low", metric.get("low")), ("_high", metric.get("high"))):
            if value is not None:
                found[f"{name}{bound}" if split == "test" else f"final/{name}{bound}"] = float(value)
    return found


def files(folder: RunFolder) -> dict[Path, str]:
    """The report's files and what the run was made of, with the folder of each at the tracker. No data, no weights."""
    report = folder.report
    return {**{folder.path / name: "" for name in ("experiment.yaml", "environment.json", FILE)},
            **{report / name: "report" for name in ("report.html", "report.md", "report.json", "model_card.md")},
            **dict.fromkeys(sorted((report / "figures").glob("*.png")), "report/figures")}

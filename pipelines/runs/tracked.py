"""A run that is tracked, too (monitor.track): what of it goes to the tracker."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pipelines.base.formatting import split_name
from pipelines.config.schema import Experiment
from pipelines.monitoring.tracking.beside import Tracking, require_extra
from pipelines.monitoring.tracking.trackers import Order
from pipelines.runs.folder import RunFolder


def check(experiment: Experiment) -> None:
    """Raises ConfigError where the tracker's package is not installed."""
    if experiment.monitor.track is not None:
        require_extra(experiment.monitor.track)


def start(experiment: Experiment, folder: RunFolder, name: str, note: Callable[[str], None],
          warn: Callable[[str], None]) -> Tracking | None:
    """Begins to send the run, or continues; None where it is not tracked.

    Args:
        name: the experiment's, vision/digits.
        note, warn: called with a sentence, as `Tracking` does.
    """
    monitor = experiment.monitor
    if monitor.track is None:
        return None
    return Tracking(Order(monitor.track, str(folder.path.absolute()), name, folder.path.name, monitor.track_server,
                          monitor.track_files, monitor.track_seconds, time.time()), note, warn)


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
    return {**{folder.path / name: "" for name in ("experiment.yaml", "environment.json", "croissant.json")},
            **{report / name: "report" for name in ("report.html", "report.md", "report.json", "model_card.md")},
            **dict.fromkeys(sorted((report / "figures").glob("*.png")), "report/figures")}

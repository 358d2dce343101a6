"""The runs of a folder: which there are, how far they are and what they came to. Reads files only; imports no TensorFlow."""

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from pipelines.base import formatting, stored
from pipelines.base.errors import ConfigError, QuartetError
from pipelines.base.files import finite
from pipelines.base.formatting import better
from pipelines.base.inside import Linked, all_below, refuse_links
from pipelines.base.storage import Closed
from pipelines.config.messages import listed, nearest
from pipelines.runs import in_store
from pipelines.runs.folder import RunFolder
from pipelines.task.results import Metric

State = Literal["finished", "running", "interrupted", "paused", "failed", "damaged"]  # paused and failed: of a search's trials
_TAIL = 1 << 16  # bytes of metrics.jsonl that hold its last lines
_SHOWN = 8
_LEAST_EPOCH = 1e-9  # part of an epoch that a line can stand for
_REASON = 160  # characters of why a trial failed, or a run is damaged


@dataclass(frozen=True)
class Listed:
    """One run.

    Attributes:
        experiment: `vision/digits`.
        progress: how far an unfinished run is, in words; of a failed trial and of a damaged run the reason.
        metric: (name with split, value): the leading one of the report, or the last of validation.
        seconds: of training so far.
        date: of the last thing written, seconds since 1970.
        size: of all its files, bytes.
    """

    folder: RunFolder
    experiment: str
    state: State
    progress: str = ""
    metric: tuple[str, Metric] | None = None
    seconds: float | None = None
    date: float = 0.0
    size: int = 0

    @property
    def name(self) -> str:
        return self.folder.path.name

    def as_json(self) -> dict[str, Any]:
        """Everything, with plain values."""
        metric = {"name": self.metric[0], **self.metric[1].as_json()} if self.metric else None
        return finite({"run": str(self.folder.path), "experiment": self.experiment, "name": self.name, "state": self.state,
                       "progress": self.progress, "metric": metric, "seconds": self.seconds, "date": self.date,
                       "bytes": self.size})


def leading(report: Mapping[str, Any]) -> tuple[str, Metric] | None:
    """The metric that a report leads with, with its split: the first of test, or of the first split judged."""
    names = list(report["metrics"])
    name = next((name for name in names if name.startswith("test/")), names[0] if names else None)
    return None if name is None else (name, metric_of(report["metrics"][name]))


def metric_of(stored: Mapping[str, Any]) -> Metric:
    """A metric as report.json holds it; null there is not a number."""
    value, low, high = (None if stored.get(name) is None else float(stored[name]) for name in ("value", "low", "high"))
    value = float("nan") if value is None else value
    return Metric(value, low, high, stored.get("n"), stored.get("unit") or "example", stored.get("units"))


def headline(report: Mapping[str, Any]) -> str:
    """`test accuracy 98.3 % [96.9, 99.4] on 360 examples`."""
    chosen = leading(report)
    if chosen is None:
        return "nothing was judged: the data have neither a test nor a validation split"
    name, metric = chosen
    split, base = formatting.split_name(name)
    text = f"{split} {formatting.title_within(base)} {metric.text(name)}"
    if metric.n:
        text += f" on {formatting.counted(metric.n, 'example')}"
        if metric.low is not None and metric.units is not None and metric.unit != "example":
            text += f", drawn by {metric.drawn_by()}"
    spread = (report.get("spread") or {}).get(name)
    if spread and spread["n"] > 1:
        text += f"; mean of {spread['n']} seeds, spread {formatting.number(spread['std'], name)}"
    return text


def run_folders(runs: Path) -> Iterator[RunFolder]:
    """Every run below a folder, in the order of the names."""
    for place, folders, files in os.walk(runs):
        if "experiment.yaml" in files:
            folders.clear()
            yield RunFolder(Path(place))
        folders[:] = sorted(name for name in folders if not name.startswith("."))


def list_runs(runs: Path, *, match: str | None = None) -> list[Listed]:
    """The runs below a folder.

    Args:
        match: text, or pattern with * and ?, that `experiment/name` must hold.

    Raises:
        ConfigError: there is no such folder.
    """
    stored_there = in_store.listing(runs)
    place = stored_there[0] if stored_there else runs
    if not place.is_dir():
        raise ConfigError(f"{runs}: there is no such folder; --runs DIR says where the runs are")
    listed = []
    for folder in run_folders(place):
        name = folder.path.relative_to(place).as_posix()
        if match is None or (fnmatchcase(name, match) if set(match) & set("*?[") else match in name):
            entry = entry_of(folder, name.rpartition("/")[0])
            if stored_there is None:
                listed.append(replace(entry, size=size_of(folder.path)))
            else:
                state: State = "running" if entry.state == "interrupted" and name in stored_there[2] else entry.state
                listed.append(replace(entry, state=state, size=stored_there[1].get(name, 0)))
    return listed


def ordered(entries: Sequence[Listed], by: Literal["date", "name", "metric", "duration"]) -> list[Listed]:
    """Runs by name; newest, longest, or best first. By metric, runs of one metric stand together, those without one last."""
    if by == "name":
        return sorted(entries, key=lambda one: (one.experiment, one.name))
    if by == "date":
        return sorted(entries, key=lambda one: -one.date)
    if by == "duration":
        return sorted(entries, key=lambda one: -(one.seconds or 0.0))

    def rank(one: Listed) -> tuple[bool, str, float]:
        if one.metric is None:
            return True, "", 0.0
        name, metric = one.metric
        return False, name, metric.value if better(name) == "min" else -metric.value

    return sorted(entries, key=rank)


def entry_of(folder: RunFolder, experiment: str) -> Listed:
    """As `read_entry`; a run whose files are not what a run writes is damaged, and does not stop the others from being listed."""
    try:
        return read_entry(folder, experiment)
    except QuartetError as error:
        reason = str(error).removeprefix(f"{folder.path}{os.sep}").splitlines()[0]
        return Listed(folder, experiment, "damaged", reason[:_REASON], date=_date(folder.path))


def read_entry(folder: RunFolder, experiment: str) -> Listed:
    """How far a run is and what it came to; what is not written yet counts as not there.

    Raises:
        ConfigError: a file that is not what a run writes.
    """
    try:
        refuse_links(folder.path)
    except Linked as error:
        return Listed(folder, experiment, "failed", str(error).removeprefix(f"{folder.path}/")[:_REASON])
    try:
        report = folder.read_report() if folder.finished else None
    except Closed as error:  # such as without a key
        return Listed(folder, experiment, "finished", error.state, date=_date(folder.report / "report.json"))
    described = _outcome(folder)
    if described is not None and described.status == "failed":  # an order that runs has no result yet
        rows = last_rows(folder.metrics)
        reason = ((described.reason or "").splitlines() or [""])[0][:_REASON]
        date = max(_date(folder.metrics), _date(folder.experiment))
        return Listed(folder, experiment, "failed", reason, _last_metric(rows), _checkpoint(folder).seconds, date)
    if report is not None:
        seconds = report["timing"].get("train_seconds")
        return Listed(folder, experiment, "finished", "", leading(report), seconds, _date(folder.report / "report.json"))
    state: State = "paused" if described is not None else "running" if running(folder) else "interrupted"
    rows = last_rows(folder.metrics)
    date = max(_date(folder.metrics), _date(folder.experiment), _date(folder.checkpoints / "resume.npz"))
    settings = folder.read_settings()
    seeds = settings.get("seeds")
    if isinstance(seeds, int) and seeds > 1:
        done = sum(RunFolder(path).finished for path in folder.path.parent.glob(f"{_escaped(folder.path.name)}-seed*"))
        return Listed(folder, experiment, state, f"{done} of {seeds} seeds done", date=date)
    checkpoint = _checkpoint(folder)
    step = checkpoint.step if state != "running" else (rows[-1]["step"] if rows else None)
    progress = _progress(step, _steps(rows, settings), state)
    return Listed(folder, experiment, state, progress, _last_metric(rows), checkpoint.seconds, date)


def size_of(path: Path) -> int:
    """Bytes of all files below a folder; links are not followed."""
    total = 0
    for one in all_below(path):
        with contextlib.suppress(OSError):  # gone since it was listed
            status = os.lstat(one)
            total += 0 if stat.S_ISDIR(status.st_mode) else status.st_size
    return total


def running(folder: RunFolder) -> bool:
    """Whether some process of this machine is training here."""
    try:
        number = int((folder.path / ".lock").read_text(encoding="ascii"))
        os.kill(number, 0)
    except PermissionError:
        pass  # it lives, and is another person's
    except (OSError, ValueError, OverflowError):
        return False
    return locked_out(folder)


def locked_out(folder: RunFolder) -> bool:
    """Whether another process holds the folder's lock. Only asked where its writer lives: asking holds the lock for an instant."""
    try:
        import fcntl
    except ImportError:  # Windows: the number alone decides
        return True
    try:
        with open(folder.path / ".lock", "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def find_run(runs: Path, given: str) -> RunFolder:
    """The run that a person names: its folder, a path inside it, `vision/digits/default` below `runs`, or a name that only it has.

    Raises:
        ConfigError: none, or several; says which there are. Or something in it leads out of its folder.
    """
    copy = in_store.fetched(runs, given)
    folder = _named(runs, given) if copy is None else RunFolder(copy)
    refuse_links(folder.path)
    return folder


def _named(runs: Path, given: str) -> RunFolder:
    path = Path(given).expanduser()
    if path.exists():
        for place in (path, *path.absolute().parents):
            if (place / "experiment.yaml").is_file():
                return RunFolder(place)
    below = runs / given
    if (below / "experiment.yaml").is_file():
        return RunFolder(below)
    names = {folder.path.relative_to(runs).as_posix(): folder for folder in run_folders(runs)} if runs.is_dir() else {}
    wanted = given.strip("/")
    matches = [name for name in names if name.endswith(f"/{wanted}")] or [name for name in names if name.startswith(f"{wanted}/")]
    if not matches and path.is_dir():
        inside = {str(folder.path): folder for folder in run_folders(path)}
        if not inside:
            raise ConfigError(f"{given}: is no run: it has no experiment.yaml{_there(names, runs)}")
        names, matches = inside, list(inside)
    if len(matches) == 1:
        return names[matches[0]]
    if matches:
        more = f" and {len(matches) - _SHOWN} more" if len(matches) > _SHOWN else ""
        raise ConfigError(f"{given}: names {len(matches)} runs; give one of them: {', '.join(matches[:_SHOWN])}{more}")
    near = nearest(wanted, names, 0.5) or nearest(wanted, [name.rpartition("/")[2] for name in names], 0.5)
    raise ConfigError(f"{given}: there is no such run" + (f"; did you mean {near}?" if near else _there(names, runs)))


def require_model(folder: RunFolder) -> None:
    """Raises ConfigError where a run has no model yet, and says why."""
    if folder.facts.is_file() and ((folder.model / "model.keras").is_file() or folder.manifest.is_file()):
        return
    if any(folder.path.glob("*.order.json")):
        raise ConfigError(f"{folder.path}: this is a trial of a search, which keeps no model; train the search's best.yaml")
    entry = entry_of(folder, folder.path.parent.name)
    seeds = sorted(path.name for path in folder.path.parent.glob(f"{_escaped(folder.path.name)}-seed*") if (path / "model").is_dir())
    if seeds:
        raise ConfigError(f"{folder.path}: this is the report over several seeds; their models are in {listed(seeds, 'and')} beside it")
    if entry.state == "finished":
        raise ConfigError(f"{folder.path}: the run is finished, and its model/ is gone")
    if entry.state == "damaged":
        raise ConfigError(f"{folder.path}: the run has no model, and is damaged: {entry.progress}")
    how = {"running": "is still training", "interrupted": "was interrupted; the command that began it resumes it"}[entry.state]
    raise ConfigError(f"{folder.path}: the run has no model: it {how} ({entry.progress or 'nothing is saved yet'})")


def last_rows(path: Path) -> list[dict[str, Any]]:
    """The last lines of a metrics.jsonl, without reading the whole."""
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            start = max(0, file.tell() - _TAIL)
            file.seek(start)
            lines = file.read().decode("utf-8", "replace").split("\n")[1 if start else 0:]
    except OSError:
        return []
    rows = []
    for line in lines:
        with contextlib.suppress(ConfigError):
            rows.append(stored.parsed(line, stored.Row, str(path)).model_dump(exclude_unset=True))
    return rows


def _progress(step: int | None, steps: int | None, state: State) -> str:
    if step is None:
        return "preparing" if state == "running" else "before the first checkpoint"
    return f"step {step:,}" + (f" of {steps:,}" if steps else "")


def _steps(rows: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> int | None:
    """Steps of the whole run: a line says how many epochs its step is."""
    train = settings.get("train")
    epochs = train.get("epochs") if isinstance(train, dict) else None
    row = next((row for row in reversed(rows) if (row.get("epoch") or 0) > _LEAST_EPOCH), None)
    return round(row["step"] / row["epoch"]) * epochs if row and isinstance(epochs, int) else None


def _last_metric(rows: Sequence[Mapping[str, Any]]) -> tuple[str, Metric] | None:
    for row in reversed(rows):
        names = [name for name, value in row.items() if name.startswith("validation/") and isinstance(value, (int, float))]
        if names:
            name = next((name for name in names if not name.endswith("/loss")), names[0])
            return name, Metric(row[name])
    return None


def _checkpoint(folder: RunFolder) -> stored.Checkpointed:
    """What resume.npz says about itself, without its arrays."""
    file = folder.checkpoints / "resume.npz"
    if not file.exists():
        return stored.Checkpointed()
    from pipelines.base import npz

    try:
        with npz.opened(file) as arrays:
            return arrays.json("about", stored.Checkpointed)
    except Closed:
        rows = last_rows(folder.metrics)
        return stored.Checkpointed(step=rows[-1]["step"] if rows else None)


def _outcome(folder: RunFolder) -> stored.Outcome | None:
    """What came of the last order that a search gave for a trial: it has ended, or pauses; None while it has not, and for other runs."""
    numbers = [int(path.name.partition(".")[0]) for path in folder.path.glob("*.order.json") if path.name.partition(".")[0].isdigit()]
    result = folder.path / f"{max(numbers)}.result.json" if numbers else None
    return stored.read(result, stored.Outcome) if result and result.exists() else None


def _date(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _there(names: Mapping[str, RunFolder], runs: Path) -> str:
    if not names:
        return f"; there are no runs in {runs} (--runs DIR says where they are)"
    newest = sorted(names, key=lambda name: -_date(names[name].path))[:_SHOWN]
    return f"; the newest in {runs} are {listed(newest, 'and')}"


def _escaped(name: str) -> str:
    import glob

    return glob.escape(name)

"""A search's folder and its journal: what was asked, what came of it. Imports no TensorFlow.

runs/<domain>/<experiment>/<name>/
  search.yaml      the experiment with its tune section, resolved whole
  journal.jsonl    a line for each begin, start and end; what is in it happened
  trials/          a run for each setting: 07-peak=0.0031,dropout=0.2/
  best.yaml        the best setting, which `train` takes as it is
  best/, start/    it, and the experiment as it was, trained anew over several seeds
  report/          the report over all trials

What is read back is checked against a schema.
"""

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from pipelines.base import formatting, storage, stored
from pipelines.base.errors import ConfigError
from pipelines.base.files import append_whole, finite, open_to_append, write_whole, writing
from pipelines.base.inside import refuse_links
from pipelines.base.json_text import parse_json
from pipelines.base.stored import Count, FolderName, Name, Outcome, Record, Spread, StoredMetric, Text, why
from pipelines.config.schema import Experiment
from pipelines.config.space import laid_over
from pipelines.config.yaml_text import parse, to_yaml
from pipelines.runs.folder import Locked, RunFolder, changes, shown_changes
from pipelines.stores.remote import named

Seconds = Annotated[float, Field(ge=0)]
Number = Annotated[int, Field(ge=1, le=10_000_000)]  # of a trial


class Begin(Record):
    event: Literal["begin"]
    objective: Name
    direction: Literal["max", "min"]
    precision: Literal["float32", "bfloat16", "float16"]
    elapsed: Seconds = 0.0
    first: dict[Name, Any] | None = None


class Start(Record):
    event: Literal["start"]
    trial: Number
    places: dict[Name, Any]
    setting: Number
    epochs: Annotated[int, Field(ge=1)] | None
    peers: list[Number]
    elapsed: Seconds = 0.0


class Ended(Record):
    """What came of a trial."""

    value: float | None = None
    cost: float | None = None
    too_costly: bool = False  # over tune.cost.limit, and so not trained
    reason: Text = ""
    stopped: Text | None = None
    seconds: Seconds = 0.0


class End(Ended):
    event: Literal["end"]
    trial: Number
    status: Literal["completed", "failed"]
    elapsed: Seconds = 0.0


Event = TypeAdapter(Annotated[Begin | Start | End, Field(discriminator="event")])


class Result(Outcome):
    """What the process of an order left."""

    value: float | None = None
    cost: float | None = None
    too_costly: bool = False  # over tune.cost.limit, and so not trained
    metrics: dict[Name, StoredMetric] = {}
    seconds: Seconds = 0.0
    exit_status: Annotated[int, Field(ge=0, le=255)] = 1


class ReportedTrial(Ended):
    trial: Number
    setting: Number
    values: dict[Name, Any]
    to_epoch: Annotated[int, Field(ge=1)] | None


class Best(Record):
    trial: Number
    value: float
    values: dict[Name, Any]


class Shares(Record):
    """Which settings mattered."""

    model_config = ConfigDict(extra="forbid")
    shares: dict[Name, float]
    fit: float
    trials: Count
    epochs: list[int | float] = []


class ReportedCost(Record):
    measure: Literal["operations", "parameters", "size", "latency"]


class Repeat(Record):
    metrics: dict[Name, StoredMetric]
    spread: dict[Name, Spread]


class ComparedMetric(Record):
    metric: Name
    text: Text


class Compared(Record):
    rows: list[ComparedMetric]


class SearchReport(Record):
    """search.json."""

    experiment: Name
    search: FolderName
    objective: Name
    direction: Literal["max", "min"]
    best: Best
    trials: list[ReportedTrial]
    cost: ReportedCost | None = None
    front: list[Number] = []
    importance: Shares | None
    repeats: dict[Name, Repeat]
    comparison: Compared | None = None


def check_events(events: Sequence[dict[str, Any]], place: str) -> None:
    """Raises ConfigError for events that no search has, or in an order that none has them in."""
    started: set[int] = set()
    for number, event in enumerate(events, 1):
        try:
            parsed: Any = Event.validate_python(event)
        except ValidationError as error:
            raise ConfigError(f"{place}, line {number}: {why(error)}; begin anew with --fresh") from None
        wrong = (parsed.event == "begin") != (number == 1)
        if parsed.event == "start":
            wrong |= parsed.trial in started or not {parsed.setting, *parsed.peers} <= {*started, parsed.trial}
            started.add(parsed.trial)
        elif parsed.event == "end":
            wrong |= parsed.trial not in started
        if wrong:
            raise ConfigError(f"{place}, line {number}: a search does not come to this after the lines before it; "
                              "begin anew with --fresh")


# What may change when a search resumes: its extent and its report, not its trials.
_MAY_CHANGE = {"tune.trials", "tune.minutes", "tune.seeds", "tune.compare"}

NO_VALIDATION = "data.validation: there is no validation split, and trials are judged on nothing else; set data.validation: 0.1"


@dataclass(frozen=True)
class SearchFolder:
    """The files of one search."""

    path: Path

    @property
    def search(self) -> Path:
        return self.path / "search.yaml"

    @property
    def journal(self) -> Path:
        return self.path / "journal.jsonl"

    @property
    def trials(self) -> Path:
        return self.path / "trials"

    @property
    def best(self) -> Path:
        return self.path / "best.yaml"

    @property
    def report(self) -> Path:
        return self.path / "report"

    @property
    def begun(self) -> bool:
        return self.search.exists()

    @property
    def finished(self) -> bool:
        return (self.report / "search.json").exists()

    @property
    def started(self) -> bool:
        """Whether anything was done in it."""
        return bool(read_events(self.journal)[0])

    def read_report(self) -> dict[str, Any]:
        """search.json; ConfigError where it is not what a search writes."""
        refuse_links(self.path)
        return stored.read(self.report / "search.json", SearchReport).model_dump(exclude_unset=True)

    def run(self, name: str) -> RunFolder:
        return RunFolder(self.path / name)

    def compared(self, resolved: str) -> bool:
        """Whether what is here is the search that is requested, to the last setting; changes nothing.

        False where there is none yet, or where it resumes with other tune.trials, minutes, seeds or compare.

        Raises:
            ConfigError: another search is there, or a run, or one that has begun more trials than it shall have.
        """
        refuse_links(self.path)
        if (self.path / "experiment.yaml").exists():
            raise ConfigError(f"{self.path}: there is a run of that name; give --name NEW")
        events = read_events(self.journal)[0]
        if not self.begun or not events:  # nothing was done yet
            return False
        differing, why = changes(self.search, resolved)
        wrong = [each for each in differing if each[0] not in _MAY_CHANGE]
        if wrong:
            raise ConfigError(f"{self.path}: this search was begun with another experiment:\n{shown_changes(wrong)}\n"
                              f"Give --name NEW for a new search, or --fresh to begin this one anew (the old one is moved aside).{why}")
        started, trials = sum(event["event"] == "start" for event in events), parse(resolved, "the experiment").values["tune"]["trials"]
        if started > trials:
            raise ConfigError(f"tune.trials: {trials}, and {self.path} has begun {started} trials; set tune.trials: {started} or more, or "
                              "give --name NEW for a new search")
        return not differing

    def claim(self, resolved: str) -> None:
        """Writes the experiment, new or with what may change as a search resumes; then its old report is removed. Under the lock.

        Raises:
            ConfigError: as `compared`.
        """
        if not self.compared(resolved):
            (self.report / "search.json").unlink(missing_ok=True)
            write_whole(self.search, resolved)

    def move_aside(self) -> None:
        """Renames the folder to <name>~1, <name>~2, ..."""
        with _searching():
            RunFolder(self.path).move_aside()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps a second search out; the system lets go of the lock when this process ends, however it ends.

        Raises:
            Locked: another process is searching here.
        """
        with contextlib.ExitStack() as held:
            with _searching():
                held.enter_context(RunFolder(self.path).locked())
            yield


@contextlib.contextmanager
def _searching() -> Iterator[None]:
    try:
        yield
    except Locked as error:
        raise Locked(str(error).replace("is training here", "is searching here")) from None


class Journal:
    """The events of a search, oldest first, and the file that holds them. Each line is on the disk before `add` returns."""

    def __init__(self, path: Path):
        """Reads what is there; a torn last line, left by a kill, is cut off.

        Raises:
            ConfigError: the file is damaged before its last line.
        """
        self.path = path
        self.events, whole = read_events(path)
        self._file = open_to_append(path)
        if whole < path.stat().st_size:
            os.ftruncate(self._file.fileno(), whole)

    def add(self, event: Mapping[str, Any]) -> None:
        """Raises WriteError where the line cannot be written; the journal then ends with the line before."""
        line = (json.dumps(finite(dict(event)), ensure_ascii=False, allow_nan=False) + "\n").encode()
        with writing(self.path):
            append_whole(self._file, line)
            os.fsync(self._file.fileno())
        self.events.append(json.loads(line))

    def close(self) -> None:
        self._file.close()

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == kind]


def read_events(path: Path) -> tuple[list[dict[str, Any]], int]:
    """(the events of a journal, the bytes that they take); a torn last line is no event. None where there is no file.

    Raises:
        ConfigError: the file is damaged before its last line.
    """
    events: list[dict[str, Any]] = []
    content = stored.read_bytes(path) if path.exists() else b""
    whole = 0
    for number, line in enumerate(content.splitlines(keepends=True), 1):
        try:
            event = parse_json(line)
            if not line.endswith(b"\n") or not isinstance(event, dict) or not isinstance(event.get("event"), str):
                raise ValueError("torn")
        except ValueError:
            if whole + len(line) < len(content):
                raise ConfigError(f"{path}, line {number}: not an event of a search; begin anew with --fresh") from None
            break
        events.append(event)
        whole += len(line)
    return events, whole


def trial_name(number: int, values: Mapping[str, Any]) -> str:
    """A folder name that says what is tried: `07-peak=0.0031,dropout=0.2`; cut where it grows long."""
    parts = []
    for name, value in values.items():
        text = f"{value:.3g}" if isinstance(value, float) else "x".join(map(str, value)) if isinstance(value, list) else str(value)
        parts.append(f"{name.rpartition('.')[2]}={text}")
    text = re.sub(r"[^A-Za-z0-9=,._+-]+", "-", ",".join(parts)).strip("-.,")
    return f"{number:02d}-{text[:80].rstrip('-.,=')}"


def best_yaml(experiment: Experiment, name: str, best: Any, trials: int, objective: str, file: Path) -> str:
    """The experiment with the best setting, as short as it was given, without its tune section; its first lines say where it is from.

    Args:
        best: the trial: `number`, `values`, `value`.
        file: where it will stand.
    """
    document = laid_over(type(experiment), experiment.model_dump(mode="python", exclude_unset=True), best.values)
    del document["tune"]
    algorithm = experiment.tune.algorithm if experiment.tune else ""
    call = f"quartet train {named(str(file))} --name {run_name(name, file.parent.name)}{storage.options(file.parent)}"
    return (f"# The best of {trials} trials ({algorithm} search) over {name}: trial {best.number}, "
            f"validation {formatting.title_within(objective)} {formatting.number(float(best.value), objective)}.\n"
            f"#   {call}\n" + to_yaml(document))


def run_name(experiment: str, search: str) -> str:
    """What to call a run of best.yaml: the files of all searches have one name, so that their runs stand in one folder."""
    return f"{experiment.rpartition('/')[2]}-{search}"


def repeated_yaml(experiment: Experiment, values: Mapping[str, Any], seeds: int, precision: str) -> str:
    """The experiment with a setting, over several seeds, in the precision that the trials were compared in."""
    document = laid_over(type(experiment), experiment.model_dump(mode="python"), {**values, "seeds": seeds})
    if document["train"]["precision"] == "auto":
        document["train"]["precision"] = precision
    return to_yaml(document)

"""The files of a search as they are read back: its journal, what its trials left, and its report. Imports no TensorFlow."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from pipelines.base.errors import ConfigError
from pipelines.base.stored import Count, FolderName, Name, Outcome, Record, Spread, StoredMetric, Text, why

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

"""What `quartet new` and `quartet race` propose: the winner of a race between the ways that fit the data."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from pipelines.base.errors import ConfigError, QuartetError
from pipelines.base.formatting import duration
from pipelines.config.draft import Drafted, Way, look
from pipelines.config.load import Loaded, from_text
from pipelines.config.schema import Experiment
from pipelines.tuning.race import Entrant, Outcome, race, sizes


@dataclass(frozen=True)
class Proposal:
    """A text for an experiment, and the race behind it; None where there was none."""

    text: str
    outcome: Outcome | None = None


def propose(drafted: Drafted, minutes: float, say: Callable[[str], None] = lambda text: None) -> Proposal:
    """The experiment of the way that wins within so many minutes; what cannot be raced is drafted by rules. Starts TensorFlow's work."""
    draft = drafted.draft
    ways = list(draft.ways()) if minutes > 0 else []
    if len(ways) < 2:
        return Proposal(drafted.text())
    rule = next((place for place, way in enumerate(ways) if draft.body in (way.body, way.tuned and way.tuned.body)), None)
    try:
        outcome = run([_entrant(way, drafted.file) for way in ways], minutes, say, rule=rule if draft.stands else None, parts=draft.parts)
    except QuartetError as error:  # training would say it, too, and with the experiment at hand it can be put right
        say(f"not possible: {error}")
        return Proposal(drafted.text())
    except KeyboardInterrupt:
        say("interrupted: nothing was tried")
        return Proposal(drafted.text())
    if outcome.winner is None:
        return Proposal(drafted.text(), outcome)
    way = ways[outcome.winner]
    return Proposal(drafted.text(way.tuned if way.tuned and outcome.tuned else way, header(outcome)), outcome)


def _entrant(way: Way, file: str) -> Entrant:
    return Entrant(way.name, from_text(way.body, file=file).experiment, way.tuned.name if way.tuned else "")


def run(entrants: Sequence[Entrant], minutes: float, say: Callable[[str], None], *, rule: int | None = None,
        parts: bool = True) -> Outcome:
    """A race of experiments on folds of the same train.

    Raises:
        DataError: data that cannot be read, or are too few for folds.
    """
    from pipelines.tuning import race_trial

    first: Experiment = entrants[0].experiment
    size, folds = race_trial.fold_sizes(first)
    attempt = partial(race_trial.attempt, say=say)
    return race(entrants, attempt, parts=sizes(size, parts), folds=folds, seconds=60 * minutes, rule=rule, say=say)


def header(outcome: Outcome) -> list[str]:
    """Lines of an experiment's header: what was tried, and what came of it."""
    return [f"Tried on folds of train alone, in {duration(outcome.seconds)} (--minutes 0 leaves that out); the cheapest of the best:",
            *(f"  {line}" for line in outcome.table()), *outcome.notes]


def others(loaded: Loaded, *, blend: bool = False) -> list[Entrant]:
    """What `quartet new` would try on the data of an experiment, divided as it divides them: its data section counts, but for what a way
    sets otherwise than the draft by rules does, such as the size of images.

    Raises:
        ConfigError: nothing is known to try on such data.
    """
    data = loaded.experiment.data
    domain, path = loaded.experiment.task.partition(".")[0], getattr(data, "path", None)
    if path is None:
        raise ConfigError("data.path: ways to learn are known for data of one's own; name several experiments to compare them")
    try:
        drafted = look(domain, path, task=loaded.experiment.task.partition(".")[2], blend=blend)
    except QuartetError as error:
        raise ConfigError(f"{path}: what else fits these data is not known ({error}); name several experiments to compare them") from error
    usual = from_text(drafted.draft.body).experiment.data.model_dump()
    found = []
    for way in drafted.draft.ways():
        experiment = from_text(way.body, file=way.name).experiment
        if experiment == loaded.experiment:
            continue
        own = {name: value for name, value in experiment.data.model_dump().items() if value != usual[name]}
        found.append(Entrant(way.name, experiment.model_copy(update={"data": data.model_copy(update=own)})))
    return found

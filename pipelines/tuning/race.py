"""A race: a few ways to learn from the same data, tried on folds of train alone within some minutes, and the one that they choose.

The test split is not read. All ways see the same folds, so that they are compared example by example. Where train is large they begin
with a part of it; each further part has four times as many examples, and what the last two parts say of two ways is drawn out to all of it.
A way that is better by less than the standard error of the difference loses to the cheaper one (Breiman et al. 1984, "Classification and
Regression Trees", section 3.4.3).
"""

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType

import numpy as np

from pipelines.base.errors import Interrupted, QuartetError
from pipelines.base.formatting import duration, title
from pipelines.config.schema import Experiment
from pipelines.task.intervals import mean
from pipelines.task.units import EXAMPLES, Units, grouped

FOLDS = (5, 3, 2)  # the first into which train can be divided
GROWTH, FEWEST = 4, 500  # of the parts of train: each by so much larger than the one before, and examples of the first at least
JUDGED_MOST = {False: 2000, True: 5000}  # held-out examples of a part, and of all of train
SURE = 2.0  # standard errors by which a way must be worse to be tried no more
CLOSE = 0.005  # of the best score: differences known to be smaller need no more folds
# Of the errors under a frozen encoder, what is left when it is trained, too: the median of eight comparisons, benchmarks/results
TUNED, WORTH = 0.7, 0.01  # and the share of all examples that must be gained to be worth its time
NO_ERRORS = 0.02  # so few need nothing better, tried or not
TOO_LONG = 10  # times the time of the race: a training that takes longer does not stand for the reason alone that it could not be tried


@dataclass(frozen=True)
class Score:
    """What came of a training on one fold.

    Attributes:
        metric: what is judged, as a task calls it; lower: less is better.
        values: [n] of each held-out example; names: of these, to see that all ways were judged on the same.
        groups: [n] of each, where there are any.
        done: share of the training's steps after which its time was over; it may become better by the others.
    """

    metric: str
    lower: bool
    values: np.ndarray
    names: tuple[str, ...] = ()
    groups: np.ndarray | None = None
    grouped_by: str = "group"
    done: float = 1.0


# (an experiment, how many held-out examples are judged at most, seconds for all of it) -> its score
Attempt = Callable[[Experiment, int, float], Score]


@dataclass
class Entrant:
    """A way in the race.

    Attributes:
        scores, seconds: by (examples of train, fold).
        stopped: seconds after which a training on so many examples was ended.
        out: why it is tried no more.
        tuned: what it is called with its encoder trained, too; empty: it has none that could be.
    """

    name: str
    experiment: Experiment
    tuned: str = ""
    scores: dict[tuple[int, int], Score] = field(default_factory=dict)
    seconds: dict[tuple[int, int], float] = field(default_factory=dict)
    stopped: dict[int, float] = field(default_factory=dict)
    out: str = ""

    def at(self, size: int | None, fold: tuple[int, int]) -> Experiment:
        """Its experiment on one fold; `size`: on so many examples of it, None for all."""
        data = self.experiment.data.model_copy(update={"fold": list(fold), **({"limit": size} if size else {})})
        return self.experiment.model_copy(update={"data": data, "seeds": 1})

    @property
    def largest(self) -> int:
        """Examples of train that it was tried on at most; 0: it was not."""
        return max((size for size, _ in self.scores), default=0)

    def expected(self, size: int) -> float:
        """Seconds of a training on so many examples, by what was seen; 0 where nothing was."""
        seen = {at: seconds for (at, _), seconds in self.seconds.items()} | self.stopped
        if not seen:
            return 0.0
        last = max(seen)
        before = max((at for at in seen if at < last), default=None)
        each = seen[last] / last if before is None else max(0.0, seen[last] - seen[before]) / (last - before)
        return seen[last] + each * (size - last)


@dataclass(frozen=True)
class Difference:
    """How much better one way is than another: the mean over the examples that both were judged on, and its standard error."""

    gain: float
    error: float
    size: int  # examples of train behind it


@dataclass
class Outcome:
    """What a race found.

    Attributes:
        winner: an index of `entrants`; None where nothing could be tried.
        size: training examples of a fold.
        tuned: whether the winner is proposed with its encoder trained, too.
        notes: sentences on how the winner was chosen.
    """

    entrants: list[Entrant]
    size: int
    seconds: float
    winner: int | None = None
    tuned: bool = False
    notes: list[str] = field(default_factory=list)

    def table(self) -> list[str]:
        """Its lines: way, score with its 95 % interval out of fold, seconds of a training, the winner marked."""
        rows = [("", "way", _heading(self.entrants), "seconds")]
        for place, one in enumerate(self.entrants):
            mark = ">" if place == self.winner else ""
            if not one.scores:
                rows.append((mark, one.name, one.out or "not tried", ""))
                continue
            folds = [key for key in one.scores if key[0] == one.largest]
            some = f" on {one.largest:,} of {self.size:,} examples" if one.largest < self.size else ""
            scores = [one.scores[key] for key in folds]
            rows.append((mark, one.name, _over(scores) + _short(scores) + some, f"{np.mean([one.seconds[key] for key in folds]):.1f}"))
        widths = [max(len(row[at]) for row in rows) for at in range(4)]
        return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths)).rstrip() for row in rows]


class OutOfTime(BaseException):
    """The time is over; not an Exception, so that nothing on the way takes it for a failure."""


def race(entrants: Sequence[Entrant], attempt: Attempt, *, parts: Sequence[int], folds: int, seconds: float, rule: int | None = None,
         say: Callable[[str], None] = lambda text: None, clock: Callable[[], float] = time.monotonic) -> Outcome:
    """Tries the ways, and chooses one.

    Args:
        entrants: cheap ones first.
        parts: how many training examples of a fold are tried one after another; the last is all of them (`sizes`).
        folds: into which train is divided.
        seconds: of all together; a training that would take longer than what is left is not begun.
        rule: which one is chosen where too little of it could be seen.
        say: is given a line of progress.
    """
    size = parts[-1]
    outcome, began = Outcome(list(entrants), size, 0.0), clock()
    course = [(part, 1) for part in parts] + [(size, fold) for fold in range(2, folds + 1)]
    try:
        for part, fold in course:
            running = [one for one in entrants if not one.out]
            for one in running:
                left = seconds - (clock() - began)
                if left <= 0:
                    raise OutOfTime
                if one.expected(part) > left:
                    continue
                share = left if one.scores else left / 2  # of what is not known yet, no way takes all the time from the others
                _try(one, outcome, attempt, part, (fold, folds), share, say, clock)
            _drop(outcome.entrants, size)
            if _settled(outcome.entrants, size):
                break
    except (KeyboardInterrupt, Interrupted):
        say("interrupted: what is known so far chooses")
    except OutOfTime:
        pass
    outcome.seconds = clock() - began
    _choose(outcome, rule, seconds)
    return outcome


def sizes(size: int, parts: bool = True) -> list[int]:
    """The parts of train that are tried one after another, all of it last; `parts`: whether some examples tell what more of them will."""
    every = [size]
    while parts and every[0] // GROWTH >= FEWEST:
        every.insert(0, every[0] // GROWTH)
    return every


def _try(one: Entrant, outcome: Outcome, attempt: Attempt, part: int, fold: tuple[int, int], seconds: float,
         say: Callable[[str], None], clock: Callable[[], float]) -> None:
    """One training; what it cannot be tried for is kept."""
    began, key, size = clock(), (part, fold[0]), outcome.size
    some = f"{part:,} of {size:,} examples" if part < size else f"fold {fold[0]} of {fold[1]}"
    try:
        with _ended_after(seconds):
            score = attempt(one.at(part if part < size else None, fold), JUDGED_MOST[part == size], seconds)
    except OutOfTime:
        one.stopped[part] = clock() - began
        one.out = f"more than {duration(one.stopped[part])} on {part:,} examples" if not one.scores else "no more time"
        say(f"{one.name}, {some}: stopped after {duration(one.stopped[part])}")
        return
    except Interrupted:
        raise
    except Exception as error:  # what ends one way ends no other
        what = str(error) if isinstance(error, QuartetError) else f"{type(error).__name__}: {error}"
        if not one.scores:
            one.out = f"cannot be tried: {' '.join(what.split())[:100]}"
        say(f"{one.name}, {some}: {what}")
        return
    if any(key in other.scores and other.scores[key].names != score.names for other in outcome.entrants):
        one.out = "is judged on other examples: its data are divided otherwise"
        return
    took = clock() - began
    one.scores[key], one.seconds[key] = score, took / score.done
    say(f"{one.name}, {some}: {_over([score])}{_short([score])}, {duration(took)}")


@contextlib.contextmanager
def _ended_after(seconds: float) -> Iterator[None]:
    """Raises OutOfTime in what runs inside; outside of the main thread, and where there is no such signal, it runs to its end."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGALRM"):
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.01))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def difference(one: Entrant, other: Entrant, size: int) -> Difference | None:
    """How much better `one` is, on the largest part of train that both were tried on, drawn out to `size`; None: there is none."""
    common = one.scores.keys() & other.scores.keys()
    if not common:
        return None
    parts = sorted({part for part, _ in common})
    gains = [_paired(one, other, sorted(key for key in common if key[0] == part)) for part in parts[-2:]]
    gain, error = gains[-1]
    if parts[-1] < size and len(gains) == 2:  # about linear in the logarithm of the number of examples
        gain += (gain - gains[0][0]) * math.log(size / parts[-1]) / math.log(parts[-1] / parts[-2])
    return Difference(gain, error, parts[-1])


def _paired(one: Entrant, other: Entrant, keys: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """(the mean difference, its standard error by examples or groups)."""
    pairs = [(one.scores[key], other.scores[key]) for key in keys]
    sign = -1.0 if pairs[0][0].lower else 1.0
    gains = sign * np.concatenate([left.values - right.values for left, right in pairs])
    off, units = gains - gains.mean(), _units([left for left, _ in pairs])
    sums = off if units.of is None else np.bincount(units.of, off)
    return float(gains.mean()), float(np.sqrt(np.sum(sums**2)) / len(gains))


def _units(scores: Sequence[Score]) -> Units:
    groups = [score.groups for score in scores]
    return grouped(np.concatenate(groups), scores[0].grouped_by) if all(one is not None for one in groups) else EXAMPLES  # type: ignore[arg-type]


def _short(scores: Sequence[Score]) -> str:
    done = min(score.done for score in scores)
    return "" if done == 1 else f" after {100 * done:.0f} % of its steps"


def _over(scores: Sequence[Score]) -> str:
    return mean(np.concatenate([score.values for score in scores]), units=_units(scores)).text(scores[0].metric)


def _heading(entrants: Sequence[Entrant]) -> str:
    metric = next((score.metric for one in entrants for score in one.scores.values()), "")
    return title(metric) if metric else "score"


def _best(entrants: Sequence[Entrant], size: int) -> Entrant | None:
    """The best of those that were tried, whatever it costs."""
    best: Entrant | None = None
    for one in (one for one in entrants if one.scores):
        gain = best and difference(one, best, size)
        if best is None or (gain and gain.gain > 0):
            best = one
    return best


def _drop(entrants: Sequence[Entrant], size: int) -> None:
    """Ends what is clearly worse than the best; on one part alone nothing is: some ways gain more by more examples than others."""
    best = _best(entrants, size)
    for one in entrants:
        if best is None or one is best or one.out or not one.scores:
            continue
        gain = difference(best, one, size)
        told = gain is not None and (gain.size == size or len({part for part, _ in one.scores}) > 1)
        if gain and told and gain.gain > SURE * gain.error:
            one.out = "clearly worse"


def _settled(entrants: Sequence[Entrant], size: int) -> bool:
    """Whether more folds would change nothing."""
    running = [one for one in entrants if not one.out]
    best = _best(running, size)
    if best is None or len(running) < 2:
        return len(running) < 2
    level = abs(float(np.mean([score.values.mean() for score in best.scores.values()])))
    gains = [difference(best, one, size) for one in running if one is not best]
    return all(gain is not None and gain.size == size and SURE * gain.error < CLOSE * level for gain in gains)


def _choose(outcome: Outcome, rule: int | None, seconds: float) -> None:
    """Sets the winner."""
    entrants, size = outcome.entrants, outcome.size
    best = _best(entrants, size)
    if best is None:
        return
    gains = {place: difference(best, one, size) for place, one in enumerate(entrants) if one is not best}
    alike = [place for place, gain in gains.items() if gain is not None and gain.gain <= gain.error]
    outcome.winner = min([entrants.index(best), *alike])
    if rule is None or not _stands(outcome, entrants[rule], seconds):
        _tune(outcome)
        return
    usual = entrants[rule]
    outcome.winner, outcome.tuned = rule, bool(usual.tuned)
    outcome.notes.append(f"Proposed is {usual.tuned or usual.name}, by which such data are usually learned best: there was no time to try "
                         f"{'its encoder' if usual.tuned else 'it'} on enough of them (--minutes gives more).")


def _stands(outcome: Outcome, usual: Entrant, seconds: float) -> bool:
    """Whether the usual way is proposed, although another one won: too little of it was seen."""
    assert outcome.winner is not None
    chosen = outcome.entrants[outcome.winner]
    if chosen is usual or usual.out.startswith("cannot") or _errors(chosen) < NO_ERRORS:
        return False
    known, expected = difference(chosen, usual, outcome.size), usual.expected(outcome.size)
    if known is not None and known.size * GROWTH >= outcome.size and all(score.done == 1 for score in usual.scores.values()):
        return False
    if expected > TOO_LONG * seconds:
        outcome.notes.append(f"{usual.name} could not be tried: it takes {duration(expected)} or more; it may be better.")
        return False
    return True


def _errors(one: Entrant) -> float:
    """What is wrong of the answers on the largest part of train, for a metric that is a share."""
    scores = [score for (part, _), score in one.scores.items() if part == one.largest]
    level = float(np.mean(np.concatenate([score.values for score in scores])))
    return level if scores[0].lower else 1 - level


def _tune(outcome: Outcome) -> None:
    """Lets the encoder of one way be trained, too, where that usually makes it the best."""
    assert outcome.winner is not None
    chosen = outcome.entrants[outcome.winner]
    gains = []
    for place, one in enumerate(outcome.entrants):
        if not one.tuned or not one.scores:
            continue
        behind = difference(one, chosen, outcome.size) if one is not chosen else Difference(0.0, 0.0, outcome.size)
        if behind is not None:
            gains.append(((1 - TUNED) * _errors(one) + behind.gain, place))
    gain, place = max(gains, default=(0.0, 0))
    if gain >= WORTH:
        outcome.winner, outcome.tuned = place, True
        one = outcome.entrants[place]
        outcome.notes.append(f"Proposed is {one.tuned}: not tried, since it takes too long for that; usually it leaves "
                             f"{100 * TUNED:.0f} % of the errors under the encoder as it is (docs/pretrained.md).")

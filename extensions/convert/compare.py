"""A converted model beside the one it was made from: the same validation examples through both, and the time that one input takes."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from extensions.convert.core import Core
from pipelines.base.errors import ConfigError
from pipelines.data.reasons import reason
from pipelines.data.source import Source
from pipelines.data.stream import StreamSource
from pipelines.serving.evaluate import own_split
from pipelines.serving.load import LoadedRun
from pipelines.task import intervals
from pipelines.task.results import Metric
from pipelines.training.evaluation import Evaluator

JUDGED, CALIBRATED = 5000, 200  # examples of validation and train, at most
LARGEST = 1 << 29  # bytes of inputs that are held
BATCH = 64
ROUNDS, ROUND_SECONDS = 15, 0.02  # of timing, each call in turn
Compute = Callable[[np.ndarray], list[np.ndarray]]


@dataclass(frozen=True)
class Compared:
    """
    Attributes:
        score: of the converted model; lost: score of the model less that, in points of a hundred; None where the task scores no example.
        largest: difference of any answer: of numbers beyond 1 as a share of them, of whole numbers the share that differ; of ranked
            answers, whose order a tie may turn, of 99 examples in 100.
    """

    score: Metric | None
    lost: Metric | None
    largest: float


class Comparison:
    """Holds the inputs and what the model answers to them.

    Attributes:
        split: that is judged: validation; train where there is none.
        metric: its name.
        score: of the model.
        one: an input as it comes alone, [1, ...]; calibration: some of train, [n, ...].
    """

    def __init__(self, run: LoadedRun, core: Core):
        self._run, self._core = run, core
        self.metric = run.task.output.watch[0]
        train, _, _ = own_split(run, "train")
        if isinstance(train, StreamSource):
            raise ConfigError("data.streaming: a converted model is judged on examples by number, and streamed data have none")
        try:
            source, _, self.split = own_split(run, "validation")
        except ConfigError:
            source, self.split = train, "train"
        self.one = self._inputs(_some(source, 1))[0][:1]
        room = max(1, LARGEST // max(1, self.one.nbytes))
        self.inputs, self._targets = self._inputs(_some(source, min(JUDGED, room)))
        self.calibration = self._inputs(_some(train, min(CALIBRATED, room)))[0]
        self._answers = self._answered(core)
        self._each = self._scored(self._answers)
        self.score = _score(self._each)

    @property
    def batch(self) -> np.ndarray:
        """Inputs that are answered together, [BATCH, ...] or all that there are."""
        return self.inputs[:BATCH]

    @property
    def shares(self) -> list[int]:
        """Places of the answers whose rows sum to 1."""
        return [place for place, value in enumerate(self._answers.values())
                if value.ndim == 2 and value.dtype == np.float32 and value.min() >= 0 and np.abs(value.sum(1) - 1).max() < 1e-3]

    def compare(self, compute: Compute) -> Compared:
        """Answers all inputs by `compute`. Raises ConfigError where it fails, or gives something else than the model's outputs."""
        try:
            answers = self._answered(compute)
        except Exception as error:  # whatever a runtime fails with
            raise ConfigError(f"it fails on a validation example: {reason(error)}") from error
        for name, value in answers.items():
            if value.shape != self._answers[name].shape or not np.isfinite(value).all():
                raise ConfigError(f"its {name} has the shape {value.shape}, or numbers that are not finite")
        off = np.max([_difference(value, self._answers[name]) for name, value in answers.items()], 0)
        largest = float(np.quantile(off, 0.99, method="lower") if self._run.task.output.answers.ranked else off.max())
        if self._each is None:
            return Compared(None, None, largest)
        each = self._scored(answers)
        sign = 1 if self._run.task.output.watch[1] == "max" else -1
        return Compared(_score(each), _score(100.0 * sign * (self._each - each)), largest)

    def _answered(self, compute: Compute) -> dict[str, np.ndarray]:
        parts = [compute(self.inputs[start:start + BATCH]) for start in range(0, len(self.inputs), BATCH)]
        return {name: np.concatenate([part[place] for part in parts]) for place, name in enumerate(self._core.answers)}

    def _scored(self, answers: dict[str, np.ndarray]) -> Any:
        """The metric of each example, or the number of all together where it is one of the whole set; None where the task has none. Raises
        ConfigError for answers that are none."""
        task = self._run.task
        try:
            beside = {name: self._targets[name] for name in task.output.answers.beside}
            condensed = task.output.condense({**answers, **beside}, dict(self._targets))
            if self.metric in task.output.set_scores.better:
                return task.output.set_scores.compute(*condensed)[self.metric]
            return task.output.each(*condensed)
        except TypeError:
            return None
        except ValueError as error:
            raise ConfigError(f"its answers are none: {error}") from error

    def _inputs(self, source: Source) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        run = self._run
        return Evaluator(run.task, run.model, source, machine=run.machine, batch=256).features(lambda inputs: inputs)


def _some(source: Source, count: int) -> Source:
    """As many examples of a source, drawn."""
    if count >= len(source):
        return source
    return source.subset(np.sort(np.random.default_rng(0).permutation(len(source))[:count]))


def _difference(value: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Of each example, [n] float64."""
    rows = [one.reshape(len(one), -1) for one in (value, known)]
    if not np.issubdtype(value.dtype, np.floating):
        different: np.ndarray = (rows[0] != rows[1]).mean(1)
        return different
    first, second = (one.astype(np.float64) for one in rows)
    largest: np.ndarray = (np.abs(first - second) / np.maximum(np.abs(second), 1.0)).max(1)
    return largest


def _score(each: Any) -> Metric | None:
    """The mean over examples; of a number itself, without an interval."""
    if each is None or not isinstance(each, np.ndarray):
        return None if each is None else Metric(float(each))
    return intervals.mean(each[~np.isnan(each)].astype(np.float64), resamples=1000)


def latencies(calls: dict[str, Compute], values: np.ndarray) -> dict[str, Metric]:
    """Milliseconds of a call of each, by turns: the median, and the 95 % bootstrap interval of it over the rounds."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            call(values)
            each: list[float] = []
            while sum(each) < ROUND_SECONDS:
                began = time.perf_counter()
                call(values)
                each.append(time.perf_counter() - began)
            times[name].append(1000.0 * float(np.median(each)))
    drawn = np.random.default_rng(0).integers(0, ROUNDS, (1000, ROUNDS))
    found = {}
    for name, medians in times.items():
        low, high = np.percentile(np.median(np.array(medians)[drawn], axis=1), [2.5, 97.5])
        found[name] = Metric(float(np.median(medians)), float(low), float(high), ROUNDS, unit="round")
    return found

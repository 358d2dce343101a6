"""One training of a race: on one fold of train, judged on what this fold holds out, in this process and without a run."""

import gc
import logging
import time
from collections.abc import Callable

import numpy as np

from pipelines.base.errors import ConfigError, DataError
from pipelines.base.formatting import better
from pipelines.config.schema import Experiment
from pipelines.data.split import choose
from pipelines.runs.judging import answered, validation
from pipelines.runs.launch import task_class
from pipelines.task.units import called
from pipelines.training.evaluation import Evaluator
from pipelines.training.hooks.diagnosis import StopWhenNotFinite
from pipelines.training.loop import Hook, Loop
from pipelines.training.meter import Meter
from pipelines.training.session import Session, assemble
from pipelines.tuning.race import FOLDS, Score

# each training traces its functions anew, which TensorFlow takes for a mistake from the fifth in a process on
logging.getLogger("tensorflow").addFilter(lambda record: "tf.function retracing" not in record.getMessage())
TRAINED = 0.75  # of the time of a training, after which it is judged


def fold_sizes(experiment: Experiment) -> tuple[int, int]:
    """(training examples of a fold, number of folds), once the data are divided.

    Raises:
        DataError: data that cannot be used, or divided into folds.
    """
    reason: DataError | None = None
    for folds in FOLDS:
        data = experiment.data.model_copy(update={"fold": [folds, folds]})
        try:
            splits = task_class(experiment.task)(experiment.model_copy(update={"data": data})).splits()
            return len(splits.train), folds
        except DataError as error:
            if "data.fold" not in str(error):
                raise
            reason = error
    assert reason is not None
    raise reason


class Until(Hook):
    """Ends a training by steps in time for its judgement."""

    def __init__(self, deadline: float):
        self.deadline = deadline

    def on_steps(self, loop: Loop) -> None:
        if time.monotonic() > self.deadline and loop.step < loop.steps:
            loop.stopping = "its time is over"


def attempt(experiment: Experiment, judged: int, seconds: float, say: Callable[[str], None] = lambda text: None) -> Score:
    """Trains, and scores the held-out examples, or `judged` of them; the last weights, or their averages, count.

    Args:
        seconds: for all of it; a training by steps ends early enough.
    """
    until, done = Until(time.monotonic() + TRAINED * seconds), 1.0
    session = assemble(experiment, task_class(experiment.task), say=say)
    held = session.splits.test
    if held is None:
        raise ConfigError("data.fold: these data are not divided into folds")
    session.initialise()
    if session.steps:
        hooks = [*session.homing(), StopWhenNotFinite(lambda step: []), *session.freezing, until]
        loop = Loop(session.step, plan=session.plan, steps=session.steps, hooks=hooks, meter=Meter())
        loop.train()
        done = loop.step / loop.steps
    for variable, average in session.averages:
        variable.assign(average.value)
    session.task.refit(session.model)
    numbers = choose(judged, count=len(held), seed=experiment.data.split_seed, purpose="race", labels=held.labels)
    metric, direction, values = _values(session, numbers)
    names = tuple(held.name(int(number)) for number in numbers)
    groups = held.groups[numbers] if held.groups is not None else None
    score = Score(metric, direction == "min", np.asarray(values, np.float64), names, groups, called(experiment.data.group_by), done)
    del session
    gc.collect()  # a model and its functions hold one another
    return score


def _values(session: Session, numbers: np.ndarray) -> tuple[str, str, np.ndarray]:
    """(metric, "max" or "min", the metric of each held-out example): as the run would judge them, with thresholds chosen on validation."""
    output, one = session.task.output, _evaluator(session, numbers)
    known = answered(session, validation(session))
    chosen = output.choose(*known) if known else {}
    metric, direction = output.watch
    if chosen:
        session.task.facts.update(chosen)
        one.task.facts.update(chosen)
        return metric, direction, one.task.output.each(*one.judged())
    values = {name: each for name, each in one.each().items() if each.ndim == 1}  # not sums of a whole split
    if metric not in values:
        metric = next(name for name in (*session.step.scores.names, "loss") if name in values)
        direction = better(metric) or "min"
    return metric, direction, values[metric]


def _evaluator(session: Session, numbers: np.ndarray) -> Evaluator:
    """Of the held-out examples; where the head alone learned, on features that are there already."""
    held, learner = session.splits.test, session.learner
    assert held is not None
    features = learner.features(held) if learner.answers else None
    task, model, source = (session.task, session.model, held) if features is None else (learner.task, learner.model, features)
    if len(numbers) < len(source):
        source = source.subset(numbers)
    return Evaluator(task, model, source, machine=session.machine, trained=True)

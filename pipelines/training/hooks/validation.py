"""Validation: the metrics of an epoch, and of what a training with a fitted head begins with."""

from pipelines.training.evaluation import Evaluator
from pipelines.training.hooks.best_weights import KeepBest
from pipelines.training.hooks.log import Log
from pipelines.training.loop import Hook, Loop, Unjudged


class Beginning(Hook):
    """Judges validation before the first step, as epoch 0, and offers its weights as the best. Stands behind `best` and `log`."""

    def __init__(self, evaluator: Evaluator, best: KeepBest, log: Log | None):
        self.evaluator, self.best, self.log = evaluator, best, log

    def on_start(self, loop: Loop) -> None:
        if loop.step or self.best.keep != "best":
            return
        with loop.meter.part("evaluation"):
            scores = self.evaluator.scores(loop.agree)
        if scores is None:  # a signal; the process that resumes judges it
            return
        loop.epoch_metrics = {f"validation/{name}": value for name, value in scores.items()}
        if self.best.watch in loop.epoch_metrics:
            self.best.begin_with(loop, loop.epoch_metrics[self.best.watch])
        if self.log is not None:
            self.log.on_epoch(loop)


class Validation(Hook):
    """Judges the validation split at the end of epochs, with the averaged weights where there are any."""

    def __init__(self, evaluator: Evaluator | None, every: int):
        self.evaluator, self.every = evaluator, every

    def on_epoch(self, loop: Loop) -> None:
        if loop.steps:
            loop.epoch_metrics.update({f"train/{name}": value for name, value in loop.train_metrics().items()})
        if self.evaluator and (loop.epoch % self.every == 0 or loop.step >= loop.steps):
            with loop.meter.part("evaluation"):
                scores = self.evaluator.scores(loop.agree)
            if scores is None:
                raise Unjudged
            loop.epoch_metrics.update({f"validation/{name}": value for name, value in scores.items()})

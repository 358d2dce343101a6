"""Validation: the epoch's metrics, with the averaged weights where there are any."""

from pipelines.training.evaluation import Evaluator
from pipelines.training.loop import Hook, Loop, Unjudged


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

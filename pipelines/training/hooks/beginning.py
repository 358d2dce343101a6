"""What a training with a fitted head begins with, judged: its end is then never worse on validation than the encoder as it was."""

from pipelines.training.evaluation import Evaluator
from pipelines.training.hooks.best_weights import KeepBest
from pipelines.training.hooks.log import Log
from pipelines.training.loop import Hook, Loop


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

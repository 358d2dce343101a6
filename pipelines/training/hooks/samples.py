"""Samples of the training data in TensorBoard."""

from collections.abc import Callable

from pipelines.training.loop import Hook, Loop


class Samples(Hook):
    """Lets the task show a training batch as the model sees it, at the start and after each epoch."""

    def __init__(self, show: Callable[[Loop], None]):
        self.show = show

    def on_start(self, loop: Loop) -> None:
        if loop.step == 0:
            self._show(loop)

    def on_epoch(self, loop: Loop) -> None:
        if loop.step < loop.steps:
            self._show(loop)

    def _show(self, loop: Loop) -> None:
        with loop.meter.part("callbacks"):
            self.show(loop)

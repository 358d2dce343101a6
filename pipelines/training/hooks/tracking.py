"""A tracker of experiments, in passing."""

from collections.abc import Callable

from pipelines.training.loop import Hook, Loop


class Tracked(Hook):
    """Takes up what the process has said that sends the run to a tracker."""

    def __init__(self, look: Callable[[], None]):
        self.look = look

    def on_rest(self, loop: Loop) -> None:
        self.look()

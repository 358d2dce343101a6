"""Brings to main memory what training holds elsewhere: tables in parts, or all weights on a mesh of devices."""

from collections.abc import Callable
from typing import Protocol

from pipelines.training.loop import Hook, Loop


class Elsewhere(Protocol):
    """Values of variables that steps change where they are.

    Attributes:
        stale: whether the variables in main memory are older.
    """

    stale: bool

    def spread(self) -> None:
        """From main memory to where the steps change them."""

    def gather(self) -> None:
        """Back, where they are newer; every host calls it at the same step."""


class Home(Hook):
    """Brings them at the end of an epoch, for a checkpoint and at the end. Stands first among the hooks.

    Args:
        due: whether a checkpoint is; asked at the chief.
    """

    def __init__(self, elsewhere: Elsewhere, due: Callable[[], bool] = lambda: False):
        self.elsewhere, self.due = elsewhere, due

    def on_start(self, loop: Loop) -> None:
        self.elsewhere.spread()

    def on_steps(self, loop: Loop) -> None:
        self.elsewhere.stale = True
        due = loop.group.of_chief(self.due())
        if loop.unjudged or due or not bool(loop.carry.finite):
            self.elsewhere.gather()

    def on_rest(self, loop: Loop) -> None:
        if loop.step >= loop.last or loop.stopping or loop.interrupted is not None:
            self.elsewhere.gather()

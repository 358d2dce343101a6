"""Divided tables brought to main memory before a hook reads them there."""

from collections.abc import Callable

from pipelines.training.divided_tables import DividedTables
from pipelines.training.loop import Hook, Loop


class TablesHome(Hook):
    """Brings divided tables to main memory at the end of an epoch, for a checkpoint and at the end. Stands first among the hooks.

    Args:
        due: whether a checkpoint is; asked at the chief.
    """

    def __init__(self, divided: DividedTables, due: Callable[[], bool] = lambda: False):
        self.divided, self.due = divided, due

    def on_start(self, loop: Loop) -> None:
        self.divided.spread()

    def on_steps(self, loop: Loop) -> None:
        self.divided.stale = True
        due = loop.group.of_chief(self.due())
        if loop.unjudged or due or not bool(loop.carry.finite):
            self.divided.gather()

    def on_rest(self, loop: Loop) -> None:
        if loop.step >= loop.last or loop.stopping or loop.interrupted is not None:
            self.divided.gather()

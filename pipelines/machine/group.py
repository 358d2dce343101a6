"""The hosts that train together, as the training sees them: here this one alone; a launcher puts its own in the place of it.

Imports no TensorFlow.
"""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tensorflow as tf


class Group:
    """One host alone: every operation is trivial. All hosts call the operations in the same order; values are JSON, bytes,
    or arrays by name.

    Attributes:
        number: this host's; 0 is the chief, which alone writes the run.
        size: number of hosts.
    """

    number = 0
    size = 1

    @property
    def chief(self) -> bool:
        return self.number == 0

    def of_chief(self, value: Any) -> Any:
        """The chief's value on every host; what the others give is ignored."""
        return value

    def of_all(self, value: Any) -> list[Any]:
        """The value of each host in their order, on every host."""
        return [value]

    def to_chief(self, value: Any) -> list[Any]:
        """The value of each host in their order at the chief; an empty list elsewhere."""
        return [value]

    def strategy(self, devices: tuple[str, ...]) -> "tf.distribute.Strategy | None":
        """TensorFlow's strategy over the devices of all hosts, built before this process computes anything; None: one host's.

        Raises:
            ConfigError: the hosts' devices do not go together.
        """
        return None

    def failed(self, error: Exception) -> None:
        """Ends this process if an operation failed because of another host; returns if that cannot be."""

    def part(self) -> None:
        """From here on this host needs the others no more: whatever becomes of them."""


ALONE = Group()
_current: Group = ALONE


def current() -> Group:
    """The group that this process belongs to."""
    return _current


@contextlib.contextmanager
def within(group: Group) -> Iterator[Group]:
    """Inside, this process belongs to that group."""
    global _current
    before, _current = _current, group
    try:
        yield group
    finally:
        _current = before

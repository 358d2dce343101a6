"""Waiting for what another thread or process does: for the thing itself, however slow the machine is."""

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


def until(condition: Callable[[], Value], *, seconds: float = 120, pause: float = 0.01) -> Value:
    """The first value of `condition` that is true; AssertionError where there is none in time."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"not in {seconds:g} s"
        time.sleep(pause)
    return value


def until_or_over(condition: Callable[[], object], process) -> None:
    """Until `condition` is true or the process (with poll) has ended, which is for the caller to see."""
    until(lambda: condition() or process.poll() is not None, seconds=300)

"""Handlers of SIGINT and SIGTERM during some work, and the earlier ones restored afterwards."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def handling(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Inside, `handler(number, frame)` is called on SIGINT and SIGTERM; the earlier handlers are restored on leaving.

    Outside the main thread, where Python lets nobody set handlers, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, signal.SIG_DFL if before is None else before)  # None: it was not set from Python

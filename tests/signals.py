"""A signal to the process of the tests itself, for what a run in it does about one."""

import os
import signal


def send(number: int) -> None:
    """SIGINT or SIGTERM to this process, where the code under test listens; else it would end the tests, and not say which."""
    listening = signal.getsignal(number)
    assert callable(listening) and listening is not signal.default_int_handler, f"nothing listens to {signal.Signals(number).name}"
    os.kill(os.getpid(), number)

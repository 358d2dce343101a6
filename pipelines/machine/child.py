"""A child process that ends with its parent, however that ends.

python -m pipelines.machine.child MODULE ARGUMENT...     # runs `python -m MODULE ARGUMENT...`
"""

import os
import runpy
import signal
import sys


def die_with_parent(parent: int | None = None) -> None:
    """Lets Linux kill this process when its parent ends."""
    if sys.platform != "linux":
        return
    import ctypes

    expected = parent or os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != expected:  # it had ended before this call
        os._exit(1)


if __name__ == "__main__":
    die_with_parent()
    if hasattr(signal, "pthread_sigmask"):  # a parent may have blocked or ignored what this process is to be told
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)

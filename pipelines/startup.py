"""Imports TensorFlow without its start-up chatter: what says nothing to act on is left out, warnings and errors are shown.

TF_CPP_MIN_LOG_LEVEL does not reach the lines that TensorFlow writes before its log is set up, so they are caught and sifted.
"""

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LOG = re.compile(r"^(?:\d{4}-\d\d-\d\d \S+ )?([IWEF])(?:\d{4} |: )")
_CHATTER = (
    "All log messages before absl::InitializeLog", "To enable the following instructions", "Unable to register cu",
    "computation placer already registered", "computation_placer.cc", "Could not find cuda drivers", "oneDNN custom operations",
)
LEVEL = "TF_CPP_MIN_LOG_LEVEL"


def start_tensorflow(*, devices: bool = True) -> None:
    """Imports TensorFlow and looks for its devices, quietly, unless the person has set TF_CPP_MIN_LOG_LEVEL.

    Args:
        devices: False leaves them alone, for a process that will fork.
    """
    if "tensorflow" in sys.modules or os.environ.get(LEVEL) is not None or not _avx():
        return
    os.environ[LEVEL] = "2"
    with _sifted():
        import tensorflow as tf

        if devices:
            tf.config.list_physical_devices()


def current_folder_last() -> None:
    """Moves the current folder, which `python -m` puts first on the path, to its end, or off it where this package is not in it.

    A data set unpacked there as `tensorflow_datasets/`, or a file called `yaml.py`, would otherwise be imported in the library's place.
    """
    here = os.getcwd()
    if sys.path and sys.path[0] in ("", here):
        del sys.path[0]
        if Path(here) == Path(__file__).resolve().parents[1] or Path(here) == Path(__file__).parents[1]:
            sys.path.append(here)


def worth_showing(line: str, *, nvidia: bool) -> bool:
    """Whether a line of TensorFlow's start-up says something to act on.

    Args:
        nvidia: the machine has an NVIDIA driver; without one, a failing CUDA is nothing new.
    """
    if not line.strip() or any(text in line for text in _CHATTER) or ("cuInit" in line and not nvidia):
        return False
    found = _LOG.match(line)
    return found is None or found[1] != "I"


@contextmanager
def _sifted() -> Iterator[None]:
    """Holds back what is written to stderr inside, by C++ too, and then writes what is worth it; everything after a failure."""
    sys.stderr.flush()
    try:
        kept = os.dup(2)
    except OSError:  # there is no stderr
        yield
        return
    failed = True
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
            failed = False
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            held.seek(0)
            text = held.read().decode(errors="replace")
            nvidia = has_nvidia()
            with suppress(OSError, ValueError):
                sys.stderr.write("".join(line + "\n" for line in text.splitlines() if failed or worth_showing(line, nvidia=nvidia)))
                sys.stderr.flush()


def has_nvidia() -> bool:
    """Whether the kernel has an NVIDIA driver (on Linux, and on Windows under WSL)."""
    return any(Path(name).exists() for name in ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg"))


def _avx() -> bool:
    """False where TensorFlow would say that the processor lacks AVX, and die: nothing may hide that."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    return "\nflags" not in flags or " avx" in flags

"""Imports TensorFlow without its start-up chatter: lines without consequence are dropped, warnings and errors are shown.

TF_CPP_MIN_LOG_LEVEL does not reach the lines that TensorFlow writes before its log is set up, so they are caught and sifted.
"""

import gc
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
ERRORS, SILENT = "2", "3"
quiet_level = ERRORS  # of TensorFlow's log after its start; a launcher sets it where this process says the same in fewer lines


# what Keras imports where it is installed, for functions that nothing here calls: a quarter of the time of all imports
_UNUSED_BY_KERAS = ("IPython", "matplotlib", "pandas", "sklearn")


def start_tensorflow(*, devices: bool = True) -> None:
    """Imports TensorFlow and Keras and looks for devices, quietly, unless the person has set TF_CPP_MIN_LOG_LEVEL.

    Args:
        devices: False leaves them alone, for a process that will fork.
    """
    if "tensorflow" in sys.modules:
        return
    if os.environ.get(LEVEL) is not None or not _avx():
        return _import(devices=False)
    os.environ[LEVEL] = quiet_level
    with _sifted():
        _import(devices=devices)


def _import(*, devices: bool) -> None:
    """Both libraries, without what Keras only needs for its own plots and wrappers, and without looking for garbage meanwhile."""
    collecting = gc.isenabled()
    gc.disable()  # most of a million objects come to stay
    try:
        with _hidden(_UNUSED_BY_KERAS):
            import tensorflow as tf
            import keras as keras  # isort: skip
    finally:
        if collecting:
            gc.enable()
    gc.freeze()  # collections need not look at them again
    tf.config.experimental.enable_tensor_float_32_execution(False)  # GPUs would round factors to 10 bits where float32 is said
    if devices:
        tf.config.list_physical_devices()


@contextmanager
def _hidden(names: tuple[str, ...]) -> Iterator[None]:
    """Inside, importing these modules raises ImportError, as if they were not installed; those that are imported already stay."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


def current_folder_last() -> None:
    """Moves the current folder, which `python -m` puts first on the path, to its end, or off it where this package is not in it.

    A data set unpacked there as `tensorflow_datasets/`, or a file called `yaml.py`, would otherwise be imported in the library's place.
    """
    here = os.getcwd()
    if sys.path and sys.path[0] in ("", here):
        del sys.path[0]
        if Path(here) in (Path(__file__).resolve().parents[2], Path(__file__).parents[2]):
            sys.path.append(here)


def worth_showing(line: str, *, nvidia: bool) -> bool:
    """Whether a line of TensorFlow's start-up says something to act on.

    Args:
        nvidia: the machine has an NVIDIA driver; without one, a failing CUDA is nothing new.
    """
    if not line.strip() or any(text in line for text in _CHATTER) or ("cuInit" in line and not nvidia):
        return False
    match = _LOG.match(line)
    return match is None or match[1] != "I"


@contextmanager
def silenced() -> Iterator[list[str]]:
    """Holds back what is written to stderr inside, by C++ too. The list gets its lines at the end."""
    said: list[str] = []
    sys.stderr.flush()
    try:
        kept = os.dup(2)
    except OSError:  # there is no stderr
        yield said
        return
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield said
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            held.seek(0)
            said.extend(held.read().decode(errors="replace").splitlines())


@contextmanager
def _sifted() -> Iterator[None]:
    """Holds back what is written to stderr inside, and then writes what is worth it; everything after a failure."""
    failed, said = True, list[str]()
    try:
        with silenced() as said:
            yield
        failed = False
    finally:
        nvidia = has_nvidia()
        with suppress(OSError, ValueError):
            sys.stderr.write("".join(line + "\n" for line in said if failed or worth_showing(line, nvidia=nvidia)))
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

"""The processor: its name and its instructions, as the system tells them, and what was measured of it, kept in the user's cache folder: it
is not measured at each start. Imports no TensorFlow."""

import contextlib
import os
import platform
from pathlib import Path
from typing import Any

from pipelines.base.files import write_json
from pipelines.base.json_text import parse_json

BFLOAT16 = frozenset({"avx512_bf16", "amx_bf16", "bf16"})  # x86 and ARM; without one a convolution takes 10 to 28 times as long


def processor_name() -> str:
    """As the system calls it."""
    return _line("model name") or platform.processor() or platform.machine()


def instructions() -> set[str]:
    """The processor's flags; empty where the system does not tell them."""
    return set(_line("flags", "Features").split())


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _line(*names: str) -> str:
    """The value of the first such line of /proc/cpuinfo; empty where it cannot be read."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(names):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return ""


def measurements(name: str) -> Path:
    """The file of one kind of measurement."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "quartet" / f"{name}.json"


def read_measured(file: Path) -> dict[str, Any]:
    """Key -> value; empty where nothing was kept, or the file cannot be read."""
    try:
        content = parse_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def keep_measured(file: Path, key: str, value: Any) -> None:
    """Where it cannot be written, it is measured again next time."""
    with contextlib.suppress(OSError):
        write_json(file, {**read_measured(file), key: value})

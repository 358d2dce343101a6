"""The processor: its name and its instructions, as the system tells them. Imports no TensorFlow."""

import platform
from pathlib import Path

BFLOAT16 = frozenset({"avx512_bf16", "amx_bf16", "bf16"})  # x86 and ARM; without one a convolution takes 10 to 28 times as long


def processor_name() -> str:
    """As the system calls it."""
    return _line("model name") or platform.processor() or platform.machine()


def instructions() -> set[str]:
    """The processor's flags; empty where the system does not tell them."""
    return set(_line("flags", "Features").split())


def _line(*names: str) -> str:
    """The value of the first such line of /proc/cpuinfo; empty where it cannot be read."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(names):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return ""

"""Memory that this process may still take, and the share of it that data may be kept in. Imports no TensorFlow.
The memory of a GPU, as TensorFlow numbers them, is asked of nvidia-smi.
"""

import contextlib
import os
import subprocess
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

SHARE = 0.25  # of free memory for all data that a machine's trainings keep
WORKERS = "QUARTET_WORKERS"  # environment: trainings that share this machine, as a search tells each of them
UNKNOWN = 4 << 30  # bytes, where the system does not report it

_GROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_held: dict[int, int] = {}  # id of an owner -> its bytes


def room() -> int:
    """Further bytes that this process may keep: one budget for all of a run's data, and this process's part of it."""
    held = sum(_held.values())
    return max(0, int((free() + held) * SHARE) // workers() - held)


def hold(owner: Any, size: int) -> None:
    """Counts `size` bytes against the budget for as long as `owner` lives."""
    _held[id(owner)] = size
    weakref.finalize(owner, _held.pop, id(owner), None)


def workers() -> int:
    """Trainings that share this machine's memory, this one among them."""
    with contextlib.suppress(ValueError):
        return max(1, int(os.environ.get(WORKERS, "1")))
    return 1


def free() -> int:
    """Bytes that this process may still take: the system's, or what is left of its control groups' limits, whichever is least."""
    system = UNKNOWN
    with contextlib.suppress(OSError, ValueError):
        system = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    with contextlib.suppress(OSError, StopIteration, ValueError), open("/proc/meminfo", encoding="ascii") as file:
        system = next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))
    return max(0, min([system, *_left()]))


def _left() -> Iterator[int]:
    """Bytes left of the limit of each control group, version 1 or 2, of this process."""
    for folder in _groups():
        for limit, used, cache in (("memory.max", "memory.current", "inactive_file"),
                                   ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")):
            with contextlib.suppress(OSError, ValueError):
                most = int((folder / limit).read_text(encoding="ascii"))  # "max", no limit, is no number
                used_bytes = int((folder / used).read_text(encoding="ascii"))
                with contextlib.suppress(OSError):  # file pages count as used, and are released when needed
                    stat = dict(line.split() for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines())
                    used_bytes -= int(stat.get(cache, 0))
                yield most - used_bytes


def _groups() -> Iterator[Path]:
    """This process's control groups for memory and those around them, from the inside out."""
    lines = []
    with contextlib.suppress(OSError):
        lines = [line.split(":", 2) for line in _OWN.read_text(encoding="utf-8").splitlines()]
    roots = {_GROUPS: "/", _GROUPS / "memory": "/"}  # in a container they are its own, whatever its path outside
    for _, controllers, path in (line for line in lines if len(line) == 3):
        if not controllers:
            roots[_GROUPS] = path
        elif "memory" in controllers.split(","):
            roots[_GROUPS / "memory"] = path
    for root, path in roots.items():
        inner = root / path.strip("/")
        yield from (inner, *inner.parents[:len(inner.parts) - len(root.parts)])


_ASKED = "index,uuid,memory.free,memory.total"


def gpu_memory(number: int) -> tuple[int, int]:
    """(free, total) bytes of TensorFlow's GPU `number`.

    Raises:
        OSError, ValueError: nvidia-smi is missing, or does not report it (as for a part of a card, MIG).
    """
    done = subprocess.run(["nvidia-smi", f"--query-gpu={_ASKED}", "--format=csv,noheader,nounits"], capture_output=True, text=True,
                          timeout=30, check=False)
    rows = [[value.strip() for value in line.split(",")] for line in done.stdout.splitlines() if line.count(",") == _ASKED.count(",")]
    _, _, free, total = rows[card([(row[0], row[1]) for row in rows], number, os.environ.get("CUDA_VISIBLE_DEVICES"))]
    return int(free) << 20, int(total) << 20


def card(cards: Sequence[tuple[str, str]], number: int, visible: str | None) -> int:
    """The position among the machine's cards of TensorFlow's GPU `number`.

    Indices follow nvidia-smi's order, by bus. CUDA puts the fastest first where cards differ, unless CUDA_DEVICE_ORDER is PCI_BUS_ID.

    Args:
        cards: (index, UUID) of each, as nvidia-smi has them.
        visible: CUDA_VISIBLE_DEVICES: indices, or UUIDs that may be cut short; None where it is not set.

    Raises:
        ValueError: it is none of them.
    """
    name = str(number) if visible is None else dict(enumerate(each.strip() for each in visible.split(","))).get(number, "")
    short = name if name.startswith("GPU-") else None
    matches = [at for at, (index, uuid) in enumerate(cards) if name == index or (short and uuid.startswith(short))]
    if len(matches) != 1:
        raise ValueError(f"GPU {number} (CUDA_VISIBLE_DEVICES: {visible}) is none of {cards}")
    return matches[0]

"""The memory of a GPU as TensorFlow numbers them, asked of nvidia-smi. Imports no TensorFlow."""

import os
import subprocess
from collections.abc import Sequence

_ASKED = "index,uuid,memory.free,memory.total"


def memory(number: int) -> tuple[int, int]:
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

"""What a card meets with the installed TensorFlow: whether its kernels are compiled for it, and where not, what that costs."""

import difflib
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from pipelines.base.errors import ConfigError

# compute capabilities (developer.nvidia.com/cuda-gpus); what is sold under several names has each of them
CARDS: dict[str, tuple[int, int]] = {
    "P100": (6, 0), "GTX 1080": (6, 1), "V100": (7, 0), "T4": (7, 5), "RTX 2080": (7, 5), "A100": (8, 0), "A30": (8, 0), "A10": (8, 6),
    "A40": (8, 6), "RTX 3060": (8, 6), "RTX 3090": (8, 6), "RTX A6000": (8, 6), "L4": (8, 9), "L40": (8, 9), "RTX 4060": (8, 9),
    "RTX 4090": (8, 9), "H100": (9, 0), "H200": (9, 0), "GH200": (9, 0), "B200": (10, 0), "GB200": (10, 0), "RTX 5070": (12, 0),
    "RTX 5090": (12, 0), "RTX PRO 6000": (12, 0)}
KEEP = "CUDA_CACHE_MAXSIZE=4294967296 keeps all of it; in a container, mount ~/.nv/ComputeCache"


State = Literal["ok", "note", "warning", "broken"]


class Meets(NamedTuple):
    """What the doctor finds of a card."""

    state: State
    text: str
    remedy: str = ""


def named(card: str) -> tuple[int, int]:
    """The compute capability of a card by its name, or written as such ("8.9"). Raises ConfigError with the nearest names."""
    if found := re.fullmatch(r"(\d+)\.(\d)", card.strip()):
        return int(found[1]), int(found[2])
    known = {_plain(name): capability for name, capability in CARDS.items()}
    if (plain := _plain(card)) in known:
        return known[plain]
    near = difflib.get_close_matches(plain, known, 1, 0.5)
    meant = next((name for name in CARDS if near and _plain(name) == near[0]), None)
    raise ConfigError(f"--card: {card!r} is no card that is known here" + (f"; did you mean {meant}?" if meant else "")
                      + f" There are {', '.join(CARDS)}; or give its compute capability, such as 8.9")


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]|nvidia|geforce|tesla", "", name.lower())


def kernels(capability: tuple[int, int], built: Sequence[str], cache_off: bool = False) -> Meets:
    """Whether TensorFlow's kernels run on a card at once.

    A binary (`sm_80`) runs on cards of the same major number from its minor one on; PTX (`compute_90`) is compiled by the driver for all
    cards from it on (NVIDIA, CUDA C++ Programming Guide, "Compute Capabilities").

    Args:
        built: what TensorFlow was built for, as `tf.sysconfig.get_build_info()["cuda_compute_capabilities"]` has it.
        cache_off: whether the driver keeps nothing that it compiles.
    """
    binaries, portable = ([_number(name) for name in built if name.startswith(start)] for start in ("sm_", "compute_"))
    shown = _shown(capability)
    if any(one[0] == capability[0] and one[1] <= capability[1] for one in binaries):
        return Meets("ok", f"compiled for compute capability {shown}")
    older = [one for one in portable if one <= capability]
    if not older:
        return Meets("broken", f"this TensorFlow has none for compute capability {shown}; the lowest is {_shown(min(binaries + portable))}",
                     "use a newer card, or the CPU: train.devices=cpu")
    text = f"not compiled for compute capability {shown}: the driver compiles them from PTX of {_shown(max(older))} at the first start"
    if max(older)[0] < capability[0]:
        return Meets("warning", f"{text}, and this card is newer than this TensorFlow knows: some may fail",
                     f"try a short training first; where it fails, a newer TensorFlow; {KEEP}")
    if cache_off:
        return Meets("warning", f"{text}, and at every later one, since its cache is off", "unset CUDA_CACHE_DISABLE")
    return Meets("note", f"{text}, which takes minutes", KEEP)


def _number(name: str) -> tuple[int, int]:
    digits = re.sub(r"\D", "", name)
    return int(digits[:-1]), int(digits[-1])


def _shown(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))

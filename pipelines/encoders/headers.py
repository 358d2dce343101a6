"""What the headers of a weights file say: arrays and their sizes, without reading their values."""

import math
import os
from pathlib import Path
from typing import Any

from pipelines.base.errors import ConfigError
from pipelines.base.json_text import parse_json
from pipelines.base.stored import read_bytes

_DAMAGED = "the file is damaged; copy the preset again"
_FLOATS = ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object. Raises ConfigError where the file is missing or holds none."""
    try:
        content = parse_json(read_bytes(path))
    except ValueError as error:
        raise ConfigError(f"{path}: is no JSON ({error}); {_DAMAGED}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: holds no JSON object; {_DAMAGED}")
    return content


def weight_files(folder: Path) -> list[Path]:
    """The files of a preset's weights: one, or the shards that an index names. Raises ConfigError where one is missing."""
    for single in ("model.weights.h5", "model.safetensors"):
        if (folder / single).exists():
            return [folder / single]
    for index in ("model.weights.json", "model.safetensors.index.json"):
        if (folder / index).exists():
            names = read_json(folder / index).get("weight_map")
            shards = {shard for value in names.values() for shard in (value if isinstance(value, list) else [value])} if isinstance(
                names, dict) else set()
            wrong = next((name for name in sorted(map(str, shards)) if Path(name).name != name or not (folder / name).is_file()), None)
            if not shards or wrong is not None:
                raise ConfigError(f"{folder / index}: names {wrong or 'no file'}, which is not there; copy the preset again, whole")
            return [folder / name for name in sorted(shards)]
    raise ConfigError(f"{folder}: holds no weights that are read (model.weights.h5 or model.safetensors); copy the preset again, whole, or "
                      "take one that has them")


def parameters(path: Path) -> int:
    """The number of weights in a file. Raises ConfigError where it is damaged."""
    try:
        return _of_safetensors(path) if path.suffix == ".safetensors" else _of_h5(path)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"{path}: cannot be read as weights ({reason}); {_DAMAGED}") from None


def _of_h5(path: Path) -> int:
    import h5py

    count = 0

    def add(_: str, item: Any) -> None:
        nonlocal count
        if isinstance(item, h5py.Dataset) and item.dtype.kind in "fV":  # not the states of random generators; V: bfloat16
            count += item.size

    with h5py.File(path, "r") as file:
        file.visititems(add)
    if not count:
        raise ValueError("it holds no weights")
    return count


def _of_safetensors(path: Path) -> int:
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(size - 8, 100_000_000):
            raise ValueError("its header is cut off")
        header = parse_json(file.read(length))
    arrays = [value for name, value in header.items() if name != "__metadata__"]
    end = max(array["data_offsets"][1] for array in arrays)
    if end != size - 8 - length:
        raise ValueError(f"{size - 8 - length:,} bytes of arrays, and its header says {end:,}")
    return sum(math.prod(array["shape"]) for array in arrays if array["dtype"] in _FLOATS)

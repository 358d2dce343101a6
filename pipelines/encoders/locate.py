"""From the name of a preset to its folder on this machine: a path, a name in the presets' folder, a filled cache, or a download; and
what the headers of its weights say: arrays and their sizes, without reading their values.
"""

import math
import os
import re
from pathlib import Path
from typing import Any

from pipelines.base.errors import ConfigError
from pipelines.base.json_text import parse_json
from pipelines.base.stored import read_bytes
from pipelines.config.messages import did_you_mean

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


WEIGHTS = ("model.weights.h5", "model.weights.json", "model.safetensors", "model.safetensors.index.json")
_READ = ("*.json", "*.txt", "*.md", "*.safetensors", "*.h5", "*.model", "*.spm", "LICENSE*", "assets/**")  # of a repository: never a pickle
_REPOSITORY = re.compile(r"hf://([\w.-]+/[\w.-]+)$")
_KAGGLE = re.compile(r"kaggle://([\w.-]+/[\w.-]+/[\w.-]+/[\w.-]+(?:/\d+)?)$")


def presets_folder() -> Path:
    """Where presets lie that are named alone: $QUARTET_PRESETS, else `presets` in $KERAS_HOME or ~/.keras."""
    own, home = os.environ.get("QUARTET_PRESETS"), os.environ.get("KERAS_HOME")
    return Path(own).expanduser() if own else Path(home or "~/.keras").expanduser() / "presets"


def locate(handle: str, key: str, builtin: dict[str, Any]) -> Path:
    """The folder of a preset.

    Args:
        handle: a folder, a name in the presets' folder, hf://ORGANISATION/NAME, kaggle://..., or a name of KerasHub.
        key: the setting, for messages.
        builtin: KerasHub's own presets by name.

    Raises:
        ConfigError: there is none of that name, or it can neither be found on this machine nor be downloaded.
    """
    place = on_disk(handle)
    if place is not None:
        if not place.is_dir():
            raise ConfigError(f"{key}: {handle} is a file; name the folder of a preset")
        return place
    kaggle = builtin[handle]["kaggle_handle"] if handle in builtin else handle
    if match := _REPOSITORY.match(handle):
        return _from_hugging_face(match[1], key)
    if match := _KAGGLE.match(kaggle):
        return _from_kaggle(match[1], handle, key)
    own = sorted(path.name for path in presets_folder().iterdir() if path.is_dir()) if presets_folder().is_dir() else []
    raise ConfigError(f"{key}: there is no preset {handle!r}: no such folder here or in {presets_folder()}, and KerasHub knows no such name"
                      f"{did_you_mean(handle, [*own, *builtin])} (a handle of a hub is hf://ORGANISATION/NAME)")


def on_disk(handle: str) -> Path | None:
    """What a handle names by a path, or by a name in the presets' folder; None for what a hub has, downloaded before or not."""
    if "://" in handle:
        return None
    place, named = Path(handle).expanduser(), presets_folder() / handle
    return place if place.exists() else named if "/" not in handle and named.is_dir() else None


def _from_hugging_face(repository: str, key: str) -> Path:
    import huggingface_hub

    try:
        cached = Path(huggingface_hub.snapshot_download(repository, local_files_only=True))
        if _whole(cached):
            return cached
    except (OSError, ValueError):
        pass
    try:
        return Path(huggingface_hub.snapshot_download(repository, allow_patterns=list(_READ)))
    except Exception as error:  # no network, offline mode, no such repository, no access: each library has errors of its own
        name = repository.rpartition("/")[2]
        raise _absent(f"hf://{repository}", key, error, f"hf download {repository} --exclude '*.bin' --exclude '*.pt' --local-dir {name}",
                      f"the folder {name}", name) from error


def _from_kaggle(path: str, handle: str, key: str) -> Path:
    import kagglehub

    cached = in_kaggle_cache(path)
    if cached is not None:
        return cached
    try:
        return Path(kagglehub.model_download(path))
    except Exception as error:  # as above
        name = handle.rpartition("/")[2] if "://" in handle else handle
        command = f'python -c "import kagglehub; print(kagglehub.model_download({path!r}))"'
        raise _absent(handle, key, error, command, "the folder that it prints", name) from error


def in_kaggle_cache(path: str) -> Path | None:
    """The folder of a preset that was downloaded before; `path` is its handle without kaggle://."""
    from kagglehub.config import get_cache_folder

    cached = Path(get_cache_folder()) / "models" / path
    return cached if _whole(cached) else None


def _whole(folder: Path) -> bool:
    return (folder / "config.json").is_file() and any((folder / name).is_file() for name in WEIGHTS)


def _absent(handle: str, key: str, error: Exception, command: str, what: str, name: str) -> ConfigError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
    return ConfigError(f"{key}: {handle} is not on this machine and cannot be downloaded ({reason}). On a machine with a network run\n"
                       f"  {command}\nand copy {what} to {presets_folder() / name} here; then set {key}: {name}")

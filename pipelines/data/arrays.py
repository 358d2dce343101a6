"""Arrays in a .npz file, by split and role; nothing pickled is ever loaded."""

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipelines.base.errors import DataError, QuartetError
from pipelines.base.inside import check_regular
from pipelines.config.messages import did_you_mean, listed
from pipelines.data.divide import ALIASES

POOL = "all"  # the one split of a file that has none


@dataclass(frozen=True)
class Arrays:
    """The arrays of one split: role ("image", "label", ...) -> array, and the name of each in the file."""

    values: dict[str, np.ndarray]
    names: dict[str, str]


def read_npz(path: str | Path, roles: dict[str, str], short: dict[str, str], *, settings: dict[str, str]) -> dict[str, Arrays]:
    """The splits of a .npz file.

    An array is searched, in this order, as `<key>_<split>`, `<split>_<key>` (also in the plural), then `<short>_<split>` (x_train,
    y_train, x_test, y_test, as Keras names them); then, for a file without splits, as `<key>`, `<key>s`, `<short>`.

    Args:
        path: the file.
        roles: role -> key of its array, such as {"image": "image", "label": "label"}; all are needed in every split.
        short: role -> its usual short name, such as {"image": "x", "label": "y"}.
        settings: role -> the setting that names its key, for messages.

    Raises:
        DataError: not a .npz file, arrays of Python objects, no such arrays (names the existing ones), or unequal lengths.
    """
    path = Path(path)
    if not path.is_file():
        check_regular(path)
        raise DataError(f"{path} does not exist")
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path} is not a .npz file (a zip of .npy arrays, as numpy.savez writes it)")
    try:
        with np.load(path, allow_pickle=False) as file:
            there = list(file.files)
            splits = {split: names for split in ALIASES if (names := _names(there, roles, short, split))}
            if "train" not in splits:
                names = _names(there, roles, short, None)
                if not names:
                    raise _missing(path, there, roles, short, settings)
                splits = {POOL: names, **splits}
            return {split: _load(file, path, names) for split, names in splits.items()}
    except QuartetError:
        raise
    except Exception as error:  # zipfile, zlib and numpy's parser of headers raise many kinds
        raise DataError(f"{path} cannot be read: {error}") from error


def _names(there: list[str], roles: dict[str, str], short: dict[str, str], split: str | None) -> dict[str, str] | None:
    """Role -> name in the file for one split (None: a file without splits); None unless every role is there."""
    names = {}
    for role, key in roles.items():
        brief = short.get(role)
        candidates = [key, f"{key}s", *([brief] if brief else [])]
        if split is not None:
            long = [name for alias in ALIASES[split]
                    for name in (f"{key}_{alias}", f"{alias}_{key}", f"{key}s_{alias}", f"{alias}_{key}s")]
            candidates = long + ([f"{brief}_{alias}" for alias in ALIASES[split]] if brief else [])
        name = next((candidate for candidate in candidates if candidate in there), None)
        if name is None:
            return None
        names[role] = name
    return names


def _load(file: np.lib.npyio.NpzFile, path: Path, names: dict[str, str]) -> Arrays:
    from pipelines.machine import memory

    values, room = {}, memory.free()
    for role, name in names.items():
        try:
            member = file.zip.NameToInfo.get(f"{name}.npy") if file.zip else None
            room -= member.file_size if member else 0  # bounds what is unpacked
            if room < 0:
                raise MemoryError
            values[role] = file[name]
        except MemoryError as error:
            raise DataError(f"{path}: array {name!r} is larger, by its header, than the free memory; give the data as files and a table, "
                            "which are read one by one") from error
        except ValueError as error:
            raise DataError(f"{path}: array {name!r} holds Python objects (or is no array), which would have to be unpickled, and that "
                            "can run code; save it as a plain numeric or text array") from error
    lengths = {names[role]: len(value) if value.ndim else -1 for role, value in values.items()}
    single = next((name for name, length in lengths.items() if length < 0), None)
    if single is not None:
        raise DataError(f"{path}: array {single!r} is a single value, not an array of examples")
    if len(set(lengths.values())) > 1:
        raise DataError(f"{path}: arrays differ in length: " + ", ".join(f"{name} {length:,}" for name, length in lengths.items()))
    if not next(iter(lengths.values())):
        raise DataError(f"{path}: array {next(iter(lengths))!r} is empty")
    return Arrays(values, names)


def _missing(path: Path, there: list[str], roles: dict[str, str], short: dict[str, str], settings: dict[str, str]) -> DataError:
    def seems_there(role: str) -> bool:
        return any(roles[role] in name or name.startswith(f"{short.get(role, roles[role])}_") for name in there)

    role = next((role for role in roles if not seems_there(role)), next(iter(roles)))
    key, brief = roles[role], short.get(role)
    usual = f"{key}, {key}_train" + (f" or {brief}_train" if brief else "")
    return DataError(f"{path} has no array {key!r} ({settings[role]}); there are {listed(there, 'and')}{did_you_mean(key, there) or '.'} "
                     f"It may be called {usual}.")


def to_uint8(images: np.ndarray, place: str) -> tuple[np.ndarray, str | None]:
    """Stored pixels as uint8 [n, h, w, c], c 1 or 3, and a note on the conversion.

    uint16 keeps its upper 8 bits, floats are read as 0..1 where none is above 1 and as 0..255 otherwise, and rounded.

    Raises:
        DataError: another shape, or values that are not pixels.
    """
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim != 4 or images.shape[-1] not in (1, 3):
        hint = "; it looks channels-first: transpose it to [n, h, w, c]" if images.ndim == 4 and images.shape[1] in (1, 3) else ""
        raise DataError(f"{place} has shape {list(images.shape)}; images are [n, h, w] or [n, h, w, c] with c 1 or 3{hint}")
    if not images.size:
        raise DataError(f"{place} has shape {list(images.shape)}: no pixels")
    kind = images.dtype.kind
    if images.dtype == np.uint8:
        return images, None
    if images.dtype == bool:
        return images.astype(np.uint8) * np.uint8(255), f"{place}: false and true read as 0 and 255"
    if kind not in "iuf":
        raise DataError(f"{place} is {images.dtype}; pixels are uint8, uint16 or floats")
    low, high = images.min(), images.max()
    if kind == "f":
        if not (np.isfinite(low) and np.isfinite(high)):
            raise DataError(f"{place} holds NaN or infinite values")
        if low < 0 or high > 255:
            raise DataError(f"{place} holds values from {low:g} to {high:g}; floats are read as 0..1 or 0..255. "
                            "Store the pixels as they were before scaling")
        factor = 255.0 if high <= 1 else 1.0
        done = np.empty(images.shape, np.uint8)
        for start in range(0, len(images), 4096):  # no float copy of the whole
            done[start:start + 4096] = np.rint(images[start:start + 4096] * factor)
        return done, f"{place}: floats read as {'0..1' if factor > 1 else '0..255'} and rounded to 8 bits"
    if low >= 0 and high <= 255 and images.dtype != np.uint16:
        return images.astype(np.uint8), None
    if images.dtype == np.uint16:
        return (images >> 8).astype(np.uint8), f"{place}: the upper 8 of 16 bits are used"
    raise DataError(f"{place} holds whole numbers from {low} to {high}; pixels are 0..255, or uint16")

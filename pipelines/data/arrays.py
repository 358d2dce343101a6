"""Arrays in a .npz file, by split and role; nothing pickled is ever loaded."""

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipelines.base.errors import DataError
from pipelines.base.regular import check_regular
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
    except (zipfile.BadZipFile, OSError, EOFError) as error:
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

"""What lies in a folder, table or .npz of labelled images: classes, counts, sizes, splits. Imports no TensorFlow.

Files are listed and a sample of their first bytes is read; nothing is decoded. What is not understood is refused with
what to do instead.
"""

import csv
import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.config.new import label_column
from pipelines.config.wording import listed
from pipelines.data.divide import ALIASES
from pipelines.data.walk import PassedOver, folders_in, hidden
from pipelines.errors import DataError
from pipelines.regular import check_regular
from vision.files import ENDINGS, counts, images_below
from vision.headers import ENOUGH, SUFFIXES, Header, image_header

TABLES = (".csv", ".tsv", ".jsonl", ".parquet")
_ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar")
_LABELS = ("label", "labels", "class", "classes", "target", "category", "y", "class_name", "label_name", "species", "diagnosis", "breed")
_GROUPS = ("patient", "patient_id", "subject", "subject_id", "group", "group_id", "site", "session", "scene", "user", "user_id")
_ALIAS = "|".join(alias for names in ALIASES.values() for alias in names)
_SPLIT_NAME = re.compile(f"(?:(?P<first>{_ALIAS})_(?P<after>.+)|(?P<before>.+)_(?P<last>{_ALIAS}))$")
_SAMPLE = 200  # images whose first bytes are read


@dataclass
class Seen:
    """What there is, in the words of the experiment's data section.

    Attributes:
        source: "folder", "table" or "npz".
        counts: class -> images in train.
        headers: sizes of a sample (of train).
        validation, test: the data's own splits of those names, None where there are none.
        columns: settings that name columns or arrays: image_key, label_key, split_key.
        group: a column that looks as if its values should stay on one side of a split.
    """

    source: str
    counts: Counter[str]
    headers: list[Header]
    validation: str | None = None
    test: str | None = None
    columns: dict[str, str] = field(default_factory=dict)
    group: str | None = None


def look(path: Path) -> Seen:
    """Raises DataError for anything but a folder of class folders (with or without train, validation, test), a table or an .npz."""
    suffix = path.suffix.lower()
    if path.is_dir():
        return _folder(path)
    if suffix in TABLES:
        return _table(path)
    if suffix == ".npz":
        return _npz(path)
    if suffix in _ARCHIVES:
        raise DataError(f"{path}: is an archive; unpack it and name the folder")
    if suffix in ENDINGS:
        raise DataError(f"{path}: is one image; name the folder that holds a folder for each class")
    raise DataError(f"{path}: not understood; give a folder with a folder for each class, a table ({listed(TABLES)}) that names files, "
                    "or an .npz")


def role(name: str) -> str | None:
    """"train", "validation" or "test" for a folder or split of such a name (val, valid, dev, testing, ...)."""
    return next((part for part, names in ALIASES.items() if name.lower() in names), None)


def _folder(path: Path) -> Seen:
    folders = folders_in(path, PassedOver())
    splits = {role(folder.name): folder for folder in folders if role(folder.name)}
    if "train" in splits:
        images = _classes(splits["train"])
        _check_classes(images, splits["train"])
        others = {part: folder.name for part, folder in splits.items() if part and any(_classes(folder).values())}
        return Seen("folder", _count(images), _headers(images), others.get("validation"), others.get("test"))
    images = _classes(path)
    if not any(images.values()):
        loose = _loose(path)
        if loose:
            raise DataError(f"{path}: {len(loose)} images lie in it with no folder for each class; "
                            "move each class into a folder of its name, or name files and labels in a table (CSV)")
        raise DataError(f"{path}: there are no images ({', '.join(SUFFIXES)}) in folders below it")
    if len(images) == 1 and (inside := _inside(path)):
        raise DataError(f"{path}: holds the single folder {next(iter(images))}; did you mean {inside}?")
    _check_classes(images, path)
    return Seen("folder", _count(images), _headers(images))


def _classes(folder: Path) -> dict[str, list[Path]]:
    """Class -> its images, at any depth."""
    return {entry.name: images_below(entry) for entry in folders_in(folder, PassedOver())}


def _loose(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if entry.is_file() and not hidden(entry.name) and counts(entry))


def _inside(path: Path) -> Path | None:
    """The folder with the class folders, where an archive was unpacked into one folder more."""
    while True:
        folders = folders_in(path, PassedOver())
        if len(folders) != 1:
            return path if len(folders) > 1 else None
        path = folders[0]


def _check_classes(images: dict[str, list[Path]], folder: Path) -> None:
    empty = next((name for name, paths in images.items() if not paths), None)
    if empty and len(images) > 1:
        raise DataError(f"{folder / empty}: holds no images; fill or remove it, because each folder is a class")
    if any(images.values()) and (loose := _loose(folder)):
        raise DataError(f"{loose[0]}: lies beside the class folders, so its class is not known; move or remove it and its like")
    if len(images) < 2:
        there = f"only {next(iter(images))}" if images else "none"
        table = next((entry for entry in sorted(folder.iterdir()) if entry.suffix.lower() in TABLES), None)
        hint = f"; did you mean the table {table}?" if table else ""
        raise DataError(f"{folder}: needs two or more folders with images, one for each class; there is {there}{hint}")


def _count(images: dict[str, list[Path]]) -> Counter[str]:
    return Counter({name: len(paths) for name, paths in images.items()})


def _headers(images: dict[str, list[Path]]) -> list[Header]:
    return _sizes([path for paths in images.values() for path in paths])


def _sizes(paths: Sequence[Path]) -> list[Header]:
    """Headers of at most 200 images spread evenly; raises DataError where not one can be read."""
    sample = paths[:: max(1, -(-len(paths) // _SAMPLE))]
    found = []
    for path in sample:
        check_regular(path)
        try:
            with path.open("rb") as file:
                header = image_header(file.read(ENOUGH))
        except OSError:  # named where it is decoded
            continue
        if header and header.width > 0 and header.height > 0:
            found.append(header)
    if not found:
        raise DataError(f"{sample[0]}: is no JPEG, PNG, BMP, GIF or WebP, nor is any other image that was looked at")
    return found


def _table(path: Path) -> Seen:
    columns = _columns(path)
    rows = len(next(iter(columns.values()), []))
    if not rows:
        raise DataError(f"{path}: has no rows")
    image = _image_column(path, columns)
    rest = {name: values for name, values in columns.items() if name != image}
    split = next((name for name, values in rest.items() if {role(str(value)) for value in values} >= {"train"}
                  and all(role(str(value)) for value in values)), None)
    may_be = {name: values for name, values in rest.items() if name != split and name.lower() not in _GROUPS}
    label = label_column(path, may_be, rows, named=_LABELS, most=1 / 2, what="class")
    parts = [role(str(value)) for value in columns[split]] if split else ["train"] * rows
    names = {role(str(value)): str(value) for value in columns[split]} if split else {}
    train = [number for number, part in enumerate(parts) if part == "train"]
    files = [path.parent / str(columns[image][number]) for number in train]
    missing = next((file for file in files[:: max(1, len(files) // 50)] if not file.is_file()), None)
    if missing:
        raise DataError(f"{path}: column {image} names {missing}, which is not there; files are looked for from the table's folder")
    keys = {"image_key": image, "label_key": label} | ({"split_key": split} if split else {})
    group = next((name for name in rest if name.lower() in _GROUPS and name not in (label, split)), None)
    counts = Counter(str(columns[label][number]) for number in train)
    return Seen("table", counts, _sizes(files), names.get("validation"), names.get("test"), keys, group)


def _columns(path: Path) -> dict[str, list[Any]]:
    """Column -> values, of a whole table."""
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        try:
            table = pyarrow.parquet.read_table(path)
        except (pyarrow.ArrowException, OSError) as error:
            raise DataError(f"{path}: is no Parquet file: {error}") from None
        nested = [name for name in table.column_names if not pyarrow.types.is_primitive(table.schema.field(name).type)
                  and not pyarrow.types.is_string(table.schema.field(name).type) and not pyarrow.types.is_large_string(
                      table.schema.field(name).type) and not pyarrow.types.is_dictionary(table.schema.field(name).type)]
        return {name: table[name].to_pylist() for name in table.column_names if name not in nested}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            if suffix == ".jsonl":
                rows: list[dict[str, Any]] = [json.loads(line) for line in file if line.strip()]
                names: Iterable[str] = dict.fromkeys(name for row in rows for name in row)
            else:
                reader = csv.DictReader(file, delimiter="\t" if suffix == ".tsv" else ",")
                rows, names = list(reader), reader.fieldnames or ()
    except (ValueError, AttributeError, TypeError) as error:
        raise DataError(f"{path}: is no {suffix[1:].upper()} table in UTF-8: {error}") from None
    return {name: [row.get(name) for row in rows] for name in names}


def _image_column(path: Path, columns: dict[str, list[Any]]) -> str:
    def share(values: list[Any]) -> float:
        return sum(str(value).lower().endswith(ENDINGS) for value in values) / len(values)

    found = max(columns, key=lambda name: share(columns[name]))
    if any(name.lower().endswith(ENDINGS) for name in columns):
        raise DataError(f"{path}: its first line must name the columns, such as file,label")
    if share(columns[found]) < 0.9:
        hint = "; it seems to be separated by semicolons: separate by commas" if len(columns) == 1 and ";" in found else ""
        raise DataError(f"{path}: no column names image files ({', '.join(SUFFIXES)}); its columns are {listed(columns, 'and')}{hint}")
    return found


def _npz(path: Path) -> Seen:
    import numpy as np

    shapes = _npz_shapes(path)
    splits = {name: match for name in shapes if (match := _SPLIT_NAME.match(name))}
    stems = dict.fromkeys(_stem(name) for name in shapes)
    listing = ", ".join(f"{name} {list(shape)} {kind}" for name, (shape, kind) in shapes.items()) or "none"
    train = {stem: next((name for name in shapes if _stem(name) == stem and (name not in splits or role(_split(name)) == "train")), None)
             for stem in stems}
    shape_of = {stem: shapes[name][0] for stem, name in train.items() if name}
    images = [stem for stem, shape in shape_of.items() if len(shape) in (3, 4)]
    image = images[0] if len(images) == 1 else None
    count = shape_of[image][0] if image else 0
    labels = [stem for stem, shape in shape_of.items() if shape in ((count,), (count, 1))] if image else []
    if image is None or len(labels) != 1:
        raise DataError(f"{path}: needs one array of images [n, height, width] or [n, height, width, channels] and one of n labels, called "
                        f"for instance x and y, or x_train, y_train, x_test and y_test; its arrays are: {listing}")
    shape = shape_of[image]
    channels = shape[3] if len(shape) == 4 else 1
    if channels not in (1, 3):
        raise DataError(f"{path}: images of {channels} channels (the last dimension) are not read; give 1 or 3")
    with np.load(path, allow_pickle=False) as arrays:
        values = arrays[str(train[labels[0]])].reshape(-1)
    own = {role(_split(name)): _split(name) for name in splits if _stem(name) == image}
    return Seen("npz", Counter(map(str, values.tolist())), [Header(shape[2], shape[1], channels)], own.get("validation"), own.get("test"),
                {"image_key": image, "label_key": labels[0]})


def _npz_shapes(path: Path) -> dict[str, tuple[tuple[int, ...], str]]:
    """Array -> shape and dtype, from the headers alone. Raises DataError for pickled arrays."""
    from numpy.lib import format as npy

    found = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                with archive.open(member) as file:
                    version = npy.read_magic(file)
                    header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
                    shape, _, dtype = header(file)
                if dtype.hasobject:
                    raise DataError(f"{path}: array {member.removesuffix('.npy')} holds Python objects, which are not read; "
                                    "save it as numbers or texts")
                found[member.removesuffix(".npy")] = (tuple(shape), str(dtype))
    except (zipfile.BadZipFile, ValueError, OSError) as error:
        raise DataError(f"{path}: is no .npz file: {error}") from None
    return found


def _stem(name: str) -> str:
    """x of x_train, images of train_images."""
    found = _SPLIT_NAME.match(name)
    return (found["before"] or found["after"]) if found else name


def _split(name: str) -> str:
    """train of x_train and of train_images; empty for other names."""
    found = _SPLIT_NAME.match(name)
    return (found["first"] or found["last"]) if found else ""

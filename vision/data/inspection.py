"""What lies in a folder, table or .npz of labelled images: classes, counts, sizes, splits. Imports no TensorFlow.

Files are listed, a sample of their first bytes is read, and some are decoded, to see whether they have colours. What is not understood
is refused with what to do instead.
"""

import re
import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.base.errors import DataError
from pipelines.base.inside import check_regular
from pipelines.config.draft import Asked
from pipelines.config.messages import listed
from pipelines.data.columns import by_name, role_in, role_of
from pipelines.data.dialect import SUFFIXES, ending
from pipelines.data.divide import ALIASES
from pipelines.data.frame import (
    file_column,
    files_there,
    in_both,
    label_column,
    label_values,
    missing_files,
    open_frame,
    split_column,
    tables_for,
)
from pipelines.data.kinds import not_used
from pipelines.data.names import groups_in_names, some, suspected_folders, suspected_groups, suspected_labels
from pipelines.data.tables import file_paths, is_table
from pipelines.data.walk import PassedOver, folders_in, hidden, other_folders, sampled
from vision.data.annotations import naming_boxes
from vision.data.colours import LOOKED_AT, all_grey, is_grey
from vision.data.files import ENDINGS, images_below, is_image_file
from vision.data.headers import ENOUGH, Header, image_header
from vision.data.headers import SUFFIXES as SUFFIXES_OF_IMAGES

TABLES = (".csv", ".tsv", ".jsonl", ".parquet")  # named in messages
ROLES = ("file", "files", "label", "split", "group")
_ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar")
_ALIAS = "|".join(alias for names in ALIASES.values() for alias in names)
_SPLIT_NAME = re.compile(f"(?:(?P<first>{_ALIAS})_(?P<after>.+)|(?P<before>.+)_(?P<last>{_ALIAS}))$")
_START = 1 << 14  # bytes of a file that nearly always hold its size


@dataclass
class Seen:
    """What the data hold, as settings of the experiment's data section.

    Attributes:
        source: "folder", "table" or "npz".
        counts: class -> images in train.
        headers: sizes of train's images.
        validation, test: the data's own splits of those names, None where there are none.
        columns: further settings of the data section: image_key, label_key, split_key, encoding, ...
        group: a column that looks as if its values should stay on one side of a split; "name" for a part of the files' names.
        path: the table, where it lies in the folder that was named.
        sampled: headers are of a sample only.
        label: the column of the classes, where there is a table.
        notes: further remarks, a line each.
    """

    source: str
    counts: Counter[str]
    headers: list[Header]
    validation: str | None = None
    test: str | None = None
    columns: dict[str, Any] = field(default_factory=dict)
    group: str | None = None
    path: Path | None = None
    sampled: bool = False
    label: str | list[str] | None = None
    notes: list[str] = field(default_factory=list)


def look(path: Path, asked: Asked | None = None) -> Seen:
    """Raises DataError for anything but a folder of class folders (with or without train, validation, test), a table or an .npz."""
    with naming_boxes(path):
        return _look(path, asked or Asked())


def _look(path: Path, asked: Asked) -> Seen:
    suffix = path.suffix.lower()
    if path.is_dir():
        return _folder(path, asked)
    if ending(path) in SUFFIXES:
        return _table(path, asked)
    if suffix == ".npz":
        return _npz(path)
    if suffix in _ARCHIVES:
        raise DataError(f"{path}: is an archive; unpack it and name the folder")
    if suffix in ENDINGS:
        raise DataError(f"{path}: is one image; name the folder that holds a folder for each class")
    raise DataError(f"{path}: not understood; give a folder with a folder for each class, a table ({listed(TABLES)}) that names files, "
                    "or an .npz")


def _folder(path: Path, asked: Asked) -> Seen:
    manifest = find_manifest(path, asked)
    if manifest is not None:
        return _table(manifest, asked)
    folders = folders_in(path, PassedOver())
    splits = {role_of(folder.name): folder for folder in folders if role_of(folder.name)}
    if "train" in splits:
        images = _classes(splits["train"])
        _check_classes(images, splits["train"])
        others = {part: folder.name for part, folder in splits.items() if part and any(_classes(folder).values())}
        seen = Seen("folder", _count(images), [], others.get("validation"), others.get("test"),
                    notes=other_folders(path, list(splits.values()), lambda folder: len(images_below(folder))))
        return _described(seen, path, images)
    images = _classes(path)
    if not any(images.values()):
        loose = _loose(path)
        if loose and (named := _by_names(path, loose)):
            return named
        if loose:
            raise DataError(f"{path}: {len(loose)} images lie in it with no folder for each class; "
                            "move each class into a folder of its name, or name files and labels in a table (CSV)")
        raise DataError(f"{path}: there are no images ({', '.join(SUFFIXES_OF_IMAGES)}) in folders below it")
    if len(images) == 1 and (inside := _inside(path)):
        raise DataError(f"{path}: holds the single folder {next(iter(images))}; did you mean {inside}?")
    _check_classes(images, path)
    return _described(Seen("folder", _count(images), []), path, images)


def _described(seen: Seen, path: Path, images: dict[str, list[Path]]) -> Seen:
    """With the images' sizes, and with what their names suggest."""
    files = [file for paths in images.values() for file in paths]
    seen.headers, seen.sampled = headers_of(files)
    if seen.test is None:
        suggest_groups(seen, [file.relative_to(path).as_posix() for file in files], [name for name, paths in images.items() for _ in paths])
    return seen


def suggest_groups(seen: Seen, names: list[str], labels: list[str]) -> None:
    """Sets `group` where the names of the files seem to hold people, scenes or devices."""
    hint = suspected_groups(names, labels)
    folders = () if seen.source == "table" else suspected_folders(names, labels)
    if folders:
        seen.group = "folder"
        seen.notes.append(f"Each class has the same folders in it ({some(folders)}): they are taken for people, scenes or devices.")
    elif hint:
        seen.group = "name"
        seen.columns["group_pattern"] = hint.pattern
        seen.notes.append(f"The names hold what seems to be a person, a scene or a device ({some(hint.values)}, such as in {names[0]}).")


def _by_names(path: Path, files: list[Path]) -> Seen | None:
    """Images without class folders whose names hold the class, such as cat.12.jpg."""
    names = [file.relative_to(path).as_posix() for file in files]
    hint = suspected_labels(names)
    if hint is None:
        return None
    labels = groups_in_names(names, hint.pattern)
    seen = Seen("folder", Counter(labels), [], columns={"label_pattern": hint.pattern})
    seen.notes.append(f"There are no class folders: the class is taken from the names ({some(hint.values)}, such as in {names[0]}).")
    seen.headers, seen.sampled = headers_of(files)
    suggest_groups(seen, names, labels)
    return seen


def find_manifest(folder: Path, asked: Asked) -> Path | None:
    """A table in a folder that names images in it, with the class of each; None where there is none."""
    for table in tables_for(folder):
        try:
            frame = open_frame(table)
            image, pattern = file_column(frame, asked, ENDINGS)
        except DataError:
            continue
        if len(frame.names) > 1 and image and (table.parent == folder or files_there(frame, image, pattern)):
            return table
    return None


def _classes(folder: Path) -> dict[str, list[Path]]:
    """Class -> its images, at any depth."""
    return {entry.name: images_below(entry) for entry in folders_in(folder, PassedOver())}


def _loose(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if entry.is_file() and not hidden(entry.name) and is_image_file(entry))


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
        table = next((entry for entry in sorted(folder.iterdir()) if is_table(entry)), None)
        hint = f"; did you mean the table {table}?" if table else ""
        raise DataError(f"{folder}: needs two or more folders with images, one for each class; there is {there}{hint}")


def _count(images: dict[str, list[Path]]) -> Counter[str]:
    return Counter({name: len(paths) for name, paths in images.items()})


def headers_of(paths: Sequence[Path]) -> tuple[list[Header], bool]:
    """(headers of the images, whether of a sample only: of at most 20,000, and as many as are read in two seconds, spread evenly).

    Raises DataError where not one can be read."""
    def read(path: Path) -> Header | None:
        check_regular(path)
        try:
            with path.open("rb") as file:
                start = file.read(_START)
                header = image_header(start)
                if header is None and len(start) == _START:
                    header = image_header(start + file.read(ENOUGH))
        except OSError:  # named where it is decoded
            return None
        return header if header and header.width > 0 and header.height > 0 else None

    headers, partly = sampled(paths, read)
    if not headers:
        raise DataError(f"{paths[0]}: is no JPEG, PNG, BMP, GIF or WebP, nor is any other file that was sampled")
    if any(header.channels == 3 for header in headers) and all_grey(paths):
        headers = [header._replace(channels=1) for header in headers]
    return headers, partly


def _table(path: Path, asked: Asked) -> Seen:
    frame = open_frame(path)
    image, pattern = file_column(frame, asked, ENDINGS)
    if image is None:
        raise DataError(f"{path}: no column names image files ({', '.join(SUFFIXES_OF_IMAGES)}); its columns are "
                        f"{listed(frame.names, 'and')}. Name it with --file")
    rest = [name for name in frame.names if name != image]
    own = asked.column("split", rest, path)
    split, parts = split_column({name: frame.values[name] for name in rest}, own, path, asked)
    group = asked.column("group", rest, path)
    may_be = [name for name in rest if name not in (split, group)]
    if group is None and not asked.absent("group"):
        group = by_name(may_be, ["group"]).get("group") if len(may_be) > 1 else None
    label = label_column(path, {name: frame.facts[name] for name in may_be if name != group}, frame.values, most=1 / 2, what="class",
                         asked=asked)
    stored = [role_in(parts, value) for value in frame.values[split]] if split else ["train"] * frame.rows
    train = [number for number, part in enumerate(stored) if part == "train"]
    files = file_paths([frame.values[image][number] for number in train], path, pattern, f"{image} (--file)")
    missing = next((file for file in files[:: max(1, len(files) // 50)] if not file.is_file()), None)
    if missing:
        raise missing_files(path, image, missing)
    labels = label_values(frame, label)
    keys, names = frame.named({"file": image, "split": split, "group": group} | ({"label": label} if isinstance(label, str) else {}))
    columns: dict[str, Any] = {"image_key": keys["file"], "label_key": keys.get("label", label)}
    columns |= {"split_key": keys["split"]} if split else {}
    columns |= frame.settings | ({"columns": names} if names else {}) | ({"file_pattern": pattern} if pattern else {})
    columns |= {"on_bad_example": "skip"} if frame.lost.count else {}
    used = (image, split, group, *([label] if isinstance(label, str) else label))
    seen = Seen("table", Counter(labels[number] for number in train), [], parts.get("validation") if split else None,
                parts.get("test") if split else None, columns, keys.get("group"), path=path, label=label,
                notes=not_used(frame.names, used))
    seen.headers, seen.sampled = headers_of(files)
    if note := frame.passed_over():
        seen.notes.append(note)
    if group and (both := in_both(frame.values[group], stored)):
        seen.group = None
        seen.notes.append(f"{both:,} values of column {group} are in more than one of the data's own splits: expect lower scores "
                          "for new ones.")
    if seen.group is None and seen.test is None and not asked.absent("group"):
        suggest_groups(seen, [str(frame.values[image][number]) for number in train], [labels[number] for number in train])
    return seen


def _npz(path: Path) -> Seen:
    import numpy as np

    shapes = _npz_shapes(path)
    splits = {name: match for name in shapes if (match := _SPLIT_NAME.match(name))}
    stems = dict.fromkeys(_stem(name) for name in shapes)
    listing = ", ".join(f"{name} {list(shape)} {kind}" for name, (shape, kind) in shapes.items()) or "none"
    train = {stem: next((name for name in shapes if _stem(name) == stem and (name not in splits or role_of(_split(name)) == "train")), None)
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
        if channels == 3 and is_grey(arrays[str(train[image])][:: max(1, count // LOOKED_AT)]):
            channels = 1
    own = {role_of(_split(name)): _split(name) for name in splits if _stem(name) == image}
    return Seen("npz", Counter(map(str, values.tolist())), [Header(shape[2], shape[1], channels)], own.get("validation"), own.get("test"),
                {"image_key": image, "label_key": labels[0]}, label=labels[0])


def _npz_shapes(path: Path) -> dict[str, tuple[tuple[int, ...], str]]:
    """Array -> shape and dtype, from the headers alone. Raises DataError for pickled arrays."""
    from numpy.lib import format as npy

    shapes = {}
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
                shapes[member.removesuffix(".npy")] = (tuple(shape), str(dtype))
    except (zipfile.BadZipFile, ValueError, OSError) as error:
        raise DataError(f"{path}: is not an .npz file: {error}") from None
    return shapes


def _stem(name: str) -> str:
    """x of x_train, images of train_images."""
    match = _SPLIT_NAME.match(name)
    return (match["before"] or match["after"]) if match else name


def _split(name: str) -> str:
    """train of x_train and of train_images; empty for other names."""
    match = _SPLIT_NAME.match(name)
    return (match["first"] or match["last"]) if match else ""

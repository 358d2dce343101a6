"""Pictures with masks as splits of a data set, nothing divided yet. Raw examples are {"image": scalar string, "mask": scalar string, the
bytes of a PNG file}."""

import contextlib
import hashlib
import io
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.base.errors import DataError
from pipelines.base.files import write_json
from pipelines.base.json_text import parse_json
from pipelines.data.cache import cache_folder
from pipelines.data.files import FileSource
from pipelines.data.names import groups_in_names
from pipelines.data.opened import Opened, check_skipped
from pipelines.data.source import Source, origin
from pipelines.data.tables import LeftOut, absent_files, column, file_paths, read_table, split_names, values_of
from pipelines.stores.remote import local
from vision.data.masks import by_class, layout
from vision.data.masks.values import Seen, look
from vision.data.splits import file_header
from vision.settings import InstanceData, MaskData

MASK = "mask"  # the entry of an example
Bad = list[tuple[int, str]]


def open_masks(data: MaskData | InstanceData) -> Opened[FileSource]:
    """Raises DataError where there are no such folders or columns, or a picture has no mask; with data.on_bad_example: skip those are left
    out."""
    return _table(data) if data.source == "table" else _folder(data)


def _folder(data: MaskData | InstanceData) -> Opened[FileSource]:
    root = Path(local(data.path or "", folder=True))
    if not root.is_dir():
        raise DataError(f"{root}: there is no such folder")
    parts = layout.find(root)
    if not parts:
        raise DataError(f"{root}: holds no folder of pictures beside one of masks (images and masks), with folders for train, validation "
                        "and test or without; name the files of both in a table: source: table")
    classes = by_class.join_parts(parts.values(), getattr(data, "classes", None), root, skip=data.on_bad_example == "skip")
    alone = [f"{image}: has no mask" for part in parts.values() for image in part.alone]
    if alone and data.on_bad_example == "stop":
        raise DataError(f"{alone[0]} (and {len(alone) - 1:,} more); add it, or leave such pictures out with data.on_bad_example: skip")
    check_skipped(alone, len(alone) + sum(len(part.images) for part in parts.values()), data, str(root))

    def load(split: str) -> FileSource:
        return _source(parts[split].images, parts[split].masks, root, data)

    return Opened(str(root), sorted(parts), load, classes, skipped=alone)


def _table(data: MaskData | InstanceData) -> Opened[FileSource]:
    path = Path(local(data.path or "", folder=True))
    lost = LeftOut()
    text = [name for name in (data.image_key, data.mask_key, data.split_key) if name]
    table = read_table(path, text=text, names=data.columns, left_out=lost if data.on_bad_example == "skip" else None,
                       delimiter=data.delimiter, encoding=data.encoding, quote=data.quote)
    splits = split_names(values_of(table, data.split_key, path, "data.split_key"), data) if data.split_key else ["all"] * table.num_rows
    parts, skipped, files = np.array(splits, object), list(lost.reasons), []
    for key, setting, pattern in ((data.image_key, "image_key", data.file_pattern), (data.mask_key, "mask_key", data.mask_pattern)):
        named = column(table, key, path, f"data.{setting}").to_pylist()
        files.append(file_paths(named, path, pattern, f"{key} (data.{setting})"))
        absent = absent_files(files[-1], path, skip=data.on_bad_example == "skip")
        skipped += absent.values()
        parts[list(absent)] = ""
    check_skipped(skipped, table.num_rows + lost.count, data, str(path))
    own = values_of(table, data.group_by, path, "data.group_by") if data.group_by not in (None, "folder", "name") else None

    def load(split: str) -> FileSource:
        rows = np.flatnonzero(parts == split)
        source = _source([files[0][row] for row in rows], [files[1][row] for row in rows], path.parent, data)
        if own is not None:
            source.groups = np.array(own)[rows]
        return source

    return Opened(str(path), sorted(set(splits)), load, skipped=skipped)


def _source(images: Sequence[Path], masks: Sequence[Path | bytes], root: Path, data: MaskData | InstanceData) -> FileSource:
    files = [mask for mask in masks if not isinstance(mask, bytes)]
    held: dict[str, Any] = {"beside": {MASK: files}} if len(files) == len(masks) else {"fields": {MASK: np.array(masks, object)}}
    source = FileSource(images, key="image", root=root, **held)
    if data.group_by == "folder":
        source.groups = np.array([image.parent.name for image in images])
    elif data.group_by == "name":
        source.groups = np.array(groups_in_names([source.relative(number) for number in range(len(source))], data.group_pattern or ""))
    return source


def masks_of(source: FileSource) -> Sequence[str | bytes]:
    """The file of each mask, or its bytes."""
    return source.beside[MASK] if MASK in source.beside else source.fields[MASK].tolist()


def look_at(source: Source, data: MaskData, progress: Callable[[int, int], None] | None = None) -> tuple[list[Seen | None], Bad]:
    """(what is in each mask, None of those that cannot be read; (number, reason) of these), kept in the cache folder for the same files."""
    base, numbers = origin(source)
    assert isinstance(base, FileSource)
    what = [base.fingerprint(), base.stamp(), len(base), data.max_pixels]
    kept = cache_folder(data) / f"masks-{hashlib.sha256(json.dumps(what).encode()).hexdigest()[:24]}.json"
    try:
        stored = parse_json(kept.read_text(encoding="utf-8"))
        every = [one if isinstance(one, str) else Seen(one["kind"], *({int(code): int(value) for code, value in one[name].items()}
                                                                       for name in ("pixels", "shown"))) for one in stored["masks"]]
        if len(every) != len(base):
            raise ValueError
    except (OSError, ValueError, TypeError, KeyError):
        every = _looked_at(base, progress or (lambda done, of: None), data.max_pixels)
        with contextlib.suppress(OSError):  # then the next start looks again
            write_json(kept, {"masks": [one if isinstance(one, str) else vars(one) for one in every]})
    mine = [every[number] for number in numbers]
    bad = [(place, one) for place, one in enumerate(mine) if isinstance(one, str)]
    return [None if isinstance(one, str) else one for one in mine], bad


def _looked_at(source: FileSource, progress: Callable[[int, int], None], most: int) -> list[Seen | str]:
    def one(pair: tuple[str, str | bytes]) -> Seen | str:
        size = file_header(pair[0])
        if size is None or size[0] * size[1] > most:
            return "its picture cannot be read, or has too many pixels"
        try:
            return look(Path(pair[1]) if isinstance(pair[1], str) else io.BytesIO(pair[1]), size[:2])
        except ValueError as error:
            return str(error)

    found = list[Seen | str]()
    with ThreadPoolExecutor(8) as threads:
        for seen in threads.map(one, zip(source.paths, masks_of(source))):
            if len(found) % 256 == 0:
                progress(len(found), len(source))
            found.append(seen)
    progress(len(source), len(source))
    return found

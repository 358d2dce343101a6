"""A log of interactions written as it was read, and mapped from there: what `quartet prepare` keeps of a recommendation experiment.

A table is parsed once, ids are counted once; what is divided and learned from a log is computed at each start, in memory, by the split
that the experiment asks for.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.base.errors import DataError
from pipelines.base.files import write_json
from pipelines.base.stored import Count, Record, Text, read
from recsys.data.log import Ids, Log

ARRAYS = ("users", "items", "ratings", "times", "parts", "rows", "lines")
IDS = ("user_ids", "item_ids")
TABLES = ("features", "item_table", "user_table")


class Described(Record):
    """log.json."""

    place: Text
    path: Text | None
    skipped: list[Text]
    notes: list[Text]
    digest: Text
    header: bool
    left_out: Count
    there: list[Text]
    objects: list[Text]  # arrays that hold texts as Python objects


def write(log: Log, folder: Path) -> None:
    """Writes a log into a folder. Raises OSError where the disk is full."""
    there = [name for name in (*ARRAYS, *IDS, *TABLES) if getattr(log, name) is not None]
    objects = []
    for name in there:
        value = getattr(log, name)
        if name in TABLES:
            with pa.OSFile(str(folder / f"{name}.arrow"), "wb") as sink, pa.ipc.new_file(sink, value.schema) as writer:
                writer.write_table(value)
        else:
            array = value.values if isinstance(value, Ids) else value
            if array.dtype == object:
                objects.append(name)
                array = array.astype(str)
            np.save(folder / f"{name}.npy", array, allow_pickle=False)
    write_json(folder / "log.json", {
        "place": log.place, "path": None if log.path is None else str(log.path), "skipped": list(log.skipped), "notes": list(log.notes),
        "digest": log.digest, "header": log.header, "left_out": log.left_out, "there": there,
        "objects": objects})


def load(folder: Path) -> Log:
    """The log that `write` wrote, its arrays mapped. Raises ConfigError or DataError that names the file."""
    described = read(folder / "log.json", Described)
    values: dict[str, Any] = {}
    for name in described.there:
        path = folder / f"{name}.{'arrow' if name in TABLES else 'npy'}"
        try:
            if name in TABLES:
                values[name] = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
                values[name].validate(full=True)
            else:
                values[name] = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise DataError(f"{path}: cannot be read: {str(error).splitlines()[0]}; copy the folder again, or write it anew "
                            "(quartet prepare)") from error
    for name in described.objects:
        values[name] = values[name].astype(object)
    for name in IDS:
        if name in values:
            values[name] = Ids(values[name])
    stored: dict[str, Any] = {name: values.get(name) for name in (*ARRAYS, *IDS, *TABLES)}
    return Log(**stored, place=described.place,
               path=Path(described.path) if described.path else None, skipped=tuple(described.skipped), notes=tuple(described.notes),
               digest=described.digest, header=described.header, left_out=described.left_out)

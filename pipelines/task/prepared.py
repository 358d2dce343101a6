"""A folder in which an experiment's examples and facts are ready: written once by `quartet prepare`, trained from with data.prepared.

It holds the splits as they were divided, example by example in their order, and what was learned from train. So a run from it sees the
same batches and ends with the same weights as one from the original, and starts without listing, dividing or reading anything.
"""

import contextlib
import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from pipelines.base.errors import ConfigError, DataError
from pipelines.base.files import finite, whole_folder, write_json
from pipelines.base.stored import Count, Name, Record, Text, read
from pipelines.config.messages import differences, shown_changes
from pipelines.data import shards
from pipelines.data.cache import Decode, decoded_spec, existing, nbytes, readable
from pipelines.data.source import Source
from pipelines.stores.copies import local
from pipelines.task.contract import Splits, Task

INDEX = "prepared.json"
SPLITS = ("train", "validation", "test")
MARGIN = 1.05  # of room for names, checksums and what is learned from train


class Index(Record):
    """prepared.json."""

    format: Literal[1]
    task: Text
    settings: dict[str, Any]  # those of the experiment on which it depends
    decoded: bool = False  # examples are numbers, not the bytes of files
    splits: dict[Name, shards.Stored] | None  # None: the task keeps its data its own way
    facts: dict[str, Any] = {}
    skipped: list[Text] = []
    more_skipped: Count = 0
    notes: Annotated[list[Text], Field(max_length=10_000)] = []


def prepare(task: Task, target: Path, progress: Callable[[int], None] = lambda done: None, *, decoded: bool = False,
            say: Callable[[str], None] = lambda text: None) -> Index:
    """Reads what the task's experiment names once, and writes it; `target` appears when it is whole.

    Args:
        progress: told how many examples of a split are written.
        decoded: examples as they are judged, so that training need not decode them.
        say: told how large these are, before they are written.

    Raises:
        ConfigError: there is something at `target` already; or decoded examples cannot be stored, or the disk has no room for them.
        DataError: data that cannot be used, as when training.
        WriteError: the disk does not take it.
    """
    if target.exists():
        raise ConfigError(f"{target}: is there already; remove it, or name another folder")
    if decoded:
        _require_storable(task)
        if task.decoded_by == "source":
            say("decoded      as without --decoded: what is stored is decoded in any case")
    decoded = decoded or task.decoded_by == "source"
    with whole_folder(target) as staging:
        content: dict[str, Any] = {"format": 1, "task": task.experiment.task, "settings": _settings(task, decoded), "decoded": decoded,
                                   "splits": None}
        if not task.keep(staging):
            splits = task.splits()
            content |= {"facts": finite(splits.facts), "skipped": list(splits.skipped), "more_skipped": splits.more_skipped,
                        "notes": list(splits.notes), "splits": {}}
            sources = {name: source for name in SPLITS if (source := getattr(splits, name)) is not None}
            decode = None
            if decoded and task.decoded_by == "decode":
                decode = type(task)(task.experiment, dict(splits.facts)).decode
                say(_room_for(sources.values(), decode, target))
            for name, source in sources.items():
                content["splits"][name] = shards.write(source, staging, name, task.beside(source), progress, decode)
        write_json(staging / INDEX, content)
        return Index.model_validate_json(json.dumps(finite(content)))


def _require_storable(task: Task) -> None:
    """Raises ConfigError where decoded examples cannot be stored in place of those that they are made of."""
    kind = task.experiment.task
    if task.decoded_by is None:
        raise ConfigError(f"--decoded: {kind} has no files to decode; leave it out: examples are stored as they are")
    if task.random_decode:
        because = f"{task.drawn_by}: {_value(task, task.drawn_by)}" if task.drawn_by else kind
        raise ConfigError(f"--decoded: {because} decodes each example anew in every epoch, at random, which cannot be stored; leave "
                          "--decoded out" + (f", or set {task.drawn_by}: null" if task.drawn_by else ""))


def _room_for(sources: Iterable[Source], decode: Decode, target: Path) -> str:
    """What to say of the size of the decoded examples. Raises ConfigError where the disk of `target` has no room for them."""
    sources = list(sources)
    size = sum(nbytes(decoded_spec(source, decode), len(source)) for source in sources)
    stored = sum(map(shards.size_of, sources))
    free = shutil.disk_usage(existing(target.parent)).free
    if size * MARGIN > free:
        raise ConfigError(f"--decoded: the examples take {readable(size)} decoded, and {readable(free)} are free at {target.parent}; leave "
                          f"--decoded out (about {readable(stored)}), or name a folder on a larger disk")
    return f"decoded      {readable(size)}, about {size / max(stored, 1):.1f} x the examples as they are stored ({readable(stored)})"


def splits_of(task: Task) -> Splits:
    """The task's splits: from the folder that data.prepared names, else as the task finds and divides them.

    Raises:
        ConfigError: it is no such folder, or was prepared for another experiment.
        DataError: a file in it is missing or damaged.
    """
    if task.experiment.data.prepared is None:
        return task.splits()
    folder = local(task.experiment.data.prepared).expanduser()
    index = opened(folder)
    changed = differences(index.settings, _settings(task, index.decoded))
    if index.task != task.experiment.task or changed:
        raise ConfigError(f"data.prepared: {folder} was prepared for another experiment:\n"
                          + (shown_changes(changed) or f"  task: {index.task} there, {task.experiment.task} now")
                          + "\nPrepare it anew (quartet prepare), or leave data.prepared out")
    if index.splits is None:
        return task.splits()
    if "train" not in index.splits:
        raise DataError(f"{folder / INDEX}: has no split train; prepare it anew (quartet prepare)")
    sources: dict[str, Any] = {name: shards.ShardSource(folder, stored, f"{folder}/{name}") for name, stored in index.splits.items()}
    return task.restored(Splits(sources["train"], sources.get("validation"), sources.get("test"), dict(index.facts),
                                tuple(index.skipped), tuple(index.notes), index.more_skipped))


def opened(folder: Path) -> Index:
    """The index of a prepared folder. Raises ConfigError where there is none, or one that is not what `prepare` writes."""
    if not (folder / INDEX).is_file():
        raise ConfigError(f"data.prepared: {folder} has no {INDEX}; name a folder that quartet prepare wrote")
    return read(folder / INDEX, Index)


def _settings(task: Task, decoded: bool) -> dict[str, Any]:
    """The settings that decide what is in the splits and what is learned from them, as JSON values."""
    values = task.experiment.model_dump(mode="json")
    for name in task.no_matter:
        *route, last = name.split(".")
        section = values
        with contextlib.suppress(KeyError, TypeError):
            for step in route:
                section = section[step]
            section.pop(last, None)
    if decoded and task.drawn_by:
        values[task.drawn_by] = _value(task, task.drawn_by)
    return json.loads(json.dumps(finite(values)))


def _value(task: Task, setting: str) -> Any:
    value: Any = task.experiment
    for step in setting.split("."):
        value = getattr(value, step)
    return value

"""A folder in which an experiment's examples and facts are ready: written once by `quartet prepare`, trained from with data.prepared.

It holds the splits as they were divided, example by example in their order, and what was learned from train. So a run from it sees the
same batches and ends with the same weights as one from the original, and starts without listing, dividing or reading anything.
"""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from pipelines.base.errors import ConfigError, DataError
from pipelines.base.files import finite, whole_folder, write_json
from pipelines.base.stored import Count, Name, Record, Text, read
from pipelines.config.messages import differences, shown_changes
from pipelines.data import shards
from pipelines.stores.copies import local
from pipelines.task.contract import Splits, Task

INDEX = "prepared.json"
SPLITS = ("train", "validation", "test")


class Index(Record):
    """prepared.json."""

    format: Literal[1]
    task: Text
    settings: dict[str, Any]  # those of the experiment on which it depends
    splits: dict[Name, shards.Stored] | None  # None: the task keeps its data its own way
    facts: dict[str, Any] = {}
    skipped: list[Text] = []
    more_skipped: Count = 0
    notes: Annotated[list[Text], Field(max_length=10_000)] = []


def prepare(task: Task, target: Path, progress: Callable[[int], None] = lambda done: None) -> Index:
    """Reads what the task's experiment names once, and writes it; `target` appears when it is whole.

    Args:
        progress: told how many examples of a split are written.

    Raises:
        ConfigError: there is something at `target` already.
        DataError: data that cannot be used, as when training.
        WriteError: the disk does not take it.
    """
    if target.exists():
        raise ConfigError(f"{target}: is there already; remove it, or name another folder")
    with whole_folder(target) as staging:
        content: dict[str, Any] = {"format": 1, "task": task.experiment.task, "settings": _settings(task), "splits": None}
        if not task.keep(staging):
            splits = task.splits()
            content |= {"facts": finite(splits.facts), "skipped": list(splits.skipped), "more_skipped": splits.more_skipped,
                        "notes": list(splits.notes), "splits": {}}
            for name in SPLITS:
                source = getattr(splits, name)
                if source is not None:
                    content["splits"][name] = shards.write(source, staging, name, task.beside(source), progress)
        write_json(staging / INDEX, content)
        return Index.model_validate_json(json.dumps(finite(content)))


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
    changed = differences(index.settings, _settings(task))
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


def _settings(task: Task) -> dict[str, Any]:
    """The settings that decide what is in the splits and what is learned from them, as JSON values."""
    values = task.experiment.model_dump(mode="json")
    for name in task.no_matter:
        *route, last = name.split(".")
        section = values
        with contextlib.suppress(KeyError, TypeError):
            for step in route:
                section = section[step]
            section.pop(last, None)
    return json.loads(json.dumps(finite(values)))

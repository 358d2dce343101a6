"""A folder in which an experiment's examples and facts are ready: written once by `quartet prepare`, trained from with data.prepared.

It holds the splits as they were divided, example by example in their order, and what was learned from train. So a run from it sees the
same batches and ends with the same weights as one from the original, and starts without listing, dividing or reading anything.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from pipelines.base.errors import ConfigError, DataError
from pipelines.base.files import as_json, finite, write_json
from pipelines.base.stored import Count, Name, Record, Text, parsed, read
from pipelines.config.messages import differences, shown_changes
from pipelines.data import shard_writing, shards
from pipelines.data.cache import Decode, decoded_spec, existing, nbytes, readable
from pipelines.data.shard_writing import Piece
from pipelines.data.source import Source
from pipelines.stores.remote import OutputFolder, address_of, local
from pipelines.task.contract import Splits, Task

INDEX, UNFINISHED = "prepared.json", "unfinished.json"
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


class Begun(Record):
    """unfinished.json: what the shards that are there already are of."""

    task: Text
    settings: dict[str, Any]
    decoded: bool
    data: dict[Name, list[Count | Text]]  # split -> examples, fingerprint, stamp


class Work:
    """An experiment's splits, as they are to be written.

    Args:
        decoded: examples as they are judged, where the task decodes them.

    Raises:
        DataError: data that cannot be used, as when training.
    """

    def __init__(self, task: Task, folder: OutputFolder, *, decoded: bool):
        self.task, self.folder, self.decoded = task, folder, decoded
        self.splits = task.splits()
        self.sources: dict[str, Source] = {name: source for name in SPLITS if (source := getattr(self.splits, name)) is not None}
        own = decoded and task.input.decoding.by == "decode"
        self.decode: Decode | None = type(task)(task.experiment, dict(self.splits.facts)).input.decode if own else None

    def write(self, piece: Piece) -> None:
        """Raises as shard_writing.write."""
        shard_writing.write(self.sources[piece.split], piece, self.folder, self.decode)


Write = Callable[[Work, Sequence[Piece]], Iterator[Piece]]  # writes pieces, and gives each that is written


def here(work: Work, pieces: Sequence[Piece]) -> Iterator[Piece]:
    """Writes pieces one after another."""
    for piece in pieces:
        work.write(piece)
        yield piece


def prepare(task: Task, output: Path, progress: Callable[[int, int], None] = lambda done, of: None, *, decoded: bool = False,
            say: Callable[[str], None] = lambda text: None, write: Write = here) -> Index:
    """Reads what the task's experiment names once, and writes it; prepared.json comes last. What an earlier call has begun, is resumed.

    Args:
        output: a folder, or an address.
        progress: told how many examples are written, of how many.
        decoded: examples as they are judged, so that training need not decode them.
        say: told how large these are, before they are written, and what is there already.
        write: writes the shards.

    Raises:
        ConfigError: there is something else at `output` already; or decoded examples cannot be stored, or the disk has no room for them.
        DataError: data that cannot be used, as when training.
        WriteError, StoreError: the disk or the store does not take it.
    """
    if address_of(output) is None and os.path.lexists(output) and not output.is_dir():
        raise _there_already(output)
    folder = OutputFolder(output)
    there = folder.names()
    if INDEX in there or (UNFINISHED not in there and (there or (address_of(output) is None and output.exists()))):
        raise _there_already(folder)
    if decoded:
        _require_storable(task)
        if task.input.decoding.by == "source":
            say("decoded      as without --decoded: what is stored is decoded in any case")
    decoded = decoded or task.input.decoding.by == "source"
    content: dict[str, Any] = {"format": 1, "task": task.experiment.task, "settings": _settings(task, decoded), "decoded": decoded,
                               "splits": None}
    if task.input.prepared_form.own_writer is not None:
        with folder.filled() as place:
            task.input.prepared_form.own_writer(place)
            write_json(place / INDEX, content)
    else:
        content |= _in_shards(Work(task, folder, decoded=decoded), content, output, progress, say, write)
        folder.write(INDEX, as_json(content).encode())
        folder.remove([UNFINISHED])
    return Index.model_validate_json(json.dumps(finite(content)))


def _there_already(place: Any) -> ConfigError:
    return ConfigError(f"{place}: is there already; remove it, or name another folder")


def _in_shards(work: Work, content: Mapping[str, Any], output: Path, progress: Callable[[int, int], None], say: Callable[[str], None],
               write: Write) -> dict[str, Any]:
    """Writes all shards, and what is beside the examples; returns what prepared.json says of them."""
    task, splits, folder = work.task, work.splits, work.folder
    if work.decode:
        say(_room_for(work, output, sum(folder.sizes().values())))
    data: dict[str, list[int | str]] = {name: [len(source), source.fingerprint(), source.stamp()] for name, source in work.sources.items()}
    _claim(folder, Begun(task=content["task"], settings=content["settings"], decoded=content["decoded"], data=data), say)
    pieces = {name: shard_writing.pieces(source, name, work.decode) for name, source in work.sources.items()}
    every = [piece for own in pieces.values() for piece in own]
    names = folder.names()
    missing = [piece for piece in every if not shard_writing.there(piece, names)]
    if len(missing) < len(every):
        say(f"resuming     {len(every) - len(missing)} of {len(every)} parts are there")
    of = sum(piece.last - piece.first for piece in every)
    done = of - sum(piece.last - piece.first for piece in missing)
    for piece in write(work, missing):
        done += piece.last - piece.first
        progress(done, of)
    stored = {name: shard_writing.write_beside(source, name, folder, pieces[name], work.decode, task.input.prepared_form.extras(source))
              for name, source in work.sources.items()}
    own = {shard.file for split in stored.values() for shard in split.shards}
    folder.remove(name for name in folder.names() if shard_writing.parsed(name) and name not in own)
    return {"facts": finite(splits.facts), "skipped": list(splits.skipped), "more_skipped": splits.more_skipped,
            "notes": list(splits.notes), "splits": {name: split.model_dump() for name, split in stored.items()}}


def _claim(folder: OutputFolder, begun: Begun, say: Callable[[str], None]) -> None:
    """Reserves the folder for this experiment and its data, or resumes what was begun of it.

    Raises:
        ConfigError: another experiment's shards are there.
    """
    there = folder.names()
    if UNFINISHED in there:
        before = parsed(folder.read(UNFINISHED).decode("utf-8", "replace"), Begun, f"{folder}/{UNFINISHED}")
        if before == begun:
            return
        changed = differences({**before.settings, "decoded": before.decoded}, {**begun.settings, "decoded": begun.decoded})
        if before.task != begun.task or changed:
            raise ConfigError(f"{folder}: was begun for another experiment, and is not finished:\n"
                              + (shown_changes(changed) or f"  task: {before.task} there, {begun.task} now")
                              + "\nRemove it, or name another folder")
        say("begins anew  the data have changed since a part of them was written")
        folder.remove(name for name in there if shard_writing.parsed(name))
    folder.write(UNFINISHED, as_json(begun.model_dump()).encode())


def _require_storable(task: Task) -> None:
    """Raises ConfigError where decoded examples cannot be stored in place of those that they are made of."""
    kind = task.experiment.task
    if task.input.decoding.by is None:
        raise ConfigError(f"--decoded: {kind} has no files to decode; leave it out: examples are stored as they are")
    if task.input.decoding.random:
        because = f"{task.input.decoding.setting}: {_value(task, task.input.decoding.setting)}" if task.input.decoding.setting else kind
        raise ConfigError(f"--decoded: {because} decodes each example anew in every epoch, at random, which cannot be stored; leave "
                          "--decoded out" + (f", or set {task.input.decoding.setting}: null" if task.input.decoding.setting else ""))


def _room_for(work: Work, output: Path, there: int) -> str:
    """What to say of the size of the decoded examples. Raises ConfigError where the disk has no room for what of them is not there yet."""
    assert work.decode is not None
    size = sum(nbytes(decoded_spec(source, work.decode), len(source)) for source in work.sources.values())
    stored = sum(map(shard_writing.size_of, work.sources.values()))
    free = shutil.disk_usage(existing(output.absolute().parent)).free if address_of(output) is None else None
    if free is not None and size * MARGIN > free + there:
        raise ConfigError(f"--decoded: the examples take {readable(size)} decoded, and {readable(free)} are free at {output.parent}; leave "
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
    given = Path(task.experiment.data.prepared).expanduser()
    there = OutputFolder(given).names() if address_of(given) or given.is_dir() else []
    if UNFINISHED in there and INDEX not in there:  # before it is copied from an address
        raise ConfigError(f"data.prepared: {address_of(given) or given} is not finished; give the same quartet prepare command "
                          "again, which resumes it")
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
    splits = Splits(sources["train"], sources.get("validation"), sources.get("test"), dict(index.facts), tuple(index.skipped),
                    tuple(index.notes), index.more_skipped)
    return task.input.prepared_form.from_prepared(splits)


def opened(folder: Path) -> Index:
    """The index of a prepared folder. Raises ConfigError where there is none, or one that is not what `prepare` writes."""
    if not (folder / INDEX).is_file():
        raise ConfigError(f"data.prepared: {folder} has no {INDEX}; name a folder that quartet prepare wrote")
    return read(folder / INDEX, Index)


def _settings(task: Task, decoded: bool) -> dict[str, Any]:
    """The settings that decide what is in the splits and what is learned from them, as JSON values."""
    values = task.experiment.model_dump(mode="json")
    for name in task.input.prepared_form.settings_not_in_data:
        *route, last = name.split(".")
        section = values
        with contextlib.suppress(KeyError, TypeError):
            for step in route:
                section = section[step]
            section.pop(last, None)
    if decoded and task.input.decoding.setting:
        values[task.input.decoding.setting] = _value(task, task.input.decoding.setting)
    return json.loads(json.dumps(finite(values)))


def _value(task: Task, setting: str) -> Any:
    value: Any = task.experiment
    for step in setting.split("."):
        value = getattr(value, step)
    return value

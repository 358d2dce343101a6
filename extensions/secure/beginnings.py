"""Signatures of runs that are resumed, and of what a training begins from: checked before anything of them is read, where they lie.

What is verified is what is read, since both ask the same functions where it lies: `run_names.place_of` for runs, `locate.on_disk` for
presets, `copies.local` for files. What they do not find is refused.

Training works in the run's folder. Who can write there meanwhile can change what is trained; a signature does not prevent that.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from extensions.secure.signing import verify, verify_part
from pipelines.base.errors import Untrusted
from pipelines.config.run_names import place_of
from pipelines.config.schema import Experiment, Section
from pipelines.config.space import dimensions
from pipelines.config.tree import annotation_of, find, shape
from pipelines.encoders.locate import on_disk
from pipelines.stores.remote import address_of, local

_DATA = ("data", "tune", "monitor")  # sections that name nothing of a model
# what tells the folder of a run or a search from one in which a person keeps an experiment
_OF_A_RUN = ("model.sig", "environment.json", "metrics.jsonl", "checkpoints", "search.yaml", "journal.jsonl")


def require_experiment(file: Path, key: Path) -> None:
    """Of an experiment's file that lies in a run or a search, such as best.yaml, that folder. Raises Untrusted."""
    folder = file.absolute().parent
    if any((folder / name).exists() for name in _OF_A_RUN):
        verify(folder, key)


def require_named(experiment: Experiment, beside: Path, key: Path, *, trials: bool = False) -> None:
    """What an experiment begins from: runs, presets and files that its settings name, a search's choices too; each is to be signed.

    Args:
        beside: the folder that is trained in.
        trials: processes of their own read it, which fetch again what is in a store.

    Raises:
        Untrusted: one is not as the key has signed it, or can change before a trial reads it.
        ConfigError: one is not there.
    """
    for setting, field, value in _of_models(experiment):
        marks = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        if any(value in kind.choices for kind in shape(annotation_of(field)).kinds):
            continue  # a word with a meaning, such as imagenet
        if trials and marks.get("path") != "data" and address_of(value):
            raise Untrusted(f"{setting}: {value} is in a store, where it can change before a trial reads it; copy it to this machine")
        if marks.get("run"):
            verify(place_of(value, beside), key)
        elif marks.get("preset"):
            require_preset(value, key)
        elif marks.get("path") and marks["path"] != "data":
            verify_part(local(value), key)


def require_preset(handle: str, key: Path) -> None:
    """A pretrained encoder. Raises Untrusted where it is not as the key has signed it, or would be downloaded."""
    folder = on_disk(handle)
    if folder is None:
        raise Untrusted(f"{handle}: is not on this machine, and what is downloaded is not signed; download it first, and sign it")
    verify(folder, key)


def require_begun(folder: Path, key: Path) -> None:
    """A begun run and those of its seeds, or a begun search; a new one has nothing to check. Raises Untrusted as above."""
    for one in (folder, *(path for path in sorted(folder.parent.glob("*")) if path.name.startswith(f"{folder.name}-seed"))):
        if _holds_work(one):
            verify(one, key)


def _holds_work(folder: Path) -> bool:
    """Whether training or searching there would read something: all but the lock, and the experiment, which is then written anew."""
    return folder.is_dir() and any(path.name not in (".lock", "experiment.yaml") for path in folder.iterdir())


def _of_models(experiment: Experiment) -> Iterator[tuple[str, FieldInfo, str]]:
    """(setting, its field, a text that it has or may have in a trial) for all that may name something of a model."""
    cls = type(experiment)
    for name in cls.model_fields:
        if name not in _DATA:
            yield from _texts(name, cls.model_fields[name], getattr(experiment, name))
    for searched in dimensions(experiment):
        for setting in find(cls, searched.name):
            for value in searched.values:
                yield from _texts(searched.name, setting.field, value)


def _texts(name: str, field: FieldInfo, value: Any) -> Iterator[tuple[str, FieldInfo, str]]:
    if isinstance(value, str):
        yield name, field, value
    elif isinstance(value, Section):
        for inner, its in type(value).model_fields.items():
            yield from _texts(f"{name}.{inner}", its, getattr(value, inner))
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _texts(name, field, one)
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(name, field, one)

"""New labelled data as one source for evaluation: with the run's classes and sizes.

The data are read as the run's own experiment would read them, with data.path (and data.source) set to them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.base.errors import ConfigError, DataError
from pipelines.base.regular import check_regular
from pipelines.config.load import from_dict
from pipelines.config.messages import listed, nearest
from pipelines.config.schema import Experiment
from pipelines.config.variants import within
from pipelines.data.dialect import SUFFIXES
from pipelines.data.divide import ALIASES
from pipelines.data.relabelled import Relabelled
from pipelines.data.source import Source
from pipelines.serving.load import LoadedRun, without_pretrained
from pipelines.task.contract import Splits

TABLES = (*SUFFIXES, ".txt")  # of texts also .txt, whose delimiter is detected


def new_data(run: LoadedRun, path: Path, split: str | None, overrides: Sequence[str] = ()) -> tuple[Source, Splits]:
    """The examples at `path`, labelled in the order of the run's classes, and the splits they were read as.

    Args:
        path: a folder of class folders, a table or an .npz.
        split: one of the data's own splits; None where they come in one piece.
        overrides: further `data....=value`, such as data.label_key=class.

    Raises:
        ConfigError: the run's task does not read such data, or an override is wrong.
        DataError: unreadable data, or classes that the run does not know.
    """
    experiment = experiment_for(run.experiment, run.task.facts, path, split, overrides)
    try:
        splits = type(run.task)(experiment, run.task.facts).splits()
    except DataError as error:
        if not whole(split) and str(error).startswith("data.test:"):
            raise DataError(f"--split: {path} has no split {split!r}; without --split all of it is judged, or what it has for training"
                            ) from error
        raise
    source = splits.train if whole(split) else splits.test
    if source is None:
        raise DataError(f"{path}: has no split {split!r}")
    theirs, ours = splits.facts.get("classes"), run.task.facts.get("classes")
    if isinstance(ours, list) and isinstance(theirs, list) and ours != theirs:
        return relabelled(source, theirs, ours, str(path)), splits
    return source, splits


def experiment_for(experiment: Experiment, facts: dict[str, Any], path: Path, split: str | None, overrides: Sequence[str]) -> Experiment:
    """The run's experiment with other data, all of which (or whose split `split`) is one source."""
    if not path.exists():
        raise ConfigError(f"--data: {path} is not there")
    if not path.is_dir():
        check_regular(path, "--data", ConfigError)
    values = without_pretrained(experiment).model_dump(mode="python")
    data = values.get("data", {})
    if "path" not in data:
        raise ConfigError(f"--data: {experiment.task} does not read data from a path")
    kind = "folder" if path.is_dir() else "table" if path.suffix.lower() in TABLES else path.suffix.lower().removeprefix(".")
    before = data.get("source")
    data["path"] = str(path)
    if "source" in data:
        data["source"] = kind
        if before != kind:  # names of columns or arrays belong to the kind of data
            sources = within(type(experiment).model_fields["data"])
            section = (sources.section(kind) if sources else None) or type(experiment.data)
            data = values["data"] = {name: section.model_fields[name].default if name.endswith("_key") else value
                                     for name, value in data.items() if name in section.model_fields}
    # "testing" means "test", except that no share is held out of data in one piece
    test = None if whole(split) else "testing" if split == "test" else split
    wanted: dict[str, Any] = {"streaming": False, "group_by": None, "limit": None, "validation": 0.0, "test": test,
                              "train": "train", "prepared": None, "test_names": None, "test_last": None, "speaker_pattern": None}
    if split is None:
        wanted["split_key"] = None
    # learned facts that are also settings, such as image_size, are set: the model needs them
    wanted |= {name: value for name, value in facts.items() if name in data}
    data |= {name: value for name, value in wanted.items() if name in data}
    values["train"]["early_stopping"] = None  # no training, and no validation split to follow
    return from_dict(values, list(overrides), check_paths=False)


def whole(split: str | None) -> bool:
    """Whether a split is what the data train on, or all of them where they come in one piece."""
    return split is None or split in ALIASES["train"]


def relabelled(source: Source, theirs: Sequence[str], ours: Sequence[str], place: str) -> Source:
    """The source with the labels of `ours`. Raises DataError for classes that `ours` lacks and the source has examples of."""
    present = set(np.unique(source.labels).tolist()) if source.labels is not None else set(range(len(theirs)))
    # in both, a label beyond the classes means none of them
    unknown = [name for number, name in enumerate(theirs) if name not in ours and number in present]
    if unknown:
        near = nearest(unknown[0], ours)
        hint = f"; is {unknown[0]!r} {near!r}?" if near else ""
        raise DataError(f"{place}: has classes that the run does not know: {listed(map(repr, unknown[:10]), 'and')}"
                        f"{' ...' if len(unknown) > 10 else ''}{hint} The run's classes are {listed(map(repr, ours[:30]), 'and')}"
                        f"{' ...' if len(ours) > 30 else ''}. Rename the classes, or leave those examples out.")
    return Relabelled(source, np.array([*(ours.index(name) if name in ours else -1 for name in theirs), len(ours)], np.int64))

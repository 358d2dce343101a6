"""`quartet evaluate`: judges a finished run again, on one of its own splits or on other labelled data, beside its report.

The training report is never touched: each evaluation has a folder of its own in report/.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, get_args

import numpy as np

from pipelines.base import formatting
from pipelines.base.errors import ConfigError, DataError
from pipelines.base.files import whole_folder
from pipelines.base.inside import check_regular, held
from pipelines.base.progress import Say, silent
from pipelines.config.load import from_dict
from pipelines.config.messages import listed, nearest
from pipelines.config.schema import Experiment
from pipelines.config.variants import within
from pipelines.data.dialect import SUFFIXES
from pipelines.data.divide import ALIASES
from pipelines.data.fingerprint import VERSION
from pipelines.data.relabelled import Relabelled
from pipelines.data.source import Source
from pipelines.machine import devices, environment
from pipelines.reports.report import Reported, write_report
from pipelines.runs.folder import RunFolder
from pipelines.serving.load import LoadedRun, answering_as, without_pretrained
from pipelines.task.contract import Splits
from pipelines.task.own_metrics import add_own
from pipelines.task.prepared import splits_of
from pipelines.task.results import Judgement
from pipelines.training.evaluation import Evaluator

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
    forms = get_args(type(experiment.data).model_fields["source"].annotation) if "source" in data else ()
    if data["path"] is not None and (kind not in forms or (path.suffix.lower() == ".txt" and before != "folder")):
        kind = before  # of forms that no ending tells, such as COCO's and SQuAD's, the new data have that of the run's own
    data["path"] = str(path)
    if "source" in data:
        data["source"] = kind
        if before != kind:  # names of columns or arrays belong to the kind of data
            sources = within(type(experiment).model_fields["data"])
            section = (sources.section(kind) if sources else None) or type(experiment.data)
            data = values["data"] = {name: section.model_fields[name].get_default(call_default_factory=True) if name.endswith("_key")
                                     else value
                                     for name, value in data.items() if name in section.model_fields}
    # "testing" means "test", except that no share is held out of data in one piece
    test = None if whole(split) else "testing" if split == "test" else split
    if data.get("group_by") in experiment.data.given_groups:
        data.pop("group_by")  # by default
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


SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Evaluated:
    """The result of an evaluation.

    Attributes:
        split: that was judged: validation, test, train, or the name of the new data.
        folder: of its report.
        notes: what a reader should know, beside the judgement's.
    """

    split: str
    judgement: Judgement
    folder: Path
    notes: list[str]
    report: dict[str, Any]


def evaluate(run: LoadedRun, *, split: str | None = None, data: Path | None = None, overrides: Sequence[str] = (),
             say: Say = silent) -> Evaluated:
    """Judges a run and writes a report.

    Args:
        run: loaded on the devices to use.
        split: of the run's own data validation, test or train (default: test, or validation where there is none); of new data one
            of theirs.
        data: new labelled data; None for the run's own.
        overrides: `evaluate....=value`, also of `Experiment.answering`, and with `data` also `data....=value`.
        say: is told what is done, and how far it is.

    Raises:
        ConfigError: a split that the run does not have, or settings other than of evaluation.
        DataError: data that cannot be read, or classes that the run does not know.
    """
    began = time.perf_counter()
    experiment = with_settings(run, overrides, new=data is not None)
    run = answering_as(run, experiment)
    if data is None:
        source, splits, named = own_split(run, split)
        notes = changed_data(run.environment, splits)
    else:
        source, splits = new_data(run, data, split, [text for text in overrides if text.startswith("data.")])
        named, notes = split or data.stem, [f"Judged on {data}.", *splits.notes]
    reason = run.task.cannot_judge(source)
    if reason is not None:
        raise ConfigError(f"{'--split' if data is None else '--data'}: {reason}")
    setup = time.perf_counter() - began
    evaluator = Evaluator(run.task, run.model, source, machine=run.machine, trained=True, say=say)
    began = time.perf_counter()
    say(f"judging      {named}, {formatting.counted(len(source), 'example')}")
    answers, targets = evaluator.judged()
    seconds = time.perf_counter() - began
    judgement = run.task.output.judge(answers, targets, source)
    add_own(judgement, evaluator.own, run.task)
    run.task.output.explain(run.model, judgement, answers, targets, source)
    if run.machine.precision != run.judged_precision:
        notes.append(f"Judged in {run.machine.precision}; the run's own report is in {run.judged_precision}.")
    target = folder_for(run.folder, named if data is None else "-".join(filter(None, (data.stem, split))))
    timing = {"setup_seconds": setup, "evaluation_seconds": seconds, "examples_per_second": len(source) / seconds}
    with held(run.folder.path), whole_folder(target) as staging:
        report = write_report(staging, Reported(
            task=experiment.task, experiment=run.name, run=run.folder.path.name, judgements={named: judgement}, timing=timing,
            splits=replace(splits, facts=run.task.facts), settings=experiment,
            run_folder=run.folder.path, notes=notes, fingerprints={named: source.fingerprint()},
            environment={**environment.facts(), **devices.describe(run.machine), "data": {named: source.fingerprint()},
                         "fingerprints": VERSION}))
    return Evaluated(named, judgement, target, notes, report)


def with_settings(run: LoadedRun, overrides: Sequence[str], *, new: bool) -> Experiment:
    """The run's experiment judged as `overrides` say."""
    settings = run.task.experiment  # without pretrained weights
    own = tuple(f"{name}." for name in ("evaluate", *settings.answering))
    for text in overrides:
        if not text.startswith((*own, "data.") if new else own):
            others = " (data... only together with --data)" if text.startswith("data.") else ""
            known = " and ".join(f"{name}.." for name in own)
            raise ConfigError(f"{text}: a finished run is judged as it was trained; only {known} can be set{others}")
    judging = [text for text in overrides if text.startswith(own)]
    return from_dict(settings.model_dump(mode="python"), judging, check_paths=False) if judging else settings


def own_split(run: LoadedRun, split: str | None) -> tuple[Source, Splits, str]:
    """One of the run's own splits, rebuilt as for training."""
    if split is not None and split not in SPLITS:
        raise ConfigError(f"--split: {split!r} is none of a run's splits, which are train, validation and test")
    splits = splits_of(type(run.task)(run.task.experiment, run.task.facts))
    named = split or ("test" if splits.test is not None else "validation")
    source: Source | None = getattr(splits, named)
    if source is None:
        there = [name for name in SPLITS if getattr(splits, name) is not None]
        raise ConfigError(f"--split: the run has no {named} split; it has {' and '.join(there)}")
    theirs, ours = splits.facts.get("classes"), run.task.facts.get("classes")
    if theirs != ours:
        raise DataError("the data have changed since the run was trained: their classes are other ones. Restore them, or give --data")
    return source, splits, named


def changed_data(recorded: Mapping[str, Any], splits: Splits) -> list[str]:
    """A note for each split whose examples changed since training; none where the fingerprints are of another version."""
    known = recorded["data"] if recorded["fingerprints"] == VERSION else {}
    sources = {name: getattr(splits, name) for name in SPLITS}
    changed = [name for name, source in sources.items() if source is not None and name in known and source.fingerprint() != known[name]]
    if not changed:
        return []
    return [f"The data have changed since the training ({', '.join(changed)}): examples of this split may have been trained on."]


def folder_for(folder: RunFolder, name: str) -> Path:
    """report/<name>, or <name>-2, ... where that exists already."""
    plain = "".join(char if char.isalnum() or char in "._-" else "-" for char in name).strip(".-") or "data"
    names = (plain if number == 1 else f"{plain}-{number}" for number in count(1))
    return next(folder.report / name for name in names if name != "figures" and not (folder.report / name).exists())

"""`quartet check` with a pretrained encoder: near copies across splits, doubtful labels, and examples unlike all others, by its features.

It is the experiment's own, whose features training then finds computed, or one that a person names; never another that happens to be here.

A domain's `check` module has ENCODED: task name -> function (preset) -> dotted settings under which it sees the examples of such an
experiment; and may have FOREIGN: task name -> function (task, source) -> why the encoder knows little of these examples, or None.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from pipelines.base.errors import ConfigError
from pipelines.config.load import apply
from pipelines.config.registry import part
from pipelines.config.schema import Experiment
from pipelines.data.check import Finding
from pipelines.data.source import Source
from pipelines.encoders.features import FEATURES, Computing, own_columns
from pipelines.encoders.neighbours import Part, findings
from pipelines.encoders.presets import find
from pipelines.encoders.settings import PretrainedModel
from pipelines.fitting.folds import fitting_part
from pipelines.runs.launch import task_class
from pipelines.training.preparation import Prepared, prepare

MOST_OWN, MOST_ASKED = 1000, 50_000  # examples of a split that are compared: by the experiment's own encoder, and one asked for


def compared(experiment: Experiment, encoder: str | None, begun: Prepared, say: Callable[[str], None]) -> list[Finding]:
    """What the features of an encoder say of an experiment's data, all of which can be read.

    Args:
        encoder: a preset; none; or None: the experiment's own, where it has one, with fewer examples.
        begun: what training begins with.
        say: is told how far it is.

    Raises:
        ConfigError: the encoder that was named cannot be used here.
    """
    domain, own = experiment.task.partition(".")[0], getattr(experiment, "model", None)
    checking = part(domain, "check")
    settings_of = getattr(checking, "ENCODED", {}).get(experiment.task)
    preset = encoder or (own.preset if isinstance(own, PretrainedModel) and settings_of else None)
    if preset in (None, "none"):
        return []
    if settings_of is None:
        raise ConfigError(f"--encoder: examples of {experiment.task} are not compared by features; leave it out")
    if encoder is not None:
        find(encoder, domain=domain, key="--encoder")
    try:
        if not isinstance(own, PretrainedModel) or own.preset != preset or getattr(own, "fitted", False):
            begun = prepare(_with(experiment, preset, settings_of), task_class(experiment.task))
        why = foreign(begun.task, begun.splits.train) if (foreign := getattr(checking, "FOREIGN", {}).get(experiment.task)) else None
        if why and encoder is None:
            return [Finding("note", f"not compared by the features of {preset}: {why}; --encoder {preset} compares them all the same")]
        doubt = [Finding("warning", f"by {preset} little can be said of these examples: {why}")] if why else []
        return [*doubt, *_compared(begun, experiment, preset, MOST_ASKED if encoder else MOST_OWN, say)]
    except ConfigError as error:
        if encoder is not None:
            raise
        return [Finding("note", f"not compared by the features of {preset}: {error}; --encoder none leaves them out")]


def _with(experiment: Experiment, preset: str, settings_of: Callable[[str], dict[str, Any]]) -> Experiment:
    """The experiment with another encoder, frozen, in place of its model."""
    values: dict[str, Any] = {"train.freeze": None, "train.teacher": None, "model.finetune": {"name": "frozen"}, **settings_of(preset),
                              "model.name": "pretrained", "model.preset": preset}
    if getattr(getattr(experiment, "model", None), "blend", None):
        values["model.blend"] = None
    if experiment.train.precision == "auto":
        values["train.precision"] = "float32"  # which is fastest need not be measured for this
    return apply(experiment, values)


def _compared(begun: Prepared, experiment: Experiment, preset: str, most: int, say: Callable[[str], None]) -> list[Finding]:
    if len(begun.model.get_layer("features").output_shape) != 2:
        raise ConfigError("it gives no single vector of an example")
    data = experiment.data if experiment.data.cache != "none" else experiment.data.model_copy(update={"cache": "memory"})
    splits, classes, seed = begun.splits, begun.task.facts.get("classes") or [], experiment.train.seed
    begun.task.learn_fixed(begun.model, splits.train)  # as training does, which then finds the features
    own = own_columns(begun.model)
    computing = Computing.of(begun.task, begun.model, splits.train, begun.machine, data, seed, say)
    parts, counts, began = [], [], time.perf_counter()
    for split, source in (("train", splits.train), ("validation", splits.validation), ("test", splits.test)):
        if source is None:
            continue
        used = fitting_part(source, most)
        kept = computing.source(used) if computing is not None else None
        if kept is None:
            raise ConfigError("its features cannot be kept: there is no room for them, or data.streaming is set")
        parts.append(Part(split, np.array(kept.arrays[FEATURES][:, :own], np.float32), _labels(used, len(classes)), used.name))
        counts.append(f"{len(used):,} of {split}" if len(used) == len(source) else f"{len(used):,} of the {len(source):,} of {split}")
    drawn = any(" of the " in count for count in counts)
    note = (f"compared by the features of {preset}: {', '.join(counts)}, in {time.perf_counter() - began:.0f} s"
            + (f"; --encoder {preset} compares {'all' if most < MOST_ASKED else 'no more'}" if drawn else ""))
    return [*findings(parts, classes), Finding("note", note)]


def _labels(source: Source, classes: int) -> np.ndarray | None:
    labels = source.labels
    return None if labels is None else np.where((labels >= 0) & (labels < classes), labels, -1)

"""`quartet check` with a pretrained encoder: near copies across splits, doubtful labels, and examples unlike all others, by its features.

A domain's `check` module has ENCODED: task name -> function (preset) -> dotted settings under which it sees the examples of such an
experiment.
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
from pipelines.encoders.features import FEATURES, Computing
from pipelines.encoders.listing import at_hand, presets_here
from pipelines.encoders.neighbours import Part, findings
from pipelines.encoders.presets import find
from pipelines.encoders.settings import PretrainedModel
from pipelines.runs.launch import task_class
from pipelines.training.session import prepare

MOST_FOUND, MOST_ASKED = 1000, 50_000  # examples of a split that are compared: with an encoder that was merely found, and one asked for


def compared(experiment: Experiment, encoder: str | None, say: Callable[[str], None]) -> list[Finding]:
    """What the features of an encoder say of an experiment's data, all of which can be read.

    Args:
        encoder: a preset; none; or None: the experiment's own, else the smallest at hand, with fewer examples.
        say: is told how far it is.

    Raises:
        ConfigError: the encoder that was named cannot be used here.
    """
    domain = experiment.task.partition(".")[0]
    settings_of = getattr(part(domain, "check"), "ENCODED", {}).get(experiment.task)
    if encoder == "none":
        return []
    if settings_of is None:
        if encoder is not None:
            raise ConfigError(f"--encoder: examples of {experiment.task} are not compared by features; leave it out")
        return []
    preset = encoder or _at_hand(experiment, domain)
    if preset is None:
        return []
    if encoder is not None:
        find(encoder, domain=domain, key="--encoder")
    try:
        return _compared(_with(experiment, preset, settings_of), preset, MOST_ASKED if encoder else MOST_FOUND, say)
    except ConfigError as error:
        if encoder is not None:
            raise
        return [Finding("note", f"not compared by the features of {preset}: {error}; --encoder none leaves them out")]


def _at_hand(experiment: Experiment, domain: str) -> str | None:
    own = getattr(experiment, "model", None)
    if isinstance(own, PretrainedModel):
        return own.preset
    try:
        there = at_hand(domain) if presets_here() else []
    except ConfigError:  # keras-hub is not installed
        return None
    return there[0].handle if there else None


def _with(experiment: Experiment, preset: str, settings_of: Callable[[str], dict[str, Any]]) -> Experiment:
    """The experiment with a frozen encoder in place of its model."""
    own: Any = getattr(experiment, "model", None)
    values: dict[str, Any] = {"train.freeze": None, "train.teacher": None, "model.finetune": {"name": "frozen"}}
    if not isinstance(own, PretrainedModel) or own.preset != preset:
        values |= {**settings_of(preset), "model.name": "pretrained", "model.preset": preset}
    if experiment.data.cache == "none":
        values["data.cache"] = "memory"
    if experiment.train.precision == "auto":
        values["train.precision"] = "float32"  # which is fastest need not be measured for this
    return apply(experiment, values)


def _compared(experiment: Experiment, preset: str, most: int, say: Callable[[str], None]) -> list[Finding]:
    begun = prepare(experiment, task_class(experiment.task))
    if len(begun.model.get_layer("features").output_shape) != 2:
        raise ConfigError("it gives no single vector of an example")
    splits, classes, seed = begun.splits, begun.task.facts.get("classes") or [], experiment.train.seed
    computing = Computing.of(begun.task, begun.model, splits.train, begun.machine, experiment.data, seed, say)
    parts, counts, began = [], [], time.perf_counter()
    for split, source in (("train", splits.train), ("validation", splits.validation), ("test", splits.test)):
        if source is None:
            continue
        used = _some(source, most)
        kept = computing.source(used) if computing is not None else None
        if kept is None:
            raise ConfigError("its features cannot be kept: there is no room for them, or data.streaming is set")
        parts.append(Part(split, np.array(kept.arrays[FEATURES], np.float32), _labels(used, len(classes)), used.name))
        counts.append(f"{len(used):,} of {split}" if len(used) == len(source) else f"{len(used):,} of the {len(source):,} of {split}")
    drawn = any(" of the " in count for count in counts)
    note = (f"compared by the features of {preset}: {', '.join(counts)}, in {time.perf_counter() - began:.0f} s"
            + (f"; --encoder {preset} compares {'all' if most < MOST_ASKED else 'no more'}" if drawn else ""))
    return [*findings(parts, classes), Finding("note", note)]


def _some(source: Source, most: int) -> Source:
    """All examples, or as many as may be, drawn at random, always the same."""
    if len(source) <= most:
        return source
    return source.subset(np.sort(np.random.default_rng(0).choice(len(source), most, replace=False)))


def _labels(source: Source, classes: int) -> np.ndarray | None:
    labels = source.labels
    return None if labels is None else np.where((labels >= 0) & (labels < classes), labels, -1)

"""The splits of an experiment that predicts numbers of recordings, with the facts learned from train alone."""

from typing import Any

import numpy as np

from pipelines.data.divide import divide
from pipelines.data.number_columns import TARGET, NumberColumns, without_targets_left_out
from pipelines.data.split import choose, describe
from pipelines.outputs import number_scales
from pipelines.task.contract import Splits
from speech.data.features import FrontEnd
from speech.data.recordings import Recordings, facts_of
from speech.data.sources import open_data
from speech.data.splits import STATISTICS, Decode, readable, shared_speakers, statistics
from speech.settings import SoundRegression


def load_numbers(experiment: SoundRegression, decode: Decode, front_end: FrontEnd, known: dict[str, Any] | None = None) -> Splits:
    """The splits; examples have `target`, [columns] float32. Arguments and facts are those of speech.data.splits.load_commands, with
    `targets` (see pipelines.outputs.number_scales) in the place of classes and class_counts, and as `known` the facts of a finished run.

    Raises:
        DataError: names file, row and column, and the remedy.
    """
    data, numbers = experiment.data, NumberColumns.asked(experiment)
    assert numbers is not None
    opened = open_data(data, texts=False, numbers=numbers)

    def load(split: str) -> Recordings:
        source = readable(opened.load(split), data, opened.skipped, opened.place, split)
        cells = [label.strip("[]").replace(",", " ").split() for label in source.facts.labels or ()]
        targets = numbers.read([[row[place] if place < len(row) else None for row in cells] for place in range(len(numbers.names))],
                               source.name)
        return source.also(fields={TARGET: np.ascontiguousarray(targets)})

    train, validation, test, notes = divide(opened.names, without_targets_left_out(load, numbers.names, opened.notes), data, opened.place)
    parts = {"train": train, "validation": validation, "test": test}
    notes += shared_speakers(parts)
    targets, scaled = (known["targets"], []) if known else number_scales.learn(train, numbers.names, experiment.target)
    some = choose(STATISTICS, count=len(train), seed=data.split_seed, purpose="statistics")
    mean, std = statistics(train, some, decode, front_end)
    facts = {"targets": targets, "mean": mean, "std": std, "statistics_of": len(some),
             "speakers": sorted(set(facts_of(train).speakers or [])), "splits": describe(parts)}
    return Splits(train=train, validation=validation, test=test, facts=facts, skipped=tuple(opened.skipped),
                  notes=(*opened.notes, *notes, *scaled))

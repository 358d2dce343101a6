"""`quartet check` of a task that says nothing of its own: every example is read and decoded once, as for judging, and examples are
compared by all that is stored of them but their targets."""

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.base.errors import DataError
from pipelines.config.schema import Experiment
from pipelines.data.cache import Decode
from pipelines.data.check import Check, Read, check
from pipelines.data.reasons import reason
from pipelines.data.source import Source
from pipelines.data.stream import StreamSource
from pipelines.runs.launch import task_class

TOGETHER = 64  # examples that are read at a time


def check_examples(experiment: Experiment, progress: Callable[[int, int], None]) -> Check:
    """Reads all splits.

    Args:
        progress: called now and then with (examples read, examples of this split).

    Raises:
        DataError: there are no splits to look at, or they are streamed; everything else is a finding.
    """
    task = task_class(experiment.task)(experiment)
    splits = task.splits()
    parts = {"train": splits.train, "validation": splits.validation, "test": splits.test}
    if any(isinstance(source, StreamSource) for source in parts.values()):
        raise DataError("check reads data by number, and these are streamed")
    task.facts = splits.facts
    decode = task.input.decoder
    reads = {name: _read(source, decode, set(task.input.raw_spec()), progress) for name, source in parts.items() if source is not None}
    classes = splits.facts.get("classes")
    return check(experiment.task, parts, reads, classes if isinstance(classes, list) else [], identical="the same content",
                 skip=experiment.data.on_bad_example == "skip", lost=splits.skipped, notes=splits.notes)


def _read(source: Source, decode: Decode | None, inputs: set[str], progress: Callable[[int, int], None]) -> Read:
    bad, prints = list[tuple[int, str]](), np.zeros(len(source), np.uint64)

    def look(number: int, raw: dict[str, Any]) -> None:
        if decode is not None:
            decode(raw, None)
        digest = hashlib.blake2b(digest_size=8)
        for name in sorted(inputs & raw.keys() or raw):
            digest.update(name.encode() + tf.io.serialize_tensor(raw[name]).numpy())
        prints[number] = int.from_bytes(digest.digest(), "little")

    def read(numbers: list[int]) -> dict[str, tf.Tensor]:
        return source.gather(tf.constant(numbers, tf.int64))

    for start in range(0, len(source), TOGETHER):
        numbers = list(range(start, min(start + TOGETHER, len(source))))
        try:
            together = read(numbers)
        except (tf.errors.OpError, DataError):
            together = None
        for place, number in enumerate(numbers):
            try:
                batch = read([number]) if together is None else together
                look(number, {name: value[place if together else 0] for name, value in batch.items()})
            except (tf.errors.OpError, DataError) as error:
                bad.append((number, reason(error)))
        progress(numbers[-1] + 1, len(source))
    return Read(bad, prints)

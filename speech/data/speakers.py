"""Warnings, before training, of speakers in more than one split. Imports no TensorFlow."""

from collections.abc import Mapping

from pipelines.data.divide import Warned
from pipelines.data.source import Source
from speech.data.recordings import facts_of


def shared_speakers(parts: Mapping[str, Source | None]) -> list[str]:
    """A note for each evaluated split that shares speakers with train."""
    known = set(facts_of(parts["train"]).speakers or []) if parts["train"] is not None else set()
    notes = []
    for name in ("validation", "test"):
        source = parts[name]
        judged = set(facts_of(source).speakers or []) if source is not None else set()
        if both := len(judged & known):
            which = f"all {both:,} speakers are" if both == len(judged) else f"{both:,} of the {len(judged):,} speakers are"
            notes.append(f"{name}: {which} in train, too, so the score says little of new voices; data.group_by: speaker keeps them apart")
    # for validation it is worth a warning only where there is no test split
    return [Warned(note) if note.startswith("test") or parts["test"] is None else note for note in notes]

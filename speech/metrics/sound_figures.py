"""Spectrograms for reports and TensorBoard, and accuracy by speaker."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.base.figures import new_figure, shortened, style
from pipelines.data.source import Source
from pipelines.task.intervals import wilson
from pipelines.task.units import Units, grouped, units_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def spectrograms(rows: Sequence[Sequence[np.ndarray]], captions: Sequence[str], headings: Sequence[str], *, hop: float,
                 title: str = "") -> "Figure":
    """Features as images, time to the right, low bands at the bottom.

    Args:
        rows: for each recording, as many [frames, width] as there are headings.
        captions: one a recording.
        headings: of the columns.
        hop: s from frame to frame.
    """
    with style():
        figure = new_figure(3.6 * len(headings), 1.1 + 1.35 * len(rows))
        axes = figure.subplots(len(rows), len(headings), squeeze=False)
        for row, (pictures, caption) in enumerate(zip(rows, captions)):
            for column, picture in enumerate(pictures):
                axis = axes[row, column]
                shown = picture[np.isfinite(picture).all(axis=1)]
                low, high = (np.percentile(shown, [2, 99.5]) if shown.size else (0, 1))
                axis.imshow(np.asarray(picture, np.float32).T, origin="lower", aspect="auto", interpolation="nearest",
                            vmin=low, vmax=max(high, low + 1e-3), cmap="magma")
                axis.set_xticks([])
                axis.set_yticks([])
                axis.set_title(headings[column] if row == 0 else "", fontsize=8)
                axis.set_xlabel(f"{shortened(caption, 44)}" if column == 0 else f"{len(picture) * hop:.2f} s", fontsize=7)
        if title:
            figure.suptitle(title, fontsize=10)
        return figure


def accuracy_by_speaker(hits: np.ndarray, speakers: Sequence[str] | None) -> list[dict[str, Any]]:
    """A row for each speaker, the worst first: recordings and accuracy with Wilson's 95 % interval. Empty where speakers are not known."""
    if speakers is None:
        return []
    names, numbers = np.unique(np.array(speakers), return_inverse=True)
    count, right = np.bincount(numbers), np.bincount(numbers, np.asarray(hits, np.float64))
    low, high = wilson(right, count)
    order = np.lexsort((names, right / count))
    return [{"speaker": str(names[k]), "recordings": int(count[k]), "accuracy": float(right[k] / count[k]), "accuracy_low": float(low[k]),
             "accuracy_high": float(high[k])} for k in order]


def units(source: Source, speakers: Sequence[str] | None, known: Sequence[str], group_by: str | None) -> Units:
    """The units that intervals resample: groups (data.group_by), or else speakers, where none judged is `known` from train."""
    if source.groups is None and speakers is not None and known and not set(speakers) & set(known):
        return grouped(np.array(speakers), "speaker")
    return units_of(source, group_by)


def speakers_in_train(judged: Sequence[str] | None, known: Sequence[str]) -> str | None:
    """A sentence on whether the speakers judged are among those of train."""
    if judged is None or not known:
        return None
    there, before = set(judged), set(judged) & set(known)
    if not before:
        return f"None of the {len(there)} speakers judged is in train." if len(there) > 1 else "The speaker judged is not in train."
    if before == there:
        return "All speakers judged are in train, too: expect lower scores for new voices."
    return f"{len(before)} of the {len(there)} speakers judged are in train, too."

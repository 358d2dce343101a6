"""Spectrograms for reports and TensorBoard."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pipelines.base.figures import new_figure, shortened, style

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

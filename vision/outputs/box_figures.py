"""Figures of boxes: precision by recall of each class, and pictures with their boxes beside those that were found."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.base import figures
from pipelines.data.source import Source
from vision.data.boxes.open import BOXES, CLASSES, THINGS
from vision.outputs.box_metrics import Judged
from vision.outputs.mask_figures import draw_numbered

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 12  # pictures
CURVES = 10  # classes, those with most boxes
COLOURS = (figures.ORANGE, figures.BLUE, figures.GREEN, figures.PURPLE, figures.SKY, figures.RED)


def curves(judged: Judged) -> "Figure":
    """Precision at each recall, at an overlap of 0.5, of the classes with most boxes."""
    precision = judged.accumulated(sizes=False)[0, :, :, 0]
    order = sorted(range(len(judged.names)), key=lambda label: -judged.matches(label)[2])[:CURVES]
    with figures.style():
        figure = figures.new_figure(6.5, 4)
        axis = figure.subplots()
        for place, label in enumerate(order):
            known = precision[:, label]
            if np.isfinite(known).any():
                axis.plot(np.linspace(0, 1, len(known)), known, color=COLOURS[place % len(COLOURS)],
                          linestyle="-" if place < len(COLOURS) else "--",
                          label=f"{figures.shortened(judged.names[label], 24)}, AP50 {np.nanmean(known):.3f}")
        axis.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="recall", ylabel="precision", title="Precision by recall, at an overlap of 0.5")
        axis.legend(loc="lower left")
    return figure


def pictures(output: Any, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], source: Source,
             numbers: Sequence[int]) -> "Figure":
    """Examples as evaluated: left with their boxes, right with those that are given; each class has a colour."""
    places, images, captions = output.input.placed_images(source, numbers), [], []
    limits = np.array(output.thresholds)
    for (image, place), number in zip(places, numbers):
        given = (answers["scores"][number] >= limits[answers[CLASSES][number]]) & (answers["scores"][number] > 0)
        for side, there in ((targets, targets[CLASSES][number] >= 0), (answers, given)):
            boxes = side[BOXES][number][there] * np.tile(place[[0, 1], [0, 1]], 2) + np.tile(place[:, 2], 2)
            if THINGS not in side:
                images.append(figures.overlaid(image, boxes=boxes, names=side[CLASSES][number][there]))
                continue
            things = side[THINGS][number]
            images.append(draw_numbered(image, things * np.concatenate([[False], there])[things], boxes))
        true = int((targets[CLASSES][number] >= 0).sum())
        captions += [source.name(number).rpartition("/")[2], f"found: {int(given.sum())} of {true}"]
    return figures.image_grid(np.stack(images), captions, title="Worst pictures: what is there, and what is found", columns=4)

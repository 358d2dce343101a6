"""Figures of masks: pictures with theirs over them, and which class is taken for which."""

import colorsys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.base import figures
from pipelines.task.results import Answered
from vision.data.masks.open import MASK
from vision.data.masks.values import value_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STRENGTH = 0.6  # of a mask over its picture
TURN = (5**0.5 - 1) / 2  # of the circle of colours, from one class to the next: no two of few are near
THINGS = 24  # colours of things, which then come again
WRITTEN = 30  # classes whose confusion is drawn with names


def tints(classes: int) -> np.ndarray:
    """A colour for each class, [classes, 3] uint8."""
    colours = [colorsys.hsv_to_rgb((0.58 + TURN * number) % 1.0, 0.85 - 0.3 * (number // 3 % 2), 0.95 - 0.35 * (number // 6 % 2))
               for number in range(classes)]
    return np.rint(255 * np.array(colours)).astype(np.uint8)


def colours_of(codes: Sequence[int], kind: str) -> np.ndarray:
    """The value of each class as PNG has it, [classes, 1 or 3] uint8."""
    return np.array([np.atleast_1d(value_of(code, kind)) for code in codes], np.uint8)


def tinted(image: np.ndarray, mask: np.ndarray, classes: int) -> np.ndarray:
    """A picture [height, width, 1 or 3] under a mask [height, width] of class numbers, [height, width, 3] uint8; void pixels are dark."""
    picture = np.broadcast_to(np.asarray(image, np.float64), (*mask.shape, 3))
    table = np.concatenate([tints(classes), np.zeros((256 - classes, 3), np.uint8)]).astype(np.float64)
    return np.clip(np.rint((1 - STRENGTH) * picture + STRENGTH * table[np.asarray(mask, np.uint8)]), 0, 255).astype(np.uint8)


def draw_numbered(image: np.ndarray, things: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """A picture [height, width, 1 or 3] under the things in it, [height, width, 3] uint8; the ground stays as it is.

    Args:
        things: [height, width] numbers, 0 where there is none.
        boxes: [boxes, 4], in pixels.
    """
    picture = np.broadcast_to(np.asarray(image, np.float64), (*things.shape, 3))
    colours = tints(THINGS).astype(np.float64)[(things - 1) % THINGS]
    mixed = np.where((things > 0)[..., None], (1 - STRENGTH) * picture + STRENGTH * colours, picture)
    return figures.overlaid(np.clip(np.rint(mixed), 0, 255).astype(np.uint8), boxes=boxes)


def worst(output: Any, examples: Sequence[Answered]) -> "Figure":
    """Of each example the picture, its true mask and the mask given."""
    pictures, captions = [], []
    for one in examples:
        classes = output.width
        given = np.asarray(one.model_answers[MASK])
        pictures += [np.broadcast_to(np.clip(one.inputs, 0, 255), (*given.shape, 3)).astype(np.uint8),
                     tinted(one.inputs, one.targets[MASK], classes), tinted(one.inputs, given, classes)]
        captions += [one.name.rpartition("/")[2], "true", f"given, mIoU {one.score:.2f}"]
    return figures.image_grid(np.stack(pictures), captions, title="Worst pictures: as they are, true and given masks", columns=3)


def confusion(table: np.ndarray, classes: Sequence[str]) -> "Figure":
    """Share of each class's pixels that are given each class.

    Args:
        table: pixels, [true, given].
    """
    shares = table / np.maximum(table.sum(1, keepdims=True), 1)
    few = len(classes) <= WRITTEN
    names = [figures.shortened(name, 16) for name in classes]
    side = min(10.0, 2.5 + 0.42 * len(classes))
    with figures.style():
        figure = figures.new_figure(side + 0.6, side)
        axis = figure.subplots()
        axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        axis.grid(False)
        axis.set(xlabel="given", ylabel="true", title="Share of a class's pixels that are given each class")
        axis.set_xticks(range(len(names)) if few else [], names if few else [], rotation=60, ha="right")
        axis.set_yticks(range(len(names)) if few else [], names if few else [])
        for row, column in zip(*np.nonzero(shares >= 0.01)) if few else ():
            axis.text(column, row, f"{100 * shares[row, column]:.0f}", ha="center", va="center", fontsize=7,
                      color="white" if shares[row, column] > 0.6 else "black")
    return figure

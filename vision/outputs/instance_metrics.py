"""How the masks of things are judged: COCO's average precision by pycocotools, as boxes are, and panoptic quality (Kirillov et al. 2019,
arXiv:1801.00868).

Masks are pictures of the numbers of things, of the size that the model sees, 0 where there is none; areas are in pixels as sent.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vision.data.boxes.open import CLASSES, THINGS
from vision.outputs.box_metrics import MATCH, Judged

PIXEL = "pixel"  # the area of a pixel of the model in pixels of the picture as sent, [n]


class JudgedThings(Judged):
    """As `Judged`, by masks. Answers and targets also have `things` [n, height, width]; answers `pixel` [n]."""

    kind = "segm"

    def _images(self) -> list[dict[str, Any]]:
        height, width = self.targets[THINGS].shape[1:]
        return [{"id": number, "height": height, "width": width} for number in range(self.count)]

    def _written(self, side: Mapping[str, np.ndarray], pictures: np.ndarray, places: np.ndarray) -> list[dict[str, Any]]:
        found = list[dict[str, Any]]()
        size = list(self.targets[THINGS].shape[1:])
        coded, known = dict[int, list[int]](), -1
        for picture, place, label in zip(pictures.tolist(), places.tolist(), side[CLASSES][pictures, places].tolist()):
            if picture != known:
                coded, known = runs(side[THINGS][picture]), picture
            counts = coded.get(place + 1, [size[0] * size[1]])
            area = float(sum(counts[1::2]) * self.answers[PIXEL][picture])
            found.append({"id": len(found) + 1, "image_id": picture, "category_id": int(label), "iscrowd": 0, "area": area,
                          "segmentation": {"size": size, "counts": counts}})
        return found


def runs(numbers: np.ndarray) -> dict[int, list[int]]:
    """Thing -> how many pixels, column by column, are not its own, are, are not, ... ; of [height, width] numbers."""
    flat = numbers.T.ravel()
    begins = np.concatenate([[0], np.flatnonzero(flat[1:] != flat[:-1]) + 1])
    ends = np.concatenate([begins[1:], [len(flat)]])
    values = flat[begins]
    found = dict[int, list[int]]()
    order = np.argsort(values, kind="stable")
    for value, part in zip(*_groups(values[order], order)):
        if value:
            edges = np.stack([begins[part], ends[part]], 1).ravel()
            found[int(value)] = np.diff(np.concatenate([[0], edges, [len(flat)]])).tolist()
    return found


def _groups(values: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """(the different ones of sorted values, the part of `order` that belongs to each)."""
    different, begins = np.unique(values, return_index=True)
    return different, np.split(order, begins[1:])


def overlaps_of_masks(answers: Mapping[str, np.ndarray], targets: Mapping[str, np.ndarray], picture: int) -> np.ndarray:
    """As vision.outputs.box_errors.overlaps_of_boxes, of masks."""
    mine, own = answers[CLASSES].shape[1] + 1, targets[CLASSES].shape[1] + 1
    pairs = answers[THINGS][picture].ravel().astype(np.int64) * own + targets[THINGS][picture].ravel()
    table = np.bincount(pairs, minlength=mine * own).reshape(mine, own)
    common = table[1:, 1:]
    union: np.ndarray = table[1:].sum(1)[:, None] + table[:, 1:].sum(0)[None] - common
    return common / np.maximum(union, 1)


def panoptic_sums(answers: Mapping[str, np.ndarray], targets: Mapping[str, np.ndarray], thresholds: Sequence[float]) -> np.ndarray:
    """Of each picture and class the sum of the overlaps of pairs, pairs, things given that belong to none, and true ones,
    [n, classes, 4] float64. A pair is of one class and overlaps by more than a half, so that each thing is in one at most."""
    limits = np.asarray(thresholds)
    sums = np.zeros((len(targets[CLASSES]), len(limits), 4))
    for picture, (mine, own) in enumerate(zip(answers[CLASSES], targets[CLASSES])):
        overlap, scores = overlaps_of_masks(answers, targets, picture), answers["scores"][picture]
        shown = (scores >= limits[mine]) & (scores > 0)
        pairs = shown[:, None] & (mine[:, None] == own[None]) & (overlap > MATCH)
        first, second = np.nonzero(pairs)
        np.add.at(sums[picture], (mine[first], 0), overlap[first, second])
        np.add.at(sums[picture], (mine[first], 1), 1)
        np.add.at(sums[picture], (mine[shown & ~pairs.any(1)], 2), 1)
        np.add.at(sums[picture], (own[(own >= 0) & ~pairs.any(0)], 3), 1)
    return sums


def panoptic_quality(sums: np.ndarray, classes: int) -> np.ndarray:
    """The mean over the classes that are there, [m] float64, of sums [m, classes x 4]."""
    overlap, pairs, more, missed = np.moveaxis(sums.reshape(len(sums), classes, 4), -1, 0)
    whole = pairs + 0.5 * more + 0.5 * missed
    each = np.where(whole > 0, overlap / np.maximum(whole, 0.5), np.nan)
    there = np.isfinite(each)
    mean: np.ndarray = np.where(there, each, 0.0).sum(1) / np.maximum(there.sum(1), 1)
    return mean

"""Why boxes, or masks, that are given are wrong, and what each kind of mistake costs (TIDE: Bolya et al. 2020, arXiv:2008.08115).

A thing given that finds none is wrong in its class (it overlaps a true one of another class by MATCH or more), in its place (one of its
class by NEAR or more), in both, a copy of one that was found already, or ground. A true one that nothing of these meets is missed. What a
kind costs is by how much AP50 would be higher without it: classes and places are put right where the true one is not found otherwise, the
rest is taken away.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vision.data.boxes.open import BOXES, CLASSES
from vision.outputs.box_metrics import MATCH

NEAR = 0.1
KINDS = ("class", "place", "class and place", "copy", "ground")
MISSED = "missed"
RECALLS = np.linspace(0, 1, 101)


def overlaps_of_boxes(answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], picture: int) -> np.ndarray:
    """Of each of a picture's answers and targets, [answers, targets] float64."""
    first, second = (side[BOXES][picture].astype(np.float64) for side in (answers, targets))
    low, high = np.maximum(first[:, None, :2], second[None, :, :2]), np.minimum(first[:, None, 2:], second[None, :, 2:])
    common = np.maximum(high - low, 0).prod(-1)
    areas = [np.maximum(side[:, 2:] - side[:, :2], 0).prod(-1) for side in (first, second)]
    found: np.ndarray = common / np.maximum(areas[0][:, None] + areas[1][None] - common, 1e-9)
    return found


def mistakes(answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], thresholds: Sequence[float],
          overlaps: Callable[[dict[str, np.ndarray], dict[str, np.ndarray], int], np.ndarray] = overlaps_of_boxes) -> list[dict[str, Any]]:
    """A row for each kind: how many of those given from `thresholds` on are so, and what it costs in AP50, of all answers."""
    rows = [_sort_mistakes(answers, targets, picture, overlaps(answers, targets, picture)) for picture in range(len(targets[CLASSES]))]
    kinds, scores, labels, mends = (np.concatenate([row[part] for row in rows]) for part in range(4))
    missed = np.concatenate([row[4] for row in rows])
    classes = len(thresholds)
    true = np.bincount(np.concatenate([one[one >= 0] for one in targets[CLASSES]]), minlength=classes)
    shown = scores >= np.asarray(thresholds)[labels]
    base = _mean_ap(scores, kinds == "", labels, true)
    found = []
    for kind in KINDS:
        own = kinds == kind
        right = (kinds == "") | (own & (mends >= 0))
        kept = right | ~own
        cost = _mean_ap(scores[kept], right[kept], np.where(own, mends, labels)[kept], true) - base
        found.append({"kind": kind, "count": int((own & shown).sum()), "costs_ap50": cost})
    less = true - np.bincount(missed, minlength=classes)
    return [*found, {"kind": MISSED, "count": len(missed), "costs_ap50": _mean_ap(scores, kinds == "", labels, less) - base}]


def _sort_mistakes(answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], picture: int, every: np.ndarray,
                   ) -> tuple[np.ndarray, ...]:
    """Of each answer of a picture its kind, "" of one that is right, its score, class, and the class that puts it right or -1; of each true
    one that is missed its class."""
    there = np.flatnonzero(answers["scores"][picture] > 0)
    there = there[np.argsort(-answers["scores"][picture][there], kind="stable")]
    own = np.flatnonzero(targets[CLASSES][picture] >= 0)
    mine, true = answers[CLASSES][picture][there].astype(np.int64), targets[CLASSES][picture][own].astype(np.int64)
    near = every[there][:, own]
    same = mine[:, None] == true[None]
    used, kinds = np.zeros(len(own), bool), np.full(len(there), KINDS[-1], object)
    for number in range(len(there)):  # best first, as COCO does it
        open_ = np.where(same[number] & ~used, near[number], 0.0)
        if len(own) and open_.max() >= MATCH:
            used[open_.argmax()], kinds[number] = True, ""
    mends, met = np.full(len(there), -1), used.copy()
    for number in np.flatnonzero(kinds != "").tolist() if len(own) else ():
        inside, across = (np.where(side, near[number], 0.0) for side in (same[number], ~same[number]))
        if NEAR <= inside.max() < MATCH:
            kinds[number], thing = "place", int(inside.argmax())
        elif across.max() >= MATCH:
            kinds[number], thing = "class", int(across.argmax())
        elif inside.max() >= MATCH:
            kinds[number] = "copy"
            continue
        else:
            kinds[number] = "class and place" if across.max() >= NEAR else "ground"
            continue
        if not met[thing]:
            met[thing], mends[number] = True, true[thing]
    return kinds, answers["scores"][picture][there], mine, mends, true[~met]


def _mean_ap(scores: np.ndarray, right: np.ndarray, labels: np.ndarray, true: np.ndarray) -> float:
    """The mean over classes of COCO's average precision: that of the highest precision at each of 101 recalls or beyond."""
    found = []
    for label in np.flatnonzero(true):
        own = labels == label
        hits = right[own][np.argsort(-scores[own], kind="stable")]
        recall, precision = np.cumsum(hits) / true[label], np.cumsum(hits) / np.arange(1, len(hits) + 1)
        precision = np.append(np.maximum.accumulate(precision[::-1])[::-1], 0.0)
        found.append(precision[np.searchsorted(recall, RECALLS)].mean())
    return float(np.mean(found)) if found else 0.0

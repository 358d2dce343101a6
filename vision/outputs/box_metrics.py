"""How boxes are judged: COCO's average precision by pycocotools, its intervals by pictures, and the scores from which boxes are given.

Boxes are left, top, right and bottom in pixels of the picture as it was sent, so that COCO's sizes (areas below 32^2, 96^2, above) mean
what they mean there.
"""

import contextlib
import copy
import io
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from pipelines.task import intervals
from pipelines.task.results import Metric
from pipelines.task.units import Units

SIZES = {"small": (0.0, 32.0**2), "medium": (32.0**2, 96.0**2), "large": (96.0**2, 1e10)}  # COCO's areas, px^2
MATCH = 0.5  # overlap from which a box is found, where one number is asked for
RESAMPLES = 200  # behind each interval: each takes COCO's accumulation anew
MAIN = ("ap", "ap50", "ap75")


class Judged:
    """Answers and truth of pictures, matched once.

    Args:
        answers: `boxes` [n, most, 4], `scores` [n, most], 0 where there is no further box, and `classes` [n, most].
        targets: `boxes` [n, m, 4], and `classes` [n, m], -1 where there is no further box.
        names: of the classes.
    """

    kind = "bbox"

    def __init__(self, answers: Mapping[str, np.ndarray], targets: Mapping[str, np.ndarray], names: Sequence[str]):
        self.answers, self.targets, self.names = answers, targets, list(names)
        self.count = len(targets["classes"])

    @cached_property
    def coco(self) -> Any:
        """pycocotools' evaluation, its pictures matched."""
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval

        with contextlib.redirect_stdout(io.StringIO()):
            truth = COCO()
            truth.dataset = {"info": {}, "images": self._images(), "annotations": self._truth(),
                             "categories": [{"id": number, "name": name} for number, name in enumerate(self.names)]}
            truth.createIndex()
            found = COCO()
            found.dataset = {**truth.dataset, "annotations": self._found()}
            found.createIndex()
            judged = COCOeval(truth, found, self.kind)
            judged.params.maxDets = [self.answers["scores"].shape[1]]
            judged.params.areaRng = [[0.0, 1e10], *map(list, SIZES.values())]
            judged.params.areaRngLbl = ["all", *SIZES]
            judged.evaluate()
        return judged

    def _images(self) -> list[dict[str, Any]]:
        return [{"id": number} for number in range(self.count)]

    def _truth(self) -> list[dict[str, Any]]:
        pictures, places = np.nonzero(self.targets["classes"] >= 0)
        return self._written(self.targets, pictures, places)

    def _found(self) -> list[dict[str, Any]]:
        pictures, places = np.nonzero(self.answers["scores"] > 0)
        scores = self.answers["scores"][pictures, places].astype(np.float64)
        return [{**one, "score": score} for one, score in zip(self._written(self.answers, pictures, places), scores.tolist())]

    def _written(self, side: Mapping[str, np.ndarray], pictures: np.ndarray, places: np.ndarray) -> list[dict[str, Any]]:
        """Boxes as COCO has them; of no number 0, which there means that a box has no partner."""
        boxes = side["boxes"][pictures, places].astype(np.float64)
        sides = np.maximum(boxes[:, 2:] - boxes[:, :2], 0.0)
        rows = zip(pictures.tolist(), side["classes"][pictures, places].tolist(), np.concatenate([boxes[:, :2], sides], 1).tolist(),
                   sides.prod(1).tolist())
        return [{"id": number, "image_id": picture, "category_id": int(label), "bbox": box, "area": area, "iscrowd": 0}
                for number, (picture, label, box, area) in enumerate(rows, 1)]

    def accumulated(self, pictures: np.ndarray | None = None, *, sizes: bool = True) -> Any:
        """COCO's precision [10 overlaps, 101 recalls, classes, sizes] of some pictures, in any number; NaN where there is no such box."""
        whole = self.coco
        judged, areas = copy.copy(whole), 1 + len(SIZES)
        kept = areas if sizes else 1
        judged.params, judged._paramsEval = copy.copy(whole.params), copy.copy(whole._paramsEval)
        numbers = np.arange(self.count) if pictures is None else pictures
        for one in (judged.params, judged._paramsEval):
            one.imgIds, one.areaRng = list(range(len(numbers))), whole.params.areaRng[:kept]
        judged.evalImgs = [whole.evalImgs[(label * areas + size) * self.count + number]
                           for label in range(len(self.names)) for size in range(kept) for number in numbers]
        with contextlib.redirect_stdout(io.StringIO()):
            judged.accumulate()
        precision = judged.eval["precision"][..., -1]
        return np.where(precision < 0, np.nan, precision)

    def metrics(self, pictures: np.ndarray | None = None, *, sizes: bool = True) -> dict[str, float]:
        """AP over overlaps of 0.5 to 0.95, AP50, AP75, and AP of small, medium and large boxes; NaN where there is none."""
        precision = self.accumulated(pictures, sizes=sizes)
        found = {"ap": precision[..., 0], "ap50": precision[0, ..., 0], "ap75": precision[5, ..., 0]}
        found |= {f"ap_{size}": precision[..., number] for number, size in enumerate(SIZES, 1)} if sizes else {}
        return {name: _mean(values) for name, values in found.items()}

    def with_intervals(self, resamples: int, units: Units) -> dict[str, Metric]:
        """`metrics`, those over all sizes with bootstrap intervals by pictures, or by groups of them."""
        drawn: dict[str, list[float]] = {name: [] for name in MAIN}
        for counts in intervals.resample_counts(self.count, resamples=min(resamples, RESAMPLES), units=units):
            for row in counts.astype(np.int64):
                values = self.metrics(np.repeat(np.arange(self.count), row), sizes=False)
                for name in MAIN:
                    drawn[name].append(values[name])
        return {name: intervals.measured(value, np.array(drawn.get(name, [])), self.count, units)
                for name, value in self.metrics().items() if np.isfinite(value)}

    # ---- at one overlap

    def matches(self, label: int) -> tuple[np.ndarray, np.ndarray, int]:
        """(scores, whether it found a true box at MATCH, best first, of all boxes given of a class; the number of true boxes)."""
        areas = 1 + len(SIZES)
        every = [one for one in self.coco.evalImgs[label * areas * self.count:(label * areas + 1) * self.count] if one is not None]
        if not every:
            return np.zeros(0), np.zeros(0, bool), 0
        scores = np.concatenate([one["dtScores"] for one in every])
        hits = np.concatenate([one["dtMatches"][0] > 0 for one in every])
        order = np.argsort(-scores, kind="stable")
        return scores[order], hits[order], sum(len(one["gtIds"]) for one in every)

    def thresholds(self) -> list[float]:
        """The score from which boxes of each class are given: of the best F1 at MATCH; 0.5 where there is nothing to choose by."""
        chosen = []
        for label in range(len(self.names)):
            scores, hits, true = self.matches(label)
            if not hits.any():
                chosen.append(0.5)
                continue
            f1 = 2 * np.cumsum(hits) / (np.arange(1, len(hits) + 1) + true)
            chosen.append(float(scores[np.argmax(f1)]))
        return chosen

    def by_class(self, thresholds: Sequence[float]) -> list[dict[str, Any]]:
        """A row for each class: its boxes, AP, AP50, and precision and recall of the boxes that are given."""
        precision, rows = self.accumulated(sizes=False)[..., 0], []
        for label, name in enumerate(self.names):
            scores, hits, true = self.matches(label)
            given = scores >= thresholds[label]
            right = int(hits[given].sum())
            rows.append({"class": name, "boxes": true, "ap": _known(_mean(precision[:, :, label])),
                         "ap50": _known(_mean(precision[0, :, label])), "given_from": thresholds[label],
                         "precision": right / int(given.sum()) if given.any() else None, "recall": right / true if true else None})
        return rows

    def by_picture(self, thresholds: Sequence[float]) -> np.ndarray:
        """F1 at MATCH of the boxes given of each picture, [n] float64; NaN where there is neither a true box nor one that is given."""
        areas, right, sizes = 1 + len(SIZES), np.zeros(self.count), np.zeros(self.count)
        for label in range(len(self.names)):
            for number, one in enumerate(self.coco.evalImgs[label * areas * self.count:(label * areas + 1) * self.count]):
                if one is not None:
                    given = np.asarray(one["dtScores"]) >= thresholds[label]
                    right[number] += (one["dtMatches"][0][given] > 0).sum()
                    sizes[number] += given.sum() + len(one["gtIds"])
        return np.where(sizes > 0, 2 * right / np.maximum(sizes, 1), np.nan)


def _mean(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else float("nan")


def _known(value: float) -> float | None:
    return value if np.isfinite(value) else None

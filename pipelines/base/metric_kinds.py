"""The kind of a metric by its name: its title, whether it is a share, and whether more is better. Domains declare their own.

A name is looked up without its split, cutoff and interval end (`test/ndcg@10`, `recall_low`), and inherits from the declared name that
it ends in: `macro_f1` is an `f1`. An undeclared name has no better direction, and nothing is chosen by it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class MetricKind:
    """Attributes:
    better: "max" where more is better, "min" where less is; None for neither, such as a share of time.
    share: between 0 and 1, and written in percent.
    title: as a heading; None: the name's own words.
    unit: what it is measured in, such as "px"; None: nothing, or it differs from run to run (`Metric.measured_in`).
    """

    better: Literal["max", "min"] | None = None
    share: bool = False
    title: str | None = None
    unit: str | None = None


HIGH_SHARE, LOW_SHARE, SHARE, LOW = MetricKind("max", True), MetricKind("min", True), MetricKind(share=True), MetricKind("min")

_KINDS: dict[str, MetricKind] = {
    "accuracy": HIGH_SHARE, "precision": HIGH_SHARE, "recall": HIGH_SHARE, "specificity": HIGH_SHARE, "f1": MetricKind("max", True, "F1"),
    "auroc": MetricKind("max", True, "AUROC"), "auc": MetricKind("max", True, "AUC"),
    "top5_accuracy": MetricKind("max", True, "Top-5 accuracy"),
    "macro_f1": MetricKind("max", True, "Macro F1"), "micro_f1": MetricKind("max", True, "Micro F1"),
    "example_f1": MetricKind("max", True, "F1 by example"), "macro_auroc": MetricKind("max", True, "Macro AUROC"),
    "average_precision": MetricKind("max", True), "mean_average_precision": MetricKind("max", True, "mAP"),
    "label_ranking_precision": MetricKind("max", True, "Label ranking precision"),
    "subset_accuracy": MetricKind("max", True, "Exact match"), "confidence": MetricKind("max", True),
    "calibration_error": LOW_SHARE, "error_rate": LOW_SHARE, "error": LOW, "loss": LOW, "perplexity": LOW,
    "rmse": MetricKind("min", title="RMSE"), "mae": MetricKind("min", title="MAE"), "mse": MetricKind("min", title="MSE"),
    "r2": MetricKind("max", title="R squared"), "spearman": MetricKind("max", title="Spearman's rank correlation"),
    "pearson": MetricKind("max", title="Pearson's correlation"), "interval_width": LOW,
    "seconds": LOW, "latency": LOW, "share": SHARE, "fraction": SHARE, "coverage": SHARE, "roc": MetricKind(title="ROC"),
}


def declare(kinds: Mapping[str, MetricKind]) -> None:
    """Declares metrics of a domain or a user. Raises ValueError for a name with another meaning already."""
    for name, kind in kinds.items():
        if _KINDS.setdefault(name, kind) != kind:
            raise ValueError(f"the metric {name} is declared as {_KINDS[name]} already")


def kind_of(name: str) -> MetricKind | None:
    """The kind of `test/ndcg@10`, `recall_low`, `macro_f1`; None for an undeclared name."""
    base = re.sub(r"(_low|_high|@\d+|_at_\d+)+$", "", name.rpartition("/")[2])
    words = base.split("_")
    return next((_KINDS[tail] for start in range(len(words)) if (tail := "_".join(words[start:])) in _KINDS), None)


def titled(name: str) -> tuple[str, str]:
    """(the words before it, the title) of the longest declared name with a title in which a name ends: `gain_in_iou` -> ("gain in", "IoU");
    the name's own words, and no title, where there is none."""
    words = name.split("_")
    for start in range(len(words)):
        kind = _KINDS.get("_".join(words[start:]))
        if kind is not None:  # one without a title is called by its own words, whatever these end in
            return (" ".join(words[:start]), kind.title) if kind.title else (" ".join(words).strip(), "")
    return " ".join(words).strip(), ""


def better(name: str) -> Literal["max", "min"] | None:
    """Whether more or less of a metric is better; None where undeclared."""
    kind = kind_of(name)
    return kind.better if kind else None

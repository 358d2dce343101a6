"""How metrics and numbers are written for people: names, which are shares and which way is better, digits, durations, sizes.
Domains declare their own metrics (`declare`).
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


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
    "ndcg": MetricKind("max", True, "NDCG"), "mrr": MetricKind("max", True, "MRR"),
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


def split_name(name: str) -> tuple[str, str]:
    """`test/accuracy` -> ("test", "accuracy"); without a split the first is empty."""
    split, slash, metric = name.partition("/")
    return (split, metric) if slash else ("", name)


def title(name: str) -> str:
    """A metric's or column's name as a heading: `top5_accuracy` -> "Top-5 accuracy", `gain_in_ndcg@10` -> "Gain in NDCG@10"."""
    base, at, k = name.partition("@")
    before, known = titled(base)
    if known and not before:
        return known + at + k  # with its own letters: mAP
    words = f"{before} {_lowered(known)}" if known else before
    return words[:1].upper() + words[1:] + at + k


def title_within(name: str) -> str:
    """As `title`, within a sentence: "top-5 accuracy", and still "NDCG@10"."""
    return _lowered(title(name))


def _lowered(words: str) -> str:
    """Without the capital with which a heading begins; abbreviations and names keep theirs."""
    rest = words.partition(" ")[0][1:]
    return words[:1].lower() + words[1:] if rest[:1].islower() and rest == rest.lower() and "'" not in rest else words


def is_percent(name: str) -> bool:
    """Whether a metric is written in percent."""
    kind = kind_of(name)
    return kind is not None and kind.share


def number(value: Any, name: str = "") -> str:
    """A value as a person reads it; `name` says what it is. Percent has enough digits to tell it from 0 and 100."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if not isinstance(value, float):
        return str(value)
    if not math.isfinite(value):
        return "not finite" if math.isnan(value) else "∞" if value > 0 else "-∞"
    if name and is_percent(name):
        percent = 100 * value
        digits = 2 if 0 < percent < 0.1 or 99.9 < percent < 100 else 1
        return f"{percent:.{digits}f} %"
    kind = kind_of(name) if name else None
    if kind is not None and kind.unit:
        return f"{number(value)} {kind.unit}"
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    if not -3 <= magnitude < 6:
        return f"{value:.2e}"
    return f"{value:,.{max(0, 3 - max(magnitude, -1))}f}"


def bounds(low: float | None, high: float | None, name: str = "") -> str:
    """An interval as `[72.2, 74.0]`, or nothing where there is none."""
    if low is None or high is None:
        return ""
    if name and is_percent(name):
        return f"[{number(low, name)[:-2]}, {number(high, name)[:-2]}]"
    return f"[{number(low)}, {number(high)}]"


def counted(count: int, word: str) -> str:
    """`1 epoch`, `10,000 examples`, `5 bodies`."""
    if count == 1:
        return f"1 {word}"
    return f"{count:,} {word[:-1]}ies" if word.endswith("y") and word[-2:-1] not in "aeiou" else f"{count:,} {word}s"


def yaml_value(value: Any) -> str:
    """A setting as YAML writes it, on one line."""
    import yaml

    return yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False, allow_unicode=True).removesuffix("...\n").strip()


def shares(parts: Mapping[str, float]) -> str:
    """Where the time went, largest part first: `step 62 %, evaluation 21 %, setup 9 %`; parts under half a percent are omitted."""
    ranked = sorted(parts.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {100 * share:.0f} %" for name, share in ranked if share >= 0.005)


def used(time: Mapping[str, Any]) -> str:
    """How far a run used its device, from what report.json holds as `time`; empty where its arithmetic was not counted."""
    cost = time.get("arithmetic")
    if not cost:
        return ""
    return (f"{operations(cost['rate'])}/s in training, {100 * cost['share']:.0f} % of the {operations(cost['reachable'])}/s that a "
            "matrix product reaches here")


def operations(count: float) -> str:
    """Arithmetic operations: `68.3 GFLOP`."""
    for unit in ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} PFLOP"


def duration(seconds: float) -> str:
    """`0.4 s`, `42 s`, `3 min 20 s`, `2 h 05 min`, `3 d 4 h`."""
    if not math.isfinite(seconds):
        return "unknown"
    if seconds < 0.95:
        return f"{seconds * 1000:.0f} ms" if seconds < 0.0995 else f"{seconds:.1f} s"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"


def size(count: float) -> str:
    """Bytes as `3.2 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def escaped(text: str) -> str:
    """Plain text such that Markdown shows it as it is, on one line."""
    text = " ".join(text.split())
    text = re.sub(r"([\\`*<>~$])", r"\\\1", text)
    text = re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", text)  # an underscore within a word is not markup
    text = re.sub(r"\](?=[(\[:])", r"\\]", text)
    return re.sub(r"^([#+-]|\d+[.)](?=\s|$))", lambda match: f"{match[0][:-1]}\\{match[0][-1]}", text)

"""How predicted ratings and clicks did, beside baselines, with intervals by users where there are users."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.base import formatting
from pipelines.outputs.baselines import compare
from pipelines.task.intervals import interval, resampled_sums
from pipelines.task.intervals import mean as mean_of
from pipelines.task.results import Judgement, Metric
from pipelines.task.units import EXAMPLES, Units, grouped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BINS = 10
NAMES = {"rmse": "RMSE", "log_loss": "log loss"}
BASELINES = {"item_knn": "item kNN", "ease": "EASE"}  # as a sentence calls them
EPSILON = float(np.finfo(np.float32).eps)


@dataclass(frozen=True)
class Predicted:
    """What was predicted for n events, and what came.

    Attributes:
        values, true: [n], predicted and observed.
        baselines: name -> [n], what they say.
        users: [n], drawn whole for the intervals; None: every event by itself.
        groups: name -> [n] counts by which the events are divided into thirds ("user activity").
    """

    values: np.ndarray
    true: np.ndarray
    baselines: Mapping[str, np.ndarray]
    users: np.ndarray | None
    groups: Mapping[str, np.ndarray]


def judge_ratings(predicted: Predicted, *, resamples: int = 1000) -> Judgement:
    """RMSE and MAE of ratings."""
    predictions, true, baselines, users = predicted.values, predicted.true, predicted.baselines, predicted.users
    units = EXAMPLES if users is None else grouped(users, "user")
    errors = {"model": predictions - true, **{name: value - true for name, value in baselines.items()}}
    judgement = Judgement()
    judgement.metrics["rmse"] = _rmse(errors["model"], units, resamples)
    judgement.metrics["mae"] = mean_of(np.abs(errors["model"]), units=units, resamples=resamples)
    judgement.metrics["mse"] = mean_of(errors["model"] ** 2, units=units, resamples=resamples)
    rows = []
    for name, error in errors.items():
        rmse, mae = _rmse(error, units, resamples), mean_of(np.abs(error), units=units, resamples=resamples)
        rows.append(
            {
                "of": name,
                "rmse": rmse.value,
                "rmse_low": rmse.low,
                "rmse_high": rmse.high,
                "mae": mae.value,
                "mae_low": mae.low,
                "mae_high": mae.high,
            }
        )
    judgement.tables["model_and_baselines"] = rows
    if baselines:
        best = min(baselines, key=lambda name: float(np.mean(errors[name] ** 2)))
        table = np.stack([errors["model"] ** 2, errors[best] ** 2, np.ones(len(true))], 1)
        sums = resampled_sums(table, resamples=resamples, units=units)
        drawn = np.sqrt(sums[:, 0] / sums[:, 2]) - np.sqrt(sums[:, 1] / sums[:, 2])
        add_verdict(judgement, "rmse", judgement.metrics["rmse"].value, best, float(np.sqrt(np.mean(errors[best] ** 2))), drawn, lower=True)
    judgement.tables["by_group"] = [
        {
            "group": label,
            "ratings": int(mask.sum()),
            "rmse": float(np.sqrt(np.mean(errors["model"][mask] ** 2))),
            **{f"RMSE of {name}": float(np.sqrt(np.mean(errors[name][mask] ** 2))) for name in baselines},
        }
        for label, mask in thirds(predicted.groups)
    ]
    judgement.tables["calibration"] = calibration(predictions, true)
    judgement.figures["calibration"] = _calibration_figure(judgement.tables["calibration"], "predicted rating", "true rating, mean")
    return judgement


def judge_clicks(predicted: Predicted, *, resamples: int = 1000) -> Judgement:
    """AUC, log loss and calibration of probabilities of clicks."""
    predictions, true, baselines, users = predicted.values, predicted.true, predicted.baselines, predicted.users
    units = EXAMPLES if users is None else grouped(users, "user")
    judgement = Judgement()
    answers = {"model": predictions, **baselines}
    losses = {name: log_losses(value, true) for name, value in answers.items()}
    low, value, high = auc(predictions, true, users)
    judgement.metrics["auc"] = Metric(value, low, high, len(true), units.name, None if units.of is None else units.count(len(true)))
    judgement.metrics["log_loss"] = mean_of(losses["model"], units=units, resamples=resamples)
    rows = calibration(predictions, true)
    off = sum(row["count"] * abs(row["predicted"] - row["true"]) for row in rows) / len(true)
    judgement.metrics["calibration_error"] = Metric(float(off), None, None, len(true))
    table = []
    for name, answer in answers.items():
        loss = mean_of(losses[name], units=units, resamples=resamples)
        table.append(
            {"of": name, "auc": auc(answer, true)[1], "log_loss": loss.value, "log_loss_low": loss.low, "log_loss_high": loss.high}
        )
    judgement.tables["model_and_baselines"] = table
    if baselines:
        best = min(baselines, key=lambda name: losses[name].mean())
        sums = resampled_sums(np.stack([losses["model"] - losses[best], np.ones(len(true))], 1), resamples=resamples, units=units)
        drawn = sums[:, 0] / sums[:, 1]
        add_verdict(judgement, "log_loss", float(losses["model"].mean()), best, float(losses[best].mean()), drawn, lower=True)
    judgement.tables["by_group"] = [
        {
            "group": label,
            "events": int(mask.sum()),
            "clicks": float(true[mask].mean()),
            "auc": auc(predictions[mask], true[mask])[1],
            "log_loss": float(losses["model"][mask].mean()),
        }
        for label, mask in thirds(predicted.groups)
    ]
    judgement.tables["calibration"] = rows
    judgement.figures["calibration"] = _calibration_figure(rows, "predicted probability", "share of clicks")
    return judgement


def auc(scores: np.ndarray, true: np.ndarray, users: np.ndarray | None = None) -> tuple[float | None, float, float | None]:
    """(low, area under the ROC curve, high); NaN for one class.

    The 95 % interval is DeLong's (DeLong, DeLong and Clarke-Pearson 1988), and with `users` [n] its form for events that come in
    clusters (Obuchowski 1997, "Nonparametric analysis of clustered ROC curve data"): users are what varies, their events may be alike.
    """
    from scipy.stats import rankdata

    good = true > 0.5
    positive, negative = scores[good], scores[~good]
    m, n = len(positive), len(negative)
    if not m or not n:
        return None, float("nan"), None
    ranks = rankdata(np.concatenate([positive, negative]))
    inside_positive, inside_negative = rankdata(positive), rankdata(negative)
    wins = (ranks[:m] - inside_positive) / n  # of each positive: share of negatives below it
    losses = 1.0 - (ranks[m:] - inside_negative) / m  # of each negative: share of positives above it
    value = float(wins.mean())
    if users is None:
        if m < 2 or n < 2:
            return None, value, None
        half = 1.96 * float(np.sqrt(wins.var(ddof=1) / m + losses.var(ddof=1) / n))
    else:
        _, who = np.unique(users, return_inverse=True)
        count = int(who.max()) + 1
        if count < 2:
            return None, value, None
        # of each user, how far all of it is from what as many average events would give
        above = np.bincount(who[good], wins - value, count) / m
        below = np.bincount(who[~good], losses - value, count) / n
        half = 1.96 * float(np.sqrt(count / (count - 1) * np.sum((above + below) ** 2)))
    return max(0.0, value - half), value, min(1.0, value + half)


def log_losses(predictions: np.ndarray, true: np.ndarray) -> np.ndarray:
    """[n] nats; probabilities no nearer to 0 and 1 than float32's epsilon."""
    p = np.clip(np.asarray(predictions, np.float64), EPSILON, 1 - EPSILON)
    return -np.where(true > 0.5, np.log(p), np.log(1 - p))


def calibration(predictions: np.ndarray, true: np.ndarray, bins: int = BINS) -> list[dict[str, Any]]:
    """Examples in order of prediction, in bins of equal count: count, mean prediction, mean truth."""
    order = np.argsort(predictions, kind="stable")
    return [
        {"count": len(part), "predicted": float(predictions[part].mean()), "true": float(true[part].mean())}
        for part in np.array_split(order, min(bins, len(order)))
        if len(part)
    ]


def thirds(groups: Mapping[str, np.ndarray]) -> list[tuple[str, np.ndarray]]:
    """(label, mask [n]) of the lowest, middle and highest third of each count, by examples, those of 0 by themselves; bounds stand in the
    label."""
    rows = []
    for name, counts in groups.items():
        some = counts[counts > 0]
        cuts = np.quantile(some, [1 / 3, 2 / 3]) if len(some) else [0, 0]
        bounds = [(-1.0, 0.0), (0.0, cuts[0]), (cuts[0], cuts[1]), (cuts[1], float("inf"))]
        for low, high in bounds:
            mask = (counts > low) & (counts <= high)
            if mask.any():
                least, most = int(counts[mask].min()), int(counts[mask].max())
                rows.append((f"{name} {least:,}" + (f" to {most:,}" if most > least else ""), mask))
    return rows


def add_verdict(judgement: Judgement, metric: str, value: float, best: str, theirs: float, drawn: np.ndarray, *, lower: bool) -> None:
    """Puts into a judgement whether the model beats the best baseline, and where it does not, what a reader must know.

    Args:
        drawn: [resamples] model less baseline, of whole users drawn.
    """
    judgement.notes.append(verdict(NAMES.get(metric, formatting.title(metric)), value, best, theirs, drawn, lower=lower))
    sign = -1.0 if lower else 1.0
    low, high = sorted(sign * float(bound) for bound in np.quantile(drawn, [0.025, 0.975]))
    gain = Metric(sign * (value - theirs), low, high)
    compare(judgement, metric, BASELINES.get(best, best), Metric(value), Metric(theirs), gain)


def verdict(metric: str, value: float, best: str, theirs: float, drawn: np.ndarray, *, lower: bool) -> str:
    """In a sentence, whether the model beats the best baseline, with the paired bootstrap's interval of the difference."""
    low, high = (float(bound) for bound in np.quantile(drawn, [0.025, 0.975]))
    better = high < 0 if lower else low > 0
    worse = low > 0 if lower else high < 0
    p = min(1.0, 2 * float(min(np.mean(drawn <= 0), np.mean(drawn >= 0))))
    outcome = "beats" if better else "does NOT beat" if worse else "does NOT clearly beat"
    shown = f"p {p:.3f}" if p >= 0.001 else "p < 0.001"
    return (
        f"The model {outcome} the best baseline, {best}: {metric} {value:.4f} against {theirs:.4f}, difference {value - theirs:+.4f} "
        f"[{low:+.4f}, {high:+.4f}] (paired bootstrap, {shown})"
    )


def _rmse(errors: np.ndarray, units: Units, resamples: int) -> Metric:
    table = np.stack([errors**2, np.ones(len(errors))], 1)
    return interval(table, lambda sums: np.sqrt(sums[:, 0] / sums[:, 1]), units=units, resamples=resamples)


def _calibration_figure(rows: list[dict[str, Any]], x: str, y: str) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 4.5), layout="constrained")
    axes = figure.subplots()
    predictions, true = [row["predicted"] for row in rows], [row["true"] for row in rows]
    low, high = min(predictions + true), max(predictions + true)
    axes.plot([low, high], [low, high], color="0.7", lw=1, zorder=1)
    axes.plot(predictions, true, "o-", color="#1f77b4", zorder=2)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title("Calibration: tenths of the examples by prediction")
    axes.grid(alpha=0.3)
    return figure

"""What the report says of a policy: its value by several estimators, beside that of the logging policy and of policies without context."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.base import formatting
from pipelines.outputs.baselines import compare
from pipelines.task.intervals import bounds, interval
from pipelines.task.intervals import mean as mean_of
from pipelines.task.results import Judgement, Metric
from pipelines.task.units import Units
from recsys.metrics.off_policy import ESTIMATORS, Choices

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOGGING = "logging policy"
GAIN = 0.1  # of the logging policy's value: the gain for which the report says how many choices would show it
ALIKE = 0.01  # of the logging policy's value: two policies that differ by less earn the same


def judge_policies(model: Choices, cheap: Mapping[str, Choices], *, limits: tuple[float, float], units: Units, resamples: int,
                   places: np.ndarray | None, loss: np.ndarray) -> Judgement:
    """A judgement of the model's policy on logged choices.

    Args:
        model: what the model says of the choices; cheap: what policies without context do, by name.
        limits: the lowest and the highest reward.
        units: what intervals draw; where few choices count, intervals are Wilson's.
        places: [n], at what place of a list each choice was shown; None: there are no lists.
        loss: [known], of the model of rewards.
    """
    judgement = Judgement(units=units)
    rewards = np.asarray(model.rewards, np.float64)
    tables = {"model": model.terms(), **{name: one.terms() for name, one in cheap.items()}}
    policies = {"model": model, **cheap}
    found = {name: {each: interval(table, statistic, resamples=resamples, units=units) for each, statistic in ESTIMATORS.items()}
             for name, table in tables.items()}
    for name, one in policies.items():
        if one.few(*limits):
            low, high = one.bounds(*limits)
            found[name]["snips"] = replace(found[name]["snips"], low=low, high=high, drawn=None)
    logged = mean_of(rewards, units=units, resamples=resamples)
    judgement.metrics |= found["model"]
    judgement.metrics["reward_loss"] = mean_of(loss, resamples=resamples)
    judgement.metrics["effective_sample_size"] = Metric(model.effective_sample_size(), n=len(rewards))
    rows = [{"of": LOGGING, "snips": logged.value, "snips_low": logged.low, "snips_high": logged.high, "ips": logged.value,
             "doubly_robust": logged.value, "switch_dr": logged.value, "direct_method": None, "effective_sample_size": len(rewards)}]
    for name, values in found.items():
        rows.append({"of": name, "snips": values["snips"].value, "snips_low": values["snips"].low, "snips_high": values["snips"].high,
                     **{each: values[each].value for each in ESTIMATORS if each != "snips"},
                     "effective_sample_size": policies[name].effective_sample_size()})
    judgement.tables["model_and_baselines"] = rows
    judgement.notes += model.doubts()
    if model.few(*limits):
        judgement.notes.append(f"Weighted, the choices count as {model.effective_sample_size():.3g}, and few rewards are among them: the "
                               "interval of SNIPS is Wilson's, which holds where a bootstrap's would be too narrow")
    _compare(judgement, {name: values["snips"] for name, values in found.items()}, logged, len(rewards))
    if places is not None:
        judgement.tables["by_place"] = _by_place(model, places)
        judgement.notes.append("Places of a list are judged apart: what is shown at one is taken not to change what the others earn")
    judgement.figures["value"] = _value_figure(found, logged)
    judgement.figures["weights"] = _weights_figure(model.weights)
    return judgement


def _compare(judgement: Judgement, values: Mapping[str, Metric], logged: Metric, count: int) -> None:
    """Says whether the model's value is above the logging policy's and that of the best policy without context, by more than chance: by the
    paired bootstrap, or where few choices count by whether Wilson's interval holds the other's value."""
    others = sorted((name for name in values if name != "model"), key=lambda name: _least(values[name]))
    ours, unclear = values["model"], 0.0
    for name, theirs in ((LOGGING, logged), *((name, values[name]) for name in others[-1:])):
        gain = _gain(ours, theirs, name == LOGGING)
        alike = abs(gain.value) < ALIKE * abs(logged.value)
        outcome = ("earns as much as" if alike else "earns more than" if (gain.low or 0) > 0 else
                   "earns LESS than" if (gain.high or 0) < 0 else "does NOT clearly earn more than")
        other = name if name.startswith("even") else f"the {name}"
        difference = "" if alike else f", difference {gain.value:+.4g} {formatting.bounds(gain.low, gain.high, 'snips')}".rstrip()
        judgement.notes.append(f"The policy {outcome} {other}: {ours.value:.4g} a choice against {theirs.value:.4g} (SNIPS){difference}")
        if name == LOGGING and not alike and ours.drawn is not None and (gain.low or 0) <= 0 <= (gain.high or 0):
            unclear = ((gain.high or 0.0) - (gain.low or 0.0)) / 2
        if name == LOGGING:
            if not alike and (gain.high or 0) < 0:
                judgement.beaten = (f"The policy earns less than the one that made the log, {ours.value:.4g} a choice against "
                                    f"{logged.value:.4g}: keep that one.")
        elif not alike:
            compare(judgement, "snips", f"{name}, without context", Metric(ours.value), Metric(theirs.value), gain)
    if unclear and logged.value:
        needed = count * (unclear / (GAIN * abs(logged.value))) ** 2
        judgement.notes.append(f"A gain of {GAIN:.0%} of the logging policy's value would show in about {float(f'{needed:.2g}'):,.0f} such "
                               f"choices; these are {count:,}")


def _least(metric: Metric) -> float:
    """What a policy surely earns."""
    value = metric.value if metric.low is None else metric.low
    return value if np.isfinite(value) else -np.inf


def _gain(ours: Metric, theirs: Metric, certain: bool) -> Metric:
    """What ours earns more. `certain`: the other's value is that of the log, and knows no weights."""
    value = ours.value - theirs.value
    if ours.drawn is not None and theirs.drawn is not None:
        low, high = bounds(ours.drawn - theirs.drawn, value)
    else:
        slack = 0.0 if certain else max((theirs.high or theirs.value) - theirs.value, theirs.value - (theirs.low or theirs.value))
        low = value - slack if ours.low is None else ours.low - theirs.value - slack
        high = value + slack if ours.high is None else ours.high - theirs.value + slack
    return Metric(value, low, high)


def _by_place(model: Choices, places: np.ndarray) -> list[dict[str, Any]]:
    rows = []
    table = model.terms()
    for place in sorted(set(places.tolist()), key=str):
        there = places == place
        sums = table[there].sum(0, keepdims=True)
        rows.append({"place": place, "choices": int(there.sum()), "logged": float(model.rewards[there].mean()),
                     **{name: float(statistic(sums)[0]) for name, statistic in ESTIMATORS.items()}})
    return rows


def _value_figure(found: Mapping[str, Mapping[str, Metric]], logged: Metric) -> "Figure":
    from matplotlib.figure import Figure

    names = list(ESTIMATORS)
    figure = Figure(figsize=(7, 1.2 + 0.28 * len(names) * len(found)), layout="constrained")
    axes = figure.subplots()
    if logged.low is not None and logged.high is not None:
        axes.axvspan(logged.low, logged.high, color="0.9", zorder=0)
    axes.axvline(logged.value, color="0.5", lw=1, label=LOGGING, zorder=1)
    for number, (policy, values) in enumerate(found.items()):
        for place, name in enumerate(names):
            metric, at = values[name], -place - 0.22 * (number - (len(found) - 1) / 2)
            if metric.low is not None and metric.high is not None:
                axes.plot([metric.low, metric.high], [at, at], color=f"C{number}", lw=2)
            axes.plot([metric.value], [at], "o", color=f"C{number}", ms=5, label=policy if place == 0 else None)
    axes.set_yticks([-place for place in range(len(names))], [formatting.title(name) for name in names])
    axes.set_xlabel("reward a choice, with 95 % intervals")
    axes.grid(axis="x", alpha=0.3)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return figure


def _weights_figure(weights: np.ndarray) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.2), layout="constrained")
    axes = figure.subplots()
    some = weights[weights > 0]
    if len(some):
        low, high = float(some.min()), float(some.max())
        axes.hist(some, bins=np.geomspace(low, max(high, low * 1.01), 40).tolist(), color="#1f77b4")
        axes.set_xscale("log")
    axes.axvline(1.0, color="0.5", lw=1)
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
    axes.set_xlabel("weight: probability now / propensity")
    axes.set_ylabel("choices")
    axes.set_title(f"{np.mean(weights > 0):.0%} of the choices could be the policy's own", fontsize=10)
    return figure

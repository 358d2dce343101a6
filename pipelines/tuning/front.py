"""The front of a search with a cost: the trials than which none scores better and costs less. Imports no TensorFlow."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pipelines.base import formatting
from pipelines.config.schema import Cost

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNITS = {"operations": "operations an example", "parameters": "weights", "size": "bytes of weights", "latency": "ms an example"}


def worth(trial: Any, cost: Cost | None, sign: float) -> float | None:
    """What the algorithm is given as a trial's score, and by which the best is chosen: its value, less `cost.doubling` for each time that
    its cost is twice as much (more, where less of the value is better); None where it failed."""
    if trial.value is None or cost is None or not cost.doubling or not trial.cost:
        return trial.value
    return trial.value - sign * cost.doubling * math.log2(trial.cost)


def front(trials: Sequence[Any], sign: float) -> list[Any]:
    """Of trials (`trials.Trial`), those on the front, the cheapest first; of rounds of one setting the last counts, of equals the
    first.

    Args:
        sign: 1 where more of the value is better, -1 where less is.
    """
    last = {trial.setting: trial for trial in sorted(trials, key=lambda one: (one.epochs or math.inf, one.number))
            if trial.value is not None and trial.cost is not None}
    found: list[Any] = []
    for trial in sorted(last.values(), key=lambda one: (one.cost or 0.0, -sign * (one.value or 0.0), one.number)):
        if not found or sign * (trial.value or 0.0) > sign * (found[-1].value or 0.0):
            found.append(trial)
    return found


def lines(content: Any) -> list[str]:
    """The front in words, of what search.json holds."""
    if not content.get("front"):
        return []
    objective, measure = content["objective"].partition("/")[2], content["cost"]["measure"]
    trials = {trial["trial"]: trial for trial in content["trials"]}
    on = [trials[number] for number in content["front"]]
    return [f"Trial {one['trial']}: {formatting.title_within(objective)} {formatting.number(one['value'], objective)} with "
            f"{formatting.number(one['cost'])} {UNITS[measure]}" for one in on]


def picture(trials: Sequence[Any], on_front: Sequence[Any], best: Any, objective: str, cost: Cost) -> "Figure":
    """The score of every trial over its cost, and the front as steps."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    from pipelines.base.figures import BLUE, GREY, ORANGE, new_figure, style

    having = [trial for trial in trials if trial.value is not None and trial.cost is not None]
    percent = 100.0 if formatting.is_percent(objective) else 1.0
    with style():
        figure = new_figure(7.0, 4.2)
        axis = figure.subplots()
        axis.set_title(f"{formatting.title(objective)}{' (%)' if percent > 1 else ''} against {UNITS[cost.measure]}")
        axis.set_xlabel(UNITS[cost.measure])
        spread = [trial.cost or 0.0 for trial in having]
        if min(spread) > 0 and max(spread) > 5 * min(spread):
            axis.set_xscale("log")
            axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.xaxis.set_minor_formatter(NullFormatter())
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
        others = [trial for trial in having if trial not in on_front]
        axis.plot([trial.cost for trial in others], [percent * (trial.value or 0.0) for trial in others], "o", color=GREY, alpha=0.6,
                  label="other trials")
        axis.plot([trial.cost for trial in on_front], [percent * (trial.value or 0.0) for trial in on_front], "o-", color=BLUE,
                  drawstyle="steps-post", label="front")
        if best in having:
            axis.plot([best.cost], [percent * (best.value or 0.0)], "o", color=ORANGE, markersize=8, label="best")
        for trial in on_front:
            axis.annotate(str(trial.number), (trial.cost, percent * (trial.value or 0.0)), textcoords="offset points", xytext=(5, 5))
        if cost.limit is not None:
            axis.axvline(cost.limit, color=GREY, linestyle="--", linewidth=1.0, label="limit")
        axis.legend(loc="lower right")
    return figure


def _short(value: float) -> str:
    """20,000 as `20 k`."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:g} {name}"
    return f"{value:g}"

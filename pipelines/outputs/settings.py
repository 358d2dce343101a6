"""The settings of outputs that domains share: what is known of numbers, and how they are learned and judged. Imports no TensorFlow."""

from collections.abc import Sequence
from typing import Any, Literal

from pipelines.config.schema import Evaluate, Section, setting


class NumberTarget(Section):
    """What is known of the numbers in data.label_key; of several columns one value for all of them, or a list of one each."""

    unit: str | list[str] | None = setting(None, "what they are measured in, such as years or %; it stands beside every answer")
    low: float | list[float] | None = setting(
        None, "the lowest that is possible: a lower one in the data is an error, and no answer is lower")
    high: float | list[float] | None = setting(None, "the highest that is possible, alike")
    scale: Literal["auto", "linear", "log"] = setting(
        "auto", "log: the logarithm is learned, so that errors count as ratios (prices, durations); auto: log where all of train is above "
        "0, its skewness is above 1, and that of its logarithm less than half as large")

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems()
        for low, high in zip(*(value if isinstance(value, list) else [value] for value in (self.low, self.high))):
            if low is not None and high is not None and low >= high:
                found.append(("low", f"{low:g} is not below high, {high:g}"))
        return found

    def disagreements(self, columns: str | Sequence[Any]) -> list[tuple[str, str]]:
        """What does not fit the columns of data.label_key, as (setting, problem)."""
        count = 1 if isinstance(columns, (str, int)) else len(columns)
        return [(name, f"{len(value)} values for {count} column{'s' * (count > 1)} of data.label_key")
                for name in ("unit", "low", "high") if isinstance(value := getattr(self, name), list) and len(value) != count]


class NumberLoss(Section):
    """The distance of an answer to the truth, in the learned scale, where train has deviation 1; the mean over an example's numbers."""

    name: Literal["huber", "squared", "absolute", "quantiles"] = setting(
        "huber", "squared: answers are means; absolute: medians; huber: squared up to `delta`, and linear beyond (Huber 1964); quantiles: "
        "the median and both ends of evaluate.interval are learned, for data whose noise varies (Koenker and Bassett 1978)")
    delta: float = setting(1.0, "huber: where it becomes linear", unit="deviations", gt=0.0)


class NumberEvaluate(Evaluate):
    """Evaluation of numbers."""

    interval: float = setting(
        0.9, "share of answers whose interval holds the truth: its width is chosen on validation, by split conformal prediction",
        unit="share", ge=0.5, le=0.99)


def number_problems(experiment: Any) -> list[tuple[str, str]]:
    """What does not fit an experiment for numbers, as (setting, problem)."""
    found = [(f"target.{name}", problem) for name, problem in experiment.target.disagreements(experiment.data.label_key)]
    if getattr(experiment.model, "blend", None):
        found.append(("model.blend", "the mean of two models is one of classes; leave it out"))
    return found

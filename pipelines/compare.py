"""Runs side by side: settings that differ, metrics with their intervals, and whether a difference is more than chance.

The test: from each 95 % interval the standard error (its width / 3.92), and from both the normal test of the difference (Wald).
It takes the two samples of examples as independent. Runs judged on the same examples share their hard ones, so that their
difference varies less than that: then the test is cautious, and what it calls more than chance is. Where both runs are
means over several seeds, the seeds are compared by Welch's t-test instead, which also tells of the training's own chance.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.errors import ConfigError
from pipelines.listing import metric_of
from pipelines.reports import words
from pipelines.runs import RunFolder, differences
from pipelines.task import Metric

_Z = 1.959963984540054  # two-sided 95 % of the normal distribution
_FACTS = ("precision", "devices", "tensorflow", "keras", "processor")


@dataclass(frozen=True)
class Difference:
    """Of one metric between the first run and another.

    Attributes:
        value: other - first.
        low, high: 95 % interval, None where nothing is known of the spread.
        p: two-sided, or None.
        test: `normal` or `welch`, or empty.
    """

    value: float
    low: float | None = None
    high: float | None = None
    p: float | None = None
    test: str = ""

    @property
    def more_than_chance(self) -> bool | None:
        return None if self.low is None or self.high is None else not self.low <= 0.0 <= self.high


@dataclass(frozen=True)
class Comparison:
    """What differs between runs; the first is what the others are compared with.

    Attributes:
        names: of the runs, as short as tells them apart.
        settings: (setting, its value in each run).
        facts: likewise, of the machines.
        metrics: name -> value in each run, None where it has none.
        differences: name -> for each run after the first.
        notes: what limits the comparison.
    """

    names: list[str]
    settings: list[tuple[str, list[Any]]]
    facts: list[tuple[str, list[Any]]]
    metrics: dict[str, list[Metric | None]]
    differences: dict[str, list[Difference | None]]
    notes: list[str]


def compare(folders: Sequence[RunFolder]) -> Comparison:
    """Compares finished runs.

    Raises:
        ConfigError: fewer than two, or one that is not finished.
    """
    if len({folder.path.resolve() for folder in folders}) < 2:
        raise ConfigError("runs compare: give two or more different runs")
    reports = [folder.read_report() for folder in folders]
    settings = [folder.read_settings() for folder in folders]
    environments = [_environment(folder) for folder in folders]
    names = [metric for report in reports for metric in report["metrics"]]
    leading = sorted(dict.fromkeys(names), key=lambda name: not name.startswith("test/"))
    metrics = {name: [metric_of(report["metrics"][name]) if name in report["metrics"] else None for report in reports] for name in leading}
    spreads = [report.get("spread") or {} for report in reports]
    compared: dict[str, list[Difference | None]] = {}
    for name, values in metrics.items():
        first = values[0]
        compared[name] = [None if first is None or other is None else difference(first, other, spreads[0].get(name), spread.get(name))
                          for other, spread in zip(values[1:], spreads[1:])]
    facts = [{name: environment.get(name) for name in _FACTS} | _revision(environment) for environment in environments]
    return Comparison(_short([folder.path.absolute().as_posix() for folder in folders]), _differing(settings), _differing(facts), metrics,
                      compared, _notes(reports, settings, environments, compared))


def difference(first: Metric, other: Metric, first_spread: Mapping[str, Any] | None = None, other_spread: Mapping[str, Any] | None = None,
               ) -> Difference:
    """other - first with its 95 % interval: over seeds where both have two or more, else from the stored intervals."""
    value = other.value - first.value
    if first_spread and other_spread and first_spread["n"] > 1 and other_spread["n"] > 1:
        return _welch(value, first_spread, other_spread)
    errors = [standard_error(metric) for metric in (first, other)]
    if errors[0] is None or errors[1] is None:
        return Difference(value)
    error = math.hypot(errors[0], errors[1])
    if error == 0.0:
        return Difference(value, value, value, 1.0 if value == 0.0 else 0.0, "normal")
    return Difference(value, value - _Z * error, value + _Z * error, math.erfc(abs(value) / error / math.sqrt(2.0)), "normal")


def standard_error(metric: Metric) -> float | None:
    """Of a metric, from its 95 % interval; None where it has none."""
    return None if metric.low is None or metric.high is None else (metric.high - metric.low) / (2.0 * _Z)


def _welch(value: float, first: Mapping[str, Any], other: Mapping[str, Any]) -> Difference:
    """Welch 1947, with Satterthwaite's degrees of freedom."""
    parts = [spread["std"] ** 2 / spread["n"] for spread in (first, other)]
    error = math.sqrt(sum(parts))
    if error == 0.0:
        return Difference(value, value, value, 1.0 if value == 0.0 else 0.0, "welch")
    from scipy.stats import t

    freedom = sum(parts) ** 2 / sum(part ** 2 / (spread["n"] - 1) for part, spread in zip(parts, (first, other)))
    reach = float(t.ppf(0.975, freedom)) * error
    return Difference(value, value - reach, value + reach, float(2.0 * t.sf(abs(value) / error, freedom)), "welch")


def settings_table(found: Comparison) -> tuple[list[str], list[list[str]]]:
    """(columns, rows): what differs."""
    rows = [[name, *(words.yaml_value(value) for value in values)] for name, values in (*found.settings, *found.facts)]
    return ["", *found.names], rows


def metrics_table(found: Comparison) -> tuple[list[str], list[list[str]]]:
    """(columns, rows): each metric in each run, and for each run after the first whether it differs by more than chance."""
    columns = ["", *found.names]
    columns += ["difference", "more than chance?"] if len(found.names) == 2 else [f"more than chance? ({name})" for name in found.names[1:]]
    rows = []
    for name, values in found.metrics.items():
        row = [name, *("–" if value is None else words.metric(value, name) for value in values)]
        for one in found.differences[name]:
            if len(found.names) == 2:
                row.append("–" if one is None else _signed(one, name))
            row.append(_verdict(one, name))
        rows.append(row)
    return columns, rows


def as_json(found: Comparison) -> dict[str, Any]:
    """Everything, for programs."""
    def plain(one: Difference | None) -> dict[str, Any] | None:
        return None if one is None else {"value": one.value, "low": one.low, "high": one.high, "p": one.p, "test": one.test,
                                         "more_than_chance": one.more_than_chance}

    return {
        "runs": found.names, "settings": dict(found.settings), "facts": dict(found.facts),
        "metrics": {name: [None if one is None else vars(one) for one in values] for name, values in found.metrics.items()},
        "differences": {name: [plain(one) for one in values] for name, values in found.differences.items()}, "notes": found.notes,
    }


def _signed(one: Difference, name: str) -> str:
    sign, value = "+" if one.value > 0 else "", words.number(one.value, name)
    if value.endswith(" %"):
        value = f"{value[:-2]} points"  # a difference of shares, not a share of the first
    return f"{sign}{value} {words.bounds(one.low, one.high, name)}".rstrip()


def _verdict(one: Difference | None, name: str) -> str:
    if one is None:
        return "–"
    if one.more_than_chance is None:
        return "unknown: no interval"
    if not one.more_than_chance:
        return f"no (p {_p(one.p)})"
    better = (one.value < 0) == words.lower_is_better(name)
    return f"yes, {'better' if better else 'worse'} (p {_p(one.p)})"


def _p(value: float | None) -> str:
    return "–" if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def _notes(reports: Sequence[Mapping[str, Any]], settings: Sequence[Any], environments: Sequence[Mapping[str, Any]],
           compared: Mapping[str, list[Difference | None]]) -> list[str]:
    notes = []
    tests = {one.test for values in compared.values() for one in values if one is not None}
    if "normal" in tests:
        notes.append("Test: normal, from the two stored 95 % intervals taken as independent; each metric by itself, at 5 %. Between runs "
                     "judged on the same examples it is cautious. It tells of the chance in the examples, not of that in the seed.")
    if "welch" in tests:
        notes.append("Test: Welch's t-test over the seeds; each metric by itself, at 5 %. It tells of the chance in the training on these "
                     "splits.")
    if len({report["task"] for report in reports}) > 1:
        notes.append("The runs learn different tasks.")
    counts = [{name: metric.get("n") for name, metric in report["metrics"].items()} for report in reports]
    if any(count.get(name) != number for count in counts[1:] for name, number in counts[0].items() if name in count):
        notes.append("The runs were judged on different numbers of examples, so on different data.")
    elif any(_data(one) != _data(settings[0]) for one in settings[1:]):
        notes.append("The data settings differ: the runs may have been judged on different examples.")
    elif len({json.dumps(environment.get("data"), sort_keys=True) for environment in environments}) > 1:
        notes.append("The data have changed between the runs (their fingerprints differ).")
    return notes


def _data(settings: Any) -> Any:
    """What decides which examples a run is judged on."""
    data = settings.get("data") if isinstance(settings, dict) else None
    deciding = ("source", "name", "path", "test", "validation", "split_seed", "group_by", "image_size", "resize")
    return {name: data.get(name) for name in deciding} if isinstance(data, dict) else data


def _differing(values: Sequence[Any]) -> list[tuple[str, list[Any]]]:
    """Dotted names whose value is not the same in all, with the value in each."""
    names = dict.fromkeys(name for other in values[1:] for name, _, _ in differences(values[0], other))
    return [(name, [_at(value, name) for value in values]) for name in sorted(names)]


def _at(value: Any, name: str) -> Any:
    """The value of a dotted name; keys may hold dots themselves."""
    if not name or not isinstance(value, dict):
        return value if not name else None
    for key in value:
        if name == str(key) or name.startswith(f"{key}."):
            return _at(value[key], name[len(str(key)) + 1:])
    return None


def _short(paths: Sequence[str]) -> list[str]:
    """The ends of paths, as long as tells them apart."""
    parts = [path.split("/") for path in paths]
    for length in range(1, max(map(len, parts)) + 1):
        short = ["/".join(part[-length:]) for part in parts]
        if len(set(short)) == len(short):
            return short
    return list(paths)


def _environment(folder: RunFolder) -> dict[str, Any]:
    return folder.read_environment() if folder.environment.exists() else {}


def _revision(environment: Mapping[str, Any]) -> dict[str, Any]:
    source = environment.get("source")
    if not isinstance(source, dict):
        return {}
    return {"source revision": f"{source['revision'][:10]}{' with changes' if source.get('changed') else ''}"}

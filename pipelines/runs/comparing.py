"""Runs side by side: settings that differ, metrics with their intervals, and whether a difference is more than chance.

Runs judged on the same examples share their hard ones: they are compared in pairs, resample by resample, which drew the same
examples (or speakers, ...) for both. Runs judged on different examples are not tested: their difference may be that of the examples.
Where both runs are means over several seeds, the seeds are compared by Welch's t-test, which also tells of the training's own
chance. Of older runs, which kept neither fingerprints nor resamples, the standard error is derived from each 95 % interval (its width
/ 3.92) and the difference tested as normal (Wald), as if the examples were independent; on the same examples that is cautious.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.base import formatting
from pipelines.base.errors import ConfigError
from pipelines.base.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, new_figure, png, style
from pipelines.base.files import write_whole
from pipelines.base.formatting import better
from pipelines.config.messages import differences, listed
from pipelines.monitoring.metrics_log import read_rows
from pipelines.reports.blocks import Block, Bullets, Heading, Paragraph, Picture, Table
from pipelines.reports.html import page
from pipelines.reports.predictions import read_resamples
from pipelines.runs.folder import RunFolder
from pipelines.runs.listing import metric_of
from pipelines.task.results import Metric

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_Z = 1.959963984540054  # two-sided 95 % of the normal distribution
DIFFERENT = "different data"
_HOW_READ = ("prepared", "cache", "cache_folder", "workers")  # settings of data that change no example
_FACTS = ("precision", "devices", "tensorflow", "keras", "processor")


@dataclass(frozen=True)
class Difference:
    """Of one metric between the first run and another.

    Attributes:
        value: other - first.
        low, high: 95 % interval, None where nothing is known of the spread.
        p: two-sided, or None.
        test: `paired`, `welch`, `normal`, `different data` where there can be none, or empty.
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
    drawn = [read_resamples(folder.report) for folder in folders]
    compared: dict[str, list[Difference | None]] = {}
    for name, values in metrics.items():
        first = values[0]
        split = name.partition("/")[0]
        compared[name] = []
        for other, report, setting, environment, spread, resamples in zip(
                values[1:], reports[1:], settings[1:], environments[1:], spreads[1:], drawn[1:]):
            if first is None or other is None:
                compared[name].append(None)
                continue
            same = same_examples(split, (reports[0], settings[0], environments[0]), (report, setting, environment))
            pair = (drawn[0].get(name), resamples.get(name)) if same else (None, None)
            compared[name].append(Difference(other.value - first.value, test=DIFFERENT) if same is False else difference(
                first, other, spreads[0].get(name), spread.get(name), pair))
    facts = [{name: environment.get(name) for name in _FACTS} | _revision(environment) for environment in environments]
    return Comparison(_short([folder.path.absolute().as_posix() for folder in folders]), _differing(settings), _differing(facts), metrics,
                      compared, _notes(reports, settings, environments, compared))


def same_examples(split: str, *runs: tuple[Mapping[str, Any], Any, Mapping[str, Any]]) -> bool | None:
    """Whether runs were judged on the same examples of a split; None where it is not known.

    Args:
        runs: (report, settings, environment) of each.
    """
    def fingerprint(report: Mapping[str, Any], environment: Mapping[str, Any]) -> Any:
        recorded = report.get("judged", {}).get(split, {}).get("fingerprint")
        return recorded or (environment.get("data") or {}).get(split)

    prints = [fingerprint(report, environment) for report, _, environment in runs]
    if all(prints) and _alike_made([environment for _, _, environment in runs]):
        return all(one == prints[0] for one in prints)
    counts = [{name: metric.get("n") for name, metric in report["metrics"].items() if name.startswith(f"{split}/")}
              for report, _, _ in runs]
    if any(count.get(name) != number for count in counts[1:] for name, number in counts[0].items() if name in count):
        return False
    return False if any(_data(settings) != _data(runs[0][1]) for _, settings, _ in runs) else None


def difference(first: Metric, other: Metric, first_spread: Mapping[str, Any] | None = None, other_spread: Mapping[str, Any] | None = None,
               pair: tuple[np.ndarray | None, np.ndarray | None] = (None, None)) -> Difference:
    """other - first with its 95 % interval: over seeds where both have two or more, else in pairs, else from the stored intervals.

    Args:
        pair: both metrics on the same resamples, [resamples] each, or None.
    """
    value = other.value - first.value
    if first_spread and other_spread and first_spread["n"] > 1 and other_spread["n"] > 1:
        return _welch(value, first_spread, other_spread)
    if pair[0] is not None and pair[1] is not None and len(pair[0]) == len(pair[1]) and _drawn(first) == _drawn(other):
        return _paired(value, pair[1].astype(np.float64) - pair[0])
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


def _drawn(metric: Metric) -> tuple[str, int | None]:
    """What its interval drew: the unit, and how many."""
    return metric.unit, metric.n if metric.units is None else metric.units


def _paired(value: float, drawn: np.ndarray) -> Difference:
    """The paired bootstrap: percentiles of the differences; p is twice the share on the other side of 0, none counted as one (Davison &
    Hinkley 1997, section 4.2.5)."""
    drawn = drawn[np.isfinite(drawn)]
    if not len(drawn):
        return Difference(value)
    low, high = (float(bound) for bound in np.quantile(drawn, [0.025, 0.975]))
    other = min(int(np.sum(drawn <= 0.0)), int(np.sum(drawn >= 0.0)))
    return Difference(value, low, high, min(1.0, 2.0 * (other + 1) / (len(drawn) + 1)), "paired")


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


def settings_table(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """(columns, rows): what differs."""
    rows = [[name, *(formatting.yaml_value(value) for value in values)] for name, values in (*comparison.settings, *comparison.facts)]
    return ["", *comparison.names], rows


def metrics_table(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """(columns, rows): each metric in each run, and for each run after the first whether it differs by more than chance."""
    columns = ["", *comparison.names]
    others = comparison.names[1:]
    columns += ["difference", "more than chance?"] if len(others) == 1 else [f"more than chance? ({name})" for name in others]
    rows = []
    for name, values in comparison.metrics.items():
        row = [name, *("–" if value is None else value.text(name) for value in values)]
        for one in comparison.differences[name]:
            if len(comparison.names) == 2:
                row.append("–" if one is None else _signed(one, name))
            row.append(_verdict(one, name))
        rows.append(row)
    return columns, rows


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Everything, for programs."""
    def plain(one: Difference | None) -> dict[str, Any] | None:
        return None if one is None else {"value": one.value, "low": one.low, "high": one.high, "p": one.p, "test": one.test,
                                         "more_than_chance": one.more_than_chance}

    return {
        "runs": comparison.names, "settings": dict(comparison.settings), "facts": dict(comparison.facts),
        "metrics": {name: [None if one is None else one.as_json() for one in values] for name, values in comparison.metrics.items()},
        "differences": {name: [plain(one) for one in values] for name, values in comparison.differences.items()}, "notes": comparison.notes,
    }


def _signed(one: Difference, name: str) -> str:
    sign, value = "+" if one.value > 0 else "", formatting.number(one.value, name)
    if value.endswith(" %"):
        value = f"{value[:-2]} points"  # a difference of shares, not a share of the first
    return f"{sign}{value} {formatting.bounds(one.low, one.high, name)}".rstrip()


def _verdict(one: Difference | None, name: str) -> str:
    if one is None:
        return "–"
    if one.test == DIFFERENT:
        return "not tested: different data"
    if one.more_than_chance is None:
        return "unknown: no interval"
    if not one.more_than_chance:
        return f"no (p {_p(one.p)})"
    direction = better(name)
    if direction is None:
        return f"yes (p {_p(one.p)})"
    return f"yes, {'better' if (one.value < 0) == (direction == 'min') else 'worse'} (p {_p(one.p)})"


def _p(value: float | None) -> str:
    return "–" if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def _notes(reports: Sequence[Mapping[str, Any]], settings: Sequence[Any], environments: Sequence[Mapping[str, Any]],
           compared: Mapping[str, list[Difference | None]]) -> list[str]:
    notes = []
    tests = {one.test for values in compared.values() for one in values if one is not None}
    if DIFFERENT in tests:
        splits = sorted({name.partition("/")[0] for name, values in compared.items() for one in values if one and one.test == DIFFERENT})
        notes.append(f"The runs were judged on different data ({', '.join(splits)}): a difference may be that of the examples, and is not "
                     "tested. `quartet evaluate RUN --data` judges a run on other data.")
    if "paired" in tests:
        notes.append("Test: paired bootstrap, as the runs were judged on the same examples; each metric by itself, at 5 %. It tells of the "
                     "chance in the examples, not of that in the seed.")
    if "normal" in tests:
        notes.append("Test: normal, from the two stored 95 % intervals taken as independent; each metric by itself, at 5 %. Between runs "
                     "judged on the same examples it is cautious. It tells of the chance in the examples, not of that in the seed.")
    if "welch" in tests:
        notes.append("Test: Welch's t-test over the seeds; each metric by itself, at 5 %. It tells of the chance in the training on these "
                     "splits.")
    if len({report["task"] for report in reports}) > 1:
        notes.append("The runs learn different tasks.")
    if DIFFERENT not in tests and _alike_made(environments):
        notes += _other_examples(settings, environments)
    return notes


def _other_examples(settings: Sequence[Any], environments: Sequence[Mapping[str, Any]]) -> list[str]:
    """Of runs that did not have the same examples: in which splits, and whether by their settings or since the data have changed."""
    splits = [split for split, _ in _differing([environment.get("data") or {} for environment in environments])]
    if not splits:
        return []
    asked = [f"data.{name}" for name, _ in _differing([setting.get("data") if isinstance(setting, dict) else None for setting in settings])
             if name not in _HOW_READ]
    if asked:
        return [f"The runs had other examples in {listed(splits, 'and')}, by their settings: {', '.join(asked)}."]
    return [f"The data have changed between the runs (the fingerprints of {listed(splits, 'and')} differ)."]


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


def _alike_made(environments: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the fingerprints of runs can be compared; those of another version cannot."""
    return len({environment.get("fingerprints", 1) for environment in environments}) == 1


def _environment(folder: RunFolder) -> dict[str, Any]:
    return folder.read_environment() if folder.environment.exists() else {}


def _revision(environment: Mapping[str, Any]) -> dict[str, Any]:
    source = environment.get("source")
    if not isinstance(source, dict):
        return {}
    return {"source revision": f"{source['revision'][:10]}{' with changes' if source.get('changed') else ''}"}


_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED, GREY)
_PANELS = 4


def write_comparison(folders: Sequence[RunFolder], target: Path) -> Comparison:
    """Writes the page into the file `target`; returns what was compared.

    Raises:
        ConfigError: fewer than two runs, or one that is not finished.
        OSError: as the system gives it.
    """
    comparison = compare(folders)
    blocks: list[Block] = [Heading("Runs compared", 1), Paragraph(", ".join(comparison.names), lead=True)]
    columns, rows = metrics_table(comparison)
    blocks += [Heading("Metrics"), Table(columns, rows, [False] * len(columns)), Bullets(comparison.notes)]
    figure = curves([(name, read_rows(folder.metrics)) for name, folder in zip(comparison.names, folders)])
    if figure is not None:
        blocks += [Heading("Curves"), Picture("curves.png", png(figure), "Validation metrics of every run over the epochs")]
    columns, rows = settings_table(comparison)
    blocks.append(Heading("Settings and machines"))
    blocks.append(Table(columns, rows, [False] * len(columns)) if rows else Paragraph("No setting differs."))
    write_whole(target, page(blocks, title=" and ".join(comparison.names)))
    return comparison


def curves(runs: Sequence[tuple[str, Sequence[dict[str, Any]]]]) -> "Figure | None":
    """Validation metrics over the epochs, a line for each run (name, rows of metrics.jsonl); None where nothing was validated."""
    names = list(dict.fromkeys(name for _, rows in runs for row in rows for name in row if name.startswith("validation/")))[:_PANELS]
    if not names:
        return None
    with style():
        figure = new_figure(4.8 * min(2, len(names)), 3.2 * -(-len(names) // 2))
        axes = figure.subplots(-(-len(names) // 2), min(2, len(names)), squeeze=False).ravel()
        for axis, name in zip(axes, names):
            axis.set_title(formatting.title(formatting.split_name(name)[1]))
            axis.set_xlabel("epoch")
            for number, (run, rows) in enumerate(runs):
                points = [(row["epoch"], row[name]) for row in rows if row.get(name) is not None and "epoch" in row]
                if points:
                    axis.plot(*zip(*points), color=_COLOURS[number % len(_COLOURS)], label=run, marker="o" if len(points) <= 30 else "")
            axis.legend(loc="best")
        for axis in axes[len(names):]:
            axis.set_axis_off()
    return figure

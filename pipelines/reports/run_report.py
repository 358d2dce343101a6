"""The report of a run as blocks of text, tables and pictures. The first sentence is the result."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.base import formatting
from pipelines.base.marked import MarkedText
from pipelines.config.extensions import options
from pipelines.reports.blocks import Block, Bullets, Code, Heading, Paragraph, Picture, Table
from pipelines.task.results import Judgement, Metric

CURVES = "learning_curves"
SKIPPED_SHOWN = 20

# Figures and tables of these names share a section, in this order; others follow, each under its own name.
_SECTIONS = {
    "Confusions": ("confusion", "labels_together", "worst_confusions"), "Classes": ("per_class",), "Calibration": ("reliability",),
    "Worst mistakes": ("worst_mistakes",),
}


@dataclass(frozen=True)
class RunReport:
    """The content of a run's report.

    Attributes:
        content: of report.json.
        run: the run's folder, for the commands.
        split: that the report leads with, or empty.
        lead: the metric that it leads with, without split; None for the first.
        metrics: by `split/name`.
        judged: the leading split's judgement.
        pictures: name -> PNG of the learning curves and of that judgement's figures.
    """

    content: Mapping[str, Any]
    run: Path
    split: str
    lead: str | None
    metrics: Mapping[str, Metric]
    judged: Judgement
    pictures: Mapping[str, bytes]

    def blocks(self) -> list[Block]:
        content = self.content
        blocks: list[Block] = [Heading(f"{content['experiment']}: {content['run']}", 1), Paragraph(self.headline(), lead=True)]
        if content["notes"]:
            blocks.append(Bullets(content["notes"]))
        if self.metrics:
            blocks += [Heading("Metrics"), self._metrics(), Paragraph(self._brackets())]
        if content["seeds"]:
            blocks += [Heading("Seeds"), self._seeds(),
                       Paragraph("Spread: standard deviation over the seeds, each of which trains anew on the same splits.")]
        if CURVES in self.pictures:
            blocks += [Heading("Learning curves"), self._picture(CURVES, "Loss, metrics and learning rate over training")]
        blocks += self._judgement()
        if content["timing"]:
            blocks += [Heading("Time"), *self._time()]
        if content["data"]:
            blocks += [Heading("Data"), *self._data()]
        if content["changed"]:
            blocks += [Heading("Settings that are not defaults"), self._settings()]
        if content["environment"]:
            blocks += [Heading("Environment"), facts_table(content["environment"])]
        return [*blocks, Heading("Use it"), self._commands()]

    def headline(self) -> str:
        """The result in one sentence, and in another how it compares with a cheap baseline."""
        names = [name for name in self.metrics if name.startswith(f"{self.split}/")]
        if not names:
            return "Nothing was judged: the data have neither a test nor a validation split."
        name = f"{self.split}/{self.lead}" if f"{self.split}/{self.lead}" in names else names[0]
        metric, timing = self.metrics[name], self.content["timing"]
        examples = f"{metric.n:,} {self.split} examples" if metric.n else f"the {self.split} split"
        text = f"{formatting.title(formatting.split_name(name)[1])} {metric.text(name)} on {examples}"
        if timing.get("train_seconds") is not None:
            text += f", after {formatting.duration(timing['train_seconds'])} of training"
            if timing.get("epochs"):
                text += f" ({formatting.counted(timing['epochs'], 'epoch')})"
        several = self.content["spread"].get(name)
        if several and several["n"] > 1:
            itself = abs(several["mean"] - metric.value) < 1e-12
            mean = f"mean of {several['n']} seeds" if itself else f"over {several['n']} seeds {formatting.number(several['mean'], name)}"
            text += f"; {mean}, spread {formatting.number(several['std'], name)}"
        return f"{text}." + (f" {self.judged.compared}" if self.judged.compared else "")

    def _brackets(self) -> str:
        """A note on the kind of the intervals, and the units they were drawn by."""
        by: dict[str, dict[str, None]] = {}  # split -> what was drawn
        for name, metric in self.metrics.items():
            if metric.low is not None:
                by.setdefault(formatting.split_name(name)[0], {})[metric.drawn_by()] = None
        units_of = {split: " and ".join(units) for split, units in by.items()}
        each = [f"{split} by {units}" for split, units in sorted(units_of.items(), key=lambda item: item[0] != self.split)]
        how = f"by {next(iter(units_of.values()))}" if len(set(units_of.values())) == 1 else ", ".join(each) or "by examples"
        return f"In brackets: 95 % intervals of the bootstrap, drawn {how}; Wilson's for a share of 0 or 100 %."

    def _metrics(self) -> Table:
        """A row for each metric, a column for each split, the leading one first."""
        splits = sorted({formatting.split_name(name)[0] for name in self.metrics}, key=lambda split: (split != self.split, split))
        table: dict[str, dict[str, str]] = {}
        counts = dict.fromkeys(splits, 0)
        for name, metric in self.metrics.items():
            split, base = formatting.split_name(name)
            table.setdefault(base, {})[split] = metric.text(base)
            counts[split] = max(counts[split], metric.n or 0)
        columns = ["", *(f"{split} ({formatting.counted(counts[split], 'example')})" if counts[split] else split for split in splits)]
        rows = [[formatting.title(base), *(cells.get(split, "–") for split in splits)] for base, cells in table.items()]
        return Table(columns, rows, [False] + [True] * len(splits))

    def _seeds(self) -> Table:
        seeds, spread = self.content["seeds"], self.content["spread"]
        rows = [[str(seed["seed"]), *(formatting.number(seed["metrics"].get(name), name) for name in spread)] for seed in seeds]
        for label, key in (("mean", "mean"), ("spread", "std")):
            rows.append([label, *(formatting.number(spread[name][key], name) for name in spread)])
        columns = [f"{formatting.title(formatting.split_name(name)[1])}, {formatting.split_name(name)[0]}" for name in spread]
        return Table(["seed", *columns], rows, [False] + [True] * len(columns))

    def _picture(self, name: str, alt: str) -> Picture:
        return Picture(f"{name}.png", self.pictures[name], alt)

    def _judgement(self) -> list[Block]:
        """A section for each group of figures and tables of the leading split."""
        names = list(dict.fromkeys([*self.judged.figures, *self.judged.tables, *self.judged.listings]))
        grouped = [name for members in _SECTIONS.values() for name in members]
        sections = {heading: [name for name in members if name in names] for heading, members in _SECTIONS.items()}
        sections |= {formatting.title(name): [name] for name in names if name not in grouped}
        blocks: list[Block] = []
        for heading, members in sections.items():
            if not members:
                continue
            blocks.append(Heading(f"{heading} ({self.split})"))
            blocks += [self._picture(name, f"{heading} on the {self.split} split") for name in members if name in self.pictures]
            for name in members:
                for title, lines in self.judged.listings.get(name, ()):
                    blocks += [Paragraph(title), Code(lines, "text")]
                if name in self.judged.tables and name not in self.judged.listings:
                    blocks += records_table(self.judged.tables[name], whole=f"report.json, tables, {self.split}/{name}")
        return blocks

    def _time(self) -> list[Block]:
        blocks: list[Block] = [facts_table({name: value for name, value in self.content["timing"].items() if value is not None})]
        shares, seconds = self.content["time"].get("shares"), self.content["time"].get("seconds")
        if shares:
            parts = sorted(shares, key=lambda part: -shares[part])
            rows = [[part, formatting.duration(seconds[part]), f"{100 * shares[part]:.1f} %"] for part in parts]
            blocks.append(Table(("part", "time", "share"), rows, (False, True, True)))
        use = formatting.used(self.content["time"])
        return [*blocks, Paragraph(f"{use[:1].upper()}{use[1:]}.")] if use else blocks

    def _data(self) -> list[Block]:
        data, skipped = self.content["data"], self.content["skipped"]
        blocks: list[Block] = [facts_table({**{f"{split} examples": count for split, count in data["examples"].items()}, **data["facts"]})]
        if not skipped:
            return [*blocks, Paragraph("No example was skipped.")]
        total = len(skipped) + self.content["more_skipped"]
        more = total - SKIPPED_SHOWN
        which = f"the first {len(skipped):,} " if total > len(skipped) else ""
        rest = [f"and {more:,} more, {which}in report.json"] if more > 0 else []
        heading = Paragraph(f"Skipped as unreadable: {formatting.counted(total, 'example')}.")
        return [*blocks, heading, Bullets([*skipped[:SKIPPED_SHOWN], *rest])]

    def _settings(self) -> Table:
        rows = [[change["name"], formatting.yaml_value(change["value"]),
                 "–" if change["required"] else formatting.yaml_value(change["default"])]
                for change in self.content["changed"]]
        return Table(("setting", "value", "default"), rows, (False, False, False))

    def _commands(self) -> Code:
        seeds = self.content["seeds"]
        first = self.run.with_name(seeds[0]["run"]) if seeds and seeds[0].get("run") else self.run  # a run over seeds has no model itself
        run = shlex.quote(str(first))
        use = options((self.content["environment"] or {}).get("extensions"))
        lines = [f"quartet {verb}{use}" for verb in (f"predict {run} INPUT...", f"evaluate {run}", f"export {run}")]
        return Code("\n".join([*lines, f"tensorboard --logdir {run}"]))


ROWS_SHOWN = 40
LIST_SHOWN = 12


def records_table(records: Sequence[Mapping[str, Any]], *, whole: str = "") -> list[Block]:
    """A table of records; where there are more than ROWS_SHOWN, the worst of them or the first.

    Columns `x_low` and `x_high` are written into the cell of `x`. Records with an f1 (or recall, accuracy) are cut to
    those with the lowest.

    Args:
        whole: the place of all rows, for the line under a table that was cut.
    """
    if not records:
        return [Paragraph("None.")]
    columns = [name for name in dict.fromkeys(key for record in records for key in record) if not _is_bound(name, records[0])]
    shown, how = list(records), ""
    if len(records) > ROWS_SHOWN:
        by = next((name for name in ("f1", "recall", "accuracy") if name in columns), None)
        if by:
            shown = sorted(records, key=lambda record: (record[by] is None, record[by]))
        shown, how = shown[:ROWS_SHOWN], f"lowest {formatting.title(by)}" if by else "first"
    right = [all(_is_number(record.get(name)) for record in shown) for name in columns]
    table = Table([formatting.title(name) for name in columns], [[_cell(record, name) for name in columns] for record in shown], right)
    if not how:
        return [table]
    return [table, Paragraph(f"Shown: {len(shown)} of {len(records):,}, {how}." + (f" All: {whole}." if whole else ""))]


def facts_table(facts: Mapping[str, Any]) -> Table:
    """Names and values, nested ones by dotted name; `..._seconds`, `..._bytes` and `..._per_second` are written with their units."""
    return Table(("", ""), [[_label(name), _fact(name, value)] for name, value in _flat(facts, "")], (False, False))


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _is_bound(name: str, record: Mapping[str, Any]) -> bool:
    return name.endswith(("_low", "_high")) and name.rpartition("_")[0] in record


def _cell(record: Mapping[str, Any], name: str) -> str:
    value = record.get(name)
    if isinstance(value, MarkedText):
        return value
    text = formatting.number(value, name)
    if value is None:
        return text
    return f"{text} {formatting.bounds(record.get(f'{name}_low'), record.get(f'{name}_high'), name)}".rstrip()


def _flat(facts: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for name, value in facts.items():
        if isinstance(value, Mapping) and value and set(value) != {"count", "first"} and not _is_count(value):
            rows += _flat(value, f"{prefix}{name}.")
        else:
            rows.append((f"{prefix}{name}", value))
    return rows


def _is_count(value: Mapping[str, Any]) -> bool:
    """Numbers by name, such as examples by class: they share one line."""
    return len(value) > 3 and all(_is_number(item) for item in value.values())


def _label(name: str) -> str:
    return name.removesuffix("_seconds").removesuffix("_bytes").replace("_", " ")


def _fact(name: str, value: Any) -> str:
    last = name.rpartition(".")[2]
    if isinstance(value, Mapping):
        if not value:
            return "–"
        if _is_count(value):
            shown = ", ".join(f"{key}: {formatting.number(item)}" for key, item in list(value.items())[:LIST_SHOWN])
            return f"{shown}, … ({len(value):,} in all)" if len(value) > LIST_SHOWN else shown
        if "first" not in value:
            return ", ".join(f"{_label(key)}: {_fact(key, item)}" for key, item in value.items() if item is not None)
        first = value["first"]
        inside = [f"{key}: {formatting.number(item)}" for key, item in first.items()] if isinstance(first, Mapping) else (
            map(formatting.number, first))
        return f"{', '.join(inside)}, … ({value['count']:,} in all)"
    if isinstance(value, (list, tuple)):
        shown = ", ".join(_fact("", item) for item in value[:LIST_SHOWN])
        return f"{shown}, … ({len(value):,} in all)" if len(value) > LIST_SHOWN else shown or "–"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if last.endswith("seconds"):
            return formatting.duration(value)
        if last.endswith("bytes"):
            return formatting.size(value)
        if last.endswith("per_second"):
            return f"{value:,.0f}"
    return formatting.number(value, last)

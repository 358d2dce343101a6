"""Records and facts as tables for people: percent where it is meant, intervals in one cell, long ones cut."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.base import formatting
from pipelines.reports.blocks import Block, Paragraph, Table

ROWS_SHOWN = 40
LIST_SHOWN = 12


def records_table(records: Sequence[Mapping[str, Any]], *, whole: str = "", most: int = ROWS_SHOWN) -> list[Block]:
    """A table of records; where there are more than `most`, the worst of them or the first.

    Columns `x_low` and `x_high` are written into the cell of `x`. Records with an f1 (or recall, accuracy) are cut to
    those with the lowest.

    Args:
        whole: the place of all rows, for the line under a table that was cut.
    """
    if not records:
        return [Paragraph("None.")]
    columns = [name for name in dict.fromkeys(key for record in records for key in record) if not _is_bound(name, records[0])]
    shown, how = list(records), ""
    if len(records) > most:
        by = next((name for name in ("f1", "recall", "accuracy") if name in columns), None)
        if by:
            shown = sorted(records, key=lambda record: (record[by] is None, record[by]))
        shown, how = shown[:most], f"lowest {formatting.title(by)}" if by else "first"
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

"""Runs side by side as one HTML page: settings that differ, metrics with the verdict on chance, and curves over one another."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.base import formatting
from pipelines.base.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, new_figure, png, style
from pipelines.base.files import write_whole
from pipelines.monitoring.metrics_log import read_rows
from pipelines.reports.blocks import Block, Bullets, Heading, Paragraph, Picture, Table
from pipelines.reports.html import page
from pipelines.runs.comparing import Comparison, compare, metrics_table, settings_table
from pipelines.runs.folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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

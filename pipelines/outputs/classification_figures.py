"""Figures of a classifier: the confusion matrix, for ten classes or a hundred thousand, and the reliability diagram."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import coo_matrix

from pipelines.base.figures import BLUE, FAINT, GREY, INK, RED, SKY, new_figure, shortened, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WRITTEN = 20  # classes up to which every cell carries its number
_NAMED = 45  # classes up to which every row carries its name
_CELLS = 250  # cells a side beyond which neighbours are drawn as one
_DRAWN = 1000  # classes up to which there is a matrix at all


def confusion(matrix: Any, classes: Sequence[str], *, listed: int = 20) -> "Figure":
    """The predictions (columns) for each true class (row), as shares of the row.

    Up to 20 classes every cell has its share in percent; beyond, colours are stretched so that single confusions show, and
    the most frequent confusions are listed beside the matrix. Above 250 classes neighbouring cells are drawn as one, by
    their largest share; above 1,000 there is only the list.

    Args:
        matrix: [classes, classes] counts, rows true, columns predicted; sparse or dense.
    """
    pairs = coo_matrix(matrix)
    count = len(classes)
    if pairs.shape != (count, count):
        raise ValueError(f"a confusion matrix [{count}, {count}] expected for {count} classes, got {pairs.shape}")
    with style():
        if count > _DRAWN:
            figure = new_figure(6.5, 6)
            _listed(figure.subplots(), pairs, classes, listed)
            return figure
        cells = pairs.toarray().astype(np.float64)
        totals = cells.sum(axis=1, keepdims=True)
        shares = cells / np.maximum(totals, 1)
        if count <= _WRITTEN:
            side = max(3.4, 0.5 * count + 1.6)
            figure = new_figure(side + 0.7, side)
            axis = figure.subplots()
            _written(axis, shares, totals[:, 0], classes)
        else:
            figure = new_figure(11.5, 7)
            axis, beside = figure.subplots(1, 2, width_ratios=[1.75, 1])
            _dense(figure, axis, shares, classes)
            _listed(beside, pairs, classes, listed)
        axis.set_title("Confusion matrix")
        axis.set_xlabel("predicted")
        axis.set_ylabel("true")
    return figure


def together(sets: Mapping[str, np.ndarray], labels: Sequence[str]) -> "Figure":
    """Of the examples with a label (row), the share that has another one, too (column), in percent: a matrix for each of some sets.

    Args:
        sets: name, such as true and given -> [n, labels] bool.
    """
    side = max(3.4, 0.5 * len(labels) + 1.6)
    with style():
        figure = new_figure(len(sets) * (side + 0.7), side)
        for axis, (name, rows) in zip(np.ravel(figure.subplots(1, len(sets))), sets.items()):
            counts = rows.T.astype(np.float64) @ rows
            totals = counts.diagonal()
            _written(axis, counts / np.maximum(totals, 1)[:, None], totals, labels)
            axis.set_title(f"Labels together: {name}")
    return figure


def reliability(rows: Sequence[dict[str, Any]], *, error: float | None = None) -> "Figure":
    """Accuracy against confidence in bins, with Wilson's intervals, and below how many answers each bin holds.

    Args:
        rows: as `classification.reliability` gives them.
        error: the expected calibration error, written into the figure.
    """
    with style():
        figure = new_figure(5.2, 5.6)
        upper, lower = figure.subplots(2, 1, height_ratios=[3, 1], sharex=True)
        filled = [row for row in rows if row["count"]]
        total = max(sum(row["count"] for row in rows), 1)
        upper.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=(0, (4, 3)), label="as often right as it says")
        for row in filled:
            place = {"width": row["high"] - row["low"], "align": "edge", "edgecolor": "white", "linewidth": 0.8}
            upper.bar(row["low"], row["accuracy"], color=SKY, alpha=0.55, **place)
            lower.bar(row["low"], row["count"] / total, color=SKY, alpha=0.9, **place)
        confidence, right = ([row[key] for row in filled] for key in ("confidence", "accuracy"))
        upper.vlines(confidence, confidence, right, color=RED, linewidth=5, alpha=0.65, label="gap")
        arms = [[abs(row["accuracy"] - row[end]) for row in filled] for end in ("accuracy_low", "accuracy_high")]
        upper.errorbar(confidence, right, arms, color=BLUE, linewidth=1.1, capsize=2.5, fmt="o", markersize=4.5,
                       label="accuracy, 95 % interval")
        upper.legend(loc="upper left")
        upper.set(xlim=(0, 1), ylim=(0, 1.02), ylabel="accuracy")
        upper.set_title("Reliability" if error is None else f"Reliability: calibration error {100 * error:.1f} %")
        lower.set(xlabel="confidence", ylabel="share of answers")
        lower.set_ylim(bottom=0)
        for axis in (upper, lower):
            axis.grid(axis="x", visible=False)
    return figure


def _written(axis: "Axes", shares: np.ndarray, totals: np.ndarray, classes: Sequence[str]) -> None:
    count = len(classes)
    axis.imshow(shares, cmap="Blues", vmin=0, vmax=1.0)
    names = [shortened(name, 18) for name in classes]
    axis.set_xticks(range(count), names, rotation=45 if max(map(len, names), default=0) > 3 else 0,
                    ha="right" if max(map(len, names), default=0) > 3 else "center", rotation_mode="anchor")
    axis.set_yticks(range(count), names)
    _plain(axis)
    font = 9 if count <= 12 else 7.5
    for i in range(count):
        if totals[i] == 0:
            axis.text((count - 1) / 2, i, "no examples", ha="center", va="center", fontsize=font, color=GREY, style="italic")
            continue
        for j in range(count):
            if shares[i, j] > 0:
                percent = 100 * shares[i, j]
                text = f"{percent:.0f}" if percent >= 9.95 or percent == round(percent) else f"{percent:.1f}" if percent >= 0.05 else "<0.1"
                axis.text(j, i, text, ha="center", va="center", fontsize=font, color="white" if shares[i, j] > 0.55 else INK)
    for edge in range(count + 1):
        axis.axhline(edge - 0.5, color=FAINT, linewidth=0.6)
        axis.axvline(edge - 0.5, color=FAINT, linewidth=0.6)
    axis.text(1, 1.012, "% of each row", transform=axis.transAxes, ha="right", va="bottom", fontsize=8.5, color=GREY)


def _dense(figure: "Figure", axis: "Axes", shares: np.ndarray, classes: Sequence[str]) -> None:
    from matplotlib.colors import PowerNorm

    count = len(classes)
    block = -(-count // _CELLS)
    pooled = _pooled(shares, block)
    image = axis.imshow(np.ma.masked_equal(pooled, 0), cmap="magma_r", norm=PowerNorm(0.4, vmin=0, vmax=1), interpolation="nearest",
                        extent=(-0.5, count - 0.5, count - 0.5, -0.5))
    if count <= _NAMED:
        ticks = list(range(count))
        font = 8 if count <= 30 else 6.5
    else:
        every = next(step for step in (5, 10, 20, 25, 50, 100, 200, 250, 500, 1000, 10**9) if count / step <= 22)
        ticks, font = list(range(0, count, every)), 8
    names = [shortened(classes[k], 18) for k in ticks]
    axis.set_xticks(ticks, names, rotation=90, fontsize=font)
    axis.set_yticks(ticks, names, fontsize=font)
    _plain(axis)
    bar = figure.colorbar(image, ax=axis, location="bottom", shrink=0.6, aspect=40, pad=0.02, ticks=[0, 0.01, 0.05, 0.2, 0.5, 1])
    bar.ax.set_xticklabels(["0", "1", "5", "20", "50", "100 % of the row"])
    bar.ax.tick_params(labelsize=8, length=2)
    bar.outline.set_visible(False)


def _listed(axis: "Axes", matrix: Any, classes: Sequence[str], limit: int) -> None:
    totals = np.asarray(matrix.sum(axis=1)).ravel()
    off = matrix.tocsr().tocoo()  # pairs that occur several times are one
    wrong = off.row != off.col
    rows, columns, numbers = off.row[wrong], off.col[wrong], off.data[wrong]
    order = np.lexsort((columns, rows, -numbers))[:limit]
    order = order[numbers[order] > 0]
    axis.set_title("Most frequent confusions")
    axis.grid(visible=False)
    if not len(order):
        axis.set_axis_off()
        axis.text(0, 0.98, "none", transform=axis.transAxes, va="top", color=GREY)
        return
    pairs, counts = list(zip(rows[order], columns[order])), numbers[order].tolist()
    axis.barh(range(len(pairs)), counts, color=SKY, height=0.72)
    axis.set_ylim(max(len(pairs), 12) - 0.4, -0.6)
    axis.set_yticks(range(len(pairs)), [f"{shortened(classes[i], 17)} → {shortened(classes[j], 17)}" for i, j in pairs], fontsize=8)
    for row, (true, _) in enumerate(pairs):
        share = counts[row] / totals[true]
        percent = f"{100 * share:.0f}" if share >= 0.005 else "<1"
        axis.text(counts[row], row, f" {counts[row]:,.0f} ({percent} %)", va="center", fontsize=8, color=INK)
    axis.set_xlim(0, max(counts) * 1.45)
    axis.set_xticks([])
    for side in ("bottom", "left"):
        axis.spines[side].set_visible(False)
    axis.tick_params(length=0)


def _pooled(shares: np.ndarray, block: int) -> np.ndarray:
    """The largest share of each block x block square."""
    if block == 1:
        return shares
    pad = -len(shares) % block
    padded = np.pad(shares, ((0, pad), (0, pad)))
    side = len(padded) // block
    return padded.reshape(side, block, side, block).max(axis=(1, 3))


def _plain(axis: "Axes") -> None:
    axis.grid(visible=False)
    axis.tick_params(length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)

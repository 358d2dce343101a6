"""Figures of a run: one look for all, colour-blind-safe, drawn without a display and without pyplot's global state.

Each function returns a matplotlib Figure; `png` turns it into bytes. Colours are Okabe and Ito's ("Color Universal
Design", 2008): train is blue and validation orange in every figure.
"""

import contextlib
import functools
import io
import math
import re
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.base.formatting import title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, RED, PURPLE, SKY, GREY = "#0072B2", "#D55E00", "#009E73", "#CC3311", "#CC79A7", "#56B4E9", "#767676"
SPLITS = {"train": BLUE, "validation": ORANGE, "test": GREEN}
INK, FAINT = "#222222", "#E3E3E3"

_STYLE: dict[str, Any] = {
    "figure.facecolor": "white", "figure.dpi": 100, "savefig.facecolor": "white",
    "font.size": 10, "axes.titlesize": 11, "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.titlepad": 8,
    "axes.labelsize": 10, "axes.labelcolor": INK, "axes.edgecolor": "#888888", "axes.linewidth": 0.8,
    "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True, "axes.grid": True,
    "grid.color": FAINT, "grid.linewidth": 0.8, "xtick.color": "#555555", "ytick.color": "#555555", "xtick.labelcolor": INK,
    "ytick.labelcolor": INK, "xtick.labelsize": 9, "ytick.labelsize": 9, "text.color": INK, "legend.frameon": False, "legend.fontsize": 9,
    "lines.linewidth": 1.8, "lines.markersize": 4, "text.parse_math": False,  # a class may be called "$5"
    "axes.formatter.useoffset": False,
}
# Tried after DejaVu Sans for letters that it lacks, where the machine has them.
_SCRIPTS = ("Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans", "Noto Sans Arabic", "Noto Sans Devanagari", "Noto Sans Thai",
            "Hiragino Sans", "Microsoft YaHei", "Arial Unicode MS", "WenQuanYi Micro Hei", "Droid Sans Fallback")


@functools.cache
def _families() -> list[str]:
    from matplotlib import font_manager

    there = {font.name for font in font_manager.fontManager.ttflist}
    return ["DejaVu Sans", *(name for name in _SCRIPTS if name in there)]


@contextlib.contextmanager
def style() -> Iterator[None]:
    """The look of all figures; draw inside it."""
    import warnings

    import matplotlib

    look: Any = {**_STYLE, "font.family": _families()}
    with matplotlib.rc_context(look), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # then a box is drawn for the letter
        yield


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure of that size in inches, laid out automatically; call inside `style()`."""
    return canvas(width, height)


def canvas(width: float, height: float) -> "Figure":
    """A figure with what draws it, without pyplot."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


_DRAWN: "weakref.WeakKeyDictionary[Figure, dict[int, bytes]]" = weakref.WeakKeyDictionary()


def png(figure: "Figure", *, dpi: int = 120) -> bytes:
    """The figure as PNG bytes, drawn once for the report and for TensorBoard: do not change a figure afterwards."""
    drawn = _DRAWN.setdefault(figure, {})
    if dpi not in drawn:
        drawn[dpi] = rendered(figure, dpi)
    return drawn[dpi]


def rendered(figure: "Figure", dpi: int) -> bytes:
    """The figure as PNG bytes, drawn anew."""
    buffer = io.BytesIO()
    with style():
        figure.savefig(buffer, format="png", dpi=dpi, bbox_inches="tight", pad_inches=0.12, metadata={"Software": None})
    return buffer.getvalue()


def learning_curves(rows: Sequence[dict[str, Any]], *, best_epoch: float | None = None) -> "Figure | None":
    """Loss, metrics, learning rate, gradient norm over training, from the rows of metrics.jsonl; None where nothing was logged, as of a
    head that is fitted at once and not judged on validation.

    Args:
        rows: dicts with `step`, perhaps `epoch` (a float that grows with each step), and values such as `train/loss`,
            `validation/accuracy`, `learning_rate`, `gradient_norm`. `epoch/...`, whole epochs of train, is drawn with `train/...`.
        best_epoch: marked in the panels that have validation.
    """
    x_name = "epoch" if rows and all(isinstance(row.get("epoch"), (int, float)) for row in rows) else "step"
    series = _series(rows, x_name)
    names = _metric_names(series)
    panels: list[tuple[str, list[tuple[str, str]]]] = []
    for name in names:
        panels.append((title(name), [(s, f"{s}/{name}") for s in ("train", "epoch", "validation") if f"{s}/{name}" in series]))
    panels += [(title(name), [("", name)]) for name in ("learning_rate", "gradient_norm") if name in series]
    if not panels:
        return None
    with style():
        columns = 1 if len(panels) == 1 else 2 if len(panels) <= 4 else 3
        lines = math.ceil(len(panels) / columns)
        figure = new_figure(4.6 * columns if columns > 1 else 7, 2.9 * lines)
        axes = figure.subplots(lines, columns, squeeze=False).ravel()
        for axis, (heading, curves) in zip(axes, panels):
            axis.set_title(heading)
            axis.set_xlabel(x_name)
            for split, key in curves:
                _curve(axis, series[key], split, alone="epoch" not in [name for name, _ in curves])
            if heading == "Loss" or curves[0][1] == "gradient_norm":
                _log_scale_if_wide(axis, [y for _, key in curves for y in series[key][1]])
            if best_epoch is not None and x_name == "epoch" and any(split == "validation" for split, _ in curves):
                axis.axvline(best_epoch, color=GREY, linewidth=1, linestyle=(0, (4, 3)), label="kept")
            if any(split for split, _ in curves):
                axis.legend(loc="best")
        for axis in axes[len(panels):]:
            axis.set_axis_off()
    return figure


def layout(scores: Sequence[str]) -> dict[str, dict[str, list[str]]]:
    """TensorBoard's custom charts: each metric with train and validation in one, and those that show a training's progress."""
    return {
        "Train and validation": {name: [f"^epoch/{re.escape(name)}$"] for name in ("loss", *scores)},
        "Training": {"learning rate": ["^learning_rate$"], "gradient norm": ["^gradient_norm$"],
                     "examples a second": ["^speed/examples_per_second$"], "share of waiting for input": ["^speed/input_wait_fraction$"],
                     "memory": ["^speed/(device_)?memory_bytes$"]},
    }


def image_grid(images: np.ndarray, captions: Sequence[str] | None = None, *, title: str = "", columns: int | None = None,
               ) -> "Figure":
    """Images in rows, each with a caption under it; pixels stay sharp.

    Args:
        images: [n, height, width, channels] uint8 with 1, 3 or 4 channels.
        captions: one for each, of one or a few lines; long lines are cut.
        columns: default: 6, fewer for few images, more for many.

    Raises:
        ValueError: shape or type is another.
    """
    images = np.asarray(images)
    if images.ndim != 4 or images.shape[-1] not in (1, 3, 4) or images.dtype != np.uint8:
        raise ValueError(f"images [n, height, width, 1, 3 or 4] uint8 expected, got {images.shape} {images.dtype}")
    n = len(images)
    columns = columns or min(max(n, 1), 6 if n <= 36 else 8 if n <= 64 else 10)
    lines = max(1, math.ceil(n / columns))
    depth = max((caption.count("\n") + 1 for caption in captions), default=0) if captions else 0
    # Places are computed here: matplotlib's own layout takes seconds for dozens of axes. All in inches.
    side, gap, top = 1.45, 0.1, 0.35 if title else 0.0
    tall = side * float(np.clip(images.shape[1] / images.shape[2], 0.2, 3)) if n else side
    line_height = tall + 0.15 * depth + (0.14 if depth else gap)
    width, height = max(columns * (side + gap), 3.2), lines * line_height + top
    with style():
        figure = new_figure(width, height)
        figure.set_layout_engine("none")
        if title:
            figure.text(0, 1 - 0.05 / height, title, fontsize=11, fontweight="bold", ha="left", va="top")
        axis = figure.add_axes((0, 0, 1, 1))  # one for all images: one for each takes twice as long
        axis.set_axis_off()
        for number, image in enumerate(images):
            line, column = divmod(number, columns)
            left, bottom = column * (side + gap), height - top - line * line_height - tall
            sharp = "nearest" if max(image.shape[:2]) <= 128 else "antialiased"
            axis.imshow(image[..., 0] if image.shape[-1] == 1 else image, cmap="gray", vmin=0, vmax=255, interpolation=sharp,
                        aspect="auto", extent=(left, left + side, bottom, bottom + tall))
            if captions:
                text = "\n".join(shortened(part, 22) for part in captions[number].split("\n"))
                axis.text(left + side / 2, bottom - 0.05, text, ha="center", va="top", fontsize=8, linespacing=1.15, color=INK)
        axis.set(xlim=(0, width), ylim=(0, height))
    return figure


def overlaid(image: np.ndarray, *, mask: np.ndarray | None = None, boxes: np.ndarray | None = None, names: Sequence[int] = (),
             strength: float = 0.5) -> np.ndarray:
    """A picture with what was found in it, [height, width, 3] uint8.

    Args:
        image: [height, width] or [height, width, 1 or 3], in 0..255.
        mask: [height, width] integers or bool: 0 is left as it is, each other class has a colour.
        boxes: [boxes, 4]: left, top, right and bottom, in pixels.
        names: the class of each box, whose colour it has; default: all the first.
        strength: share of a mask's colour.
    """
    drawn = np.asarray(image, np.float64)
    drawn = np.repeat(drawn.reshape(*drawn.shape[:2], -1), 3 if drawn.size == drawn.shape[0] * drawn.shape[1] else 1, -1)
    colours = np.array([[int(one[at:at + 2], 16) for at in (1, 3, 5)] for one in (ORANGE, BLUE, GREEN, PURPLE, SKY, RED)], np.float64)
    if mask is not None:
        classes = np.asarray(mask).astype(np.int64)
        tint = colours[(classes - 1) % len(colours)]
        drawn = np.where((classes > 0)[..., None], (1.0 - strength) * drawn + strength * tint, drawn)
    height, width = drawn.shape[:2]
    for place, box in enumerate(np.zeros((0, 4)) if boxes is None else np.asarray(boxes, np.float64)):
        colour = colours[(names[place] if len(names) else 0) % len(colours)]
        left, right = np.clip(np.rint([box[0], box[2] - 1]), 0, width - 1).astype(int)
        top, bottom = np.clip(np.rint([box[1], box[3] - 1]), 0, height - 1).astype(int)
        drawn[[top, bottom], left:right + 1] = colour
        drawn[top:bottom + 1, [left, right]] = colour
    return np.clip(np.rint(drawn), 0, 255).astype(np.uint8)


def shortened(text: str, length: int) -> str:
    """`text`, or its beginning and end around an ellipsis where it is longer than `length`."""
    if len(text) <= length:
        return text
    head = (length - 1) * 2 // 3
    return text[:head].rstrip() + "…" + text[len(text) - (length - 1 - head):].lstrip()


def _series(rows: Sequence[dict[str, Any]], x_name: str) -> dict[str, tuple[list[float], list[float]]]:
    """name -> (x, y), in order of x; the later of two rows at one x counts, as after a resume."""
    points: dict[str, dict[float, float]] = {}
    for row in rows:
        for name, value in row.items():
            if name not in ("step", "epoch", "time_s") and isinstance(value, (int, float)) and math.isfinite(value):
                points.setdefault(name, {})[row[x_name]] = value
    return {name: (sorted(curve), [curve[x] for x in sorted(curve)]) for name, curve in points.items()}


def _metric_names(series: Iterable[str]) -> list[str]:
    """The loss, and at most six others, those of validation first."""
    names_logged = list(series)
    splits = ("validation/", "train/", "epoch/")
    names = list(dict.fromkeys(name.partition("/")[2] for split in splits for name in names_logged if name.startswith(split)))
    return ["loss"] * ("loss" in names) + [name for name in names if name != "loss"][:6]


def _curve(axis: "Axes", points: tuple[list[float], list[float]], split: str, alone: bool) -> None:
    """Logged points of train are drawn light under its epoch means; validation and epochs get marks while they are few."""
    x, y = points
    colour = SPLITS["train" if split == "epoch" else split] if split else INK
    if split == "train" and not alone:
        axis.plot(x, y, color=colour, linewidth=0.9, alpha=0.35)
        return
    label = {"epoch": "train", "": None}.get(split, split)
    marker = "o" if split and len(x) <= 40 else ""
    axis.plot(x, y, color=colour, marker=marker, label=label, linewidth=1.2 if not split else 1.8)


def _log_scale_if_wide(axis: "Axes", values: list[float]) -> None:
    if values and min(values) > 0 and max(values) / min(values) > 50:
        from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

        axis.set_yscale("log")
        few = max(values) / min(values) < 1e3
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.yaxis.set_minor_formatter(NullFormatter())


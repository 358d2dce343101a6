"""Some examples of a source as they are, with what lies in them, for `quartet check` to draw."""

from collections.abc import Callable

import numpy as np

from pipelines.base import figures
from pipelines.data.files import FileSource
from pipelines.data.source import Source, origin

SHOWN = 10  # examples
SIDE = 288  # px that each is drawn in, at most
GROUND = 255  # the grey of what is left of that


# (files, number, picture [height, width, 3] uint8, its sides as a share of those of the file) -> the picture as it is drawn
Over = Callable[[FileSource, int, np.ndarray, float], np.ndarray]


def picture(source: Source, bad: set[int], over: Over) -> bytes:
    """A PNG file of examples spread evenly over a source of files.

    Args:
        bad: numbers of examples that cannot be read, which are left out.
        over: draws what lies in it.
    """
    from PIL import Image, ImageOps

    base, numbers = origin(source)
    assert isinstance(base, FileSource)
    good = [number for place, number in enumerate(numbers.tolist()) if place not in bad]
    some = [good[place * len(good) // min(SHOWN, len(good))] for place in range(min(SHOWN, len(good)))]
    drawn, names = [], []
    for number in some:
        with Image.open(base.paths[number]) as opened:
            upright = ImageOps.exif_transpose(opened).convert("RGB")
            share = min(1.0, SIDE / max(upright.size))
            small = upright.resize([max(1, round(share * side)) for side in upright.size], Image.Resampling.BILINEAR)
        drawn.append(over(base, number, np.asarray(small), share))
        names.append(base.relative(number).rpartition("/")[2])
    height, width = (max(one.shape[axis] for one in drawn) for axis in (0, 1))
    whole = np.full((len(drawn), height, width, 3), GROUND, np.uint8)
    for canvas, one in zip(whole, drawn):
        canvas[:one.shape[0], :one.shape[1]] = one
    return figures.png(figures.image_grid(whole, names, title="Examples of train, as they are read", columns=5))

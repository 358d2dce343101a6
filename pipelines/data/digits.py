"""The embedded data: scikit-learn's 1,797 handwritten digits, 8 x 8 grey, read without a network.

The pixels are the test half of the UCI "Optical Recognition of Handwritten Digits" set (Alpaydin and Kaynak 1998).
"""

import importlib.util
from pathlib import Path

import numpy as np

from pipelines.data.source import ArraySource

CLASSES = [str(digit) for digit in range(10)]


def digits() -> ArraySource:
    """All digits as one pool: image [8, 8, 1] uint8, 0..255 (stored as 0..16), and label int64."""
    package = importlib.util.find_spec("sklearn")  # its file alone: importing it takes a second
    assert package is not None and package.origin
    rows = np.loadtxt(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",", dtype=np.int64)
    images = np.rint(rows[:, :-1] * (255.0 / 16.0)).astype(np.uint8).reshape(-1, 8, 8, 1)
    labels = rows[:, -1]
    return ArraySource({"image": images, "label": labels}, title="digits", labels=labels)

"""The embedded data: scikit-learn's 1,797 handwritten digits, 8 x 8 grey, read without a network.

The pixels are the test half of the UCI "Optical Recognition of Handwritten Digits" set (Alpaydin and Kaynak 1998).
"""

import numpy as np

from pipelines.data.source import ArraySource

CLASSES = [str(digit) for digit in range(10)]


def digits() -> ArraySource:
    """All digits as one pool: image [8, 8, 1] uint8, 0..255 (stored as 0..16), and label int64."""
    from sklearn.datasets import load_digits

    stored = load_digits()
    images = np.rint(stored.images * (255.0 / 16.0)).astype(np.uint8)[..., None]
    labels = stored.target.astype(np.int64)
    return ArraySource({"image": images, "label": labels}, title="digits", labels=labels)

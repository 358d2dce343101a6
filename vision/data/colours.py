"""Whether pictures have colours: many grey ones - letters, medical slices - are stored with three equal channels. Imports no TensorFlow."""

import io
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vision.data.headers import image_header

LOOKED_AT = 60  # pictures that are decoded
MOST_PIXELS, MOST_BYTES = 4_000_000, 8_000_000  # of a picture, beyond which another one is looked at
TINT = 8  # of 255: the difference between channels that compression leaves in a grey picture
COLOURED = 0.01  # share of the pixels that may have more


def all_grey(paths: Sequence[Path]) -> bool:
    """Whether all pictures of an even sample are grey; False where none can be decoded."""
    decoded = False
    for path in paths[:: max(1, -(-len(paths) // LOOKED_AT))]:
        grey = _file_is_grey(path)
        if grey is False:
            return False
        decoded = decoded or grey is not None
    return decoded


def _file_is_grey(path: Path) -> bool | None:
    """None where it is not decoded: large, broken or not there, which is said elsewhere."""
    from PIL import Image

    try:
        if path.stat().st_size > MOST_BYTES:
            return None
        content = path.read_bytes()
        header = image_header(content)
        if header is None or header.width * header.height > MOST_PIXELS:
            return None
        with warnings.catch_warnings(), Image.open(io.BytesIO(content)) as image:
            warnings.simplefilter("ignore")
            image.draft("RGB", (128, 128))
            return header.channels == 1 or is_grey(np.asarray(image.convert("RGB")))
    except Exception:  # Pillow raises many kinds
        return None


def is_grey(pixels: np.ndarray) -> bool:
    """Whether the channels of [..., 3] pixels, of any scale, are nearly equal nearly everywhere."""
    pixels = pixels.astype(np.float32)
    apart = pixels.max(-1) - pixels.min(-1)
    limit = TINT / 255 * max(float(pixels.max()), 1e-6)
    return bool((apart > limit).mean() <= COLOURED)

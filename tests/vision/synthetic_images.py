"""Small synthetic images in every format: what the tests of vision read."""

import io
from pathlib import Path

import numpy as np
from PIL import Image


def picture(seed: int = 0, height: int = 24, width: int = 36) -> np.ndarray:
    """Smooth colours that differ by seed, uint8 [height, width, 3]: little is lost in JPEG."""
    rng = np.random.default_rng(seed)
    down, across = np.linspace(0, 1, height)[:, None, None], np.linspace(0, 1, width)[None, :, None]
    corners = rng.integers(20, 236, (4, 3))
    above = corners[0] * (1 - across) + corners[2] * across
    below = corners[1] * (1 - across) + corners[3] * across
    blend = above * (1 - down) + below * down
    return np.rint(blend).astype(np.uint8)


def encoded(image: Image.Image | np.ndarray, kind: str, **options) -> bytes:
    """The bytes that Pillow writes."""
    image = Image.fromarray(image) if isinstance(image, np.ndarray) else image
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def folder(root: Path, counts: dict[str, int], *, seed: int = 0, suffix: str = ".png", reverse: bool = False) -> Path:
    """A folder per class with `counts[class]` PNG images each; the same files in whatever order they are created."""
    wanted = [(title, number) for title, count in counts.items() for number in range(count)]
    for title, number in reversed(wanted) if reverse else wanted:
        (root / title).mkdir(parents=True, exist_ok=True)
        key = sum(map(ord, title)) * 1000 + number + seed
        (root / title / f"{number:03d}{suffix}").write_bytes(encoded(picture(key), "PNG"))
    return root

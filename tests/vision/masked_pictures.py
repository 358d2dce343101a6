"""Pictures with masks for tests: discs and squares on a dark ground."""

from pathlib import Path

import numpy as np
from PIL import Image

NAMES = ["ground", "disc", "square"]


def drawn(number: int, height: int = 40, width: int = 48) -> tuple[np.ndarray, np.ndarray]:
    """(picture [height, width, 3] uint8, mask [height, width] uint8 of numbers 0 to 2)."""
    draw = np.random.default_rng(number)
    rows, columns = np.mgrid[:height, :width]
    mask = np.zeros((height, width), np.uint8)
    row, column = draw.integers(8, height - 8), draw.integers(8, width // 2 - 4)
    mask[(rows - row) ** 2 + (columns - column) ** 2 < 40] = 1
    row, column = draw.integers(6, height - 6), draw.integers(width // 2 + 4, width - 6)
    mask[(abs(rows - row) < 6) & (abs(columns - column) < 6)] = 2
    colours = np.array([[40, 40, 50], [190, 60, 60], [60, 80, 200]])
    return np.clip(colours[mask] + draw.normal(0, 20, (height, width, 3)), 0, 255).astype(np.uint8), mask


def write(folder: Path, numbers: range, *, pictures: str = "images", masks: str = "masks", palette: list[int] | None = None,
          ending: str = "") -> None:
    """PNG files of grey levels, or with a `palette` of indices."""
    for name in (pictures, masks):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for number in numbers:
        image, mask = drawn(number)
        Image.fromarray(image).save(folder / pictures / f"{number:02}.png")
        stored = Image.fromarray(mask)
        if palette:
            stored.putpalette(palette)
        stored.save(folder / masks / f"{number:02}{ending}.png")


def small(folder: Path) -> list[str]:
    """The settings of such data, written into a folder."""
    write(folder / "data", range(40))
    settings = {"path": folder / "data", "classes": NAMES, "validation": 0.2, "test": 0.2}
    return [f"data.{name}={value}" for name, value in settings.items()]

"""The peer: PyTorch's DataLoader, two workers, Pillow, random crops to 224 x 224 px; run by benchmarks.photos in a process of its own.

python -m benchmarks.torch_photos FOLDER --seconds 4        # images/s and processor time as one JSON line
"""

import argparse
import json
import math
import multiprocessing
import os
import random
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

BATCH, SIZE, AREA = 64, 224, (0.08, 1.0)


class Photos(Dataset):
    """Torchvision's RandomResizedCrop on files of a folder, [224, 224, 3] uint8."""

    def __init__(self, folder: Path):
        self.paths = sorted(folder.glob("*/*.jpg"))

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, number: int) -> torch.Tensor:
        with Image.open(random.choice(self.paths)) as image:
            left, top, width, height = crop(*image.size)
            box = (left, top, left + width, top + height)
            return torch.from_numpy(np.array(image.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR, box=box)))


def crop(width: int, height: int) -> tuple[int, int, int, int]:
    for _ in range(10):
        area, ratio = random.uniform(*AREA) * width * height, math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            return random.randint(0, width - wide), random.randint(0, height - high), wide, high
    return 0, 0, width, height


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    batches = iter(DataLoader(Photos(asked.folder), batch_size=BATCH, num_workers=asked.workers))
    for _ in range(3 + 2 * asked.workers):
        next(batches)
    count, began, used = 0, time.perf_counter(), processor_time()
    while time.perf_counter() < began + asked.seconds:
        next(batches)
        count += BATCH
    print(json.dumps({"images_per_second": count / (time.perf_counter() - began), "ms_an_image": 1000 * (processor_time() - used) / count}))


def processor_time() -> float:
    """Seconds that this process and its workers have computed (Linux)."""
    ticks = 0
    for worker in multiprocessing.active_children():
        ticks += sum(map(int, Path(f"/proc/{worker.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[11:13]))
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()

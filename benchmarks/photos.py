"""Photos with random crops: images/s of our input layer, of plain tf.data and of PyTorch's DataLoader with Pillow, in one run.

python -m benchmarks.photos            # about 2 minutes on 2 cores; needs the extra `bench`
JPEG files of 500 x 375 px made here, a random part of 8 to 100 % of each area brought to 224 x 224 px, in batches of 64. Ours and
Pillow's are antialiased; plain tf.data (tf.image.resize as it comes) is not. The loaders take turns, and medians are compared. On a busy
machine compare the processor time: a loader of several processes gets more, or less, of its share.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image

from benchmarks.product import machine, peer
from pipelines.config.load import from_dict
from pipelines.data.input import PipelineFeed
from pipelines.data.order import Plan
from vision.tasks.classification import Classification

COUNT, BATCH, SIZE, AREA = 256, 64, 224, (0.08, 1.0)


def photo(seed: int, height: int = 375, width: int = 500) -> Image.Image:
    """Blobs, texture and grain at several scales: its JPEG of quality 90 has some 50 kB, as photos of that size have."""
    rng = np.random.default_rng(seed)
    picture = np.full((height, width, 3), 120.0, np.float32)
    for cells, contrast in ((4, 60), (12, 40), (40, 25), (120, 14)):
        coarse = rng.normal(0, contrast, (max(2, cells * height // width), cells, 3)).astype(np.float32)
        for channel in range(3):
            picture[..., channel] += np.asarray(Image.fromarray(coarse[..., channel]).resize((width, height), Image.Resampling.BICUBIC))
    picture += rng.normal(0, 4, picture.shape)
    return Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8))


def write(folder: Path, height: int, width: int) -> None:
    for number in range(COUNT):
        target = folder / f"class{number % 2}" / f"{number:04d}.jpg"
        target.parent.mkdir(exist_ok=True)
        photo(number, height, width).save(target, quality=90)


def ours(folder: Path) -> tf.data.Dataset:
    """Batches as training takes them."""
    experiment: Any = from_dict({
        "task": "vision.classification", "model": {"name": "cnn"}, "augment": {"random_resized_crop": list(AREA)},
        "data": {"source": "folder", "path": str(folder), "image_size": SIZE, "channels": 3, "validation": 0.1, "test": 0.1}})
    source = Classification(experiment).splits().train
    task = Classification(experiment, {"image_size": [SIZE, SIZE], "channels": 3})
    feed = PipelineFeed(None, source=source, decode=task.input.decode, plan=Plan(len(source), BATCH), seed=0, shuffle=True, workers=None,
                        summary="", strategy=tf.distribute.get_strategy())
    return feed.dataset(0, 1 << 30)


def plain(folder: Path) -> tf.data.Dataset:
    """What tutorials show."""

    def one(path: tf.Tensor) -> tf.Tensor:
        content = tf.io.read_file(path)
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.io.extract_jpeg_shape(content), tf.zeros([1, 0, 4]), area_range=AREA, use_image_if_no_bounding_boxes=True)
        window = tf.stack([begin[0], begin[1], size[0], size[1]])
        image = tf.io.decode_and_crop_jpeg(content, window, channels=3)
        return tf.cast(tf.image.resize(image, (SIZE, SIZE)), tf.uint8)

    paths = sorted(str(path) for path in folder.glob("*/*.jpg"))
    shuffled = tf.data.Dataset.from_tensor_slices(paths).repeat().shuffle(COUNT)
    return shuffled.map(one, tf.data.AUTOTUNE).batch(BATCH).prefetch(tf.data.AUTOTUNE)


def rate(batches: Iterator[Any], seconds: float) -> tuple[float, float]:
    """(images/s, ms of processor time an image), after three batches."""
    for _ in range(3):
        next(batches)
    count, began, used = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() < began + seconds:
        next(batches)
        count += BATCH
    return count / (time.perf_counter() - began), 1000 * (time.process_time() - used) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--size", type=int, nargs=2, default=(375, 500), metavar=("HEIGHT", "WIDTH"), help="of the photos")
    asked = parser.parse_args()
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, *asked.size)
        loaders = {"quartet": ours(folder), "plain tf.data": plain(folder)}
        found: dict[str, list[tuple[float, float]]] = {title: [] for title in (*loaders, "DataLoader")}
        for _ in range(asked.rounds):
            for title, dataset in loaders.items():
                found[title].append(rate(iter(dataset), asked.seconds))
            theirs = peer("torch_photos", str(folder), "--seconds", str(asked.seconds))
            found["DataLoader"].append((theirs["images_per_second"], theirs["ms_an_image"]))
    for title, rounds in found.items():
        rates, costs = ([one[part] for one in rounds] for part in (0, 1))
        print(f"{title:14} {statistics.median(rates):6,.0f} images/s {[round(one) for one in rates]}, "
              f"processor {statistics.median(costs):.2f} ms an image {[round(one, 2) for one in costs]}")
    for title in ("DataLoader", "plain tf.data"):
        rates, costs = ([statistics.median(one[part] for one in found[name]) for name in ("quartet", title)] for part in (0, 1))
        print(f"against {title}: {rates[0] / rates[1]:.2f} x the images/s, {costs[1] / costs[0]:.2f} x the images a processor second")


if __name__ == "__main__":
    main()

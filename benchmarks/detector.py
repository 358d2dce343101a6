"""Training rate of a detector (EfficientNet-Lite0, pyramid and towers; 320 x 416 px, batch 16), trained whole, against the same in PyTorch.

python -m benchmarks.detector     # about 3 min on 2 cores; needs the extras `bench` and `pretrained`, and the preset
Network and loss are the same; AdamW, float32, pictures in memory, no augmentation, 20 boxes of three classes each. Ours is the product's
step of vision/detection; the peer's best of two memory formats. They take turns; medians.
"""

import tempfile
from pathlib import Path

from benchmarks.beside_torch import compare, rate

BATCH, STEPS, SIZE, BOXES = 16, 2, (320, 416), 20


def made(folder: Path, pictures: int = 64) -> Path:
    """A table of boxes at random places in pictures of noise."""
    import numpy as np
    from PIL import Image

    draw, rows = np.random.default_rng(0), ["file,x0,y0,x1,y1,label"]
    for number in range(pictures):
        Image.fromarray(draw.integers(0, 256, (*SIZE, 3), np.uint8)).save(folder / f"{number}.jpg")
        corners, sides = draw.integers(0, (SIZE[1] - 100, SIZE[0] - 100), (BOXES, 2)), draw.integers(20, 100, (BOXES, 2))
        rows += [f"{number}.jpg,{x},{y},{x + wide},{y + tall},{'abc'[place % 3]}"
                 for place, ((x, y), (wide, tall)) in enumerate(zip(corners.tolist(), sides.tolist()))]
    (folder / "boxes.csv").write_text("\n".join(rows))
    return folder / "boxes.csv"


def ours(dtype: str, seconds: float) -> float:
    """Pictures a second of the product's step."""
    from pipelines.config.load import load
    from pipelines.runs.launch import task_class
    from pipelines.training.session import assemble

    with tempfile.TemporaryDirectory() as folder:
        settings = [f"data.path={made(Path(folder))}", "data.source=table", "data.validation=0", "data.test=null",
                    f"data.image_size=[{SIZE[0]}, {SIZE[1]}]", f"train.batch_size={BATCH}", f"train.precision={dtype}", "train.ema=null",
                    "train.devices=cpu", "augment={}", "train.epochs=1000", "model.finetune={name: whole, head: new}"]
        experiment = load("vision/detection", settings).experiment
        return rate(assemble(experiment, task_class(experiment.task)), BATCH, STEPS, seconds)


if __name__ == "__main__":
    compare(__doc__.splitlines()[0], "detector", "torch_detector", ours, rounds=2, seconds=15.0, dtypes=["float32"])

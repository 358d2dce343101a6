"""Training rate of the small command network on precomputed features, against the same network in PyTorch, in one run.

python -m benchmarks.speech_commands            # about 90 s on 2 cores; needs the extra `bench`
DS-CNN 64 wide and 4 deep, features [91, 40], batch 64, AdamW. Ours is the training step of the product (order, gather, update) on features
held in memory; the peer's best of two memory formats. The two take turns; medians.
"""

from typing import Any

import numpy as np

from benchmarks.beside_torch import compare, rate

FRAMES, WIDTH, BATCH, EXAMPLES = 91, 40, 64, 2048


def ours(dtype: str, seconds: float) -> float:
    """Examples a second of the product's step."""
    from pipelines.config.load import load
    from pipelines.data.source import ArraySource
    from pipelines.task.contract import Decoding, Splits
    from pipelines.training.session import assemble
    from speech.tasks.classification import Classification
    from speech.tasks.windows import Windows

    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=[EXAMPLES, FRAMES, WIDTH]).astype(np.float32), rng.integers(0, 10, EXAMPLES)

    class AsTheyAre(Windows):
        """Features as they are."""

        decoding = Decoding(stored=True)

        def splits(self) -> Splits:
            names = [str(number) for number in range(10)]
            facts = {"classes": names, "class_counts": [1] * 10, "mean": [0.0] * WIDTH, "std": [1.0] * WIDTH}
            return Splits(ArraySource({"features": features, "label": labels.astype(np.int32)}), None, None, facts)

        def prepare(self, examples: Any, *, keys: Any = None, seed: Any = None, epoch: Any = None) -> Any:
            return examples["features"], {}

    class Precomputed(Classification):
        input_class = AsTheyAre

    settings = [f"train.batch_size={BATCH}", f"train.precision={dtype}", "train.ema=null", "train.devices=cpu", "augment={}",
                "train.epochs=1000"]
    session = assemble(load("speech/spoken_digit", settings).experiment, Precomputed)
    return rate(session, BATCH, 10, seconds)


if __name__ == "__main__":
    compare(__doc__.splitlines()[0], "speech_commands", "torch_commands", ours, rounds=2, seconds=6.0, dtypes=["float32", "bfloat16"])

"""Training rate of EfficientNet-Lite0, fine-tuned as a whole at 160 px, against the same network in PyTorch, in one run.

python -m benchmarks.image_finetune             # about 2 min on 2 cores; needs the extras `bench` and `pretrained`, the preset and cifar10
Batch 32, AdamW, images of 32 px enlarged in the step, no augmentation. Ours is the product's step of vision/cifar10_lite0; the peer's
best of two memory formats. They take turns; medians.
"""

from benchmarks.beside_torch import compare, rate

BATCH, STEPS = 32, 3


def ours(dtype: str, seconds: float) -> float:
    """Images a second of the product's step."""
    from pipelines.config.load import load
    from pipelines.runs.launch import task_class
    from pipelines.training.session import assemble

    settings = ["data.limit=512", "data.validation=0", f"train.batch_size={BATCH}", f"train.precision={dtype}", "train.ema=null",
                "train.devices=cpu", "augment={}", "loss.label_smoothing=0", "train.epochs=1000", "model.dropout=0",
                "model.finetune={name: whole, head: new}"]
    experiment = load("vision/cifar10_lite0", settings).experiment
    session = assemble(experiment, task_class(experiment.task))
    return rate(session, BATCH, STEPS, seconds)


if __name__ == "__main__":
    compare(__doc__.splitlines()[0], "image_finetune", "torch_lite0", ours, rounds=2, seconds=12.0, dtypes=["float32"])

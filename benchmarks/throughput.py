"""Images/s of the classic CIFAR-10 network through the whole product, against PyTorch on the same network, in one run.

python -m benchmarks.throughput            # about 4 minutes on 2 cores; needs cifar10 prepared and the extra `bench`

Batch 64, Adam, no augmentation. Ours: `vision.train vision/cifar10_cnn` with logging, TensorBoard, checkpoints and validation
on; the rate is the report's (input and step, without compilation). The peer: on data already in memory, in float32 with the better of its
two memory formats, in bfloat16 with channels last; not compiled (`python -m benchmarks.torch_cnn rate --layout compiled` measures that).
The two take turns, and the median of each is compared.
"""

import argparse
import statistics

from benchmarks.product import machine, peer, train

OURS = (
    "train.epochs=1",
    "train.batch_size=64",
    "train.micro_batch_size=null",
    "train.optimizer={name: adam}",
    "train.ema=null",
    "augment={}",
    "train.learning_rate.peak=0.001",
    "loss={}",
    "model={name: cnn}",
)


def measure(dtype: str, rounds: int, seconds: float) -> None:
    layouts = ("contiguous", "channels_last") if dtype == "float32" else ("channels_last",)
    theirs: dict[str, list[float]] = {layout: [] for layout in layouts}
    ours, waits = [], []
    for _ in range(rounds):
        for layout in layouts:
            theirs[layout].append(
                peer("torch_cnn", "rate", "--dtype", dtype, "--layout", layout, "--seconds", str(seconds))["images_per_second"]
            )
        timing = train("vision/cifar10_cnn", *OURS, f"train.precision={dtype}")["timing"]
        ours.append(timing["examples_per_second"])
        waits.append(timing["input_wait_fraction"])
    best = max(theirs, key=lambda layout: statistics.median(theirs[layout]))
    mine, other = statistics.median(ours), statistics.median(theirs[best])
    print(
        f"{dtype}: quartet {mine:,.0f} images/s {[round(v) for v in ours]}; "
        f"PyTorch ({best}) {other:,.0f} {[round(v) for v in theirs[best]]}; "
        f"ratio {mine / other:.2f}; input wait {max(waits):.1%}",
        flush=True,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=12.0, help="of each PyTorch measurement")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    asked = parser.parse_args()
    print(machine(), flush=True)
    for name in asked.dtypes:
        measure(name, asked.rounds, asked.seconds)

"""Trains shipped experiments as they are and prints score and time of each.

python -m benchmarks.recipes vision/digits vision/fashion_mnist_cnn ...     # needs their data sets prepared
python -m benchmarks.recipes vision/cifar10_cnn --seeds 0 1 2 train.epochs=3
"""

import argparse
import time

from benchmarks.product import machine, train

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="+", help="shipped experiments, and key=value for all of them")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    asked = parser.parse_args()
    print(machine(), flush=True)
    overrides = [text for text in asked.names if "=" in text]
    for name in (text for text in asked.names if "=" not in text):
        for seed in asked.seeds:
            began = time.perf_counter()
            report = train(name, f"train.seed={seed}", *overrides, domain=name.partition("/")[0])
            whole = time.perf_counter() - began
            timing = report["timing"]
            scores = ", ".join(
                f"{key} {value['value']:.4f} [{value['low']:.4f}, {value['high']:.4f}]"
                for key, value in report["metrics"].items()
                if key.endswith("/accuracy")
            )
            print(
                f"{name} seed {seed}: {scores}; training {timing['train_seconds']:.0f} s, whole command {whole:.0f} s, "
                f"{timing['examples_per_second'] or 0:,.0f} examples/s, input wait {timing['input_wait_fraction'] or 0:.1%}",
                flush=True,
            )

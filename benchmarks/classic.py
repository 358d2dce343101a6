"""Time until the classic CIFAR-10 program's best test accuracy, against that program, with the same network in both.

python -m benchmarks.classic               # about 8 minutes on 2 cores; needs cifar10 prepared and the extra `bench`

The program: the two-convolution network in PyTorch, Adam 1e-3, batch 64, float32, 10 epochs, test accuracy after each (the
peer may look at the test split; its best epoch counts). Ours: `vision/cifar10_cnn` for `--epochs`, test read once at the
end; the time is the report's train_seconds, which includes compilation, validation and checkpoints.
"""

import argparse

from benchmarks.product import machine, peer, train

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, nargs="+", default=[2, 3], help="of our runs, each a run of its own")
    parser.add_argument("--peer-epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    print(machine(), flush=True)
    history = peer("torch_cnn", "train", "--epochs", str(asked.peer_epochs), "--seed", str(asked.seed))["history"]
    best = max(history, key=lambda row: row["test_accuracy"])
    print("PyTorch by epoch: " + ", ".join(f"{row['seconds']:.0f} s {row['test_accuracy']:.1%}" for row in history), flush=True)
    for epochs in asked.epochs:
        report = train(
            "vision/cifar10_cnn", f"train.epochs={epochs}", f"train.seed={asked.seed}", "train.keep=last", f"train.validate_every={epochs}"
        )
        accuracy, seconds = report["metrics"]["test/accuracy"], report["timing"]["train_seconds"]
        verdict = "reaches" if accuracy["value"] >= best["test_accuracy"] else "stays below"
        print(
            f"quartet, {epochs} epochs: {seconds:.1f} s, {accuracy['value']:.2%} [{accuracy['low']:.2%}, {accuracy['high']:.2%}] "
            f"{verdict} PyTorch's best {best['test_accuracy']:.2%} (after {best['seconds']:.0f} s): "
            f"{seconds / best['seconds']:.3f} of its time",
            flush=True,
        )

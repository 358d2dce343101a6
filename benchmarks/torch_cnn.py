"""The peer: the classic CIFAR-10 network in PyTorch, run by other benchmarks in a process of its own.

python -m benchmarks.torch_cnn rate --batch 64 --dtype float32 --layout channels_last   # images/s
python -m benchmarks.torch_cnn train --epochs 10                                      # test accuracy by epoch and second
Prints one JSON line. `train` is the classic program: Adam 1e-3, batch 64, float32, no augmentation, data in memory.
"""

import argparse
import json
import time

import numpy as np
import torch
from torch import nn


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 128, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128 * 8 * 8, 256),
        nn.ReLU(),
        nn.Linear(256, 10),
    )


def rate(batch: int, dtype: str, layout: str, seconds: float) -> dict:
    """Best images/s over windows of 20 steps, on random data already in memory."""
    form = torch.channels_last if layout == "channels_last" else torch.contiguous_format
    model = network().to(memory_format=form)
    if layout == "compiled":
        model = torch.compile(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    images = torch.rand(2048, 3, 32, 32).to(memory_format=form)
    labels = torch.randint(0, 10, (2048,))
    rates: list[float] = []

    def step(i: int) -> None:
        part = slice(i * batch % 1024, i * batch % 1024 + batch)
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
            loss = nn.functional.cross_entropy(model(images[part]), labels[part])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for i in range(5):
        step(i)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        for i in range(20):
            step(i)
        rates.append(20 * batch / (time.perf_counter() - began))
    return {"images_per_second": float(np.median(rates)), "best": max(rates)}


def cifar10() -> tuple[torch.Tensor, ...]:
    import tensorflow_datasets as tfds

    found = []
    for split in ("train", "test"):
        images, labels = tfds.as_numpy(tfds.load("cifar10", split=split, batch_size=-1, as_supervised=True, download=False))
        found += [torch.from_numpy(images.transpose(0, 3, 1, 2).copy()), torch.from_numpy(labels)]
    return tuple(found)


def train(epochs: int, seed: int) -> dict:
    """Test accuracy after each epoch; the time counts training alone."""
    torch.manual_seed(seed)
    images, labels, test_images, test_labels = cifar10()
    images = (images.float() / 255).to(memory_format=torch.channels_last)
    test_images = (test_images.float() / 255).to(memory_format=torch.channels_last)
    model = network().to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    spent, history = 0.0, []
    for _ in range(epochs):
        began = time.perf_counter()
        for part in torch.randperm(len(images)).split(64):
            loss = nn.functional.cross_entropy(model(images[part]), labels[part])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        spent += time.perf_counter() - began
        with torch.no_grad():
            answers = torch.cat([model(chunk).argmax(1) for chunk in test_images.split(1000)])
        history.append({"seconds": spent, "test_accuracy": float((answers == test_labels).float().mean())})
    return {"history": history}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["rate", "train"])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--layout", choices=["contiguous", "channels_last", "compiled"], default="channels_last")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    print(
        json.dumps(rate(asked.batch, asked.dtype, asked.layout, asked.seconds) if asked.what == "rate" else train(asked.epochs, asked.seed))
    )

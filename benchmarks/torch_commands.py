"""The peer: DS-CNN on precomputed log-mel features in PyTorch, run by another benchmark in a process of its own. Prints one JSON line.

python -m benchmarks.torch_commands --dtype float32 --layout channels_last
"""

import argparse
import json
import time

import numpy as np
import torch
from torch import nn


class DsCnn(nn.Module):
    """The network of speech.models.ds_cnn: a 10 x 4 convolution with stride 2, then depthwise and pointwise ones."""

    def __init__(self, width: int, depth: int, classes: int):
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(1, width, (10, 4), stride=2, padding=(5, 2), bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        for _ in range(depth):
            layers += [nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                       nn.Conv2d(width, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        self.layers = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(width, classes))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(features[:, None]))


def rate(dtype: str, layout: str, frames: int, batch: int, seconds: float) -> float:
    """Examples a second, the median over windows of 10 steps, features in memory."""
    form = torch.channels_last if layout == "channels_last" else torch.contiguous_format
    model = DsCnn(64, 4, 10).to(memory_format=form)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    features, labels = torch.randn(2048, frames, 40), torch.randint(0, 10, (2048,))
    rates: list[float] = []

    def step(number: int) -> None:
        part = slice(number * batch % 1024, number * batch % 1024 + batch)
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
            loss = nn.functional.cross_entropy(model(features[part]).float(), labels[part])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for number in range(5):
        step(number)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        for number in range(10):
            step(number)
        rates.append(10 * batch / (time.perf_counter() - began))
    return float(np.median(rates))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--layout", choices=["contiguous", "channels_last"], default="channels_last")
    parser.add_argument("--frames", type=int, default=91)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=8.0)
    asked = parser.parse_args()
    print(json.dumps({"examples_per_second": rate(asked.dtype, asked.layout, asked.frames, asked.batch, asked.seconds)}))

"""The peer: EfficientNet-Lite0 fine-tuned as a whole in PyTorch, run by benchmarks.image_finetune in a process of its own.

python -m benchmarks.torch_lite0 --dtype float32 --layout channels_last     # prints one JSON line
Random weights: a step costs the same with trained ones.
"""

import argparse
import json
import time

import numpy as np
import torch
from torch import nn

STAGES = ((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3))
LAST = 1280


def convolution(before: int, after: int, kernel: int, stride: int = 1, groups: int = 1, active: bool = True) -> list[nn.Module]:
    layers = [nn.Conv2d(before, after, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(after, 1e-3)]
    return [*layers, nn.ReLU6(inplace=True)] if active else layers


class Block(nn.Module):
    """Expansion, depthwise convolution, projection (Sandler et al. 2018)."""

    def __init__(self, before: int, after: int, expansion: int, kernel: int, stride: int):
        super().__init__()
        width = before * expansion
        self.layers = nn.Sequential(*(convolution(before, width, 1) if expansion > 1 else []),
                                    *convolution(width, width, kernel, stride, width), *convolution(width, after, 1, active=False))
        self.residual = stride == 1 and before == after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x) if self.residual else self.layers(x)


def lite0(classes: int) -> nn.Module:
    layers, width = convolution(3, 32, 3, 2), 32
    for expansion, after, count, stride, kernel in STAGES:
        for number in range(count):
            layers.append(Block(width, after, expansion, kernel, stride if number == 0 else 1))
            width = after
    return nn.Sequential(*layers, *convolution(width, LAST, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(LAST, classes))


def rate(dtype: str, layout: str, size: int, batch: int, seconds: float) -> float:
    """Images a second, the median over windows of 3 steps; images of 32 px in memory, enlarged in the step."""
    form = torch.channels_last if layout == "channels_last" else torch.contiguous_format
    model = lite0(10).to(memory_format=form)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.05)
    images, labels = torch.randint(0, 256, (512, 3, 32, 32)).float(), torch.randint(0, 10, (512,))
    rates: list[float] = []

    def step(number: int) -> None:
        part = slice(number * batch % 256, number * batch % 256 + batch)
        large = nn.functional.interpolate(images[part], size, mode="bicubic").sub(127.0).div(128.0).contiguous(memory_format=form)
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
            loss = nn.functional.cross_entropy(model(large).float(), labels[part])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for number in range(2):
        step(number)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        for number in range(3):
            step(number)
        rates.append(3 * batch / (time.perf_counter() - began))
    return float(np.median(rates))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--layout", choices=["contiguous", "channels_last"], default="channels_last")
    parser.add_argument("--size", type=int, default=160)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=12.0)
    asked = parser.parse_args()
    print(json.dumps({"examples_per_second": rate(asked.dtype, asked.layout, asked.size, asked.batch, asked.seconds)}))

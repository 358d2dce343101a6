"""The peer: the detector of vision/detection in PyTorch, run by benchmarks.detector in a process of its own.

python -m benchmarks.torch_detector --dtype float32 --layout channels_last     # prints one JSON line
Random weights: a step costs the same with trained ones.
"""

import argparse
import json
import time

import numpy as np
import torch
from torch import nn

from benchmarks.torch_lite0 import LAST, STAGES, Block, convolution

BATCH, SIZE, BOXES, CLASSES, WIDTH, DEPTH, STRIDES = 16, (320, 416), 20, 3, 64, 2, (8, 16, 32)


def unit(before: int, after: int, kernel: int = 3) -> nn.Module:
    convolution = nn.Conv2d(before, after, kernel, padding=kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(after, 1e-3), nn.SiLU(inplace=True))


class Detector(nn.Module):
    """[batch, 3, height, width] -> [batch, places, 4 + classes], boxes as distances in strides."""

    def __init__(self) -> None:
        super().__init__()
        layers, width, self.seen, kept = convolution(3, 32, 3, 2), 32, [], []
        for place, (expansion, after, count, stride, kernel) in enumerate(STAGES):
            for number in range(count):
                layers.append(Block(width, after, expansion, kernel, stride if number == 0 else 1))
                width = after
            if place in (2, 4):
                self.seen.append(len(layers) - 1)
                kept.append(width)
        layers += convolution(width, LAST, 1)
        self.seen.append(len(layers) - 1)
        self.encoder = nn.ModuleList(layers)
        self.lateral = nn.ModuleList([unit(one, WIDTH, 1) for one in (*kept, LAST)])
        self.smooth = nn.ModuleList([unit(WIDTH, WIDTH) for _ in kept])
        self.towers = nn.ModuleList([nn.ModuleList([nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False) for _ in range(DEPTH)])
                                     for _ in range(2)])
        self.norms = nn.ModuleList([nn.ModuleList([nn.ModuleList([nn.BatchNorm2d(WIDTH, 1e-3) for _ in range(DEPTH)]) for _ in range(2)])
                                    for _ in STRIDES])
        self.last = nn.ModuleList([nn.ModuleList([nn.Conv2d(WIDTH, CLASSES, 1), nn.Conv2d(WIDTH, 4, 1)]) for _ in STRIDES])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        levels, outputs = [], []
        for place, layer in enumerate(self.encoder):
            x = layer(x)
            if place in self.seen:
                levels.append(x)
        above = None
        pyramid: list[torch.Tensor] = []
        for number in reversed(range(len(levels))):
            x = self.lateral[number](levels[number])
            if above is not None:
                x = self.smooth[number](x + nn.functional.interpolate(above, scale_factor=2, mode="nearest"))
            pyramid.insert(0, x)
            above = x
        for features, norms, last in zip(pyramid, self.norms, self.last):
            seen = []
            for tower, convolutions in enumerate(self.towers):
                x = features
                for layer, norm in zip(convolutions, norms[tower]):
                    x = nn.functional.silu(norm(layer(x)))
                seen.append(last[tower](x))
            outputs.append(torch.cat([seen[1], seen[0]], 1).flatten(2).transpose(1, 2))
        return torch.cat(outputs, 1)


def area(boxes: torch.Tensor) -> torch.Tensor:
    return (boxes[..., 2:] - boxes[..., :2]).clamp(min=0).prod(-1)


def common(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return area(torch.cat([torch.maximum(first[..., :2], second[..., :2]), torch.minimum(first[..., 2:], second[..., 2:])], -1))


def loss_of(raw: torch.Tensor, boxes: torch.Tensor, classes: torch.Tensor, middles: torch.Tensor, strides: torch.Tensor) -> torch.Tensor:
    """Task-aligned assignment, cross-entropy and generalised IoU, as vision.outputs.box_loss has them."""
    distances, logits = nn.functional.softplus(raw[..., :4]) * strides, raw[..., 4:]
    predicted = torch.cat([middles - distances[..., :2], middles + distances[..., 2:]], -1)
    with torch.no_grad():
        shared = common(boxes[:, :, None], predicted[:, None])
        overlap = shared / (area(boxes)[:, :, None] + area(predicted)[:, None] - shared + 1e-9)
        chance = torch.einsum("bnc,bac->bna", nn.functional.one_hot(classes, CLASSES).float(), logits.sigmoid())
        half = ((boxes[..., 2:] - boxes[..., :2]) / 2).clamp(min=4.0)
        middle = (boxes[..., :2] + boxes[..., 2:]) / 2
        inside = ((middles - middle[:, :, None]).abs() <= half[:, :, None]).all(-1)
        aligned = torch.where(inside, chance.sqrt() * (overlap + 1e-4) ** 6, 0.0)
        chosen = inside & (aligned >= aligned.topk(10, -1).values[..., -1:])
        own = torch.where(chosen, overlap, -1.0).argmax(1)
        chosen &= own[:, None] == torch.arange(boxes.shape[1])[:, None]
        aligned, overlap = torch.where(chosen, aligned, 0.0), torch.where(chosen, overlap, 0.0)
        quality = (aligned * (overlap.amax(-1, keepdim=True) / aligned.amax(-1, keepdim=True).clamp(min=1e-12))).amax(1)
        box = torch.gather(boxes, 1, own[..., None].expand(-1, -1, 4))
        label = torch.gather(classes, 1, own)
    wanted = nn.functional.one_hot(label, CLASSES) * quality[..., None]
    of_classes = nn.functional.binary_cross_entropy_with_logits(logits, wanted, reduction="sum")
    shared = common(predicted, box)
    union = area(predicted) + area(box) - shared
    around = area(torch.cat([torch.minimum(predicted[..., :2], box[..., :2]), torch.maximum(predicted[..., 2:], box[..., 2:])], -1))
    generalised = shared / (union + 1e-9) - (around - union) / (around + 1e-9)
    return (of_classes + 2.0 * (quality * (1 - generalised)).sum()) / (boxes.shape[0] * boxes.shape[1])


def rate(dtype: str, layout: str, seconds: float) -> float:
    """Pictures a second, the median over windows of 2 steps; uint8 pictures in memory."""
    form = torch.channels_last if layout == "channels_last" else torch.contiguous_format
    model = Detector().to(memory_format=form)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, weight_decay=0.05)
    draw = np.random.default_rng(0)
    images = torch.from_numpy(draw.integers(0, 256, (64, 3, *SIZE), np.uint8))
    corners, sides = draw.integers(0, (SIZE[1] - 100, SIZE[0] - 100), (64, BOXES, 2)), draw.integers(20, 100, (64, BOXES, 2))
    boxes = torch.from_numpy(np.concatenate([corners, corners + sides], -1)).float()
    classes = torch.from_numpy(np.broadcast_to(np.arange(BOXES) % CLASSES, (64, BOXES)).copy())
    grids = [np.mgrid[:SIZE[0] // stride, :SIZE[1] // stride][::-1].reshape(2, -1).T for stride in STRIDES]
    middles = torch.from_numpy(np.concatenate([(grid + 0.5) * stride for grid, stride in zip(grids, STRIDES)])).float()
    strides = torch.from_numpy(np.concatenate([np.full((len(grid), 1), stride) for grid, stride in zip(grids, STRIDES)])).float()
    rates: list[float] = []

    def step(number: int) -> None:
        part = slice(number * BATCH % 64, number * BATCH % 64 + BATCH)
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
            raw = model(images[part].float().sub(127.0).div(128.0).contiguous(memory_format=form)).float()
        loss = loss_of(raw, boxes[part], classes[part], middles, strides)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for number in range(2):
        step(number)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        for number in range(2):
            step(number)
        rates.append(2 * BATCH / (time.perf_counter() - began))
    return float(np.median(rates))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--layout", choices=["contiguous", "channels_last"], default="channels_last")
    parser.add_argument("--seconds", type=float, default=15.0)
    asked = parser.parse_args()
    print(json.dumps({"examples_per_second": rate(asked.dtype, asked.layout, asked.seconds)}))

"""The peers of benchmarks.writing in PyTorch, on random tokens of the same shapes.

python -m benchmarks.torch_writing translation bfloat16 20 128      # what, dtype, seconds, batch; prints one JSON line
"""

import json
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

TOKENS, TIME, WIDTH = 4003, 18, 192


class Translator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(TOKENS, WIDTH)
        self.places = nn.Parameter(torch.zeros(TIME + 1, WIDTH))
        self.network = nn.Transformer(WIDTH, 4, 3, 3, 512, 0.3, "relu", norm_first=True, batch_first=True)
        self.dropout = nn.Dropout(0.3)

    def forward(self, source: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        read, written = (self.dropout(self.table(ids) * WIDTH**0.5 + self.places[: ids.shape[1]]) for ids in (source, before))
        mask = nn.Transformer.generate_square_subsequent_mask(before.shape[1], dtype=written.dtype)
        x = self.network(read, written, tgt_mask=mask, tgt_is_causal=True, src_key_padding_mask=source == 0,
                         memory_key_padding_mask=source == 0)
        return F.linear(x, self.table.weight)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.mixed, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.inner, self.inner_out = nn.Linear(width, 2 * hidden, bias=False), nn.Linear(hidden, width, bias=False)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        rows, count, width = x.shape
        query, key, value = (part.view(rows, count, self.heads, -1).transpose(1, 2) for part in self.mixed(self.norm1(x)).split(width, -1))
        query, key = (self._turned(part, cosine, sine) for part in (query, key))
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.dropout(self.out(seen.transpose(1, 2).reshape(rows, count, width)))
        gate, inner = self.inner(self.norm2(x)).chunk(2, -1)
        return x + self.dropout(self.inner_out(F.silu(gate) * inner))

    @staticmethod
    def _turned(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, -1)
        return torch.cat([first * cosine - second * sine, first * sine + second * cosine], -1)


class Language(nn.Module):
    def __init__(self, size: int = 68, width: int = 192, depth: int = 4, heads: int = 6, hidden: int = 512, time: int = 128) -> None:
        super().__init__()
        self.table, self.dropout = nn.Embedding(size, width), nn.Dropout(0.1)
        self.blocks = nn.ModuleList(Block(width, heads, hidden) for _ in range(depth))
        self.norm, self.last = nn.RMSNorm(width), nn.Linear(width, size, bias=False)
        half = width // heads // 2
        angles = torch.arange(time)[:, None] * 10_000.0 ** (-torch.arange(half) / half)
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.dropout(self.table(ids))
        for block in self.blocks:
            x = block(x, self.cosine.to(x.dtype), self.sine.to(x.dtype))
        return self.last(self.norm(x))


def main(what: str, dtype: str, seconds: float, batch: int) -> None:
    torch.manual_seed(0)
    model = Translator() if what == "translation" else Language()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.01)
    source, target = torch.randint(2, 4000, (batch, TIME)), torch.randint(2, 4000, (batch, TIME + 1))
    window = torch.randint(2, 66, (batch, 129))

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
            if what == "translation":
                before = torch.cat([torch.full((batch, 1), TOKENS - 1), target[:, :-1]], 1)
                loss = F.cross_entropy(model(source, before).flatten(0, 1).float(), target.flatten(), label_smoothing=0.1)
            else:
                loss = F.cross_entropy(model(window[:, :-1]).flatten(0, 1).float(), window[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    for _ in range(3):
        step()
    rates = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        for _ in range(8):
            step()
        rates.append(8 * batch / (time.perf_counter() - began))
    print(json.dumps({"rate": statistics.median(rates)}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))

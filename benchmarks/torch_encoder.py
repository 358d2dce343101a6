"""The peer: the same small transformer encoder in PyTorch, trained on the very batches of the product; run by benchmarks.text.

python -m benchmarks.torch_encoder BATCHES.npz --dtype bfloat16      # prints one JSON line
BATCHES.npz: ids_0, labels_0, ids_1, ...: padded token numbers [batch, time] int32 (0 is padding) and labels [batch].
"""

import argparse
import json
import time

import numpy as np
import torch
from torch import nn


class Encoder(nn.Module):
    """Norms first, gelu, learned places, mean over the tokens: nlp.models.transformer."""

    def __init__(self, size: int, classes: int, *, width: int, depth: int, heads: int, hidden: int, limit: int, dropout: float):
        super().__init__()
        self.table = nn.Embedding(size, width, sparse=True)
        self.places = nn.Parameter(torch.zeros(limit, width))
        layer = nn.TransformerEncoderLayer(width, heads, hidden, dropout, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, depth, norm=nn.LayerNorm(width), enable_nested_tensor=False)
        self.dropout, self.classes = nn.Dropout(dropout), nn.Linear(width, classes)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        padding = ids == 0
        x = self.dropout(self.table(ids) + self.places[: ids.shape[1]])
        x = self.blocks(x, src_key_padding_mask=padding)
        kept = (~padding)[..., None].to(x.dtype)
        return self.classes(self.dropout((x * kept).sum(1) / kept.sum(1)))


def rate(path: str, dtype: str, sizes: dict) -> dict:
    """Texts a second over all batches, twice after a first pass; the better counts."""
    stored = np.load(path)
    count = len(stored.files) // 2
    batches = [(torch.from_numpy(stored[f"ids_{k}"]).long(), torch.from_numpy(stored[f"labels_{k}"]).long()) for k in range(count)]
    model = Encoder(int(max(ids.max() for ids, _ in batches)) + 1, int(max(labels.max() for _, labels in batches)) + 1, **sizes)
    dense = torch.optim.Adam([weight for name, weight in model.named_parameters() if name != "table.weight"], 1e-3)
    sparse = torch.optim.SparseAdam([model.table.weight], 1e-3)
    rates = []
    for _ in range(3):
        began = time.perf_counter()
        for ids, labels in batches:
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
                loss = nn.functional.cross_entropy(model(ids).float(), labels)
            dense.zero_grad()
            sparse.zero_grad()
            loss.backward()
            dense.step()
            sparse.step()
        rates.append(sum(len(labels) for _, labels in batches) / (time.perf_counter() - began))
    return {"texts_per_second": max(rates[1:]), "rates": rates}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("batches")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--sizes", type=json.loads, required=True)
    asked = parser.parse_args()
    print(json.dumps(rate(asked.batches, asked.dtype, asked.sizes)))

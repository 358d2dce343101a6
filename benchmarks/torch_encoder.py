"""The peer: the same transformer encoder in PyTorch, trained on the very batches of the product; run by benchmarks.text.

python -m benchmarks.torch_encoder BATCHES.npz --dtype bfloat16 --sizes JSON      # prints one JSON line
BATCHES.npz: ids_0, labels_0, ids_1, ...: padded token numbers [batch, time] int32 (0 is padding) and labels [batch].
With `--bert` the network is BertModel of transformers with random weights, under the mean over the tokens and a linear layer.
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


class Bert(nn.Module):
    """nlp.models.pretrained over a BERT: the mean over the tokens, scaled to a root mean square of 1, and a linear layer."""

    def __init__(self, size: int, classes: int, **config: int):
        super().__init__()
        from transformers import BertConfig, BertModel

        self.bert = BertModel(BertConfig(vocab_size=size, hidden_act="gelu_new", **config), add_pooling_layer=False)
        self.classes = nn.Linear(config["hidden_size"], classes)
        self.dropout = nn.Dropout(0.1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        kept = ids != 0
        x = self.bert((ids - 1).clamp(min=0), attention_mask=kept.long()).last_hidden_state.float()
        mean = (x * kept[..., None]).sum(1) / kept.sum(1, keepdim=True)
        return self.classes(self.dropout(mean * torch.rsqrt(mean.square().mean(-1, keepdim=True) + 1e-12)))


def stepper(model: nn.Module) -> list[torch.optim.Optimizer]:
    """Adam, of a sparse table with its own kind; of BERT the AdamW that the product's recipe has."""
    if isinstance(model, Bert):
        return [torch.optim.AdamW(model.parameters(), 1e-4, weight_decay=0.01)]
    dense = [weight for name, weight in model.named_parameters() if name != "table.weight"]
    return [torch.optim.Adam(dense, 1e-3), torch.optim.SparseAdam([model.table.weight], 1e-3)]


def rate(path: str, dtype: str, sizes: dict, bert: bool, passes: int) -> dict:
    """Texts a second over all batches, `passes` times after a first; the best counts."""
    stored = np.load(path)
    count = len(stored.files) // 2
    batches = [(torch.from_numpy(stored[f"ids_{k}"]).long(), torch.from_numpy(stored[f"labels_{k}"]).long()) for k in range(count)]
    classes = int(max(labels.max() for _, labels in batches)) + 1
    size = sizes.pop("vocabulary", None) or int(max(ids.max() for ids, _ in batches)) + 1
    model = (Bert if bert else Encoder)(size, classes, **sizes)
    optimizers = stepper(model)
    rates, processor = [], []
    for _ in range(1 + passes):
        began, spent = time.perf_counter(), time.process_time()
        for ids, labels in batches:
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
                loss = nn.functional.cross_entropy(model(ids).float(), labels)
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
        rates.append(sum(len(labels) for _, labels in batches) / (time.perf_counter() - began))
        processor.append((time.process_time() - spent) / count)
    return {"texts_per_second": max(rates[1:]), "rates": rates, "processor_seconds_a_step": min(processor[1:])}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("batches")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--sizes", type=json.loads, required=True)
    parser.add_argument("--bert", action="store_true", help="BertModel of transformers; sizes are BertConfig's, and vocabulary")
    parser.add_argument("--passes", type=int, default=2)
    asked = parser.parse_args()
    print(json.dumps(rate(asked.batches, asked.dtype, asked.sizes, asked.bert, asked.passes)))

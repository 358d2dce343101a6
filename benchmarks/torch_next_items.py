"""The peers of benchmarks.next_items in PyTorch: the network of recsys/table but for its taste, or SASRec, a window a row.

python -m benchmarks.torch_next_items interactions.csv hstu 600       # the log, what, seconds; prints one JSON line

The log has columns user_id, item_id, order and split. Training is by the same sampled softmax, AdamW and cosine as ours, over as many
epochs as the seconds allow; test is each user's last item, all items ranked that the user has not had.
"""

import csv
import json
import sys
import time
from collections import defaultdict

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

LENGTH, WIDTH, DEPTH, NEGATIVES, BATCH, DROPOUT, WARMUP = 200, 64, 2, 256, 8, 0.3, 0.05
PEAK = {"hstu": 0.003, "sasrec": 0.001}


class Hstu(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(WIDTH, 1e-6), nn.LayerNorm(WIDTH, 1e-6)
        self.mixed, self.out = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.distances = nn.Parameter(0.02 * torch.randn(LENGTH))
        self.dropout = nn.Dropout(DROPOUT)
        nn.init.zeros_(self.out.weight)
        places = torch.arange(LENGTH)
        self.register_buffer("apart", (places[:, None] - places).clamp(min=0))

    def forward(self, x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        query, key, value, gate = F.silu(self.mixed(self.norm(x))).chunk(4, -1)
        weights = F.silu(query @ key.transpose(1, 2) + self.distances[self.apart]) * seen / LENGTH
        return x + self.dropout(self.out(self.inner(weights @ value) * gate))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH, 1e-6) for _ in range(2))
        self.mixed, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow, self.dropout = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH), nn.Dropout(DROPOUT)

    def forward(self, x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        query, key, value = (part[:, None] for part in self.mixed(self.norms[0](x)).chunk(3, -1))
        found = F.scaled_dot_product_attention(query, key, value, attn_mask=seen[:, None] > 0)[:, 0]
        x = x + self.dropout(self.out(found))
        return x + self.dropout(self.narrow(self.dropout(F.gelu(self.wide(self.norms[1](x))))))


class Network(nn.Module):
    def __init__(self, what: str, items: int) -> None:
        super().__init__()
        self.vectors, self.bias = nn.Embedding(items + 1, WIDTH), nn.Parameter(torch.zeros(items + 1))
        self.answers = nn.Embedding(items + 1, WIDTH) if what == "hstu" else self.vectors
        self.places = nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        for table in (self.vectors, self.answers):
            nn.init.normal_(table.weight, std=0.02)
        self.blocks = nn.ModuleList((Hstu if what == "hstu" else Attention)() for _ in range(DEPTH))
        self.norm, self.dropout = nn.LayerNorm(WIDTH, 1e-6), nn.Dropout(DROPOUT)
        self.register_buffer("causal", torch.ones(LENGTH, LENGTH).tril())

    def forward(self, history: torch.Tensor) -> torch.Tensor:
        there = history > 0
        seen = self.causal * (there[:, None] == there[:, :, None])
        x = self.dropout(self.vectors(history) * WIDTH**0.5 * there[..., None] + self.places)
        for block in self.blocks:
            x = block(x, seen)
        return self.dropout(self.norm(x))


def main(path: str, what: str, seconds: float) -> None:
    torch.manual_seed(0)
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    number: dict[str, int] = {}
    histories, held = defaultdict(list), {}
    for row in sorted(rows, key=lambda row: int(row["order"])):
        if row["split"] == "test":
            held[row["user_id"]] = row["item_id"]
        elif row["split"] == "train":
            histories[row["user_id"]].append(number.setdefault(row["item_id"], len(number) + 1))
    windows = [history[max(0, end - LENGTH - 1):end] for history in histories.values() for end in range(len(history), 1, -LENGTH)]
    table = torch.tensor([[0] * (LENGTH + 1 - len(window)) + window for window in windows])
    counts = np.bincount(np.concatenate(list(histories.values())), minlength=len(number) + 1)
    odds = (counts + 1.0) ** 0.5
    odds[0] = 0
    shares = torch.tensor(odds / odds.sum())
    logs = torch.log(shares.clamp(min=1e-30)).float() + float(np.log(NEGATIVES))
    network = Network(what, len(number))
    optimizer = torch.optim.AdamW(network.parameters(), 0.0, weight_decay=0.1)
    per_row, spent, events, steps = float((table[:, 1:] > 0).float().mul(table[:, :-1] > 0).sum(1).mean()), 0.0, 0, 0
    while spent < seconds:
        for part in torch.randperm(len(table)).split(BATCH):
            began = time.perf_counter()
            share = spent / seconds
            optimizer.param_groups[0]["lr"] = PEAK[what] * min(1.0, share / WARMUP + 1e-3) * 0.5 * (1 + np.cos(np.pi * share))
            history, positive = table[part, :-1], table[part, 1:]
            there = (history > 0) & (positive > 0)
            negatives = torch.multinomial(shares, NEGATIVES, replacement=True)
            x = network(history)
            own = (x * network.answers(positive)).sum(-1) + network.bias[positive]
            others = x @ network.answers(negatives).T + network.bias[negatives] - logs[negatives]
            others = others.masked_fill(negatives == positive[..., None], -1e9)
            lost = torch.logsumexp(torch.cat([own[..., None], others], -1), -1) - own
            optimizer.zero_grad()
            ((lost * there).sum() / (BATCH * per_row)).backward()
            nn.utils.clip_grad_norm_(network.parameters(), 5.0)
            optimizer.step()
            steps += 1
            spent += time.perf_counter() - began if steps > 1 else 0.0
            events += int(there.sum()) if steps > 1 else 0
            if spent >= seconds:
                break
    network.eval()
    ranks = []
    users = list(held)
    with torch.no_grad():
        for begin in range(0, len(users), 500):
            part = users[begin:begin + 500]
            given = torch.tensor([([0] * LENGTH + histories[user])[-LENGTH:] for user in part])
            scores = network(given)[:, -1] @ network.answers.weight.T + network.bias
            scores[:, 0] = -torch.inf
            for row, user in zip(scores, part):
                true = number.get(held[user])
                value = row[true].clone() if true else torch.tensor(-torch.inf)
                row[histories[user]] = -torch.inf
                ranks.append(int((row > value).sum()) if true else len(row))
    rank = np.array(ranks)
    print(json.dumps({"events_per_second": events / spent, "recall": float((rank < 10).mean()),
                      "ndcg": float(np.where(rank < 10, 1 / np.log2(rank + 2), 0).mean()), "epochs": steps * BATCH / len(table)}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))

"""Texts a second of a training step of what writes, against PyTorch on networks of the same shape and batches of the same size, in one run.

python -m benchmarks.writing               # about 6 minutes on 2 cores; needs the extra `bench`

`translation`: the network of nlp/translation, 128 pairs of sentences of 18 tokens each; `language`: that of nlp/language, 32 windows of 128
characters. Both with AdamW and dropout. The peers (benchmarks.torch_writing): nn.Transformer with the norms first and tied tables; a
network like Llama's on scaled_dot_product_attention. They take turns, medians are compared.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.beside_torch import rate
from benchmarks.product import machine, peer

WORDS = 16  # of a sentence; with marks 18 tokens
TRAIN: dict[str, Any] = {"epochs": 1, "devices": 1, "learning_rate": {"peak": 0.001}, "optimizer": {"name": "adamw", "weight_decay": 0.01}}
BATCH = {"translation": 128, "language": 32}


def experiment(what: str, folder: Path, dtype: str) -> dict[str, Any]:
    """The recipe's network on made texts."""
    train = {**TRAIN, "precision": dtype, "batch_size": BATCH[what]}
    draw = np.random.default_rng(0)
    if what == "language":
        letters = np.array(list("abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ.,;:!?'-&3$\n"))
        (folder / "text.txt").write_text("".join(draw.choice(letters, 200_000)))
        return {"task": "nlp.language_model", "data": {"source": "text", "path": str(folder / "text.txt"), "validation": 0.0, "test": None},
                "model": {"name": "transformer", "length": 128, "width": 192, "depth": 4, "heads": 6, "hidden": 512}, "train": train,
                "writing": {"most": 50}}
    names = np.array(["".join(draw.choice(list("abcdefghijklmnopqrstuvwxyz"), 6)) for _ in range(3000)])
    rows = [f"{' '.join(draw.choice(names, WORDS))}.\t{' '.join(draw.choice(names, WORDS))}." for _ in range(4000)]
    (folder / "pairs.tsv").write_text("source\ttarget\n" + "\n".join(rows))
    return {"task": "nlp.translation", "data": {"source": "table", "path": str(folder / "pairs.tsv"), "validation": 0.0, "test": None},
            "tokens": {"vocabulary": 4000, "limit": 18}, "train": train,
            "model": {"name": "transformer", "width": 192, "depth": 3, "writing_depth": 3, "heads": 4, "hidden": 512, "dropout": 0.3}}


def ours(what: str, dtype: str, seconds: float) -> float:
    from pipelines.config.load import from_dict
    from pipelines.runs.launch import task_class
    from pipelines.training.session import assemble

    with tempfile.TemporaryDirectory() as folder:
        known = from_dict(experiment(what, Path(folder), dtype), [])
        return rate(assemble(known, task_class(known.task)), BATCH[what], 8, seconds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--only", nargs=2, metavar=("WHAT", "DTYPE"), help="one measurement of ours, as JSON")
    asked = parser.parse_args()
    if asked.only:
        print(json.dumps({"rate": ours(*asked.only, asked.seconds)}))
        raise SystemExit
    print(machine(), flush=True)
    for what in BATCH:
        for dtype in asked.dtypes:
            mine, theirs = [], []
            for _ in range(asked.rounds):
                mine.append(peer("writing", "--only", what, dtype, "--seconds", str(asked.seconds))["rate"])
                theirs.append(peer("torch_writing", what, dtype, str(asked.seconds), str(BATCH[what]))["rate"])
            first, second = statistics.median(mine), statistics.median(theirs)
            print(f"{what}, {dtype}: quartet {first:,.1f} texts/s {[round(v, 1) for v in mine]}; PyTorch {second:,.1f} "
                  f"{[round(v, 1) for v in theirs]}; ratio {first / second:.2f}", flush=True)

"""The peer: fastText (Joulin et al. 2017) on the same texts, run by benchmarks.text in a process of its own.

python -m benchmarks.fasttext_peer imdb_reviews --epochs 5      # or clinc_oos; prints one JSON line
Words are cut as the product cuts them (lower case, marks apart), written to a file outside of the time; 2 threads, dim 10, word bigrams.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import tensorflow as tf
import tensorflow_datasets as tfds

from nlp.tokens.normalise import words

LABELS = {"imdb_reviews": "label", "clinc_oos": "intent"}


def lines(name: str, split: str) -> tuple[list[str], list[str]]:
    """(labels, texts as one line each)."""
    data = tfds.load(name, split=split, batch_size=-1, download=False)
    cut = words(data["text"], html=True)
    texts = [text.decode() for text in tf.strings.reduce_join(cut, 1, separator=" ").numpy().tolist()]
    return [f"__label__{label}" for label in data[LABELS[name]].numpy().tolist()], texts


def main(name: str, epochs: int, rate: float) -> dict[str, Any]:
    import fasttext

    train, test = lines(name, "train"), lines(name, "test")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.txt"
        path.write_text("".join(f"{label} {text}\n" for label, text in zip(*train)), encoding="utf-8")
        began = time.perf_counter()
        model = fasttext.train_supervised(str(path), dim=10, wordNgrams=2, epoch=epochs, lr=rate, thread=2, verbose=0)
        seconds = time.perf_counter() - began
    # its own predict() cannot make arrays under NumPy 2; this is the call beneath it
    began = time.perf_counter()
    said = [model.f.predict(text + "\n", 1, 0.0, "strict")[0][1] for text in test[1]]
    answered = time.perf_counter() - began
    right = sum(one == label for one, label in zip(said, test[0])) / len(said)
    return {"test_accuracy": right, "train_seconds": seconds, "texts_per_second": len(said) / answered, "epochs": epochs, "rate": rate}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=LABELS)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rate", type=float, default=0.5)
    asked = parser.parse_args()
    print(json.dumps(main(asked.name, asked.epochs, asked.rate)))

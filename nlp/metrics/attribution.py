"""Which words an answer depends on: gradient times input (Shrikumar et al. 2016, arXiv:1605.01713), by token, summed for each word.

The first-order share of a token in the difference between the logit of the answer and that of the true class: its vector times
the gradient with respect to it. A token that covers several words (an n-gram) is shared between them.
"""

import re
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nlp.tokens.normalise import TAG
from pipelines.data.source import Source
from pipelines.task.results import Judgement

SHOWN = 280  # characters of a text in the table


def add_words(task: Any, model: keras.Model, judgement: Judgement, source: Source) -> None:
    """Replaces the number of each of the worst mistakes by its text and the words that contributed most to the wrong answer.

    For a model without separate embedding and encoder (keras-hub's), the text alone.
    """
    rows = judgement.tables["worst_mistakes"]
    if not rows:
        return
    numbers = tf.constant([row.pop("number") for row in rows], tf.int64)
    examples = source.gather(numbers)
    texts = examples["text"]
    label = examples["label"].numpy()
    parts = {layer.name for layer in model.layers} >= {"embedding", "encoder"}
    for row, text, true, number in zip(rows, texts.numpy(), label, range(len(rows))):
        if parts:
            shares = word_shares(task, model, texts[number], true)
            # punctuation is everywhere, and tells a reader little
            telling = [(word, share) for word, share in shares if not word.isascii() or re.search(r"[^\W_]", word)]
            best = sorted(telling, key=lambda pair: -pair[1])[: task.experiment.evaluate.words]
            row["words"] = ", ".join(f"{word} {share:+.2f}" for word, share in best if share > 0)
        plain = re.sub(TAG, " ", text.decode("utf-8", "replace")) if getattr(task.experiment.tokens, "html", False) else (
            text.decode("utf-8", "replace"))
        shown = " ".join(plain.split())
        row["text"] = shown if len(shown) <= SHOWN else f"{shown[:SHOWN - 3]}..."


def word_shares(task: Any, model: keras.Model, text: tf.Tensor, true: "np.ndarray | int") -> list[tuple[str, float]]:
    """(word, its contribution to the wrong answer's lead over the true class), in the text's order; repeated words are summed.

    Args:
        text: scalar string.
        true: class number; or [classes] of 0 and 1 (labels: many), then the lead is summed over all wrong decisions.
    """
    cut = task.input.tokenizer.cut(text[None])
    ids = cut.ids.to_tensor()
    table, encoder = model.get_layer("embedding"), model.get_layer("encoder")
    vectors = tf.cast(table(ids), encoder.inputs[0].dtype)
    with tf.GradientTape() as tape:
        tape.watch(vectors)
        logits = tf.cast(encoder([vectors, ids], training=False), tf.float32)[0]
        if np.ndim(true):
            signs = np.where(true > 0.5, -1.0, 1.0) * ((logits.numpy() >= 0) != (true > 0.5))
            lead = tf.reduce_sum(logits * signs.astype(np.float32))
        else:
            answer = int(tf.argmax(logits))
            lead = logits[answer] - logits[int(true)] if int(true) < len(task.output.classes) else logits[answer]
    shares = tf.reduce_sum(tf.cast(tape.gradient(lead, vectors) * vectors, tf.float32), -1)[0].numpy()
    words = task.input.tokenizer.words(text[None])[0].numpy().tolist()
    by_word: dict[str, float] = {}
    for share, first, last in zip(shares.tolist(), cut.first[0].numpy().tolist(), cut.last[0].numpy().tolist()):
        for place in range(first, last + 1):
            word = words[place].decode("utf-8", "replace")
            by_word[word] = by_word.get(word, 0.0) + share / (last - first + 1)
    return list(by_word.items())

"""CTC by two implementations each, and against sums and searches over everything."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from speech.models import ctc

RNG = np.random.default_rng(1)
LOGITS = RNG.normal(0, 2, [5, 12, 6]).astype(np.float32)
STEPS = np.array([12, 9, 7, 4, 12], np.int32)
TOKENS = np.array([[1, 1, 3, 0], [0, 2, 0, 0], [4, 0, 0, 0], [2, 2, 2, 2], [3, 4, 3, 4]], np.int32)
COUNTS = np.array([3, 2, 0, 4, 4], np.int32)


def collapsed(path: tuple[int, ...], blank: int) -> tuple[int, ...]:
    return tuple(token for token, _ in itertools.groupby(path) if token != blank)


def test_loss_is_the_sum_over_all_ways_to_write_it():
    logits = LOGITS[:1, :5, :4]
    shares = tf.nn.softmax(logits[0]).numpy()
    total = sum(np.prod([shares[step, token] for step, token in enumerate(path)])
                for path in itertools.product(range(4), repeat=5) if collapsed(path, 3) == (1, 1, 0))
    for xla in (False, True):
        loss = ctc.loss(tf.constant(logits), tf.constant([5]), tf.constant([[1, 1, 0, 9]]), tf.constant([3]), xla=xla)
        assert loss.numpy()[0] == pytest.approx(-np.log(total), rel=1e-4)


def test_both_losses_and_their_gradients_agree_and_padding_changes_nothing():
    found = {}
    for xla, padding in ((False, 0), (True, 0), (False, 6), (True, 6)):
        logits = tf.constant(np.pad(LOGITS, ((0, 0), (0, padding), (0, 0)), constant_values=3.0))
        tokens = np.pad(TOKENS, ((0, 0), (0, padding)), constant_values=2)
        with tf.GradientTape() as tape:
            tape.watch(logits)
            losses = ctc.loss(logits, tf.constant(STEPS), tf.constant(tokens), tf.constant(COUNTS), xla=xla)
        found[xla, padding] = losses.numpy(), tape.gradient(losses, logits).numpy()
    first, slope = found[False, 0]
    assert first[3] == 0 and not slope[3].any()  # four like tokens need seven steps
    assert first[2] == pytest.approx(-tf.nn.log_softmax(LOGITS[2, :7]).numpy()[:, -1].sum(), rel=1e-5)  # nothing said
    for (_, padding), (losses, gradient) in found.items():
        assert np.allclose(losses, first, atol=1e-3)
        assert np.allclose(gradient[:, :12], slope, atol=1e-4)
        assert padding == 0 or not gradient[:, 12:].any()


def test_greedy_takes_out_repetitions_and_blanks():
    tokens, at, confidence = (value.numpy() for value in ctc.greedy(tf.constant(LOGITS), tf.constant(STEPS)))
    for row in range(5):
        path = LOGITS[row, :STEPS[row]].argmax(-1)
        wanted = collapsed(tuple(path), 5)
        assert tuple(tokens[row][tokens[row] > 0] - 1) == wanted
        assert all(path[step] == token - 1 for step, token in zip(at[row], tokens[row]) if token)
        assert confidence[row] == pytest.approx(tf.nn.softmax(LOGITS[row, :STEPS[row]]).numpy().max(-1).mean(), abs=1e-5)


def test_beam_finds_the_best_text():
    logits = LOGITS[:1, :5, :4]
    shares = tf.nn.softmax(logits[0]).numpy()
    sums: dict[tuple[int, ...], float] = {}
    for path in itertools.product(range(4), repeat=5):
        text = collapsed(path, 3)
        sums[text] = sums.get(text, 0.0) + float(np.prod([shares[step, token] for step, token in enumerate(path)]))
    found = ctc.beam(tf.constant(logits), tf.constant([5]), 100).numpy()[0]
    assert tuple(found[found > 0] - 1) == max(sums, key=sums.get)


def test_aligned_is_the_best_way_to_write_it():
    logits = LOGITS[:1, :6, :4]
    scores = tf.nn.log_softmax(logits[0]).numpy()
    best = max((path for path in itertools.product(range(4), repeat=6) if collapsed(path, 3) == (1, 1, 0)),
               key=lambda path: sum(scores[step, token] for step, token in enumerate(path)))
    begins = [step for step in range(6) if best[step] != 3 and (step == 0 or best[step] != best[step - 1])]
    tokens = tf.constant([[2, 2, 1, 0, 0]])
    padded = tf.pad(tf.constant(logits), [[0, 0], [0, 3], [0, 0]])
    for given in (tf.constant(logits), padded):
        assert ctc.aligned(given, tf.constant([6]), tokens).numpy()[0].tolist() == [*begins, 0, 0]


def test_token_errors_agree():
    found = np.zeros([40, 9], np.int32)
    for row in found:
        size = RNG.integers(0, 10)
        row[:size] = RNG.integers(1, 5, size)
    tokens, counts = RNG.integers(0, 4, [40, 7]).astype(np.int32), RNG.integers(0, 8, 40).astype(np.int32)
    first, second = (ctc.errors(tf.constant(found), tf.constant(tokens), tf.constant(counts), xla=xla).numpy() for xla in (False, True))
    assert np.array_equal(first, second) and first.max() > 4


def test_the_parts_for_devices_compile():
    def both(*given):
        return ctc.loss(*given, xla=True), ctc.errors(ctc.greedy(*given[:2])[0], *given[2:], xla=True)

    losses, wrong = tf.function(both, jit_compile=True)(tf.constant(LOGITS), tf.constant(STEPS), tf.constant(TOKENS), tf.constant(COUNTS))
    assert np.isfinite(losses).all() and np.isfinite(wrong).all()

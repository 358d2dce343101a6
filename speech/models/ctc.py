"""Connectionist temporal classification (Graves et al. 2006): loss, greedy and beam search, token errors; in graph.

Logits are [batch, steps, tokens + 1] with the blank last. Decoded tokens are numbered from 1, padded with 0.
"""

import tensorflow as tf

from pipelines.machine.compiling import for_xla


def portable() -> bool:
    """Whether the trace is compiled by XLA or runs on a GPU: TensorFlow's own operations run on CPUs only."""
    return for_xla() or bool(tf.config.list_logical_devices("GPU"))


def loss(logits: tf.Tensor, steps: tf.Tensor, tokens: tf.Tensor, counts: tf.Tensor, *, xla: bool | None = None) -> tf.Tensor:
    """-log p(tokens | logits) of each recording, nats, [batch] float32; 0 where there are too few steps for its tokens.

    Args:
        logits: [batch, steps, tokens + 1] float32.
        steps: [batch] int32, each recording's own.
        tokens: [batch, most] int32, numbered from 0; anything behind the counts.
        counts: [batch] int32.
        xla: which of two implementations; default: `portable()`.
    """
    most = tf.shape(tokens)[1]
    there = tf.range(most)[None] < counts[:, None]
    alike = tf.reduce_sum(tf.cast((tokens[:, 1:] == tokens[:, :-1]) & there[:, 1:], tf.int32), 1)
    possible = (counts + alike <= steps) & (steps > 0)
    silent = possible & (counts == 0)  # blanks alone, which the operations do not handle
    spoken = possible & (counts > 0)
    some = tf.where(spoken, counts, 1)
    if portable() if xla is None else xla:
        losses = tf.nn.ctc_loss(tf.where(there, tokens, 0), logits, some, tf.maximum(steps, 1), logits_time_major=False, blank_index=-1)
    else:
        labels = tf.RaggedTensor.from_tensor(tokens, lengths=some).to_sparse()
        labels = tf.SparseTensor(labels.indices, labels.values, [tf.shape(tokens, tf.int64)[0], tf.cast(most, tf.int64)])
        losses = tf.compat.v1.nn.ctc_loss(labels, logits, tf.maximum(steps, 1), time_major=False, ignore_longer_outputs_than_inputs=True)
    own = tf.range(tf.shape(logits)[1])[None] < steps[:, None]
    blanks = -tf.reduce_sum(tf.where(own, tf.nn.log_softmax(logits)[..., -1], 0.0), 1)
    # an impossible one may be infinite, and 0 x infinity would spoil the gradient
    losses = tf.where(spoken, tf.where(spoken, losses, 0.0), 0.0)
    return tf.where(silent, blanks, losses)


def greedy(logits: tf.Tensor, steps: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The best token of each step, repetitions and blanks taken out.

    Returns:
        (tokens [batch, steps] int32, from 1, padded with 0; the step at which each was first written [batch, steps] int32;
        confidence [batch] float32: the mean over the recording's steps of the best token's probability).
    """
    size, blank = tf.shape(logits)[1], logits.shape[2] - 1
    best = tf.argmax(logits, -1, output_type=tf.int32)
    own = tf.range(size)[None] < steps[:, None]
    before = tf.pad(best[:, :-1], [[0, 0], [1, 0]], constant_values=blank)
    written = (best != blank) & (best != before) & own
    order = tf.argsort(tf.cast(~written, tf.int32), axis=1, stable=True)
    tokens = tf.gather(tf.where(written, best + 1, 0), order, batch_dims=1)
    at = tf.where(tokens > 0, order, 0)
    certain = tf.exp(tf.reduce_max(tf.nn.log_softmax(logits), -1))
    weight = tf.cast(own, tf.float32)
    return tokens, at, tf.reduce_sum(certain * weight, 1) / tf.maximum(tf.reduce_sum(weight, 1), 1.0)


def beam(logits: tf.Tensor, steps: tf.Tensor, width: int) -> tf.Tensor:
    """The most probable of `width` token sequences, summed over their alignments: [batch, steps] int32 as `greedy` has them."""
    paths, _ = tf.nn.ctc_beam_search_decoder(tf.transpose(logits, [1, 0, 2]), steps, beam_width=width, top_paths=1)
    tokens = tf.cast(tf.sparse.to_dense(paths[0], default_value=-1), tf.int32) + 1
    return tf.pad(tokens, [[0, 0], [0, tf.maximum(tf.shape(logits)[1] - tf.shape(tokens)[1], 0)]])


def aligned(logits: tf.Tensor, steps: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
    """The step at which each token begins on the most probable alignment (Viterbi), [batch, most] int32; 0 where there is none.

    Args:
        tokens: [batch, most] int32, from 1, padded with 0.
    """
    batch, most = tf.shape(tokens)[0], tf.shape(tokens)[1]
    size, blank = tf.shape(logits)[1], logits.shape[2] - 1
    counts = tf.reduce_sum(tf.cast(tokens > 0, tf.int32), 1)
    # states: blank, token, blank, token, ..., blank
    labels = tf.where(tokens > 0, tokens - 1, blank)
    states = tf.reshape(tf.stack([tf.fill([batch, most], blank), labels], 2), [batch, 2 * most])
    states = tf.pad(states, [[0, 0], [0, 1]], constant_values=blank)
    scores = tf.gather(tf.nn.log_softmax(logits), tf.tile(states[:, None], [1, size, 1]), batch_dims=2)
    never = tf.constant(-1e30)
    number = tf.range(2 * most + 1)[None]
    skip = (states != blank) & (states != tf.pad(states[:, :-2], [[0, 0], [2, 0]], constant_values=-1)) & (number >= 2)
    start = tf.where((number == 0) | ((number == 1) & (counts[:, None] > 0)), scores[:, 0], never)

    def forward(step: tf.Tensor, best: tf.Tensor, moves: tf.TensorArray) -> tuple:
        one = tf.pad(best[:, :-1], [[0, 0], [1, 0]], constant_values=-1e30)
        two = tf.where(skip, tf.pad(best[:, :-2], [[0, 0], [2, 0]], constant_values=-1e30), never)
        stacked = tf.stack([best, one, two])
        now = tf.reduce_max(stacked, 0) + scores[:, step]
        alive = (step < steps)[:, None]
        move = tf.where(alive, tf.argmax(stacked, 0, output_type=tf.int32), 0)
        return step + 1, tf.where(alive, now, best), moves.write(step, move)

    moves = tf.TensorArray(tf.int32, size, element_shape=[None, None]).write(0, tf.zeros_like(states))
    _, best, moves = tf.while_loop(lambda step, *_: step < size, forward, (tf.constant(1), start, moves))
    last = 2 * counts  # the blank behind the last token, or that token
    ends = tf.stack([tf.gather(best, last, batch_dims=1), tf.gather(best, tf.maximum(last - 1, 0), batch_dims=1)])
    state = tf.where((ends[1] > ends[0]) & (counts > 0), last - 1, last)

    def backward(step: tf.Tensor, state: tf.Tensor, begun: tf.Tensor) -> tuple:
        token = (state - 1) // 2
        here = (state % 2 == 1)[:, None] & (tf.range(most)[None] == token[:, None]) & (step < steps)[:, None]
        begun = tf.where(here, step, begun)
        return step - 1, state - tf.gather(moves.read(step), state, batch_dims=1), begun

    _, _, begun = tf.while_loop(lambda step, *_: step >= 0, backward, (size - 1, state, tf.zeros_like(tokens)))
    return tf.where(tokens > 0, begun, 0)


def errors(decoded: tf.Tensor, tokens: tf.Tensor, counts: tf.Tensor, *, xla: bool | None = None) -> tf.Tensor:
    """Levenshtein's distance of each recording's tokens, [batch] float32.

    Args:
        decoded: [batch, any] int32, from 1, padded with 0.
        tokens: [batch, most] int32, from 0, anything behind the counts.
        xla: which of two implementations; default: `portable()`.
    """
    most = tf.shape(tokens)[1]
    truth = tf.where(tf.range(most)[None] < counts[:, None], tokens + 1, 0)
    if not (portable() if xla is None else xla):
        return tf.edit_distance(tf.sparse.from_dense(decoded), tf.sparse.from_dense(truth), normalize=False)
    columns = tf.range(most + 1)[None]
    start = tf.tile(columns, [tf.shape(decoded)[0], 1])

    def turn(at: tf.Tensor, row: tf.Tensor) -> tuple:
        mine = decoded[:, at][:, None]
        reached = tf.concat([row[:, :1] + 1, tf.minimum(row[:, 1:] + 1, row[:, :-1] + tf.cast(mine != truth, tf.int32))], 1)
        # deletions: the minimum over all columns to the left, plus one for each step to the right
        offset, shift = reached - columns, tf.constant(1)

        def fold(offset: tf.Tensor, shift: tf.Tensor) -> tuple:
            moved = tf.roll(offset, shift, 1)
            return tf.minimum(offset, tf.where(columns >= shift, moved, offset)), shift * 2

        offset, _ = tf.while_loop(lambda _, shift: shift <= most, fold, (offset, shift))
        return at + 1, tf.where(mine > 0, offset + columns, row)

    _, row = tf.while_loop(lambda at, _: at < tf.shape(decoded)[1], turn, (tf.constant(0), start))
    return tf.cast(tf.gather(row, counts, batch_dims=1), tf.float32)

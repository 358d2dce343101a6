"""KerasHub's transformer layers in fewer operations: the same weights, and the same numbers but for rounding and the draws of dropout.

Queries, keys and values come from one product. In inference, product, bias and GELU have the form of which TensorFlow makes one operation.
In training, what stands between products (softmax, norm, GELU, with their dropout) is one kernel each, forward and backward, on CPUs.
A pass of the frozen MiniLM-L6 takes KerasHub's own layers 25 % more processor time in float32 and 42 % in bfloat16 (two cores with
AVX-512; medians of 12 pairs, quartiles 23 to 28 and 36 to 47 %).
"""

import functools
import types
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from pipelines.data import draws
from pipelines.encoders.presets import hub
from pipelines.machine.compiling import in_parts, part
from pipelines.machine.mesh import on_mesh

FUSED_EPSILON = 1e-3  # of TensorFlow's fused norm
ROOT, CUBIC = 0.7978845608028654, 0.044715  # of GELU's tanh form


# What KerasHub's `call` names, 0.29 to 0.32. In a version whose `call` names anything else, layers stay KerasHub's.
KNOWN = {"merge_padding_and_attention_mask", "normalize_first", "_self_attention_layer", "_self_attention_layer_norm",
         "_self_attention_dropout", "_feedforward_intermediate_dense", "_feedforward_output_dense", "_feedforward_layer_norm",
         "_feedforward_dropout"}


def simplify(backbone: keras.Model) -> None:
    """Layers of BERT's kind (GELU, and norms behind their sums) compute as above from now on; others stay as they are."""
    kind = hub().layers.TransformerEncoder
    known = set(kind.call.__code__.co_names) == KNOWN
    for layer in backbone._flatten_layers():
        if known and type(layer) is kind and not layer.normalize_first:
            tanh = _has_tanh(layer.activation)
            if tanh is not None:
                layer.call = types.MethodType(functools.partial(_call, tanh), layer)
        if isinstance(layer, keras.layers.Embedding):
            layer.embeddings._autocast = False  # what is looked up is cast, not the whole table


def _has_tanh(activation: Any) -> bool | None:
    """Whether an activation is GELU's tanh form, or the exact one; None: neither."""
    given = tf.constant([-1.0, 0.5, 2.0])
    found = activation(given)
    return next((tanh for tanh in (True, False) if float(tf.reduce_max(abs(found - tf.nn.gelu(given, tanh)))) < 1e-6), None)


def _call(tanh: bool, layer: Any, inputs: tf.Tensor, padding_mask: Any = None, training: bool | None = None) -> tf.Tensor:
    """The layer of [batch, time, width]; `padding_mask` [batch, time], 0 at padding."""
    if on_mesh():  # where parts of one product would have to be brought together
        return type(layer).call(layer, inputs, padding_mask=padding_mask, training=training)
    dtype, shape, width, heads = inputs.dtype, tf.shape(inputs), inputs.shape[2], layer.num_heads
    attention, first, second = layer._self_attention_layer, layer._feedforward_intermediate_dense, layer._feedforward_output_dense
    own = tf.ones(shape[:2], tf.bool) if padding_mask is None else tf.cast(padding_mask, tf.bool)
    flat = tf.reshape(inputs, [-1, width])

    kernels, biases = zip(*((_kernel(one, dtype, width), tf.reshape(_value(one.bias, dtype), [width]))
                            for one in (attention._query_dense, attention._key_dense, attention._value_dense)))
    joined = tf.nn.bias_add(flat @ tf.concat(kernels, 1), tf.concat(biases, 0))
    parts = tf.transpose(tf.reshape(joined, [shape[0], shape[1], 3, heads, width // heads]), [2, 0, 3, 1, 4])
    query, key, value = tf.unstack(parts)
    heard = _attended(query, key, value, own, attention._dropout_layer, training)
    mixed = tf.reshape(tf.transpose(heard, [0, 2, 1, 3]), [-1, width]) @ _kernel(attention._output_dense, dtype, width)
    x = _added(mixed, attention._output_dense.bias, flat, layer._self_attention_layer_norm, layer._self_attention_dropout, training)
    x = _added(_activated(x @ _kernel(first, dtype, width), first.bias, tanh, training) @ _kernel(second, dtype, layer.intermediate_dim),
               second.bias, x, layer._feedforward_layer_norm, layer._feedforward_dropout, training)
    return tf.reshape(x, shape)


def _value(variable: Any, dtype: tf.DType) -> tf.Tensor:
    return tf.cast(tf.convert_to_tensor(variable), dtype)


def _kernel(dense: Any, dtype: tf.DType, rows: int) -> tf.Tensor:
    """[rows, columns], with what LoRA adds."""
    return tf.reshape(_value(dense.kernel, dtype), [rows, -1])


def _attended(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, own: tf.Tensor, dropout: Any, training: bool | None) -> tf.Tensor:
    """What each query [batch, heads, time, width of a head] hears of the values where `own` [batch, time] says that there is one."""
    scale = query.shape[3] ** -0.5
    if training and in_parts():
        return _trained_attention(dropout.rate, scale)(query, key, value, own, *_keys(dropout, tf.shape(own)[0]))
    scores = tf.matmul(query * tf.cast(scale, query.dtype), key, transpose_b=True)
    there = tf.expand_dims(tf.expand_dims(own, 1), 1)  # LiteRT indexes with no new axes
    if not training:
        return tf.nn.softmax(tf.where(there, scores, scores.dtype.min)) @ value
    shares = tf.nn.softmax(tf.where(there, tf.cast(scores, tf.float32), tf.float32.min))
    return tf.cast(_kept(shares, tuple(_keys(dropout, tf.shape(scores)[0])), dropout.rate), value.dtype) @ value


def _added(x: tf.Tensor, bias: Any, residual: tf.Tensor, norm: Any, dropout: Any, training: bool | None) -> tf.Tensor:
    """The norm of x + bias, after dropout, + residual."""
    scale, offset = tf.convert_to_tensor(norm.gamma), tf.convert_to_tensor(norm.beta)
    if training:
        keys = _keys(dropout, tf.shape(x)[0])
        return _trained_sum(dropout.rate, norm.epsilon)(x, tf.convert_to_tensor(bias), residual, scale, offset, *keys)
    added = tf.cast(tf.nn.bias_add(x, _value(bias, x.dtype)) + residual, tf.float32)
    return tf.cast(_normed_at_once(added, scale, offset, norm.epsilon), x.dtype)


def _normed_at_once(x: tf.Tensor, scale: tf.Tensor, offset: tf.Tensor, epsilon: float) -> tf.Tensor:
    """The norm of rows, of operations from which TensorFlow makes one where scale and offset are constants. That one takes 0.001 for
    epsilon whatever the graph says, so x is enlarged until this is right: norm(x, epsilon) = norm(c x, c^2 epsilon)."""
    x *= (FUSED_EPSILON / epsilon) ** 0.5
    mean = tf.reduce_mean(x, 1, keepdims=True)
    factor = tf.math.rsqrt(tf.reduce_mean(tf.math.squared_difference(x, mean), 1, keepdims=True) + FUSED_EPSILON) * scale
    return x * factor + (offset - mean * factor)


def _activated(x: tf.Tensor, bias: Any, tanh: bool, training: bool | None) -> tf.Tensor:
    if training:
        return _trained_gelu(tanh)(x, tf.convert_to_tensor(bias))
    return tf.nn.gelu(tf.nn.bias_add(x, _value(bias, x.dtype)), approximate=tanh)


def _keys(dropout: Any, rows: tf.Tensor) -> list[tf.Tensor]:
    """What says which elements of so many rows are dropped, [uint32 [rows]]; none where nothing is dropped. A kernel computes the draws
    from it, which costs less than to read what was drawn before."""
    return [draws.row_keys(dropout.seed_generator, rows)] if dropout.rate else []


def _kept(x: tf.Tensor, keys: tuple[tf.Tensor, ...], rate: float) -> tf.Tensor:
    return draws.kept(x, keys[0], rate) if keys else x


def _normed(x: tf.Tensor, scale: tf.Tensor, offset: tf.Tensor, epsilon: float) -> tf.Tensor:
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, offset, scale, epsilon)


@functools.cache
def _trained_attention(rate: float, scale: float) -> Callable[..., tf.Tensor]:
    """Attention as `_attended` has it. The gradient's sum over a row of shares is had from the few numbers that were heard, as in Dao et
    al. 2022, arXiv:2205.14135, appendix B.2: so it passes over the scores once."""

    def scaled(scores: tf.Tensor, own: tf.Tensor) -> tf.Tensor:
        return tf.where(own[:, None, None], tf.cast(scores, tf.float32) * scale, tf.float32.min)

    def shared(scores: tf.Tensor, own: tf.Tensor, *keys: tf.Tensor) -> tuple[tf.Tensor, ...]:
        given = scaled(scores, own)
        highest = tf.reduce_max(given, -1, keepdims=True)
        powers = tf.exp(given - highest)
        total = tf.reduce_sum(powers, -1, keepdims=True)
        return tf.cast(_kept(powers / total, keys, rate), scores.dtype), highest, total

    def slopes(scores: tf.Tensor, own: tf.Tensor, highest: tf.Tensor, total: tf.Tensor, upstream: tf.Tensor, heard: tf.Tensor,
               *keys: tf.Tensor) -> tf.Tensor:
        shares = tf.exp(scaled(scores, own) - highest) / total
        return tf.cast(shares * (_kept(tf.cast(upstream, tf.float32), keys, rate) - heard) * scale, scores.dtype)

    forward, backward = (tf.function(one, jit_compile=True, autograph=False) for one in (shared, slopes))

    @tf.custom_gradient
    def attended(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, own: tf.Tensor, *keys: tf.Tensor) -> Any:
        scores = tf.matmul(query, key, transpose_b=True)
        shares, highest, total = forward(scores, own, *keys)
        outputs = shares @ value

        def gradient(upstream: tf.Tensor) -> list[tf.Tensor | None]:
            heard = tf.reduce_sum(tf.cast(upstream * outputs, tf.float32), -1, keepdims=True)
            slope = backward(scores, own, highest, total, tf.matmul(upstream, value, transpose_b=True), heard, *keys)
            return [slope @ key, tf.matmul(slope, query, transpose_a=True), tf.matmul(shares, upstream, transpose_a=True),
                    *[None] * (1 + len(keys))]

        return outputs, gradient

    return attended


@functools.cache
def _trained_sum(rate: float, epsilon: float) -> Callable[..., tf.Tensor]:
    def body(x: tf.Tensor, bias: tf.Tensor, residual: tf.Tensor, scale: tf.Tensor, offset: tf.Tensor, *keys: tf.Tensor) -> tf.Tensor:
        added = _kept(tf.cast(x, tf.float32) + tf.cast(bias, tf.float32), keys, rate) + tf.cast(residual, tf.float32)
        return tf.cast(_normed(added, scale, offset, epsilon), x.dtype)

    return part(body)


@functools.cache
def _trained_gelu(tanh: bool) -> Callable[..., tf.Tensor]:
    def body(x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        given = tf.cast(x, tf.float32) + tf.cast(bias, tf.float32)
        if tanh:  # x sigmoid(2 u) is 0.5 x (1 + tanh(u))
            return tf.cast(given * tf.math.sigmoid(2.0 * ROOT * given * (1.0 + CUBIC * given * given)), x.dtype)
        return tf.cast(tf.nn.gelu(given), x.dtype)

    return part(body)

"""What is computed has one hash, whatever was computed before and however its parts are numbered."""

import tensorflow as tf

from pipelines.data.fingerprint import graph_hash


def _traced(factor, name="x"):
    """A function of a tensor that it holds, traced anew."""
    held = tf.constant([factor, 2.0 * factor])
    words = tf.constant(["a", "b"])
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(words, tf.constant([1, 2])), -1)

    inner = tf.function(lambda x: x + 1.0, autograph=False)  # a function in the graph, `__inference_<lambda>_12`

    def compute(x):
        return inner(held * x), table.lookup(words), tf.strings.join([words, words])

    return tf.function(compute, autograph=False).get_concrete_function(tf.TensorSpec([], tf.float32, name=name))


def test_the_same_computation_has_the_same_hash_whatever_was_traced_before():
    first = graph_hash(_traced(3.0))
    for _ in range(3):
        tf.constant(["others", "of", "this process"])
    assert graph_hash(_traced(3.0)) == first
    assert graph_hash(_traced(3.0, name="other")) == first


def test_another_held_tensor_has_another_hash():
    assert graph_hash(_traced(3.0)) != graph_hash(_traced(4.0))

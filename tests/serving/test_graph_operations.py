"""A stranger's SavedModel may compute, and nothing else: files, addresses and code are refused wherever in the graph they stand."""

import pytest
import tensorflow as tf

from pipelines.base.errors import ConfigError
from pipelines.serving.exported import refuse_reaching

pytestmark = pytest.mark.slow
NUMBERS = tf.TensorSpec([None, 3], tf.float32)


def saved(place, answer, spec=NUMBERS, **kept):
    """A model whose signature is that function, unread so far."""
    module = tf.Module()
    for name, value in kept.items():
        setattr(module, name, value)
    module.answer = tf.function(answer, input_signature=[spec])
    tf.saved_model.save(module, str(place / "model"), signatures={"serving_default": module.answer})
    return place / "model"


def written(x):
    tf.raw_ops.SaveV2(prefix="owned", tensor_names=["a"], shape_and_slices=[""], tensors=[x])
    return {"y": x}


def nested(x):
    """Deep in a loop's branch."""
    peek = lambda: tf.raw_ops.ImmutableConst(dtype=tf.float32, shape=[3], memory_region_name="/etc/passwd")  # noqa: E731
    return {"y": tf.map_fn(lambda row: tf.cond(row[0] > 0, peek, lambda: row), x)}


def dataset(x):
    stored = tf.data.Dataset.from_tensor_slices(x).cache("owned")
    return {"y": stored.reduce(tf.zeros([3]), lambda sum_, row: sum_ + row)}


@pytest.mark.parametrize(("answer", "operation"), [
    (written, "SaveV2"), (nested, "ImmutableConst"), (dataset, "CacheDataset"),
    (lambda x: {"y": tf.raw_ops.DebugIdentity(input=x, debug_urls=["file:///tmp/owned"])}, "DebugIdentity"),
    (lambda x: {"y": tf.numpy_function(lambda rows: rows, [x], tf.float32)}, "PyFunc"),
    (lambda x: {"y": tf.strings.length(tf.io.matching_files("/etc/*"))}, "MatchingFiles"),
    (lambda x: {"y": tf.raw_ops.RestoreV2(prefix="/x", tensor_names=["a"], shape_and_slices=[""], dtypes=[tf.float32])[0]}, "RestoreV2"),
])
def test_what_reaches_outside_is_refused(tmp_path, answer, operation):
    with pytest.raises(ConfigError, match=operation):
        refuse_reaching(saved(tmp_path, answer))


def test_a_table_of_somebodys_file_is_refused(tmp_path):
    """Its lines could be asked for one by one."""
    words = tmp_path / "words.txt"
    words.write_text("a\nb\n")
    table = tf.lookup.StaticVocabularyTable(tf.lookup.TextFileInitializer(
        str(words), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER), 1)
    folder = saved(tmp_path, lambda x: {"y": table.lookup(x)}, tf.TensorSpec([None], tf.string), table=table)
    with pytest.raises(ConfigError, match="InitializeTableFromTextFileV2"):
        refuse_reaching(folder)


def test_what_computes_is_accepted(tmp_path):
    """Variables, tables, loops, branches, ragged tensors, images and random numbers."""
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [1]), -1)
    weight = tf.Variable([1.0, 2.0])

    def answer(text):
        numbers = tf.cast(table.lookup(text), tf.float32)[:, None] * weight
        tf.debugging.assert_all_finite(numbers, "finite")
        parts = tf.strings.split(text).to_tensor("")
        looped = tf.while_loop(lambda step, _: step < 3, lambda step, sum_: (step + 1, sum_ + numbers), (0, numbers))[1]
        picture = tf.image.resize(tf.io.decode_png(tf.io.encode_png(tf.zeros([4, 4, 1], tf.uint8))), [2, 2])
        noise = tf.random.stateless_uniform([1], [1, 2]) + tf.random.uniform([1])
        return {"y": tf.cond(tf.shape(text)[0] > 1, lambda: looped, lambda: numbers) + tf.reduce_sum(picture) + noise, "parts": parts}

    folder = saved(tmp_path, answer, tf.TensorSpec([None], tf.string), table=table, weight=weight)
    refuse_reaching(folder)
    assert tf.saved_model.load(str(folder)).signatures["serving_default"](tf.constant(["a"]))["y"].shape == (1, 2)


def test_a_model_of_tensorflow_1_is_refused(tmp_path):
    """TensorFlow runs its initialising operations on loading, whatever they are."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [None])
        tf.compat.v1.saved_model.simple_save(session, str(tmp_path / "old"), {"x": x}, {"y": x + 1})
    with pytest.raises(ConfigError, match="no model of TensorFlow 2"):
        refuse_reaching(tmp_path / "old")

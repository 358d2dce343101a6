"""What a model looks up by number besides its weights: histories and features of users and items, as weights that never train.

So they are saved, exported and copied to devices with the model, and histories are cut to examples in graph.

Ids to numbers and back in graph, from constants alone: nothing that an exported model would have to keep track of.

Whole-number ids are looked up by binary search; texts by a 62-bit hash, then compared, so that no two are ever confused.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from pipelines.training.embedding_tables import Table
from recsys.data.catalogue import Histories

NO_ID = int(np.iinfo(np.int64).min)  # where a whole-number id is missing; texts: the empty text
BUCKETS = 1 << 62


def id_dtype(ids: Sequence[Any]) -> tf.DType:
    """int64 where the ids are whole numbers, else string."""
    return tf.int64 if len(ids) and isinstance(ids[0], int) else tf.string


def missing(dtype: tf.DType) -> Any:
    """The value that means no id."""
    return NO_ID if dtype == tf.int64 else ""


def finder(ids: Sequence[Any]) -> Callable[[tf.Tensor], tf.Tensor]:
    """A function in graph from ids (int64 or string, any shape) to int32 numbers: place + 1, or 0 for others.

    Args:
        ids: all whole numbers or all texts, each once.
    """
    if not len(ids):
        return lambda values: tf.zeros(tf.shape(values), tf.int32)
    if id_dtype(ids) == tf.int64:
        plain = np.asarray(ids, np.int64)
        order = np.argsort(plain, kind="stable")
        return lambda values: _search(values, plain[order], order.astype(np.int32))[0]
    texts = np.asarray(ids, object)
    with tf.init_scope():  # computed once, when the graph is traced
        hashes = tf.strings.to_hash_bucket_fast(tf.constant(texts.tolist()), BUCKETS).numpy()
    order = np.argsort(hashes, kind="stable")
    if np.any(np.diff(hashes[order]) == 0):  # one in a billion for a million ids
        raise ValueError("two ids have one hash")

    def find(values: tf.Tensor) -> tf.Tensor:
        numbers, at = _search(tf.strings.to_hash_bucket_fast(values, BUCKETS), hashes[order], order.astype(np.int32))
        return tf.where(tf.gather(tf.constant(texts[order].tolist()), at) == values, numbers, 0)

    return find


def _search(values: tf.Tensor, ordered: np.ndarray, order: np.ndarray) -> tuple[tf.Tensor, tf.Tensor]:
    flat = tf.reshape(values, [-1])
    at = tf.minimum(tf.searchsorted(tf.constant(ordered), flat), len(ordered) - 1)
    numbers = tf.where(tf.gather(tf.constant(ordered), at) == flat, tf.gather(tf.constant(order), at) + 1, 0)
    return tf.reshape(numbers, tf.shape(values)), tf.reshape(at, tf.shape(values))


def ids_of(numbers: tf.Tensor, ids: Sequence[Any]) -> tf.Tensor:
    """The ids of numbers from 1, in graph; for 0 the value that means no id."""
    dtype = id_dtype(ids)
    return tf.gather(tf.constant([missing(dtype), *ids], dtype), numbers)


def columns_spec(columns: Sequence[Mapping[str, Any]]) -> dict[str, tf.TensorSpec]:
    """Feature columns as a saved model takes them, by name: numbers [batch] float32, categories [batch] and lists [batch, any] string."""
    return {one["name"]: tf.TensorSpec([None, None] if one["kind"] == "list" else [None],
                                       tf.float32 if one["kind"] == "number" else tf.string) for one in columns}


def columns_example(columns: Sequence[Mapping[str, Any]]) -> dict[str, tf.Tensor]:
    """One example of these columns as models take them, of zeros."""
    return {one["name"]: tf.zeros([1, one["length"]] if one["kind"] == "list" else [1],
                                  tf.float32 if one["kind"] == "number" else tf.int32) for one in columns}


def columns_received(columns: Sequence[Mapping[str, Any]], raw: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """These columns as models take them (see `data.features.event_arrays`); in graph."""
    examples = {}
    for one in columns:
        value = raw[one["name"]]
        if one["kind"] == "number":
            standard = (value - one["mean"]) / one["std"]
            examples[one["name"]] = tf.where(tf.math.is_finite(standard), standard, 0.0)
        elif one["kind"] == "category":
            examples[one["name"]] = finder(one["values"])(value)
        else:
            codes = finder(one["values"])(value)[:, : one["length"]]
            padded = tf.pad(codes, [[0, 0], [0, one["length"] - tf.shape(codes)[1]]])
            examples[one["name"]] = tf.ensure_shape(padded, [None, one["length"]])
    return examples


SPARSE_FROM = 50_000  # users, items or values from which vectors are held in a Table


class HistoryStore(keras.layers.Layer):
    """Events by user, in the order of time.

    Args:
        users: known users, without the unknown one.
        events: in all.
        values: further values of each event by name, with their dtype, such as {"residual": "float32", "time": "int64"}.
    """

    def __init__(self, users: int, events: int, values: Mapping[str, str] | None = None, **options: Any):
        super().__init__(trainable=False, **options)
        self.events = max(1, events)
        self.offsets = self.add_weight(
            shape=(users + 2,), dtype="int64", initializer="zeros", trainable=False, name="offsets", autocast=False
        )
        self.items = self.add_weight(
            shape=(self.events,), dtype="int32", initializer="zeros", trainable=False, name="items", autocast=False
        )
        plain: dict[str, Any] = {"initializer": "zeros", "trainable": False, "autocast": False}
        self.values = {
            name: self.add_weight(shape=(self.events,), dtype=dtype, name=name, **plain) for name, dtype in (values or {}).items()
        }
        self.built = True

    def fill(self, histories: Histories, **values: np.ndarray) -> None:
        """Puts the events in; `values` by name, [events]."""
        self.offsets.assign(histories.offsets)
        if len(histories.items):
            self.items.assign(histories.items)
            for name, value in values.items():
                self.values[name].assign(value)

    def bounds(self, users: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """(first event, one past the last) of each user [batch] int32: both [batch] int64."""
        offsets = tf.convert_to_tensor(self.offsets)
        return tf.gather(offsets, users), tf.gather(offsets, users + 1)

    def before(self, start: tf.Tensor, stop: tf.Tensor, bound: tf.Tensor, name: str) -> tf.Tensor:
        """The first of start .. stop - 1 whose value `name`, which never falls within a user, is not below `bound`; `stop` without one.

        All [batch] int64. By halves, so that it costs little however long the histories are.
        """
        values = tf.convert_to_tensor(self.values[name])
        for _ in range(self.events.bit_length()):
            middle = (start + stop) // 2
            lower = (start < stop) & (tf.gather(values, tf.minimum(middle, self.events - 1)) < bound)
            start, stop = tf.where(lower, middle + 1, start), tf.where(lower, stop, middle)
        return start

    def places(self, start: tf.Tensor, stop: tf.Tensor, length: int) -> tuple[tf.Tensor, tf.Tensor]:
        """The last `length` events of start .. stop - 1, newest last: (places [batch, length] int64, there [batch, length] bool)."""
        places = stop[:, None] - length + tf.range(length, dtype=tf.int64)
        there = places >= start[:, None]
        return tf.clip_by_value(places, 0, self.events - 1), there

    def call(self, users: tf.Tensor, length: int) -> tf.Tensor:
        """The latest items of users, filled up with 0 in front: [batch, length] int32."""
        start, stop = self.bounds(users)
        places, there = self.places(start, stop, length)
        return tf.where(there, tf.gather(tf.convert_to_tensor(self.items), places), 0)

    def all_items(self, users: tf.Tensor) -> tf.Tensor:
        """All items of users, filled up with 0 at the end: [batch, longest] int32."""
        start, stop = self.bounds(users)
        longest = tf.maximum(tf.reduce_max(stop - start), 0)
        places = start[:, None] + tf.range(longest)
        there = places < stop[:, None]
        return tf.where(there, tf.gather(tf.convert_to_tensor(self.items), tf.minimum(places, self.events - 1)), 0)


class FeatureStore(keras.layers.Layer):
    """Features of items or users by number; row 0 is the unknown one.

    Args:
        spec: name -> (shape of the whole array, dtype).
    """

    def __init__(self, spec: Mapping[str, tuple[Sequence[int], str]], **options: Any):
        super().__init__(trainable=False, **options)
        plain: dict[str, Any] = {"initializer": "zeros", "trainable": False, "autocast": False}
        self.arrays = {
            name: self.add_weight(shape=tuple(shape), dtype=dtype, name=f"column_{number}", **plain)
            for number, (name, (shape, dtype)) in enumerate(spec.items())
        }
        self.built = True

    def fill(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Puts the features in."""
        for name, value in arrays.items():
            self.arrays[name].assign(value)

    def call(self, numbers: tf.Tensor) -> dict[str, tf.Tensor]:
        """name -> [..., ...] of the users or items `numbers`."""
        return {name: tf.gather(tf.convert_to_tensor(array), numbers) for name, array in self.arrays.items()}


def feature_spec(facts: Sequence[Mapping[str, Any]], of: str, count: int) -> dict[str, tuple[list[int], str]]:
    """The arrays of `features.entity_arrays`, by name: (shape, dtype), for `count` items or users."""
    spec: dict[str, tuple[list[int], str]] = {}
    for one in facts:
        if one["of"] == of:
            shape = [count + 1, one["length"]] if one["kind"] in ("list", "vector") else [count + 1]
            spec[one["name"]] = (shape, "float32" if one["kind"] in ("number", "vector") else "int32")
    return spec


class FeatureVectors(keras.layers.Layer):
    """Features as vectors: categories by embedding, lists by the mean of embeddings, vectors by a linear map; numbers are handed on.

    Args:
        facts: of the columns, as `features.learn` gives them.
        width: size of a vector.
        deviation: of the vectors at first.
    """

    def __init__(self, facts: Sequence[Mapping[str, Any]], width: int, *, deviation: float = 0.05, **options: Any):
        super().__init__(**options)
        self.facts, self.width = list(facts), width
        self.layers = [self._layer(one, f"column_{number}", small(deviation)) for number, one in enumerate(self.facts)]
        for one, layer in zip(self.facts, self.layers):
            if isinstance(layer, (keras.layers.Embedding, keras.layers.Dense)):
                layer.build((None, one.get("length", 1)))
        self.built = True

    def _layer(self, one: Mapping[str, Any], name: str, initializer: keras.initializers.Initializer) -> Any:
        if one["kind"] == "number":
            return None
        if one["kind"] == "vector":
            return keras.layers.Dense(self.width, use_bias=False, kernel_initializer=initializer, name=name)
        return by_number(len(one["values"]) + 1, self.width, name, initializer=initializer)

    def call(self, values: Mapping[str, tf.Tensor]) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """(vectors [batch, width] each, numbers [batch, 1] each) of name -> [batch, ...]."""
        vectors, numbers = [], []
        for one, layer in zip(self.facts, self.layers):
            value = values[one["name"]]
            if one["kind"] == "number":
                numbers.append(value[..., None])
                continue
            embedded = tf.cast(layer(value), self.compute_dtype)
            if one["kind"] == "vector":
                vectors.append(embedded)
                continue
            known = tf.cast(value > 0, embedded.dtype)[..., None]
            if one["kind"] == "list":
                embedded = tf.reduce_sum(embedded * known, -2) / tf.maximum(tf.reduce_sum(known, -2), 1)
            else:
                embedded = embedded * known
            vectors.append(embedded)
        return vectors, numbers


class KeptIds(keras.layers.Layer):
    """[...] float32 of numbers: 1 of those whose own vector counts, 0 of those of whom columns alone are known: the unknown, those that
    train does not have, and while learning a share of the others (DropoutNet, Volkovs et al. 2017).

    Args:
        count: with the unknown one; the last `new` are not in train.
        rate: the share.
    """

    def __init__(self, count: int, new: int, rate: float, **options: Any):
        super().__init__(**options)
        self.last, self.dropout = count - 1 - new, keras.layers.Dropout(rate)
        self.built = True

    def call(self, numbers: tf.Tensor, training: bool = False) -> tf.Tensor:
        there = tf.cast((numbers > 0) & (numbers <= self.last), tf.float32)
        return tf.cast(self.dropout(there, training=training) > 0, tf.float32)  # as large as when answering


class EntityVectors(keras.layers.Layer):
    """Vectors of items or users by number, [..., width]: each one's own, and what its columns add; and biases [...] likewise.

    Of some columns alone say what they are like, see `KeptIds`.

    Args:
        count: with the unknown one; the last `new` are not in train, and have columns alone.
        store: of their columns, or None; facts: of these.
        own: whether they have vectors of their own; bias: whether biases.
        deviation, column_deviation: of their own vectors, and of what columns add, at first.
        sparse: see `by_number`.
    """

    def __init__(self, count: int, width: int, *, new: int, store: FeatureStore | None, facts: Sequence[Mapping[str, Any]],
                 own: bool = True, bias: bool = False, id_dropout: float = 0.0, deviation: float, column_deviation: float = 0.05,
                 sparse: bool = True, **options: Any):
        super().__init__(**options)
        self.count, self.known, self.store = count, count - new, store
        self.own = by_number(self.known, width, f"{self.name}_vectors", initializer=small(deviation), sparse=sparse) if own else None
        self.bias = by_number(self.known, 1, f"{self.name}_bias", initializer="zeros", sparse=sparse) if bias else None
        if store is not None:
            self.columns = FeatureVectors(facts, width, deviation=column_deviation, name="columns")
            start = small(column_deviation)
            if plain := sum(one["kind"] == "number" for one in facts):
                self.numbers = keras.layers.Dense(width, use_bias=False, kernel_initializer=start, name="numbers")
                self.numbers.build((None, plain))
            if bias:
                self.level = keras.layers.Dense(1, kernel_initializer="zeros", name="level")
                self.level.build((None, width))
            self.kept = KeptIds(count, new, id_dropout, name="kept")
        for layer in (self.own, self.bias):
            if isinstance(layer, keras.layers.Embedding):
                layer.build(None)
        self.built = True

    def call(self, numbers: tf.Tensor, training: bool = False, columns: Mapping[str, tf.Tensor] | None = None,
             kept: tf.Tensor | None = None) -> tuple[tf.Tensor, tf.Tensor | None]:
        """`columns`: name -> values, in place of the stored ones; `kept`: what `kept` gives, where it was drawn already."""
        some = tf.minimum(numbers, self.known - 1)  # what stands for a new one does not count
        own = tf.cast(self.own(some), self.compute_dtype) if self.own is not None else None
        bias = tf.cast(self.bias(some)[..., 0], tf.float32) if self.bias is not None else None
        if self.store is None:
            return own, bias
        places = numbers.shape.num_elements() or (SPARSE_FROM if numbers.shape.rank > 1 else 0)
        if training and columns is None and self.count <= places:  # each once, and not wherever it occurs
            described = tf.gather(self._described(self.store(tf.range(self.count))), numbers)
        else:
            described = self._described(self.store(numbers) if columns is None else columns)
        kept = self.kept(numbers, training=training) if kept is None else kept
        if bias is not None:
            bias = bias * kept + tf.cast(self.level(described)[..., 0], tf.float32)
        return (described if own is None else own * tf.cast(kept, own.dtype)[..., None] + described), bias

    def _described(self, columns: Mapping[str, tf.Tensor]) -> tf.Tensor:
        parts, plain = self.columns(columns)
        if plain:
            parts = [*parts, self.numbers(tf.concat(plain, -1))]
        return tf.add_n([tf.cast(part, self.compute_dtype) for part in parts])

    def all(self, training: bool = False) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Of all, float32: [count, width] and [count]."""
        if self.store is None:
            return all_rows(self.own), all_rows(self.bias)[:, 0] if self.bias is not None else None
        vectors, bias = self(tf.range(self.count), training=training)
        return tf.cast(vectors, tf.float32), bias


def by_number(count: int, width: int, name: str, *, initializer: Any = None, sparse: bool = True) -> Any:
    """Vectors by number, [..., width]; of SPARSE_FROM and more as a Table, whose cost is that of the rows touched.

    Args:
        sparse: False where all rows take part in each step anyway.
    """
    initializer = initializer or small()
    if sparse and count >= SPARSE_FROM:
        return Table(count, width, initializer=initializer, name=name)
    return keras.layers.Embedding(count, width, embeddings_initializer=initializer, name=name)


def all_rows(layer: Any) -> tf.Tensor:
    """All vectors of such a layer, [count, width] float32."""
    return tf.cast(layer.variable.value if isinstance(layer, Table) else layer.embeddings, tf.float32)


def small(scale: float = 0.05) -> keras.initializers.Initializer:
    """Normally distributed, around 0."""
    return keras.initializers.RandomNormal(stddev=scale)

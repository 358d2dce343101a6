"""How much two texts have in common, and a linear layer on that: the baseline of pairs, and the model `linear`.

Of words and of character n-grams, each by itself: the cosine of tf-idf vectors, shared ones among all and among those of the shorter text,
and how many there are. Ridge regression makes numbers of it, logistic regression classes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from nlp.models.parts import PAD
from nlp.settings import PairLinear
from nlp.tokens.base import Tokenizer
from nlp.tokens.pairs import beside
from pipelines.data.source import Source

STRENGTHS = tuple(10.0 ** np.arange(-2, 5))  # of ridge regression
LOGISTIC = 1.0  # C of logistic regression, on standardised values
MEASURES = 6  # of words, and as many of character n-grams
AT_ONCE = 512  # pairs
TINY = 1e-6


class Overlap(keras.layers.Layer):
    """Tokens of two texts beside one another, [batch, time, 2] int32 -> [batch, values] float32, as the module says.

    Weights are the rarity of each token, log((1 + texts) / (1 + texts that hold it)) + 1.

    Args:
        size: every token number is below it.
        letters: the first number of character n-grams; None where there are none.
    """

    def __init__(self, size: int, letters: int | None, **options):
        super().__init__(**{"dtype": "float32", **options})
        self.size, self.letters = size, letters

    def build(self, _):
        self.weight = self.add_weight(shape=(self.size,), initializer="ones", trainable=False, name="rarity")

    def call(self, tokens):
        first, second = tf.unstack(tokens, axis=2)
        ordered = tf.sort(second, axis=1)
        place = tf.minimum(tf.searchsorted(ordered, first), tf.shape(ordered)[1] - 1)
        shared = tf.gather(ordered, place, batch_dims=1) == first
        rarity = tf.convert_to_tensor(self.weight)
        parts = [(1, self.size)] if self.letters is None else [(1, self.letters), (self.letters, self.size)]
        return tf.concat([self._measures(first, second, shared, rarity, *part) for part in parts], 1)

    def _measures(self, first, second, shared, rarity, begin: int, end: int) -> tf.Tensor:
        """[batch, MEASURES]: of the tokens from `begin` to `end`."""
        there = [tf.cast((one >= begin) & (one < end), tf.float32) for one in (first, second)]
        squares = [tf.square(tf.gather(rarity, one)) * own for one, own in zip((first, second), there)]
        both = tf.cast(shared, tf.float32) * there[0]
        counts, sums = ([tf.reduce_sum(one, 1) for one in several] for several in (there, squares))
        common, weight = tf.reduce_sum(both, 1), tf.reduce_sum(both * squares[0], 1)
        fewest, lightest = tf.minimum(*counts), tf.minimum(*sums)
        return tf.stack([weight / tf.maximum(tf.sqrt(sums[0] * sums[1]), TINY), common / tf.maximum(counts[0] + counts[1] - common, 1.0),
                         common / tf.maximum(fewest, 1.0), weight / tf.maximum(lightest, TINY),
                         tf.math.log1p(tf.abs(counts[0] - counts[1])), tf.math.log1p(fewest)], 1)

    def compute_output_spec(self, tokens):
        return keras.KerasTensor((tokens.shape[0], MEASURES * (1 if self.letters is None else 2)), "float32")


def build(settings: PairLinear, *, size: int, classes: int, letters: int | None = None) -> keras.Model:
    """See `nlp.models.build`, of pairs of texts. All weights mean nothing before `put`, and no step trains them."""
    tokens = keras.Input((None, 2), dtype="int32", name="tokens")
    values = Overlap(size, letters, name="overlap")(tokens)
    return keras.Model(tokens, keras.layers.Dense(classes, dtype="float32", name="classes", trainable=False)(values), name="linear")


@dataclass(frozen=True)
class Fitted:
    """What was learned.

    Attributes:
        overlap: the layer, which knows how rare tokens are.
        kernel: [values, outputs] float32, and `bias` [outputs]: of the layer behind it.
        how: what was chosen.
    """

    overlap: Overlap
    kernel: np.ndarray
    bias: np.ndarray
    how: str

    def logits(self, tokens: Iterable[tf.Tensor]) -> np.ndarray:
        """Tokens [n, time, 2] of some pairs after the other -> [pairs, outputs] float32, as the model gives them."""
        return np.concatenate([self.overlap(one).numpy() @ self.kernel + self.bias for one in tokens])


def put(model: keras.Model, fitted: Fitted) -> None:
    """Sets the weights of a model of `build`."""
    model.get_layer("overlap").weight.assign(fitted.overlap.weight)
    model.get_layer("classes").set_weights([fitted.kernel, fitted.bias])


def cut(source: Source, tokenizer: Tokenizer, key: str) -> Iterator[tuple[tf.Tensor, np.ndarray]]:
    """(tokens [n, time, 2] int32, what stands under `key` [n, ...]) of some pairs after the other."""
    for start in range(0, len(source), AT_ONCE):
        rows = source.gather(tf.range(start, min(start + AT_ONCE, len(source)), dtype=tf.int64))
        yield beside(tokenizer.ids(rows["text"]), tokenizer.ids(rows["text_pair"]))[0], rows[key].numpy()


def fit_numbers(tokens: list[tf.Tensor], numbers: np.ndarray, tokenizer: Tokenizer) -> Fitted:
    """Ridge regression of all pairs; its strength is chosen by leaving out one pair after the other.

    Args:
        tokens: [n, time, 2] each, as `cut` gives them.
        numbers: [pairs, columns].
        tokenizer: by which they were cut.
    """
    from sklearn.linear_model import RidgeCV

    overlap, values, mean, deviation = _described(tokens, tokenizer)
    ridge = RidgeCV(alphas=STRENGTHS).fit((values - mean) / deviation, numbers)
    kernel = np.reshape(ridge.coef_, (numbers.shape[1], -1)).T
    return _fitted(overlap, kernel, ridge.intercept_, mean, deviation, f"ridge regression, {float(ridge.alpha_):g}, chosen on train")


def fit_classes(tokens: list[tf.Tensor], labels: np.ndarray, classes: int, tokenizer: Tokenizer) -> Fitted:
    """Logistic regression of all pairs; as `fit_numbers`, of labels [pairs]. Pairs of another class are left out."""
    from sklearn.linear_model import LogisticRegression

    overlap, values, mean, deviation = _described(tokens, tokenizer)
    inside = labels < classes
    there = np.unique(labels[inside])
    kernel, bias = np.zeros((values.shape[1], classes)), np.full(classes, -30.0)  # of classes that no pair has
    bias[there] = 0.0
    if len(there) > 1:
        machine = LogisticRegression(C=LOGISTIC, max_iter=1000).fit(((values - mean) / deviation)[inside], labels[inside])
        rows, own = machine.coef_, machine.intercept_
        if len(there) == 2:  # then one row divides them, and is positive for the second
            rows, own = np.concatenate([-rows, rows]) / 2, np.concatenate([-own, own]) / 2
        kernel[:, there], bias[there] = rows.T, own
    return _fitted(overlap, kernel, bias, mean, deviation, f"logistic regression, C = {LOGISTIC:g}")


def _described(tokens: list[tf.Tensor], tokenizer: Tokenizer) -> tuple[Overlap, np.ndarray, np.ndarray, np.ndarray]:
    """The layer, its values of all pairs, and their mean and deviation."""
    overlap = Overlap(tokenizer.size, tokenizer.letters)
    overlap.build(None)
    counts, texts = np.zeros(tokenizer.size, np.int64), 0
    for one in tokens:
        rows = np.sort(np.moveaxis(one.numpy(), 2, 1).reshape(-1, one.shape[1]), axis=1)  # a token counts once a text
        new = np.pad(rows[:, 1:] != rows[:, :-1], [(0, 0), (1, 0)], constant_values=True) & (rows != PAD)
        counts, texts = counts + np.bincount(rows[new], minlength=tokenizer.size), texts + len(rows)
    overlap.weight.assign((np.log((1 + texts) / (1 + counts)) + 1.0).astype(np.float32))
    values = np.concatenate([overlap(one).numpy() for one in tokens]).astype(np.float64)
    return overlap, values, values.mean(0), np.maximum(values.std(0), 1e-3)


def _fitted(overlap: Overlap, kernel: np.ndarray, bias: np.ndarray, mean: np.ndarray, deviation: np.ndarray, how: str) -> Fitted:
    kernel = kernel / deviation[:, None]
    return Fitted(overlap, kernel.astype(np.float32), np.asarray(bias - mean @ kernel, np.float32).reshape(-1), how)

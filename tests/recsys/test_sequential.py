"""What comes next is predicted from what came before, and from nothing else."""

import numpy as np
import pytest
import tensorflow as tf

from recsys.models.sequential import SequentialModel
from recsys.settings import SEQUENTIAL_MODELS, Gru, Sasrec


def made(name: str, taste: bool) -> SequentialModel:
    tf.random.set_seed(1)
    settings = {"sasrec": Sasrec, "gru": Gru}[name].model_validate({"name": name, "length": 6, "width": 8, "taste": taste})
    model = SEQUENTIAL_MODELS.build(settings, sampled=False, users=3, items=20, events=9, k=5, chunk=64)
    nothing = tf.zeros([1, 6], tf.int32)
    model({"history": nothing, "positive": nothing, "negatives": nothing[0]})
    for weight in model.trainable_weights:  # small ones would make what is looked for here small, too
        if "vectors" not in weight.path and len(weight.shape) == 2:
            weight.assign(tf.random.stateless_normal(weight.shape, (1, 2), stddev=0.5))
    return model


@pytest.mark.parametrize("taste", [False, True])
@pytest.mark.parametrize("name", ["gru", "sasrec"])
def test_later_items_change_nothing(name, taste):
    model = made(name, taste)
    history = np.array([[0, 0, 3, 7, 11, 2]], np.int32)
    other = np.array([[0, 0, 3, 7, 5, 19]], np.int32)
    ours, theirs = (model.hidden(tf.constant(one)).numpy()[0] for one in (history, other))
    np.testing.assert_allclose(ours[2:4], theirs[2:4], atol=1e-6)
    assert np.abs(ours[4:] - theirs[4:]).max() > 1e-2


def test_taste_remembers_what_the_network_forgot():
    """The order of earlier items means nothing to the taste, which items they were does."""
    model = made("gru", taste=True)
    without = made("gru", taste=False)
    for weight, given in zip(without.weights, [one for one in model.weights if "taste" not in one.path], strict=True):
        weight.assign(given)

    def taste(history: list[int]) -> np.ndarray:
        given = tf.constant([history], tf.int32)
        return (model.hidden(given) - without.hidden(given)).numpy()[0, -1]

    np.testing.assert_allclose(taste([4, 9, 0, 3, 7, 2]), taste([9, 3, 0, 7, 4, 2]), atol=1e-5)
    np.testing.assert_allclose(taste([0, 0, 4, 9, 3, 7]), taste([4, 9, 3, 7, 0, 0]), atol=1e-5)
    assert np.abs(taste([4, 9, 0, 3, 7, 2]) - taste([4, 9, 0, 3, 7, 12])).max() > 1e-2

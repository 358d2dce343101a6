"""The networks: their sizes, and that padding changes nothing, neither answers nor what is learned."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from speech.models import command_model, steps_of, transcript_model
from speech.models.layers import MaskedNorm
from speech.settings import Broadcast, Conformer, DsCnn, Quartz

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(0)
TRANSCRIBERS = [Quartz(name="quartz", width=16, kernels=[5, 7], stride=2), Quartz(name="quartz", width=16, kernels=[5], stride=3),
                Conformer(name="conformer", width=16, depth=2, heads=2, kernel=5)]


@pytest.mark.parametrize("settings", [DsCnn(name="ds_cnn"), Broadcast(name="broadcast"), Broadcast(name="broadcast", width=24)])
def test_commands_fit_small_devices(settings):
    model = command_model(settings, frames=101, width=40, classes=12, facts={}, describe=None)
    assert model.output_shape == (None, 12) and 20_000 < model.count_params() < 100_000
    features = tf.constant(RNG.normal(size=[3, 101, 40]), tf.float32)
    whole = model(features, training=False).numpy()
    assert np.abs(whole[1] - model(features[1:2], training=False).numpy()[0]).max() < 1e-4


@pytest.mark.parametrize("settings", TRANSCRIBERS, ids=["quartz", "quartz3", "conformer"])
def test_padding_changes_no_answer(settings):
    model = transcript_model(settings, width=8, tokens=5, facts={})
    for variable in model.non_trainable_variables:  # statistics as after some training
        if variable.dtype == "float32":
            variable.assign(RNG.uniform(0.5, 1.5, variable.shape))
    frames = np.array([41, 17, 30, 1], np.int32)
    rows = [RNG.normal(size=[count, 8]).astype(np.float32) for count in frames]
    padded = np.stack([np.pad(row, ((0, 57 - len(row)), (0, 0))) for row in rows])
    together = model({"features": padded, "frames": frames}, training=False).numpy()
    for number, row in enumerate(rows):
        alone = model({"features": row[None], "frames": frames[number:number + 1]}, training=False).numpy()[0]
        assert len(alone) == steps_of(settings, len(row))
        assert np.abs(together[number, :len(alone)] - alone).max() < 1e-4


@pytest.mark.parametrize("settings", TRANSCRIBERS[::2], ids=["quartz", "conformer"])
def test_padding_changes_nothing_that_is_learned(settings):
    model = transcript_model(settings.model_copy(update={"dropout": 0.0}), width=8, tokens=5, facts={})
    frames = tf.constant([24, 16])
    features = RNG.normal(size=[2, 24, 8]).astype(np.float32)
    features[1, 16:] = 0
    found = []
    for padding in (0, 13):
        inputs = {"features": tf.constant(np.pad(features, ((0, 0), (0, padding), (0, 0)))), "frames": frames}
        weights, state = [v.value for v in model.trainable_variables], [v.value for v in model.non_trainable_variables]
        weights = [tf.convert_to_tensor(value) for value in weights]
        with tf.GradientTape() as tape:
            tape.watch(weights)
            logits, after = model.stateless_call(weights, state, inputs, training=True)
            own = tf.range(tf.shape(logits)[1])[None, :, None] < steps_of(settings, frames)[:, None, None]
            loss = tf.reduce_sum(tf.where(own, tf.square(logits), 0.0))
        found.append([value.numpy() for value in (*tape.gradient(loss, weights), *after)])
    for first, second in zip(*found):
        assert np.abs(first - second).max() < 1e-3 * max(1.0, np.abs(first).max())


def test_the_norm_over_own_frames_is_keras_own():
    line = tf.constant(RNG.normal(1, 2, [4, 5, 3]), tf.float32)
    masked, plain = MaskedNorm(), keras.layers.BatchNormalization(momentum=0.9)
    assert np.allclose(masked([line, tf.ones([4, 5, 1])], training=True), plain(line, training=True), atol=1e-4)
    own = tf.constant(np.arange(5)[None, :, None] < np.array([5, 2, 3, 1])[:, None, None], tf.float32)
    short = plain(line, training=True, mask=own[..., 0] > 0)
    assert np.allclose(masked([line, own], training=True), short * own, atol=1e-4)

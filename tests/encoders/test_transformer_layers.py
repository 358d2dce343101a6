"""KerasHub's transformer layers in fewer operations against KerasHub's own: outputs, gradients, dropout, LoRA."""

import importlib.util
import os

import keras
import numpy as np
import pytest
import tensorflow as tf

from pipelines.data.draws import Draws, by_example, seeded
from pipelines.machine import compiling

pytestmark = [pytest.mark.slow(seconds=8), pytest.mark.skipif(
    importlib.util.find_spec("keras_hub") is None and not os.environ.get("QUARTET_REQUIRE_EXTRAS"), reason="needs the extra `pretrained`")]

IDS = np.array([[5, 6, 7, 8, 9, 0, 0], [9, 8, 0, 0, 0, 0, 0], [1, 2, 3, 4, 5, 6, 7]], np.int32)
MASK = (IDS > 0).astype(np.int32)


def backbone(dropout: float = 0.0, kind: str = "BertBackbone", **options):
    import keras_hub

    keras.utils.set_random_seed(3)
    sizes = {"vocabulary_size": 20, "num_layers": 2, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 12, "max_sequence_length": 16}
    model = getattr(keras_hub.models, kind)(**sizes, dropout=dropout, **options)
    for weight in model.weights:  # biases and norms, too, have values
        if "seed" not in weight.path:
            weight.assign(weight.numpy() + 0.3 * np.random.default_rng(len(weight.path)).standard_normal(weight.shape))
    return model


def simplified(model):
    from pipelines.encoders.transformer_layers import simplify

    simplify(model)
    assert any("call" in vars(layer) for layer in model._flatten_layers())
    return model


def test_layers_of_a_kerashub_that_computes_otherwise_stay_as_they_are(monkeypatch):
    import keras_hub

    from pipelines.encoders.transformer_layers import simplify

    model = backbone()
    monkeypatch.setattr(keras_hub.layers.TransformerEncoder, "call", lambda self, inputs, **options: self.another_norm(inputs))
    simplify(model)
    assert not any("call" in vars(layer) for layer in model._flatten_layers())


def inputs(model, mask=MASK):
    every = {"token_ids": IDS, "padding_mask": mask, "segment_ids": np.zeros_like(IDS)}
    return {name: tf.constant(every[name]) for name in model.input}


def vectors(model, training=False, mask=MASK):
    found = model(inputs(model, mask), training=training)
    return found["sequence_output"] if isinstance(found, dict) else found


@pytest.mark.parametrize("kind", ["BertBackbone", "DistilBertBackbone", "RobertaBackbone"])
def test_the_numbers_are_those_of_kerashub(kind):
    plain, ours = backbone(kind=kind), simplified(backbone(kind=kind))
    expected = vectors(plain).numpy()
    np.testing.assert_allclose(vectors(ours).numpy()[MASK > 0], expected[MASK > 0], atol=2e-5)
    assert abs(expected[0, :5] - vectors(ours, mask=np.ones_like(MASK)).numpy()[0, :5]).max() > 1e-3  # padding is masked


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_the_gradients_are_those_of_kerashub(parts, dtype):
    before = keras.config.dtype_policy().name
    keras.config.set_dtype_policy(dtype)
    try:
        plain, ours = backbone(), simplified(backbone())
    finally:
        keras.config.set_dtype_policy(before)

    def gradients(model):
        def found():
            with tf.GradientTape() as tape:
                own = tf.boolean_mask(tf.cast(vectors(model, training=True), tf.float32), MASK > 0)
                loss = tf.reduce_sum(own * tf.reshape(tf.cos(tf.range(tf.cast(tf.size(own), tf.float32))), tf.shape(own)))
            slopes = tape.gradient(loss, [weight.value for weight in model.trainable_variables])
            return [tf.zeros([]) if slope is None else tf.convert_to_tensor(slope) for slope in slopes]

        return [slope.numpy() for slope in compiling.function(found, xla=False, parts=parts)()]

    # bfloat16 rounds both, by 1 in 256
    within = {"rtol": 1e-4, "atol": 1e-4} if dtype == "float32" else {"rtol": 0.1, "atol": 0.25}
    for expected, given in zip(gradients(plain), gradients(ours)):
        np.testing.assert_allclose(given, expected, **within)


@pytest.mark.parametrize("kind", ["BertBackbone", "DebertaV3Backbone"])
@pytest.mark.parametrize("parts", [False, True])
def test_a_part_of_a_batch_drops_what_the_whole_one_drops_of_it(kind, parts):
    model = backbone(dropout=0.3, kind=kind)
    model = simplified(model) if kind == "BertBackbone" else model

    def found(rows, length=7):
        def step():
            draws = Draws(tf.constant([1, 2]), tf.range(rows.start, rows.stop))
            given = {name: value[rows.start:rows.stop, :length] for name, value in inputs(model).items()}
            state = seeded(model.non_trainable_variables, model.non_trainable_variables, draws.seed)
            with by_example(draws):
                outputs = model.stateless_call(model.trainable_variables, state, given, training=True)[0]
            return outputs["sequence_output"] if isinstance(outputs, dict) else outputs

        return compiling.function(step, xla=False, parts=parts)().numpy()

    whole = found(range(3))
    assert abs(whole[:1, :5] - found(range(1, 2))[:, :5]).max() > 1e-2
    np.testing.assert_allclose(whole[:2, :5], found(range(2), length=5), atol=1e-4)  # the longest of the two has five tokens
    np.testing.assert_allclose(whole[2:], found(range(2, 3)), atol=1e-4)


def test_the_gradient_of_a_kernel_leaves_out_what_the_kernel_left_out():
    from pipelines.encoders.transformer_layers import _keys, _trained_sum

    layer, (rows, weights) = keras.layers.Dropout(0.5, seed=3), tf.random.stateless_normal([2, 40, 16], [1, 2])

    def found():
        with tf.GradientTape() as tape:
            tape.watch(rows)
            nothing = tf.zeros(16)
            output = _trained_sum(layer.rate, 1e-6)(rows, nothing, tf.zeros_like(rows), tf.ones(16), nothing, *_keys(layer, 40))
            loss = tf.reduce_sum(output * weights)
        return output, tape.gradient(loss, rows)

    output, slope = (one.numpy() for one in compiling.function(found, xla=False, parts=True)())
    lowest = np.abs(output[:, :, None] - output[:, None]) < 1e-6  # what is dropped has one value within a row
    dropped = lowest.sum(2) > 1
    assert 0.4 < dropped.mean() < 0.6 and (slope[dropped] == 0).all() and (slope[~dropped] != 0).all()


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_attention_has_the_gradient_of_its_plain_operations_with_the_same_shares_left_out(rate):
    from pipelines.encoders.transformer_layers import _kept, _trained_attention

    given = tf.unstack(tf.random.stateless_normal([3, 2, 3, 7, 4], [1, 2]))
    own, keys = tf.constant([[True] * 7, [True] * 4 + [False] * 3]), [tf.constant([5, 6], tf.uint32)] if rate else []

    def plain(query, key, value, own, *keys):
        scores = tf.where(own[:, None, None], 0.5 * tf.matmul(query, key, transpose_b=True), tf.float32.min)
        return _kept(tf.nn.softmax(scores), keys, rate) @ value

    def found(attend):
        with tf.GradientTape() as tape:
            tape.watch(given)
            outputs = attend(*given, own, *keys)
            loss = tf.reduce_sum(outputs * tf.cos(tf.reshape(tf.range(168.0), outputs.shape)))
        return [outputs, *tape.gradient(loss, given)]

    for expected, ours in zip(found(plain), found(_trained_attention(rate, 0.5))):
        np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_dropout_is_on_in_training_alone():
    model = simplified(backbone(dropout=0.5))
    first, second, judged = (vectors(model, training=training).numpy() for training in (True, True, False))
    assert abs(first - second).max() > 1e-2 and (vectors(model).numpy() == judged).all()


def test_changes_of_lora_count():
    plain, ours = backbone(), simplified(backbone())
    for model in (plain, ours):
        dense = model.transformer_layers[0]._self_attention_layer._query_dense
        dense.enable_lora(2)
        dense.lora_kernel_b.assign(tf.fill(dense.lora_kernel_b.shape, 0.7))
        dense.lora_kernel_a.assign(tf.fill(dense.lora_kernel_a.shape, 0.2))
    before = vectors(backbone()).numpy()
    assert abs(vectors(plain).numpy() - before).max() > 1e-3
    np.testing.assert_allclose(vectors(ours).numpy()[MASK > 0], vectors(plain).numpy()[MASK > 0], atol=2e-5)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_constant_weights_give_the_same_numbers_and_stay_as_they_were(dtype):
    from pipelines.machine.compiling import constant

    before = keras.config.dtype_policy().name
    keras.config.set_dtype_policy(dtype)
    try:
        model = simplified(backbone(dropout=0.1))
    finally:
        keras.config.set_dtype_policy(before)
    given = inputs(model)
    expected = model(given, training=False)["sequence_output"].numpy()
    outputs = tf.function(constant(model, ("CPU:0",)), autograph=False)
    fixed = outputs(given)["sequence_output"].numpy()
    # a number may round to its neighbour in bfloat16, of 1 in 256
    within = 2e-5 if dtype == "float32" else 0.06
    np.testing.assert_allclose(fixed.astype(np.float32)[MASK > 0], expected.astype(np.float32)[MASK > 0], atol=within)
    for weight in model.trainable_variables:
        weight.assign(weight + 1.0)
    assert (outputs(given)["sequence_output"].numpy() == fixed).all()
    assert abs(constant(model, ("CPU:0",))(given)["sequence_output"].numpy() - fixed)[MASK > 0].max() > 0.1


def test_a_table_that_is_looked_up_is_no_constant_of_the_graph_and_stays_as_it_was_too():
    from pipelines.machine.compiling import constant

    model = simplified(backbone())
    given, table = inputs(model), model.get_layer("token_embedding").embeddings
    outputs = tf.function(constant(model, ("CPU:0",)), autograph=False).get_concrete_function(given)
    held = {tuple(node.attr["value"].tensor.tensor_shape.dim[at].size for at in range(2)) for node in outputs.graph.as_graph_def().node
            if node.op == "Const" and len(node.attr["value"].tensor.tensor_shape.dim) == 2}
    dense = model.transformer_layers[0]._feedforward_intermediate_dense.kernel
    assert tuple(dense.shape) in held and tuple(table.shape) not in held
    before = outputs(given)["sequence_output"].numpy()
    table.assign(table + 1.0)
    assert (outputs(given)["sequence_output"].numpy() == before).all()

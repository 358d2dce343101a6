"""What is compiled by XLA is known while it is traced; a model that cannot be compiled is trained without, and its notes say so."""

import keras
import pytest
import tensorflow as tf

from pipelines.config.train_settings import Train
from pipelines.machine import compiling, devices

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("xla", [True, False])
def test_a_function_knows_whether_xla_compiles_it(xla):
    seen = []

    def pure(value):
        seen.append(compiling.for_xla())
        return value + 1

    made = compiling.function(pure, xla=xla)
    assert int(tf.function(lambda value: made(value))(tf.constant(1))) == 2
    assert seen == [xla] and not compiling.for_xla()


def test_a_layer_that_cannot_be_compiled_switches_xla_off():
    def model(able: bool) -> keras.Model:
        layer = keras.layers.LSTM(2, name="memory")
        layer.supports_jit = able  # as Keras says it of a layer that cuDNN computes
        return keras.Sequential([keras.Input((3, 2)), layer])

    machine = devices.prepare(Train(devices="cpu", precision="float32", xla="on"))
    assert devices.for_model(machine, model(True)) is machine and machine.xla
    changed = devices.for_model(machine, model(False))
    assert not changed.xla and "memory" in changed.notes[-1] and "train.xla" in changed.notes[-1]
    plain = devices.prepare(Train(devices="cpu", precision="float32", xla="off"))
    assert devices.for_model(plain, model(False)) is plain


def test_cudnn_is_left_out_and_comes_back():
    both = keras.layers.Bidirectional(keras.layers.GRU(2))
    model = keras.Sequential([keras.Input((3, 2)), both])
    with compiling.without_cudnn(model):
        assert both.forward_layer.use_cudnn is both.backward_layer.use_cudnn is False
    assert both.forward_layer.use_cudnn == both.backward_layer.use_cudnn == "auto"

"""The converted core of a stranger, made small in each form, to be changed at random and used."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pipelines.base.errors import QuartetError
from pipelines.serving.predict import UNREADABLE
from tests.hostile.mutations import Kind


def make_core(form: str) -> Callable[[Path], list[str]]:
    """A maker of a small convolution converted to `LITERT` or `ONNX`, with the part of a manifest that loads it."""

    def make(place: Path) -> list[str]:
        import keras
        import tensorflow as tf

        from extensions.convert import conversion
        from extensions.convert.core import INPUT, OUTPUT, Core

        chosen = getattr(conversion, form)
        given = keras.Input((8, 8, 1))
        hidden = keras.layers.Conv2D(4, 3, strides=2, activation="relu")(given)
        model = keras.Model(given, keras.layers.Dense(3, activation="softmax")(keras.layers.Flatten()(hidden)))
        spec = tf.TensorSpec([None, 8, 8, 1], tf.float32, INPUT)
        module = tf.Module()
        module.values = [variable.value for variable in model.variables]
        function = tf.function(lambda input_0: {OUTPUT.format(0): model(input_0, training=False)}, input_signature=[spec], autograph=False)
        core = Core(function.get_concrete_function(), spec, {"probabilities": tf.TensorSpec([None, 3], tf.float32)}, module)
        (place / "model").mkdir()
        conversion.convert(core, chosen, np.zeros([2, 8, 8, 1], np.float32), place / "model")
        files = sorted(one.name for one in (place / "model").iterdir())
        (place / "core.json").write_text(json.dumps({"core": chosen.file, "runtime": chosen.runtime, "files": files}))
        return [f"model/{one}" for one in files]

    return make


def make_openvino(place: Path) -> list[str]:
    """The same in OpenVINO's form, built by hand: its converter leaves processes behind."""
    import openvino
    from openvino import opset13 as operations

    from extensions.convert.conversion import OPENVINO

    draw = np.random.default_rng(0).normal
    given = operations.parameter([-1, 8, 8, 1], np.float32)
    turned = operations.transpose(given, operations.constant(np.array([0, 3, 1, 2])))
    weights = operations.constant(draw(size=(4, 1, 3, 3)).astype(np.float32))
    hidden = operations.relu(operations.convolution(turned, weights, [2, 2], [0, 0], [0, 0], [1, 1]))
    flat = operations.reshape(hidden, operations.constant(np.array([0, 36])), True)
    answer = operations.softmax(operations.matmul(flat, operations.constant(draw(size=(36, 3)).astype(np.float32)), False, False), 1)
    answer.output(0).set_names({"output_00"})
    (place / "model").mkdir()
    openvino.save_model(openvino.Model([answer], [given]), str(place / "model" / OPENVINO.file), compress_to_fp16=False)
    files = sorted(one.name for one in (place / "model").iterdir())
    (place / "core.json").write_text(json.dumps({"core": OPENVINO.file, "runtime": "openvino", "files": files}))
    return [f"model/{one}" for one in files]


def use_core(place: Path) -> None:
    """Loaded as of an export whose author wrote the checksums for the files as they are, and asked."""
    import tensorflow as tf

    from extensions.convert.loading import Manifest, checksum, core_of

    about = json.loads((place / "core.json").read_text())
    files = {name: checksum(place / "model" / name) for name in about["files"]}
    manifest = Manifest.model_construct(core=about["core"], runtime=about["runtime"], files=files, shares=[0])
    core = core_of(place / "model", manifest)
    for count in (1, 3):
        tf.numpy_function(core.__call__, [np.ones([count, 8, 8, 1], np.float32)], [tf.float32])  # as a task's answer has it


KINDS = {
    "litert": Kind(make_core("LITERT"), use_core, (QuartetError, *UNREADABLE)),
    "onnx": Kind(make_core("ONNX"), use_core, (QuartetError, *UNREADABLE)),
    "openvino": Kind(make_openvino, use_core, (QuartetError, *UNREADABLE)),
}

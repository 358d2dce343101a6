"""Exported models of a stranger, made small: a SavedModel with variables, a table and strings, and a core of each converted form."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

NAMES = ("saved_model.pb", "saved_model.pb", "saved_model.pb", "quartet.json", "variables/variables.index",
         "variables/variables.data-00000-of-00001", "assets/labels.txt")


def make_saved(place: Path) -> list[str]:
    """As `quartet export` writes one: texts and numbers in, a label, probabilities and a table's answer out."""
    import tensorflow as tf

    from pipelines.serving.export import MANIFEST, SIGNATURE
    from pipelines.serving.export import Manifest as About

    (place / "labels.txt").write_text("no\nyes\n")
    module = tf.Module()
    module.labels = tf.saved_model.Asset(str(place / "labels.txt"))
    module.weight = tf.Variable(np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32))
    keys = tf.lookup.KeyValueTensorInitializer(tf.constant(["a", "b"]), tf.constant([1, 2], tf.int64))
    module.table = tf.lookup.StaticHashTable(keys, 0)

    def answer(text: Any, x: Any) -> dict[str, Any]:
        shares = tf.nn.softmax(tf.matmul(x, module.weight) + tf.cast(module.table.lookup(text), tf.float32)[:, None])
        looped = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 0.5), [0, shares], maximum_iterations=3)[1]
        return {"probabilities": tf.ensure_shape(shares, [None, 2]), "half": tf.reduce_sum(looped, -1)}

    specs = {"text": tf.TensorSpec([None], tf.string, "text"), "x": tf.TensorSpec([None, 4], tf.float32, "x")}
    module.answer = tf.function(answer, input_signature=list(specs.values()), autograph=False)
    tf.saved_model.save(module, str(place / "export"), signatures={SIGNATURE: module.answer})
    about = About(title="toy", task="toy", outputs=["probabilities", "half"], meanings={}, details=[], ranked=[], fills={}, needs=[],
                  sample={})
    (place / "export" / MANIFEST).write_text(about.model_dump_json())
    return [f"export/{name}" for name in NAMES]


def use_saved(place: Path) -> None:
    """Loaded and asked, as a server does it."""
    from pipelines.serving.exported import load_exported

    model = load_exported(place / "export")
    row = {"text": b"a", "x": np.ones([4], np.float32)}
    if set(model.inputs) == set(row):
        model.together([("one", row), ("two", row)])


def make_core(form: str) -> Callable[[Path], list[str]]:
    """A maker of a small convolution converted to `LITERT` or `ONNX`, with the part of a manifest that loads it."""

    def make(place: Path) -> list[str]:
        import keras
        import tensorflow as tf

        from pipelines.serving.converted import conversion
        from pipelines.serving.converted.core import INPUT, OUTPUT, Core

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

    from pipelines.serving.converted.conversion import OPENVINO

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

    from pipelines.serving.converted.loading import Manifest, checksum, core_of

    about = json.loads((place / "core.json").read_text())
    files = {name: checksum(place / "model" / name) for name in about["files"]}
    manifest = Manifest.model_construct(core=about["core"], runtime=about["runtime"], files=files, shares=[0])
    core = core_of(place / "model", manifest)
    for count in (1, 3):
        tf.numpy_function(core.__call__, [np.ones([count, 8, 8, 1], np.float32)], [tf.float32])  # as a task's answer has it

"""The exported model of a stranger, made small: a SavedModel with variables, a table and strings."""

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

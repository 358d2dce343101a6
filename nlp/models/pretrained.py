"""An encoder of keras-hub with its own tokens, and a linear layer on the mean of its vectors. Needs the extra `pretrained`.

The facts hold the preset's encoder settings and tokenizer files, so that a finished run is
rebuilt without the preset. The tokenizers need tensorflow-text, in training and in the saved model.
"""

import base64
import json
import tempfile
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from nlp.models.parts import PAD, Mask, MeanPool, logits
from nlp.settings import Pretrained
from nlp.tokens.base import Cut, Tokenizer
from pipelines.base.errors import ConfigError
from pipelines.base.regular import check_regular


def hub() -> Any:
    """The module keras_hub. Raises ConfigError where it is not installed."""
    try:
        import keras_hub
    except ImportError as error:
        raise ConfigError(f"model: pretrained needs keras-hub, which cannot be imported here ({error}): "
                          "pip install 'keras-quartet[pretrained]'") from None
    return keras_hub


def learn(settings: Pretrained) -> dict[str, Any]:
    """The facts: `backbone` (class and settings), `tokenizer` (class, settings and files in base64). Reads the preset."""
    preset = Path(settings.preset)
    for path in preset.iterdir() if preset.is_dir() else ():
        if not path.is_dir():
            check_regular(path, "model.preset", ConfigError)
    try:
        tokenizer = hub().tokenizers.Tokenizer.from_preset(settings.preset)
        backbone = hub().models.Backbone.from_preset(settings.preset, load_weights=False)
    except ConfigError:
        raise
    except Exception as error:  # keras-hub raises many kinds: no such preset, no network, a broken file
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ConfigError(f"model.preset: {settings.preset} cannot be read ({reason}); name a preset of keras-hub (a download) or the "
                          "folder of one") from error
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_assets(folder)
        files = {path.name: base64.b64encode(path.read_bytes()).decode() for path in sorted(Path(folder).iterdir())}
    return {"backbone": _described(backbone), "tokenizer": {**_described(tokenizer), "files": files}}


def _described(thing: Any) -> dict[str, Any]:
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(thing)["config"]))
    config.pop("dtype", None)  # the precision is the run's
    return {"class": type(thing).__name__, "config": config}


def _named(module: Any, name: str) -> Any:
    """A class of keras-hub by its name, and nothing else, so that facts cannot name code."""
    kind = getattr(module, name, None)
    if not isinstance(kind, type) or not name.isidentifier():
        raise ConfigError(f"facts of the run: keras-hub has no {name}; the version differs")
    return kind


def tokenizer(settings: Pretrained, facts: dict[str, Any]) -> Tokenizer:
    """The preset's tokenizer, with its marks at both ends. Numbers are the preset's plus 1, so that 0 is always padding."""
    kind = _named(hub().tokenizers, facts["tokenizer"]["class"])
    with tf.init_scope(), tempfile.TemporaryDirectory() as folder:  # its tables must not belong to the current graph
        preset = kind.from_config(facts["tokenizer"]["config"])
        for name, content in facts["tokenizer"]["files"].items():
            (Path(folder) / Path(name).name).write_bytes(base64.b64decode(content))
        preset.load_assets(folder)
    start, end = (getattr(preset, f"{name}_token_id", None) for name in ("cls", "sep"))
    start = start if start is not None else getattr(preset, "start_token_id", None)
    end = end if end is not None else getattr(preset, "end_token_id", None)
    marks = (start is not None) + (end is not None)

    def words(texts: tf.Tensor) -> tf.RaggedTensor:
        return tf.strings.split(texts)

    def cut(texts: tf.Tensor) -> Cut:
        ids = preset(texts)
        if not isinstance(ids, tf.RaggedTensor):  # outside of a graph it gives lists
            ids = tf.ragged.constant(ids, dtype=tf.int32, ragged_rank=1)
        ids = tf.cast(ids, tf.int32)[:, : settings.limit - marks] + 1
        ends = [None if mark is None else tf.RaggedTensor.from_tensor(tf.fill([ids.nrows(), 1], mark + 1)) for mark in (start, end)]
        ids = tf.concat([part for part in (ends[0], ids, ends[1]) if part is not None], 1)
        nothing = ids.with_flat_values(tf.zeros_like(ids.flat_values))
        return Cut(ids, nothing, nothing)

    return Tokenizer(int(preset.vocabulary_size()) + 1, words, cut)


def build(settings: Pretrained, *, facts: dict[str, Any], classes: int) -> keras.Model:
    """From token numbers (the preset's plus 1) to logits; with the preset's weights where settings.weights says so."""
    if settings.weights == "preset":
        backbone = hub().models.Backbone.from_preset(settings.preset)
    else:
        backbone = _named(hub().models, facts["backbone"]["class"]).from_config(facts["backbone"]["config"])
    ids = keras.Input((None,), dtype="int32", name="tokens")
    inputs = {"token_ids": Shifted(name="token_ids")(ids), "padding_mask": Mask(name="padding_mask")(ids)}
    wanted = {tensor.name.split(":")[0] for tensor in keras.tree.flatten(backbone.input)}
    if "segment_ids" in wanted:
        inputs["segment_ids"] = keras.ops.zeros_like(inputs["token_ids"])
    outputs = backbone({name: value for name, value in inputs.items() if name in wanted})
    sequence = outputs["sequence_output"] if isinstance(outputs, dict) else outputs
    pooled = MeanPool(name="mean")([sequence, ids])
    return keras.Model(ids, logits(pooled, classes, settings.dropout), name="pretrained")


class Shifted(keras.layers.Layer):
    """Our numbers as the preset's; padding becomes 0, and is masked."""

    def call(self, ids):
        return tf.where(ids == PAD, 0, ids - 1)

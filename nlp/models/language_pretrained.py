"""A language model of KerasHub in Llama's shape, read into our own network: so it is trained, written with and exported as all are."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nlp.models.language import LanguageNetwork, Shape
from nlp.settings import LanguagePreset
from nlp.tokens import preset as preset_tokens
from pipelines.base.errors import ConfigError
from pipelines.encoders.presets import description, find, load, record
from pipelines.task.writer import Way
from pipelines.training.weight_limits import bounded

ALIKE = ("LlamaBackbone", "Llama3Backbone", "MistralBackbone")  # of this shape
SCALED = ("rope_frequency_adjustment_factor", "rope_low_freq_factor", "rope_high_freq_factor")


def learn(settings: LanguagePreset) -> dict[str, Any]:
    """The facts `encoder`, `backbone` and `tokenizer` of a preset.

    Raises:
        ConfigError: see `pipelines.encoders.presets.find`; or it is of another shape.
    """
    preset = find(settings.preset, domain="nlp")
    if preset.backbone not in ALIKE:
        raise ConfigError(f"{preset.key}: {preset.handle} is a {preset.backbone}, and texts are written by {', '.join(ALIKE)}; take a "
                          "preset of one of these, or model.name: transformer, from scratch")
    tokenizer = preset_tokens.read(preset)
    with bounded(f"{preset.key}: {preset.handle}"):
        backbone = load(preset, weights=False)
    facts = {"encoder": record(preset), "backbone": description(backbone), "tokenizer": preset_tokens.kept(tokenizer)}
    facts["backbone"]["config"]["tie_word_embeddings"] = bool(backbone.token_embedding.tie_weights)  # which keras-hub leaves out
    shape_of(facts["backbone"]["config"], settings.dropout)
    window = facts["backbone"]["config"].get("sliding_window")
    if window is not None and window < settings.length:
        raise ConfigError(f"model.length: {settings.length} tokens, and {settings.preset} sees {window} at a time; lower it")
    return facts


def shape_of(config: dict[str, Any], dropout: float) -> Shape:
    """Raises ConfigError where places are turned in another way."""
    if any(config.get(name) is not None for name in SCALED) or config.get("rope_position_scaling_factor", 1.0) != 1.0 or (
            config.get("rope_scaling_factor", 1.0) != 1.0):
        raise ConfigError("model.preset: it turns places by scaled wavelengths, which is not built")
    return Shape(config["hidden_dim"], config["num_layers"], config["num_query_heads"], config["num_key_value_heads"],
                 config["intermediate_dim"], dropout, float(config["rope_max_wavelength"]), float(config["layer_norm_epsilon"]),
                 tied=bool(config.get("tie_word_embeddings")), padded=True)


def build(settings: LanguagePreset, *, size: int, end: int, facts: dict[str, Any], writing: Way) -> keras.Model:
    """With the preset's weights where settings.weights says so. With `lora`, changes of low rank train, and nothing else."""
    model = LanguageNetwork(shape_of(facts["backbone"]["config"], settings.dropout), size, end, writing)
    model({"tokens": tf.zeros([1, 2], tf.int32)})
    if settings.weights == "preset":
        _read(model, load(find(settings.preset, domain="nlp")))
    if settings.lora:
        for layer in (model.vectors, model.norm, *([model.last] if model.last else [])):
            layer.trainable = False
        for block in model.blocks:
            for norm in block.norms:
                norm.trainable = False
            for layer in (block.mixed, block.out, block.inner, block.inner_out):
                layer.enable_lora(settings.lora)
    return model


def _read(model: LanguageNetwork, backbone: Any) -> None:
    """KerasHub's weights; the first row of ours is that of padding."""
    def flat(layer: Any, inputs: int) -> np.ndarray:
        return keras.ops.convert_to_numpy(layer.kernel).reshape(inputs, -1)

    width = model.vectors.output_dim
    table = backbone.token_embedding
    model.vectors.embeddings.assign(np.pad(keras.ops.convert_to_numpy(table.embeddings), [[1, 0], [0, 0]]))
    if model.last is not None:
        model.last.kernel.assign(np.pad(keras.ops.convert_to_numpy(table.reverse_embeddings), [[0, 0], [1, 0]]))
    model.norm.scale.assign(backbone.layer_norm.scale)
    for block, layer in zip(model.blocks, backbone.transformer_layers):
        attention = layer._self_attention_layer
        parts = [flat(part, width) for part in (attention._query_dense, attention._key_dense, attention._value_dense)]
        block.mixed.kernel.assign(np.concatenate(parts, 1))
        block.out.kernel.assign(keras.ops.convert_to_numpy(attention._output_dense.kernel).reshape(-1, width))
        block.inner.kernel.assign(np.concatenate([flat(layer._feedforward_gate_dense, width),
                                                  flat(layer._feedforward_intermediate_dense, width)], 1))
        block.inner_out.kernel.assign(layer._feedforward_output_dense.kernel)
        block.norms[0].scale.assign(layer._self_attention_layernorm.scale)
        block.norms[1].scale.assign(layer._feedforward_layernorm.scale)

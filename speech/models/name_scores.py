"""What Whisper's decoder thinks is said, of the names of some classes alone: a score of each, beside what the encoder heard.

Trained classes are told apart by voices that training has heard; the decoder has heard thousands, and knows the word.
"""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import tensorflow as tf

from pipelines.encoders.features import ClassScores
from speech.models.whisper_decoder import Decoder


class NameScores(ClassScores):
    """Vectors of the encoder [batch, steps, width] to log probabilities [batch, classes] float32, as if nothing but one of these names were
    the first word. A name is known by its first token. Nothing of it trains.

    Args:
        backbone: keras_hub.models.WhisperBackbone, of which the decoder's layers are taken and some rows of its tables.
        names: the fact: `prompt`, the tokens before the first word, and `first`, the first token of each name.
    """

    def __init__(self, backbone: Any, names: Mapping[str, Sequence[int]], **options: Any):
        super().__init__(**options)
        self.heads, self.places_before, self.classes = backbone.num_heads, len(names["prompt"]), len(names["first"])
        self.decoder_layers = list(backbone.decoder_transformer_layers)
        self.last_norm = backbone.decoder_layer_norm
        embedding = backbone.decoder_embeddings
        rows = tf.gather(tf.convert_to_tensor(embedding.token_embedding.embeddings), [*names["prompt"], *names["first"]])
        places = tf.convert_to_tensor(embedding.position_embedding.position_embeddings)[:self.places_before]
        self.rows, self.places = self._kept(rows, "rows"), self._kept(places, "places")
        self.trainable = False

    def _kept(self, values: tf.Tensor, name: str) -> Any:
        return self.add_weight(shape=tuple(values.shape), name=name, initializer=lambda shape, dtype=None: tf.cast(values, dtype))

    def get_config(self) -> dict[str, Any]:
        return {"name": self.name}  # a run is built again from its experiment

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (input_shape[0], self.classes)

    def call(self, sound: Any) -> tf.Tensor:
        embedding = SimpleNamespace(token_embedding=SimpleNamespace(embeddings=self.rows),
                                    position_embedding=SimpleNamespace(position_embeddings=self.places))
        decoder = Decoder(embedding, self.decoder_layers, self.last_norm, heads=self.heads, most=self.places_before, sound=sound)
        batch = tf.shape(sound)[0]
        prompt = tf.tile(tf.range(self.places_before)[None], [batch, 1])
        logits, _ = decoder(prompt, 0, decoder.empty(batch))
        return tf.nn.log_softmax(tf.cast(logits[:, self.places_before:], tf.float32))

"""Layers that stand still, for some epochs or the whole run."""

import fnmatch

import keras

from pipelines.base.errors import ConfigError
from pipelines.config.train_settings import Freeze
from pipelines.encoders.finetune import Gradual
from pipelines.encoders.trainable import Block, blocks, freeze, unfreeze
from pipelines.training.embedding_tables import Table
from pipelines.training.loop import Hook, Loop
from pipelines.training.moving_statistics import norms


class Unfreeze(Hook):
    """Freezes layers by name, and frees them after some epochs."""

    def __init__(self, freeze: Freeze, model: keras.Model):
        self.freeze = freeze
        layers = [layer for layer in model._flatten_layers(include_self=False) if layer.weights or isinstance(layer, Table)]
        self.layers = [layer for layer in layers if any(fnmatch.fnmatchcase(layer.name, pattern) for pattern in freeze.layers)]
        unmatched = [p for p in freeze.layers if not any(fnmatch.fnmatchcase(layer.name, p) for layer in layers)]
        if unmatched:
            raise ConfigError(
                f"train.freeze.layers: {unmatched[0]!r} matches no layer; the model has {', '.join(layer.name for layer in layers)}"
            )
        frozen = {id(weight) for layer in self.layers for weight in layer.trainable_weights}
        if all(id(weight) in frozen for weight in model.trainable_weights):
            raise ConfigError("train.freeze.layers: every layer with weights is frozen; nothing would train")

    def on_start(self, loop: Loop) -> None:
        self._set(loop, self.freeze.epochs is not None and loop.epoch >= self.freeze.epochs)

    def on_epoch(self, loop: Loop) -> None:
        if self.freeze.epochs is not None and loop.epoch == self.freeze.epochs:
            self._set(loop, True)

    def _set(self, loop: Loop, trainable: bool) -> None:
        for layer in self.layers:
            layer.trainable = trainable
        loop.run_steps.retrace()


class GradualUnfreeze(Hook):
    """Frees an encoder's blocks one after the other, from its output to its input. Batch norms stay as they are: with the statistics of a
    batch the features would no longer be those that the head and the blocks behind were trained on (EfficientNet-Lite0, 320 photos of hands
    at 64 px, validation after the first block: 69.9 for 42.3 %)."""

    def __init__(self, way: Gradual, model: keras.Model):
        self.epochs, self.blocks, self.model = way.epochs, blocks(model), model

    def on_start(self, loop: Loop) -> None:
        self._set(loop)

    def on_epoch(self, loop: Loop) -> None:
        if loop.epoch % self.epochs == 0 and loop.epoch // self.epochs <= len(self.blocks):
            self._set(loop)

    def _set(self, loop: Loop) -> None:
        """As many blocks train as the epochs that are over say."""
        place = max(0, len(self.blocks) - loop.epoch // self.epochs)
        freeze(_layers(self.blocks[:place]))
        unfreeze(_layers(self.blocks[place:]))
        freeze(norms(self.model))
        loop.run_steps.retrace()


def _layers(some: list[Block]) -> Block:
    return [layer for block in some for layer in block]

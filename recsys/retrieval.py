"""recsys.retrieval: which items for this user, by two towers. An example is an event; its history is cut in the model, in graph."""

from typing import Any

import keras_rs
import numpy as np
import tensorflow as tf

from pipelines.data.source import ArraySource, Source, Tensors
from recsys.catalogue import Catalogue
from recsys.list_task import ListTask
from recsys.models.towers import TowersModel
from recsys.protocol import TRAIN, VALIDATION
from recsys.sampling import Sampler
from recsys.sequential import NO_SEED
from recsys.settings import Retrieval


class RetrievalTask(ListTask):
    """recsys.retrieval."""

    experiment: Retrieval

    @property
    def history_length(self) -> int:
        return max(1, self.experiment.model.history)

    def training(self, made: Catalogue) -> tuple[Source, dict[str, Any]]:
        train, stored = made.histories((TRAIN,)), made.histories((TRAIN, VALIDATION))
        users = np.repeat(np.arange(len(train.offsets) - 1), train.counts()).astype(np.int32)
        # train events stand first among those stored of a user
        at = stored.offsets[users] + np.arange(len(users)) - train.offsets[users]
        self._sampler = Sampler(made.counts, self.experiment.loss.power)
        # in-batch negatives come as often as their item in train
        self._frequency = Sampler(np.maximum(made.counts - 1, 0), 1.0)
        arrays = {"user": users, "item": train.items, "at": at.astype(np.int64)}
        return ArraySource(arrays, title=made.log.place, fingerprint=f"{made.log.digest}-events-{len(users)}"), {}

    def build(self, options: dict[str, Any]) -> TowersModel:
        model = TowersModel(self.experiment.model, features=list(self.facts["features"].values()), **options)
        nothing = tf.zeros([1], tf.int32)
        model({"user": nothing, "positive": nothing, "at": tf.zeros([1], tf.int64), "negatives": nothing})
        return model

    def learning(self, examples: Tensors, seed: tf.Tensor | None) -> tuple[Tensors, Tensors]:
        inputs = {"user": examples["user"], "positive": examples["item"], "at": examples["at"]}
        targets = {"positive": examples["item"], "frequency": self._frequency.log_share(examples["item"])}
        if self.experiment.loss.negatives:
            count = self.experiment.loss.negatives
            drawn = self._sampler.draw(count, seed if seed is not None else tf.constant(NO_SEED))
            inputs["negatives"] = targets["negatives"] = drawn
            targets["expected"] = self._sampler.log_share(drawn) + float(np.log(count))
        return inputs, targets

    def loss(self, outputs: Any, targets: Any, training: bool) -> tf.Tensor:
        """-log softmax of the true item among the items of the batch and those drawn, nats, [batch] float32.

        With correction each of the others counts less the logarithm of how often it is expected there (Yi et al. 2019); other
        examples with the same item are left out.
        """
        if "loss" in outputs:
            return outputs["loss"]
        settings, positive = self.experiment.loss, targets["positive"]
        batch = tf.shape(positive)[0]
        scores = tf.matmul(outputs["users"], outputs["positive"], transpose_b=True) + outputs["positive_bias"]
        own = tf.linalg.diag_part(scores)
        if settings.correction:
            scores -= targets["frequency"] + tf.math.log(tf.cast(batch, tf.float32))
        scores = tf.where(positive[None, :] == positive[:, None], -1e9, scores)
        if "negatives" in outputs:
            more = tf.matmul(outputs["users"], outputs["negatives"], transpose_b=True) + outputs["negatives_bias"]
            if settings.correction:
                more -= targets["expected"]
            more = tf.where(targets["negatives"][None, :] == positive[:, None], -1e9, more)
            scores = tf.concat([scores, more], -1)
        logits = tf.concat([own[:, None], scores], -1)
        if settings.hard and training:
            truth = tf.concat([tf.ones_like(own)[:, None], tf.zeros_like(scores)], -1)
            logits, truth = keras_rs.layers.HardNegativeMining(settings.hard)(logits, truth)
            own = tf.reduce_sum(logits * truth, -1)
        return tf.reduce_logsumexp(logits, -1) - own

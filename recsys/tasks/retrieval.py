"""recsys.retrieval: which items for this user, by two towers or by a model in closed form.

Towers learn from events, whose histories are cut in the model, in graph; the others are fitted to users with all of theirs, before step 0.
"""

from typing import Any

import keras_rs
import numpy as np
import tensorflow as tf

from pipelines.data.device_constants import Held
from pipelines.data.source import ArraySource, Source, Tensors
from pipelines.task.contract import Learning
from recsys.data.catalogue import Catalogue
from recsys.data.log import index_type
from recsys.data.protocol import TRAIN, VALIDATION
from recsys.metrics.users import train_users
from recsys.models.base import ScoringModel
from recsys.models.sampling import Sampler
from recsys.settings import RETRIEVAL_MODELS, ClosedForm, Retrieval
from recsys.tasks.histories import Histories
from recsys.tasks.lists import Lists, ListTask
from recsys.tasks.sequential import NO_SEED

LENGTHS = 8  # different numbers of a batch's items that the step is compiled for, at most
ABSENT = 1e9  # subtracted from the score of padding


class Events(Histories):
    """Training examples of towers are events; of models in closed form users."""

    experiment: Retrieval

    @property
    def history_length(self) -> int | None:
        return None if self.closed_form else max(1, self.experiment.model.history)

    @property
    def takes_history(self) -> bool:
        return self.closed_form or self.experiment.model.history > 0

    @property
    def columns(self) -> list[dict[str, Any]]:
        of_users = (one for one in self.facts["features"].values() if one["of"] == "user" and one["kind"] != "vector")
        return [] if self.closed_form else list(of_users)

    def training(self, catalogue: Catalogue) -> tuple[Source, dict[str, Any]]:
        if self.closed_form:
            assert catalogue.user_ids is not None
            self._users = train_users(catalogue, len(catalogue.user_ids), **self.of_users)
            return self._users, {}
        train, stored = catalogue.histories((TRAIN,)), catalogue.offsets((TRAIN, VALIDATION))
        users = np.repeat(np.arange(len(train.offsets) - 1, dtype=np.int32), train.counts())
        # train events stand first among those stored of a user
        at = (stored[users] + np.arange(len(users)) - train.offsets[users]).astype(index_type(int(stored[-1])))
        self._sampler = Sampler(catalogue.counts, self.experiment.loss.power, catalogue.new_items)
        self._shares = Held((catalogue.counts / max(1, catalogue.counts.sum())).astype(np.float32))
        arrays = {"user": users, "item": train.items, "at": at}
        return ArraySource(arrays, title=catalogue.log.place, fingerprint=f"{catalogue.log.digest}-events-{len(users)}"), {}

    def fitted(self, settings: ClosedForm, *, final: bool = False) -> Any:
        basis = (self.shown or self._users).basis
        return basis.fit(settings, self.experiment.evaluate, final=final, seed=self.experiment.train.seed)

    def learning(self, examples: Tensors, seed: tf.Tensor | None) -> tuple[Tensors, Tensors]:
        """Inputs: the events' users, and each item of the batch once; targets: the place of each event's item among these."""
        items, place = tf.unique(examples["item"])
        batch = tf.shape(place)[0]
        # to one of a few lengths, so that a compiled step is compiled a few times only
        unit = tf.maximum(batch // LENGTHS, 1)
        items = tf.pad(items, [[0, -tf.size(items) % unit]])
        inputs = {"user": examples["user"], "positive": items, "at": tf.cast(examples["at"], tf.int64)}
        # how probably an item is in a batch: the rarer, the more its being there says
        share = tf.minimum(tf.gather(self._shares.tensor(), items), 1.0 - 1e-6)
        present = tf.math.log(tf.maximum(-tf.math.expm1(tf.cast(batch, tf.float32) * tf.math.log1p(-share)), 1e-12))
        correction = present if self.experiment.loss.correction else tf.zeros_like(present)
        targets = {
            "place": place,
            "item": examples["item"],
            "present": tf.where(items > 0, correction, ABSENT),
            "own": tf.gather(correction, place),
        }
        if self.experiment.loss.negatives:
            count = self.experiment.loss.negatives
            drawn = self._sampler.draw(count, seed if seed is not None else tf.constant(NO_SEED))
            inputs["negatives"] = targets["negatives"] = drawn
            expected = self._sampler.log_share(drawn) + float(np.log(count))
            targets["expected"] = expected if self.experiment.loss.correction else tf.zeros_like(expected)
        return inputs, targets


class RetrievedLists(Lists):
    """Learned by a softmax over the items of the batch."""

    learning = Learning(mixes="The softmax over the items of the batch")
    experiment: Retrieval

    def loss(self, outputs: Any, targets: Any, training: bool) -> tf.Tensor:
        """-log softmax of the true item among the items of the batch, each once, and those drawn, nats, [batch] float32.

        With correction each of the others counts less the logarithm of how probably it is there (Yi et al. 2019); the true item, which
        is always there, counts as it is. With L the loss where all are corrected and p the true item's probability of being there,
        that is L + log(1 - exp(-L) (1 - p)) - log p.
        """
        if "loss" in outputs:
            return outputs["loss"]
        place = targets["place"]
        # the column's part of the score goes through the product, which saves a pass over [batch, items]
        users = tf.pad(outputs["users"], [[0, 0], [0, 1]], constant_values=1.0)
        columns = [_with(outputs["positive"], outputs["positive_bias"] - targets["present"])]
        if "negatives" in outputs:
            columns.append(_with(outputs["negatives"], outputs["negatives_bias"] - targets["expected"]))
        logits = tf.matmul(users, tf.concat(columns, 0), transpose_b=True)
        if "negatives" in outputs:
            same = targets["negatives"][None, :] == targets["item"][:, None]
            room = tf.shape(logits)[1] - tf.shape(same)[1]
            logits = tf.where(tf.pad(same, [[0, 0], [room, 0]]), -1e9, logits)
        if self.experiment.loss.hard and training:
            truth = tf.one_hot(place, tf.shape(logits)[1])
            logits, truth = keras_rs.layers.HardNegativeMining(self.experiment.loss.hard)(logits, truth)
            place = tf.argmax(truth, -1, tf.int32)
        lost = tf.nn.sparse_softmax_cross_entropy_with_logits(place, tf.cast(logits, tf.float32))
        log_p = targets["own"]
        return lost + tf.math.log1p(tf.exp(-lost) * tf.math.expm1(log_p)) - log_p


class RetrievalTask(ListTask):
    """recsys.retrieval."""

    input_class, output_class = Events, RetrievedLists
    experiment: Retrieval

    def build(self, options: dict[str, Any]) -> ScoringModel:
        model: ScoringModel = RETRIEVAL_MODELS.build(self.experiment.model, features=list(self.facts["features"].values()), **options)
        if self.input.closed_form:
            return model
        nothing = tf.zeros([1], tf.int32)
        model({"user": nothing, "positive": nothing, "at": tf.zeros([1], tf.int64), "negatives": nothing})
        return model


def _with(vectors: tf.Tensor, more: tf.Tensor) -> tf.Tensor:
    """Vectors [n, width] with one more entry."""
    return tf.concat([vectors, more[:, None]], -1)

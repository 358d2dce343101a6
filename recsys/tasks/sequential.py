"""recsys.sequential: which item next, from the history. Examples are windows of histories, cut in graph."""

from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.base.errors import DataError
from pipelines.data.source import Source, Tensors
from recsys.data.catalogue import Catalogue
from recsys.data.facts import WindowFacts
from recsys.data.protocol import TRAIN
from recsys.models.sampling import Sampler
from recsys.models.sequential import SequentialModel
from recsys.settings import SEQUENTIAL_MODELS, Sequential
from recsys.tasks.histories import Histories
from recsys.tasks.lists import Lists, ListTask

NO_SEED = (0, 0)  # for negatives where a batch is looked at outside of training


class WindowSource(Source):
    """Windows of `length` + 1 successive items of one user, 0 in front: every item but a user's first is a target once.

    Args:
        items: [events] int32, by user and time; offsets [users + 1]: where those of each begin.
        length: inputs in a window; the item after each of them is its target.
    """

    def __init__(self, items: np.ndarray, offsets: np.ndarray, length: int, *, place: str, fingerprint: str):
        self.length, self._place, self._fingerprint = length, place, fingerprint
        starts, stops = [], []
        for start, stop in zip(offsets.tolist(), offsets[1:].tolist()):
            for end in range(stop, start + 1, -length):
                starts.append(max(start, end - length - 1))
                stops.append(end)
        self.starts, self.stops = np.asarray(starts, np.int64), np.asarray(stops, np.int64)
        self.items = items
        self.spec = {"window": tf.TensorSpec([length + 1], tf.int32)}
        self._tensors: tuple[tf.Tensor, ...] | None = None

    @property
    def targets(self) -> int:
        """Items that are predicted, over all windows."""
        return int((self.stops - self.starts - 1).sum())

    def __len__(self) -> int:
        return len(self.starts)

    def gather(self, numbers: tf.Tensor) -> Tensors:
        if self._tensors is None:
            with tf.init_scope(), tf.device("CPU:0"):
                self._tensors = tf.constant(self.items), tf.constant(self.starts), tf.constant(self.stops)
        items, starts, stops = self._tensors
        start, stop = tf.gather(starts, numbers)[:, None], tf.gather(stops, numbers)[:, None]
        places = stop - (self.length + 1) + tf.range(self.length + 1, dtype=tf.int64)
        window = tf.where(places >= start, tf.gather(items, tf.maximum(places, 0)), 0)
        return {"window": tf.ensure_shape(window, [None, self.length + 1])}

    def name(self, number: int) -> str:
        return f"{self._place}: events {int(self.starts[number])} to {int(self.stops[number]) - 1} in the order of users and time"

    def fingerprint(self) -> str:
        return self._fingerprint


class Windows(Histories):
    """Training examples are windows of histories. Further facts: `targets_per_window`."""

    experiment: Sequential

    @property
    def history_length(self) -> int:
        return self.experiment.model.length

    def training(self, catalogue: Catalogue) -> tuple[Source, dict[str, Any]]:
        histories = catalogue.histories((TRAIN,))
        source = WindowSource(
            histories.items,
            histories.offsets,
            self.history_length,
            place=catalogue.log.place,
            fingerprint=f"{catalogue.log.digest}-windows-{self.history_length}-{len(histories.items)}",
        )
        if not len(source) and not self.facts:
            raise DataError(f"{catalogue.log.place}: no user has two events to train on; a next item needs one before it")
        self._sampler = Sampler(catalogue.counts, self.experiment.loss.power)
        return source, {"targets_per_window": source.targets / max(1, len(source))}

    def learning(self, examples: Tensors, seed: tf.Tensor | None) -> tuple[Tensors, Tensors]:
        history, positive = examples["window"][:, :-1], examples["window"][:, 1:]
        # the last item of a window is a target, and its first an input alone; where an input is missing nothing can be predicted
        positive = tf.where(history > 0, positive, 0)
        inputs, targets = {"history": history, "positive": positive}, {"positive": positive}
        if self.experiment.loss.name == "sampled":
            drawn = self._sampler.draw(self.experiment.loss.negatives, seed if seed is not None else tf.constant(NO_SEED))
            inputs["negatives"] = targets["negatives"] = drawn
            targets["expected"] = self._sampler.log_share(drawn) + float(np.log(self.experiment.loss.negatives))
        return inputs, targets


class NextItems(Lists):
    """Learned by a softmax over all items, or over some that are drawn."""

    experiment: Sequential

    def loss(self, outputs: Any, targets: Any, training: bool) -> tf.Tensor:
        """-log softmax of the true next item, nats, summed over a window and divided by the targets of the average window.

        Sampled: over the true item and the drawn ones, each of these less the logarithm of how often it is drawn on average
        (Bengio and Senécal 2003; Jean et al. 2015); draws of the true item are left out.
        """
        if "loss" in outputs:
            return outputs["loss"]
        positive = targets["positive"]
        hidden = outputs["hidden"]
        if "items" in outputs:
            logits = tf.cast(tf.einsum("blw,iw->bli", hidden, outputs["items"]), tf.float32) + outputs["bias"]
            lost = tf.nn.sparse_softmax_cross_entropy_with_logits(positive, logits)
        else:
            own = tf.cast(tf.reduce_sum(hidden * outputs["positive_vectors"], -1), tf.float32) + outputs["positive_bias"]
            others = tf.cast(tf.einsum("blw,sw->bls", hidden, outputs["negatives_vectors"]), tf.float32)
            others += outputs["negatives_bias"] - targets["expected"]
            others = tf.where(targets["negatives"][None, None, :] == positive[:, :, None], -1e9, others)
            lost = tf.reduce_logsumexp(tf.concat([own[..., None], others], -1), -1) - own
        counted = tf.cast(positive > 0, tf.float32)
        return tf.reduce_sum(lost * counted, -1) / float(self.facts["targets_per_window"])


class SequentialTask(ListTask):
    """recsys.sequential."""

    input_class, output_class = Windows, NextItems
    facts_schema = WindowFacts
    experiment: Sequential

    def build(self, options: dict[str, Any]) -> SequentialModel:
        model: SequentialModel = SEQUENTIAL_MODELS.build(self.experiment.model, sampled=self.experiment.loss.name == "sampled", **options)
        nothing = tf.zeros([1, self.input.history_length], tf.int32)
        model({"history": nothing, "positive": nothing, "negatives": nothing[0]})
        return model

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
    """Windows of up to `length` + 1 successive items of one user: every item but a user's first is a target once.

    An example is a row: "window" [length + 1] int32, filled up with 0 in front. Packed, a row has as many windows as it has room for, each
    of a user of its own or not, and "segment" [length + 1] int32 numbers them from 1 (0: nothing), "back" [length + 1] int32 says how many
    of its window's items stand behind each.

    Args:
        items: [events] int32, by user and time; offsets [users + 1]: where those of each begin.
        length: inputs in a window; the item after each of them is its target.
        packed: windows shorter than a row share one.
    """

    def __init__(self, items: np.ndarray, offsets: np.ndarray, length: int, *, packed: bool, place: str, fingerprint: str):
        self.length, self.packed, self._place, self._fingerprint = length, packed, place, fingerprint
        counts = np.diff(offsets)
        windows = np.maximum(0, -(-(counts - 1) // length))
        users = np.repeat(np.arange(len(counts)), windows)
        which = np.arange(len(users)) - np.repeat(np.cumsum(windows) - windows, windows)  # from a user's latest on
        stops = offsets[1:][users] - which * length
        starts = np.maximum(offsets[:-1][users], stops - length - 1)
        self.targets = int((stops - starts - 1).sum())
        rows = pack(stops - starts, length + 1) if packed else np.arange(len(starts))
        order = np.argsort(rows, kind="stable")
        self.starts, self.stops = starts[order].astype(np.int64), stops[order].astype(np.int64)
        self._first = np.searchsorted(rows[order], np.arange(rows.max(initial=-1) + 2))  # window of each row
        # windows one behind the other: where each begins, and the end
        self._begin = np.concatenate([[0], np.cumsum(self.stops - self.starts)])
        self.items = items
        row = tf.TensorSpec([length + 1], tf.int32)
        self.spec = {"window": row, "segment": row, "back": row} if packed else {"window": row}
        self._tensors: tuple[tf.Tensor, ...] | None = None

    def __len__(self) -> int:
        return len(self._first) - 1

    def gather(self, numbers: tf.Tensor) -> Tensors:
        if self._tensors is None:
            with tf.init_scope(), tf.device("CPU:0"):
                self._tensors = tuple(map(tf.constant, (self.items, self.starts, self._begin, self._first)))
        items, starts, begin, first = self._tensors
        own, end = tf.gather(first, numbers)[:, None], tf.gather(begin, tf.gather(first, numbers + 1))[:, None]
        places = end - (self.length + 1) + tf.range(self.length + 1, dtype=tf.int64)
        there = places >= tf.gather(begin, own)
        places = tf.where(there, places, end - 1)
        window = tf.searchsorted(begin, tf.reshape(places, [-1]), side="right", out_type=tf.int64) - 1
        window = tf.reshape(window, tf.shape(places))
        event = tf.gather(starts, window) + places - tf.gather(begin, window)
        row = {"window": tf.gather(items, event)}
        if self.packed:
            row |= {"segment": tf.cast(window - own + 1, tf.int32), "back": tf.cast(tf.gather(begin, window + 1) - 1 - places, tf.int32)}
        return {name: tf.ensure_shape(tf.where(there, value, 0), [None, self.length + 1]) for name, value in row.items()}

    def name(self, number: int) -> str:
        spans = range(int(self._first[number]), int(self._first[number + 1]))
        events = ", ".join(f"{int(self.starts[window])} to {int(self.stops[window]) - 1}" for window in spans)
        return f"{self._place}: events {events} in the order of users and time"

    def fingerprint(self) -> str:
        return self._fingerprint


def pack(sizes: np.ndarray, room: int) -> np.ndarray:
    """The row of each window, [n]: the largest first, each into the row with the least room that has enough. `room`: what a row holds."""
    rows, count = np.zeros(len(sizes), np.int64), 0
    free: list[np.ndarray] = [np.zeros(0, np.int64)] * (room + 1)  # rows by what they have left
    for size in range(room, 0, -1):
        waiting = np.flatnonzero(sizes == size)
        while len(waiting):
            left = next((left for left in range(size, room + 1) if len(free[left])), room)
            if not len(free[left]):
                new = -(-len(waiting) // (room // size))
                free[room], count = np.arange(count, count + new), count + new
            taken = min(len(waiting), len(free[left]))
            rows[waiting[:taken]] = free[left][:taken]
            free[left - size] = np.concatenate([free[left - size], free[left][:taken]])
            free[left], waiting = free[left][taken:], waiting[taken:]
    return rows


class Windows(Histories):
    """Training examples are windows of histories. Further facts: `targets_per_window`."""

    experiment: Sequential

    @property
    def history_length(self) -> int:
        return self.experiment.model.length

    def training(self, catalogue: Catalogue) -> tuple[Source, dict[str, Any]]:
        histories, kind = catalogue.histories((TRAIN,)), "rows" if self.experiment.model.packs else "windows"
        source = WindowSource(
            histories.items,
            histories.offsets,
            self.history_length,
            packed=self.experiment.model.packs,
            place=catalogue.log.place,
            fingerprint=f"{catalogue.log.digest}-{kind}-{self.history_length}-{len(histories.items)}",
        )
        if not len(source) and not self.facts:
            raise DataError(f"{catalogue.log.place}: no user has two events to train on; a next item needs one before it")
        self._sampler = Sampler(catalogue.counts, self.experiment.loss.power, catalogue.new_items)
        return source, {"targets_per_window": source.targets / max(1, len(source))}

    def learning(self, examples: Tensors, seed: tf.Tensor | None) -> tuple[Tensors, Tensors]:
        history, positive = examples["window"][:, :-1], examples["window"][:, 1:]
        # the last item of a window is a target, and its first an input alone; where an input is missing nothing can be predicted
        follows = history > 0
        if "segment" in examples:
            follows &= examples["segment"][:, 1:] == examples["segment"][:, :-1]
        positive = tf.where(follows, positive, 0)
        inputs, targets = {"history": history, "positive": positive}, {"positive": positive}
        inputs |= {name: examples[name][:, :-1] for name in ("segment", "back") if name in examples}
        if self.experiment.loss.name != "full":
            drawn = self._sampler.draw(self.experiment.loss.negatives, seed if seed is not None else tf.constant(NO_SEED))
            inputs["negatives"] = targets["negatives"] = drawn
            targets["expected"] = self._sampler.log_share(drawn) + float(np.log(self.experiment.loss.negatives))
        return inputs, targets


class NextItems(Lists):
    """Learned by a softmax over all items, or over some that are drawn, or by binary cross-entropy of these."""

    experiment: Sequential

    def loss(self, outputs: Any, targets: Any, training: bool) -> tf.Tensor:
        """-log softmax of the true next item, nats, summed over a window and divided by the targets of the average window.

        Sampled: over the true item and the drawn ones, each of these less the logarithm of how often it is drawn on average
        (Bengio and Senécal 2003; Jean et al. 2015); draws of the true item are left out. For gbce see `generalised`.
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
            others += outputs["negatives_bias"]
            same = targets["negatives"][None, None, :] == positive[:, :, None]
            if self.experiment.loss.name == "gbce":
                lost = self.generalised(own, tf.where(same, -1e9, others))
            else:
                others = tf.where(same, -1e9, others - targets["expected"])
                lost = tf.reduce_logsumexp(tf.concat([own[..., None], others], -1), -1) - own
        counted = tf.cast(positive > 0, tf.float32)
        return tf.reduce_sum(lost * counted, -1) / float(self.facts["targets_per_window"])

    def generalised(self, own: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
        """Sum of -log p(own)^b and -log(1 - p) of the k `others` [..., k], nats, [...].

        With a = k / (items - 1), the share that is drawn, and the calibration t, b = a (t (1 - 1/a) + 1/a) = 1 - t (1 - a) (Petrov and
        Macdonald 2023). p is the logistic function of a score plus log(b / k), by which a score of 0 says nothing: else a network first has
        to learn for long that nearly everything is improbable.
        """
        settings, items = self.experiment.loss, len(self.facts["item_ids"]) - self.facts.get("new_items", 0)
        power = 1.0 - settings.calibration * (1.0 - min(1.0, settings.negatives / max(1, items - 1)))
        level = float(np.log(power / settings.negatives))
        return power * tf.math.softplus(-own - level) + tf.reduce_sum(tf.math.softplus(others + level), -1)


class SequentialTask(ListTask):
    """recsys.sequential."""

    input_class, output_class = Windows, NextItems
    facts_schema = WindowFacts
    experiment: Sequential

    def build(self, options: dict[str, Any]) -> SequentialModel:
        sampled, features = self.experiment.loss.name != "full", list(self.facts["features"].values())
        model: SequentialModel = SEQUENTIAL_MODELS.build(self.experiment.model, sampled=sampled, features=features, **options)
        nothing = tf.zeros([1, self.input.history_length], tf.int32)
        model({"history": nothing, "positive": nothing, "negatives": nothing[0]})
        return model

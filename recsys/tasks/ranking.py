"""recsys.ranking: how much a user will like an item, or whether they will click."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from pipelines.data.source import Source, Tensors, origin
from pipelines.task.contract import Answers
from pipelines.task.results import Judgement
from pipelines.training.embedding_tables import Table
from recsys.data import known
from recsys.data.facts import RankingFacts
from recsys.metrics import rating_metrics
from recsys.models.ranking import RankingModel
from recsys.models.store import columns_example
from recsys.settings import RANKING_MODELS
from recsys.settings import Ranking as Experiment
from recsys.tasks.closed_form import ClosedFormOutput, FittedAtOnce
from recsys.tasks.rated_events import LABEL, RatedEvents, RatedSource

if TYPE_CHECKING:
    from pipelines.monitoring.tensorboard import Writer

class Rating(ClosedFormOutput):
    """A rating in the data's own units, or the probability of a click."""

    experiment: Experiment
    input: RatedEvents

    @property
    def answers(self) -> Answers:  # type: ignore[override]
        return Answers({
            "prediction": "the probability of a click" if self.input.clicks else "the rating",
            "known": "user and item both occur in the training data, or in their tables; what is unknown counts as average"})

    @property
    def scale(self) -> float:
        """The standard deviation of train's ratings; 1 of clicks, and of runs that did not keep it."""
        return float(self.facts["label"].get("std", 1.0))

    @property
    def watch(self) -> tuple[str, str]:  # type: ignore[override]
        """What is followed: the mean squared error, or the log loss."""
        return ("log_loss", "min") if self.input.clicks else ("mse", "min")

    def targets(self, examples: Tensors, changes: Tensors | None = None) -> Tensors:
        return {LABEL: examples[LABEL]} if LABEL in examples else {}

    def loss(self, outputs: tf.Tensor, targets: tf.Tensor, training: bool) -> tf.Tensor:
        """Squared error in units of the ratings' variance, or log loss in nats; [batch] float32."""
        outputs = tf.cast(outputs, tf.float32)
        if self.input.clicks:
            return tf.nn.sigmoid_cross_entropy_with_logits(targets, outputs)
        return tf.square((outputs - targets) / self.scale)

    def scores(self, outputs: tf.Tensor, targets: tf.Tensor) -> Tensors:
        """Clicks: log loss. Ratings: squared error of the answer (`mse`), whose root is RMSE."""
        if self.input.clicks:
            return {"log_loss": self.loss(outputs, targets, False)}
        return {"mse": tf.square(self._predicted(outputs) - targets)}

    def _predicted(self, outputs: tf.Tensor) -> tf.Tensor:
        outputs = tf.cast(outputs, tf.float32)
        label = self.facts["label"]
        return tf.sigmoid(outputs) if self.input.clicks else tf.clip_by_value(outputs, label["low"], label["high"])

    def answer(self, model: Callable[[Tensors], tf.Tensor], inputs: Tensors) -> Tensors:
        """prediction [batch] float32; known [batch] bool: user and item are known, where the data have them."""
        there = [inputs[name] > 0 for name in ("user", "item") if name in inputs]
        prediction = self._predicted(model(inputs))
        return {"prediction": prediction, "known": tf.reduce_all(tf.stack(there), 0) if there else tf.ones_like(prediction, tf.bool)}

    def judge(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], source: Source) -> Judgement:
        base, numbers = origin(source)
        if not isinstance(base, RatedSource):
            raise TypeError("ranking judges its own sources")
        judge = rating_metrics.judge_clicks if self.input.clicks else rating_metrics.judge_ratings
        predicted = rating_metrics.Predicted(
            answers["prediction"].astype(np.float64),
            targets[LABEL].astype(np.float64),
            baselines=base.baselines(numbers),
            users=base.users[numbers] if base.users is not None else None,
            groups={name: value[numbers] for name, value in base.groups_of.items()},
        )
        judgement = judge(predicted, resamples=self.experiment.evaluate.bootstrap)
        judgement.predictions = {"event": [source.name(number) for number in range(len(source))], "label": predicted.true,
                                 "prediction": predicted.values}
        judgement.notes.append(self.facts["divided"])
        if self.experiment.model.history:
            judgement.notes.append(known.judged_with(self.experiment.data))
        if base.users is not None:
            auc = "; that of AUC is by formula, users being its units" if self.input.clicks else ""
            judgement.notes.append(f"Intervals draw whole users{auc}")
        return judgement

    def respond(self, answers: Tensors) -> Tensors:
        """prediction [batch] float32, known [batch] bool."""
        return {"prediction": answers["prediction"], "known": answers["known"]}


class RankingTask(FittedAtOnce):
    """recsys.ranking. Facts: those of `RatedEvents`."""

    input_class, output_class = RatedEvents, Rating
    facts_schema = RankingFacts
    input: RatedEvents
    output: Rating
    experiment: Experiment

    def model(self) -> keras.Model:
        facts = self.facts
        label = facts["label"]["mean"]
        mean = float(np.log(label / (1 - label))) if self.input.clicks and 0 < label < 1 else label
        new = {name: facts[name] for name in ("new_users", "new_items") if facts.get(name)}
        model: keras.Model = RANKING_MODELS.build(
            self.experiment.model,
            users=len(facts.get("user_ids", ())),
            items=len(facts.get("item_ids", ())),
            events=facts["history_events"],
            features=list(facts["features"].values()),
            mean=mean,
            scale=self.output.scale,
            timeless=known.timeless(self.experiment.data),
            **new,
        )
        model(self._example())
        if self.input.catalogue is not None and self.input.biases is not None and not self.input.closed_form:
            self._fill(model)
        return model

    def _example(self) -> Tensors:
        """An example as the model takes it, of zeros."""
        example: Tensors = {}
        for name in ("user", "item"):
            if f"{name}_ids" in self.facts:
                example[name] = tf.zeros([1], tf.int32)
        example |= columns_example(self.input.columns)
        if self.experiment.model.history:
            example |= {"time": tf.zeros([1], tf.int64), "at": tf.zeros([1], tf.int64)}
        return example

    def _fill(self, model: RankingModel) -> None:
        """What is computed from train: histories, features of users and items, and the biases that the model begins with."""
        catalogue, fitted = self.input.catalogue, self.input.biases
        assert catalogue is not None and fitted is not None
        for of, arrays in (("user", catalogue.user_features), ("item", catalogue.item_features)):
            if of in model.stores:
                model.stores[of].fill(arrays)
        if not self.input.clicks and model.user_bias is not None and model.item_bias is not None:
            for layer, values in ((model.user_bias, fitted.user), (model.item_bias, fitted.item)):
                weight = layer.variable if isinstance(layer, Table) else layer.embeddings
                weight.assign((values[: weight.shape[0], None] / model.scale).astype(np.float32))  # new ones have none
        if model.history is not None:
            histories = self.input.histories
            users = np.repeat(np.arange(len(histories.offsets) - 1), histories.counts())
            residual = (histories.ratings - fitted(users, histories.items)) / model.scale
            model.history.fill(histories, residual=residual.astype(np.float32), time=known.whole(histories.times))

    def show(self, source: Source, writer: "Writer", step: int, *, inputs: Any = None, targets: Any = None, split: str = "train") -> None:
        names = list(inputs)
        rows = [
            " | ".join([*(_short(inputs[name][row].numpy()) for name in names), f"{float(targets[row]):g}"]) for row in range(len(targets))
        ]
        writer.text("inputs of the model", "\n".join([" | ".join([*names, LABEL]), "|".join(["---"] * (len(names) + 1)), *rows]), step)


def _short(value: np.ndarray) -> str:
    return f"{value:.3g}" if value.ndim == 0 else " ".join(f"{part:.3g}" for part in value.ravel()[:8])

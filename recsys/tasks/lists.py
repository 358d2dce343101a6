"""What recsys.retrieval and recsys.sequential answer: lists of items, best first."""

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from pipelines.base.errors import DataError
from pipelines.data.source import Source, Tensors, origin
from pipelines.task.contract import Answers
from pipelines.task.results import Judgement
from recsys.data.facts import ListFacts
from recsys.metrics.ranking_metrics import judge_lists
from recsys.metrics.users import UserSource, spread, train_users
from recsys.models.base import ListModel, ScoringModel
from recsys.models.store import ids_of
from recsys.settings import Retrieval, Sequential
from recsys.tasks.closed_form import ClosedFormOutput, FittedAtOnce
from recsys.tasks.histories import Histories

if TYPE_CHECKING:
    from pipelines.monitoring.tensorboard import Writer

PROJECTED, COMPONENTS = 20_000, 128  # items, and components of each, that TensorBoard's projector still shows fluently
# what an answer is based on; the number of each is BASIS.index
BASIS = (
    "the user",
    "the history given",
    "the item asked about",
    "popularity: nothing is known of the user or the history",
    "popularity: the user is unknown, and the model takes no history (model.history: 0)",
    "the user's columns given",
)

NOTHING_HELD_OUT = (
    "lists are judged by users who have something held out, and train holds nothing out: judge validation or test (--split test); "
    "other data are divided as the run's were (data.protocol, or a column of splits, data.split_key)"
)


class Lists(ClosedFormOutput):
    """The items that a user is to be shown, of the whole catalogue."""

    answers = Answers({
        "items": "ids of the recommended items, best first; only the first `count` are there, the others are the smallest number or empty",
        "scores": "of each",
        "titles": "of each",
        "count": "how many items there are: fewer where no more may be recommended",
        "fallback": "nothing is known of the user and the history: these are the most popular items",
        "based_on": "what the answer is based on, in words",
    }, ranked=("items", "titles", "scores"))
    experiment: Sequential | Retrieval
    input: Histories

    @property
    def watch(self) -> tuple[str, str]:  # type: ignore[override]
        """NDCG at the first cut-off."""
        return f"ndcg@{self.experiment.evaluate.cutoffs[0]}", "max"

    def targets(self, examples: Tensors, changes: Tensors | None = None) -> Tensors:
        """What the input has made of a training example; of a user to be judged, the items held out."""
        return {"held": examples["held"]} if changes is None else changes

    def scores(self, outputs: Any, targets: Any) -> Tensors:
        """NDCG at the first cut-off of users; nothing while learning."""
        if "held" not in targets:
            return {}
        k = self.experiment.evaluate.cutoffs[0]
        held, top = targets["held"], outputs["items"][:, :k]
        hit = tf.reduce_any((top[:, :, None] == held[:, None, :]) & (top > 0)[:, :, None], -1)
        discounts = 1.0 / np.log2(np.arange(2, k + 2)).astype(np.float32)
        ideal = np.concatenate([[1.0], np.cumsum(discounts)]).astype(np.float32)
        most = tf.minimum(tf.reduce_sum(tf.cast(held != 0, tf.int32), -1), k)
        gained = tf.reduce_sum(tf.cast(hit, tf.float32) * discounts[: top.shape[1]], -1)
        return {f"ndcg@{k}": gained / tf.gather(tf.constant(ideal), most)}

    def answer(self, model: Callable[[Any], Any], inputs: Any) -> Tensors:
        """items [batch, longest cut-off] int32, scores likewise float32, fallback [batch] bool; of requests also basis [batch] int32, of
        users that are judged new [batch, any] int32, the best of the items that train does not have, where there are any."""
        outputs = model(inputs)
        answers = {name: outputs[name] for name in ("items", "scores", "fallback", "new") if name in outputs}
        if "k" not in inputs:
            return answers
        wanted = tf.where(inputs["k"] > 0, inputs["k"], tf.shape(answers["items"])[1])
        there = tf.range(tf.shape(answers["items"])[1])[None, :] < wanted[:, None]
        given = tf.reduce_any(inputs["history"] > 0, -1)
        ours = tf.where(given & (self.input.takes_history | (inputs["user"] <= 0)), 1, 0)
        if "described" in inputs:
            ours = tf.where(inputs["described"] & ~given & (inputs["user"] <= 0), 5, ours)
        basis = tf.where(answers["fallback"], tf.where(given, 4, 3), tf.where(inputs["similar"] > 0, 2, ours))
        return {
            "items": tf.where(there, answers["items"], 0),
            "scores": tf.where(there, answers["scores"], 0.0),
            "fallback": answers["fallback"],
            "basis": basis,
        }

    def judge(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], source: Source) -> Judgement:
        base, numbers = origin(source)
        if not isinstance(base, UserSource):
            raise DataError(NOTHING_HELD_OUT)
        settings = self.experiment.evaluate
        judgement = judge_lists(
            answers["items"],
            answers["fallback"],
            base,
            numbers,
            settings,
            protocol=self.facts["divided"],
            items=len(self.facts["item_ids"]),
            chosen=spread(len(numbers), settings.sample_users),
            itself=self.experiment.model.name,
            new=answers.get("new"),
        )
        judgement.predictions = self._predictions(answers, base, numbers)
        return judgement

    def _predictions(self, answers: dict[str, np.ndarray], base: UserSource, numbers: np.ndarray) -> dict[str, list[Any]]:
        """A row for each user: the held-out items (null: unknown to train) and the list, best first, with its scores."""
        ids = [None, *self.facts["item_ids"]]
        people, items = base.people, answers["items"]
        held = [people.held[people.held_of[number]:people.held_of[number + 1]] for number in numbers]
        return {
            "user": people.names[numbers].tolist(),
            "held_out": [[ids[max(item, 0)] for item in row] for row in held],
            "items": [[ids[item] for item in row if item > 0] for row in items],
            "scores": [row[listed > 0].tolist() for row, listed in zip(answers["scores"], items)],
        }

    def respond(self, answers: Tensors) -> Tensors:
        """items [batch, k] ids as given, scores [batch, k], titles [batch, k] where there are any, count [batch] int32, fallback [batch]
        bool, based_on [batch] string."""
        response = {"items": ids_of(answers["items"], self.facts["item_ids"])}
        if self.facts.get("titles"):
            response["titles"] = tf.gather(tf.constant(["", *self.facts["titles"]]), answers["items"])
        count = tf.reduce_sum(tf.cast(answers["items"] > 0, tf.int32), -1)
        based_on = tf.gather(tf.constant(BASIS), answers["basis"])
        return {**response, "scores": answers["scores"], "count": count, "fallback": answers["fallback"], "based_on": based_on}


class ListTask(FittedAtOnce):
    """Histories and lists; facts: those of `Histories`."""

    facts_schema: ClassVar[type[ListFacts]] = ListFacts
    input: Histories
    output: Lists
    experiment: Sequential | Retrieval

    def refit(self, model: keras.Model) -> None:
        """What those without a history get is learned from validation as well, once that is judged."""
        super().refit(model)
        catalogue, validation = self.input.catalogue, self.input.validation
        if catalogue is None or catalogue.fallback is None or not isinstance(validation, UserSource):
            return
        if self.chosen is not None and not self.chosen.refit:
            return
        model.answer_strangers(catalogue.fallback[1])
        if np.any(np.diff(validation.people.visible_of) == 0):
            self.facts["learned"] = validation.fingerprint()

    def cannot_judge(self, source: Source) -> str | None:
        return super().cannot_judge(source) if isinstance(origin(source)[0], UserSource) else NOTHING_HELD_OUT

    @abstractmethod
    def build(self, options: dict[str, Any]) -> ScoringModel:
        """The model; `options` are what every ScoringModel takes."""

    def prepare(self, examples: Tensors, *, keys: tf.Tensor | None = None, seed: tf.Tensor | None = None,
                epoch: tf.Tensor | None = None) -> tuple[Any, Any]:
        """Targets are always by name."""
        return self.input.prepare(examples, keys=keys, seed=seed, epoch=epoch)

    def model(self) -> keras.Model:
        facts, settings = self.facts, self.experiment.evaluate
        model = self.build(
            {
                "users": len(facts["user_ids"]),
                "items": len(facts["item_ids"]),
                "new_items": facts.get("new_items", 0),
                "new_users": facts.get("new_users", 0),
                "events": facts["history_events"],
                "k": max(settings.cutoffs),
                "chunk": settings.chunk,
            }
        )
        empty = tf.zeros([1, 1], tf.int32)
        model({"user": empty[0], "history": tf.zeros([1, self.input.history_length or 1], tf.int32), "seen": empty})
        if self.input.catalogue is not None:
            model.fill(self.input.catalogue)
        return model

    def freeze(self, model: keras.Model) -> None:
        model.freeze()

    def show_epoch(self, model: keras.Model, writer: "Writer", step: int, *, examples: Tensors, inputs: Any, targets: Any) -> None:
        """The lists of a few fixed users, as they are now: of validation, or of train where there is no validation."""
        from recsys.metrics.ranking_metrics import sample_lists

        settings = self.experiment.evaluate
        count = settings.sample_users
        if not count or self.input.catalogue is None:
            return
        if self.input.shown is None:
            self.input.shown = train_users(self.input.catalogue, count, **self.input.of_users)
        source = self.input.shown
        numbers = np.asarray(spread(len(source), count))
        examples = source.gather(tf.constant(numbers, tf.int64))
        lists = model(self.prepare(examples)[0], training=False)["items"].numpy()
        for row in sample_lists(lists, source, numbers, list(range(len(numbers)))):
            listed = "\n".join(f"{place}. {title}" for place, title in enumerate(row["recommended"].split("; "), 1))
            held = f"held out: {row['held out']}\n\n" if row["held out"] else ""
            writer.text(f"lists/user {row['user']}", f"latest: {row['latest']}\n\n{held}{listed}", step)

    def show_model(self, model: keras.Model, writer: "Writer", step: int) -> None:
        """The items' vectors with their titles, for the projector."""
        if not isinstance(model, ListModel):
            return
        vectors, _ = model.catalogue()
        titles = self.facts.get("titles") or [str(value) for value in self.facts["item_ids"]]
        labels = {"title": titles[:PROJECTED], "id": [str(value) for value in self.facts["item_ids"][:PROJECTED]]}
        writer.projector("items", vectors[1:PROJECTED + 1, :COMPONENTS].numpy(), labels)

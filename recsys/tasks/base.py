"""What recsys.retrieval and recsys.sequential share: users with histories are examples, lists of items are answers."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from pipelines.base.errors import DataError
from pipelines.data.divide import check_several
from pipelines.data.source import Source, Tensors, origin
from pipelines.task.contract import Read, Splits
from pipelines.task.form import Field
from pipelines.task.results import Judgement
from recsys.data import splits
from recsys.data.catalogue import Catalogue
from recsys.data.facts import ListFacts
from recsys.data.known import all_known
from recsys.data.protocol import TRAIN, VALIDATION
from recsys.data.requests import Request, as_flag, as_id, as_ids, parsed, requests
from recsys.metrics.ranking_metrics import judge_lists
from recsys.metrics.users import UserSource, spread, train_users, unpacked, user_sources
from recsys.models.base import ListModel, ScoringModel
from recsys.models.lookup import finder, id_dtype, ids_of, missing
from recsys.settings import Retrieval, Sequential
from recsys.tasks.closed_form import FittedAtOnce

if TYPE_CHECKING:
    from pipelines.monitoring.tensorboard import Writer

PROJECTED, COMPONENTS = 20_000, 128  # items, and components of each, that TensorBoard's projector still shows fluently
KEYS = ("user", "history", "allow", "similar", "exclude_seen", "k")
# what an answer is based on; the number of each is BASIS.index
BASIS = (
    "the user",
    "the history given",
    "the item asked about",
    "popularity: nothing is known of the user or the history",
    "popularity: the user is unknown, and the model takes no history (model.history: 0)",
)


class ListTask(FittedAtOnce):
    """Facts: `user_ids`, `item_ids` (as given), `titles`, `features`, `history_events`, `divided` (the protocol in words)."""

    meanings: ClassVar[dict[str, str]] = {
        "user": "a user's id; none (the smallest number, or the empty text) for a request by history",
        "history": "ids of items, oldest first, in place of the stored history; filled up with the smallest number or empty texts",
        "allow": "ids of the only items that may be answered; none for all",
        "similar": "an item's id: the answer is then what is most like it",
        "exclude_seen": "whether items of the history are left out",
        "k": "how many items are wanted; 0: as many as the run was judged with at most",
        "items": "ids of the recommended items, best first; only the first `count` are there, the others are the smallest number or empty",
        "scores": "of each",
        "titles": "of each",
        "count": "how many items there are: fewer where no more may be recommended",
        "fallback": "nothing is known of the user and the history: these are the most popular items",
        "based_on": "what the answer is based on, in words",
    }
    sends = 'a request: a user\'s id, or an object such as {"user": 42, "k": 10} or {"history": [1, 2], "exclude_seen": true}'
    stored_decoded = True
    ranked = ("items", "titles", "scores")
    kept: ClassVar[type[ListFacts]] = ListFacts
    experiment: Sequential | Retrieval

    def __init__(self, experiment: Any, facts: dict[str, Any] | None = None):
        super().__init__(experiment, facts)
        self._catalogue: Catalogue | None = None
        self._shown: UserSource | None = None

    @property
    def watch(self) -> tuple[str, str]:  # type: ignore[override]
        """NDCG at the first cut-off."""
        return f"ndcg@{self.experiment.evaluate.cutoffs[0]}", "max"

    @property
    @abstractmethod
    def history_length(self) -> int | None:
        """Latest items of a history that the model takes; None: all."""

    @property
    def takes_history(self) -> bool:
        """Whether a history changes the answer beyond leaving its items out."""
        return True

    @abstractmethod
    def training(self, catalogue: Catalogue) -> tuple[Source, dict[str, Any]]:
        """(the training examples, further facts)."""

    def unused(self, catalogue: Catalogue) -> list[str]:
        """What of the data is named by settings and not used, in words."""
        return []

    @abstractmethod
    def build(self, options: dict[str, Any]) -> ScoringModel:
        """The model; `options` are what every ScoringModel takes."""

    @abstractmethod
    def learning(self, examples: Tensors, seed: tf.Tensor | None) -> tuple[Tensors, Tensors]:
        """Training examples as (inputs, targets)."""

    def splits(self) -> Splits:
        settings = self.experiment
        catalogue, notes = splits.load(settings.data, self.facts or None, repetitions=splits.repetitions_of(settings))
        log = catalogue.log
        if catalogue.user_ids is None or catalogue.item_ids is None or not len(catalogue.item_ids):
            raise DataError(f"{log.place}: recommending needs users and items (data.user_key, data.item_key)")
        if not self.facts:
            check_several(list(catalogue.item_ids.values[:2]), log.place, "item", "a list of recommendations")
        train, more = self.training(catalogue)
        judged = user_sources(catalogue, **self._of_users)
        facts = {
            **catalogue.facts(),
            "features": {one["name"]: one for one in catalogue.features},
            "history_events": int(catalogue.offsets((TRAIN, VALIDATION))[-1]),
            "divided": notes[0],
            **more,
        }
        catalogue.log = replace(log, users=None, items=None, times=None)  # what is left knows the order; 1.6 GB of 100 million events
        self._catalogue, self._shown = catalogue, judged.get("validation")
        self.validation = self._shown
        notes += self.unused(catalogue)
        unnamed = log.left_out - len(log.skipped)
        return Splits(train, judged.get("validation"), judged.get("test"), facts, log.skipped, tuple(notes), unnamed)

    @property
    def _of_users(self) -> dict[str, Any]:
        """How sources of users are made."""
        timely = not all_known(self.experiment.data)
        return {"length": self.history_length, "exclude_seen": self.experiment.evaluate.exclude_seen, "timely": timely}

    def decode(self, raw: Tensors, key: tf.Tensor | None = None) -> Tensors:
        return dict(raw)

    def prepare(
        self, examples: Tensors, *, keys: tf.Tensor | None = None, seed: tf.Tensor | None = None, epoch: tf.Tensor | None = None
    ) -> tuple[Any, Any]:
        """Training examples as `learning` says; users to be judged and requests as `ScoringModel` takes them."""
        if "seen" in examples:
            held = unpacked(examples["held"])
            history = examples["history"] if self.history_length is not None else unpacked(examples["history"])
            inputs = {"user": examples["user"], "history": history, "seen": unpacked(examples["seen"]), "held": held}
            return inputs, {"held": held}
        if "allow" in examples:
            return dict(examples), {}
        return self.learning(examples, seed)

    def model(self) -> keras.Model:
        facts, settings = self.facts, self.experiment.evaluate
        model = self.build(
            {
                "users": len(facts["user_ids"]),
                "items": len(facts["item_ids"]),
                "events": facts["history_events"],
                "k": max(settings.cutoffs),
                "chunk": settings.chunk,
            }
        )
        empty = tf.zeros([1, 1], tf.int32)
        model({"user": empty[0], "history": tf.zeros([1, self.history_length or 1], tf.int32), "seen": empty})
        if self._catalogue is not None:
            model.fill(self._catalogue)
        return model

    def freeze(self, model: keras.Model) -> None:
        model.freeze()

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
        """items [batch, longest cut-off] int32, scores likewise float32, fallback [batch] bool; of requests also basis [batch] int32."""
        outputs = model(inputs)
        answers = {name: outputs[name] for name in ("items", "scores", "fallback")}
        if "k" not in inputs:
            return answers
        wanted = tf.where(inputs["k"] > 0, inputs["k"], tf.shape(answers["items"])[1])
        there = tf.range(tf.shape(answers["items"])[1])[None, :] < wanted[:, None]
        given = tf.reduce_any(inputs["history"] > 0, -1)
        ours = tf.where(given & (self.takes_history | (inputs["user"] <= 0)), 1, 0)
        basis = tf.where(answers["fallback"], tf.where(given, 4, 3), tf.where(inputs["similar"] > 0, 2, ours))
        return {
            "items": tf.where(there, answers["items"], 0),
            "scores": tf.where(there, answers["scores"], 0.0),
            "fallback": answers["fallback"],
            "basis": basis,
        }

    def targets(self, examples: Tensors) -> Tensors:
        return {"held": examples["held"]}

    # ---- judging

    def cannot_judge(self, source: Source) -> str | None:
        if isinstance(origin(source)[0], UserSource):
            return super().cannot_judge(source)
        return (
            "lists are judged by users who have something held out, and train holds nothing out: judge validation or test (--split test); "
            "other data are divided as the run's were (data.protocol, or a column of splits, data.split_key)"
        )

    def judge(self, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray], source: Source) -> Judgement:
        base, numbers = origin(source)
        if not isinstance(base, UserSource):
            raise DataError(str(self.cannot_judge(source)))
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

    def show_epoch(self, model: keras.Model, writer: "Writer", step: int, *, examples: Tensors, inputs: Any, targets: Any) -> None:
        """The lists of a few fixed users, as they are now: of validation, or of train where there is no validation."""
        from recsys.metrics.ranking_metrics import sample_lists

        settings = self.experiment.evaluate
        count = settings.sample_users
        if not count or self._catalogue is None:
            return
        if self._shown is None:
            self._shown = train_users(self._catalogue, count, **self._of_users)
        source = self._shown
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

    # ---- serving

    def raw_spec(self) -> dict[str, tf.TensorSpec]:
        user, item = id_dtype(self.facts["user_ids"]), id_dtype(self.facts["item_ids"])
        return {
            "user": tf.TensorSpec([None], user),
            "history": tf.TensorSpec([None, None], item),
            "allow": tf.TensorSpec([None, None], item),
            "similar": tf.TensorSpec([None], item),
            "exclude_seen": tf.TensorSpec([None], tf.bool),
            "k": tf.TensorSpec([None], tf.int32),
        }

    @property
    def examples(self) -> dict[str, str]:  # type: ignore[override]
        """A known user's ten best items, with nothing else asked."""
        user, item = id_dtype(self.facts["user_ids"]), id_dtype(self.facts["item_ids"])
        none = repr(missing(item))
        return {
            "user": f"tf.constant([{self.facts['user_ids'][0]!r}], tf.{user.name})  # a user's id",
            "history": f"tf.constant([[{none}]], tf.{item.name})  # none given; else ids of items such as {self.facts['item_ids'][0]!r}",
            "allow": f"tf.constant([[{none}]], tf.{item.name})  # all items",
            "similar": f"tf.constant([{none}], tf.{item.name})  # no item is asked about",
            "exclude_seen": "tf.constant([True])",
            "k": f"tf.constant([{min(10, self.longest)}])",
        }

    @property
    def longest(self) -> int:
        """Items that an answer has at most."""
        return min(max(self.experiment.evaluate.cutoffs), len(self.facts["item_ids"]))

    @property
    def fills(self) -> dict[str, Any]:  # type: ignore[override]
        """What fills up lists of ids in a batch."""
        nothing = missing(id_dtype(self.facts["item_ids"]))
        return {"history": nothing, "allow": nothing}

    def receive(self, raw: Tensors) -> Tensors:
        """Ids into numbers, name -> [batch, ...]; 0: unknown, or none."""
        find = finder(self.facts["item_ids"])
        allow = find(raw["allow"])
        # where none of the allowed items is known nothing may be answered, which is not the same as no list at all
        asked = tf.reduce_any(raw["allow"] != missing(id_dtype(self.facts["item_ids"])), -1)
        none = asked & ~tf.reduce_any(allow > 0, -1)
        allow = tf.concat([allow, tf.where(none, NEVER, 0)[:, None]], 1)
        return {
            "user": finder(self.facts["user_ids"])(raw["user"]),
            "history": find(raw["history"]),
            "allow": allow,
            "similar": find(raw["similar"]),
            "exclude_seen": raw["exclude_seen"],
            "k": raw["k"],
        }

    def read(self, inputs: list[str]) -> Iterator[Read]:
        """Requests as JSON or in tables: a user's id, or {"user": ..., "history": [...], "allow": [...], "similar": ...,
        "exclude_seen": false, "k": 10}."""
        yield from requests(inputs, self._keys, "user", raw=self._asked)

    def take(self, sent: Any) -> dict[str, Any]:
        return self._asked(parsed(sent, list(self._keys), "user"))

    def form(self) -> list[Field]:
        return [
            Field("word", "user", "an id", needed=False),
            Field("words", "history", "ids of items, oldest first, in place of a user's stored history", needed=False),
            Field("words", "allow", "ids of the only items that may come; empty: all", needed=False),
            Field("word", "similar", "an item's id: the answer is what is most like it", needed=False),
            Field("flag", "exclude_seen", "leave out items of the history"),
            Field("number", "k", "how many items", needed=False),
        ]

    @property
    def _keys(self) -> dict[str, str]:
        """What a request may say -> the raw input it is."""
        return {str(self.experiment.data.user_key): "user", **{key: key for key in KEYS}}

    def _asked(self, request: Request) -> dict[str, Any]:
        return self._raw({self._keys[key]: value for key, value in request.items()}, self.raw_spec())

    def _raw(self, request: dict[str, Any], spec: dict[str, tf.TensorSpec]) -> dict[str, Any]:
        row: dict[str, Any] = {}
        for name in ("user", "similar"):
            numeric = spec[name].dtype == tf.int64
            row[name] = as_id(request[name], numeric) if request.get(name) is not None else missing(spec[name].dtype)
        for name in ("history", "allow"):
            numeric = spec[name].dtype == tf.int64
            row[name] = as_ids(request[name], numeric) if request.get(name) else []
            row[name] = row[name] or [missing(spec[name].dtype)]
        row["exclude_seen"] = as_flag("exclude_seen", request.get("exclude_seen", self.experiment.evaluate.exclude_seen))
        row["k"] = self._count(request.get("k"))
        if "similar" in request:
            known = set(map(str, self.facts["item_ids"]))
            if str(row["similar"]) not in known:
                raise DataError(f"item {request['similar']!r} is unknown, so nothing is known of similar items")
        return row

    def _count(self, wanted: Any) -> int:
        try:
            count = int(str(wanted)) if wanted is not None else 0
        except ValueError:
            count = -1
        if count < 0 or (wanted is not None and not 1 <= count <= self.longest):
            raise DataError(
                f"k: {wanted!r} is no number of items from 1 to {self.longest} (the catalogue and the largest of evaluate.cutoffs bound it)"
            )
        return count

    def respond(self, answers: Tensors) -> Tensors:
        """items [batch, k] ids as given, scores [batch, k], titles [batch, k] where there are any, count [batch] int32, fallback [batch]
        bool, based_on [batch] string."""
        response = {"items": ids_of(answers["items"], self.facts["item_ids"])}
        if self.facts.get("titles"):
            response["titles"] = tf.gather(tf.constant(["", *self.facts["titles"]]), answers["items"])
        count = tf.reduce_sum(tf.cast(answers["items"] > 0, tf.int32), -1)
        based_on = tf.gather(tf.constant(BASIS), answers["basis"])
        return {**response, "scores": answers["scores"], "count": count, "fallback": answers["fallback"], "based_on": based_on}


NEVER = int(np.iinfo(np.int32).max)  # no item has this number

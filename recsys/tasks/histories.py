"""What recsys.retrieval and recsys.sequential take: users with histories, and requests for lists."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import tensorflow as tf

from pipelines.base.errors import DataError
from pipelines.data.divide import check_several
from pipelines.data.source import Source, Tensors
from pipelines.task.contract import Read, Requests, Signature, Splits
from pipelines.task.form import Field
from recsys.data import splits
from recsys.data.catalogue import Catalogue
from recsys.data.features import unused
from recsys.data.known import all_known
from recsys.data.protocol import TRAIN, VALIDATION
from recsys.data.requests import COLUMN_MEANINGS, SUBJECTS, Request, as_flag, as_id, as_ids, column_value, parsed, requests
from recsys.metrics.users import UserSource, unpacked, user_sources
from recsys.models.base import USER
from recsys.models.store import columns_received, columns_spec, finder, id_dtype, missing
from recsys.settings import Retrieval, Sequential
from recsys.tasks.interactions import Interactions

KEYS = ("user", "history", "allow", "similar", "exclude_seen", "k")
MEANINGS = {
    "user": "a user's id; none (the smallest number, or the empty text) for a request by history",
    "history": "ids of items, oldest first, in place of the stored history; filled up with the smallest number or empty texts",
    "allow": "ids of the only items that may be answered; none for all",
    "similar": "an item's id: the answer is then what is most like it",
    "exclude_seen": "whether items of the history are left out",
    "k": "how many items are wanted; 0: as many as the run was judged with at most",
}
NEVER = 2**31 - 1  # no item has this number
NOTHING = {"number": '[float("nan")]', "category": '[""]', "list": '[[""]]'}  # that a request says of a column
FORMS: dict[str, Any] = {"number": "number", "category": "word", "list": "words"}


class Histories(Interactions):
    """Users with histories are examples. Facts: `user_ids`, `item_ids` (as given), `titles`, `features`, `history_events`, `divided` (the
    protocol in words)."""

    experiment: Sequential | Retrieval
    shown: UserSource | None = None

    @cached_property
    def requests(self) -> "ListRequests":
        return ListRequests(self)

    @property
    @abstractmethod
    def history_length(self) -> int | None:
        """Latest items of a history that the model takes; None: all."""

    @property
    def takes_history(self) -> bool:
        """Whether a history changes the answer beyond leaving its items out."""
        return True

    @property
    def columns(self) -> list[dict[str, Any]]:
        """Facts of the columns of users that a request may say, in place of those of the table of users."""
        return []

    @abstractmethod
    def training(self, catalogue: Catalogue) -> tuple[Source, dict[str, Any]]:
        """(the training examples, further facts)."""

    @abstractmethod
    def learning(self, examples: Tensors, seed: tf.Tensor | None) -> tuple[Tensors, Tensors]:
        """Training examples as (inputs, targets)."""

    def splits(self) -> Splits:
        settings = self.experiment
        catalogue, notes = splits.load(settings.data, self.facts or None, repetitions=splits.repetitions_of(settings),
                                       described=splits.described_of(settings))
        log = catalogue.log
        if catalogue.user_ids is None or catalogue.item_ids is None or not len(catalogue.item_ids):
            raise DataError(f"{log.place}: recommending needs users and items (data.user_key, data.item_key)")
        if not self.facts:
            check_several(list(catalogue.item_ids.values[:2]), log.place, "item", "a list of recommendations")
        train, more = self.training(catalogue)
        taken = next((one["name"] for one in catalogue.features if one["of"] == "user" and one["name"] in KEYS), None)
        if taken is not None:
            raise DataError(f"{settings.data.users}: requests say {taken!r} of something else; rename the column (data.users)")
        judged = user_sources(catalogue, **self.of_users)
        if judged and not self.facts:
            *scores, said = next(iter(judged.values())).basis.fallback(settings.evaluate)
            catalogue.fallback = scores[0], scores[1]
            notes += said
        facts = {
            **catalogue.facts(),
            "features": {one["name"]: one for one in catalogue.features},
            "history_events": int(catalogue.offsets((TRAIN, VALIDATION))[-1]),
            "divided": notes[0],
            **more,
        }
        catalogue.log = replace(log, users=None, items=None, times=None)  # what is left knows the order; 1.6 GB of 100 million events
        self.catalogue = catalogue
        self.validation = self.shown = judged.get("validation")
        notes += unused(catalogue.features)
        unnamed = log.left_out - len(log.skipped)
        return Splits(train, judged.get("validation"), judged.get("test"), facts, log.skipped, tuple(notes), unnamed)

    @property
    def of_users(self) -> dict[str, Any]:
        """How sources of users are made."""
        timely = not all_known(self.experiment.data)
        return {"length": self.history_length, "exclude_seen": self.experiment.evaluate.exclude_seen, "timely": timely}

    def prepare(
        self, examples: Tensors, *, keys: tf.Tensor | None = None, seed: tf.Tensor | None = None, epoch: tf.Tensor | None = None
    ) -> tuple[Any, Tensors]:
        """Training examples as `learning` says, with their targets; users to be judged and requests as `ScoringModel` takes them."""
        if "seen" in examples:
            held = unpacked(examples["held"])
            history = examples["history"] if self.history_length is not None else unpacked(examples["history"])
            inputs = {"user": examples["user"], "history": history, "seen": unpacked(examples["seen"]), "held": held}
            return inputs, {"held": held}
        if "allow" in examples:
            return dict(examples), {}
        return self.learning(examples, seed)

    def raw_spec(self) -> dict[str, tf.TensorSpec]:
        user, item = id_dtype(self.facts["user_ids"]), id_dtype(self.facts["item_ids"])
        return {
            "user": tf.TensorSpec([None], user),
            "history": tf.TensorSpec([None, None], item),
            "allow": tf.TensorSpec([None, None], item),
            "similar": tf.TensorSpec([None], item),
            "exclude_seen": tf.TensorSpec([None], tf.bool),
            "k": tf.TensorSpec([None], tf.int32),
            **columns_spec(self.columns),
        }

    @property
    def signature(self) -> Signature:  # type: ignore[override]
        """A known user's ten best items, with nothing else asked."""
        user, item = id_dtype(self.facts["user_ids"]), id_dtype(self.facts["item_ids"])
        none = repr(missing(item))
        examples = {
            "user": f"tf.constant([{self.facts['user_ids'][0]!r}], tf.{user.name})  # a user's id",
            "history": f"tf.constant([[{none}]], tf.{item.name})  # none given; else ids of items such as {self.facts['item_ids'][0]!r}",
            "allow": f"tf.constant([[{none}]], tf.{item.name})  # all items",
            "similar": f"tf.constant([{none}], tf.{item.name})  # no item is asked about",
            "exclude_seen": "tf.constant([True])",
            "k": f"tf.constant([{min(10, self.requests.longest)}])",
            **{one["name"]: f"tf.constant({NOTHING[one['kind']]})  # as the table of users has it" for one in self.columns},
        }
        return Signature({**MEANINGS, **{one["name"]: f"of the user: {COLUMN_MEANINGS[one['kind']]}" for one in self.columns}}, examples)

    def receive(self, raw: Tensors) -> Tensors:
        """Ids into numbers, name -> [batch, ...]; 0: unknown, or none."""
        find = finder(self.facts["item_ids"])
        allow = find(raw["allow"])
        # where none of the allowed items is known nothing may be answered, which is not the same as no list at all
        asked = tf.reduce_any(raw["allow"] != missing(id_dtype(self.facts["item_ids"])), -1)
        none = asked & ~tf.reduce_any(allow > 0, -1)
        allow = tf.concat([allow, tf.where(none, NEVER, 0)[:, None]], 1)
        examples = {
            "user": finder(self.facts["user_ids"])(raw["user"]),
            "history": find(raw["history"]),
            "allow": allow,
            "similar": find(raw["similar"]),
            "exclude_seen": raw["exclude_seen"],
            "k": raw["k"],
        }
        if self.columns:
            examples["described"] = tf.reduce_any(tf.stack([_said(raw[one["name"]]) for one in self.columns]), 0)
            examples |= {USER + name: value for name, value in columns_received(self.columns, raw).items()}
        return examples


def _said(values: tf.Tensor) -> tf.Tensor:
    """[batch] bool: whether a request says something of a column, from [batch] float32 or string, or [batch, any] string."""
    if values.dtype == tf.float32:
        return tf.math.is_finite(values)
    return tf.reduce_any(values != "", -1) if values.shape.rank == 2 else values != ""


class ListRequests(Requests):
    """A user's id, or an object that asks for more."""

    sends = 'a request: a user\'s id, or an object such as {"user": 42, "k": 10} or {"history": [1, 2], "exclude_seen": true}'
    input: Histories

    @property
    def longest(self) -> int:
        """Items that an answer has at most."""
        return min(max(self.input.experiment.evaluate.cutoffs), len(self.input.facts["item_ids"]))

    @property
    def fills(self) -> dict[str, Any]:
        """What fills up lists of ids in a batch."""
        nothing = missing(id_dtype(self.input.facts["item_ids"]))
        return {"history": nothing, "allow": nothing, **{one["name"]: "" for one in self.input.columns if one["kind"] == "list"}}

    def read(self, inputs: list[str]) -> Iterator[Read]:
        """Requests as JSON or in tables: a user's id, or {"user": ..., "history": [...], "allow": [...], "similar": ...,
        "exclude_seen": false, "k": 10}, and columns of the user by name."""
        subjects = {*SUBJECTS, *(one["name"] for one in self.input.columns)}
        yield from requests(inputs, self._keys, "user", raw=self._asked, subjects=subjects)

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
            *(Field(FORMS[one["kind"]], one["name"], "of the user", needed=False) for one in self.input.columns),
        ]

    @property
    def _keys(self) -> dict[str, str]:
        """What a request may say -> the raw input it is."""
        return {str(self.input.experiment.data.user_key): "user", **{key: key for key in KEYS},
                **{one["name"]: one["name"] for one in self.input.columns}}

    def _asked(self, request: Request) -> dict[str, Any]:
        return self._raw({self._keys[key]: value for key, value in request.items()}, self.input.raw_spec())

    def _raw(self, request: dict[str, Any], spec: dict[str, tf.TensorSpec]) -> dict[str, Any]:
        row: dict[str, Any] = {}
        for name in ("user", "similar"):
            numeric = spec[name].dtype == tf.int64
            row[name] = as_id(request[name], numeric) if request.get(name) is not None else missing(spec[name].dtype)
        for name in ("history", "allow"):
            numeric = spec[name].dtype == tf.int64
            row[name] = as_ids(request[name], numeric) if request.get(name) else []
            row[name] = row[name] or [missing(spec[name].dtype)]
        row["exclude_seen"] = as_flag("exclude_seen", request.get("exclude_seen", self.input.experiment.evaluate.exclude_seen))
        row["k"] = self._count(request.get("k"))
        for one in self.input.columns:
            row[one["name"]] = column_value(one, request.get(one["name"]), self.input.experiment.data.list_separator)
        if "similar" in request:
            known = set(map(str, self.input.facts["item_ids"]))
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

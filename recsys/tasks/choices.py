"""The input of recsys.bandit: logged choices - contexts, the actions taken, how probable they were, and what they earned."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any
from uuid import uuid4

import numpy as np
import tensorflow as tf

from pipelines.base.errors import DataError
from pipelines.data.divide import check_several
from pipelines.data.source import ArraySource, Tensors
from pipelines.task.contract import Read, Requests, Signature, Splits
from pipelines.task.form import Field
from pipelines.task.units import EXAMPLES, Units, grouped
from recsys.data import features, splits
from recsys.data.catalogue import Catalogue
from recsys.data.protocol import NAMES, TRAIN
from recsys.data.rates import mean_rewards
from recsys.data.requests import COLUMN_MEANINGS, Request, as_ids, column_value, parsed, requests
from recsys.models.store import columns_received, columns_spec, finder, id_dtype, missing
from recsys.settings import Bandit as Experiment
from recsys.tasks.interactions import Interactions

LOGGED = ("action", "reward", "propensity")  # no feature column may have these names, nor those of `MEANINGS`
MEANINGS = {
    "request": "a text of each request's own, such as its number: it draws the choice, and draws the same for the same text",
    "exclude": "actions that may not be chosen, such as those shown above; filled up with the smallest number or empty texts",
}
STEPS = 1 << 23  # draws, which float32 holds with their half steps


class LoggedSource(ArraySource):
    """Logged choices, with what a judgement needs beside: whose they were, and the place each was shown at."""

    def __init__(self, arrays: dict[str, np.ndarray], *, users: np.ndarray | None, places: np.ndarray | None, **options: Any):
        super().__init__(arrays, **options)
        self.users, self.places = users, places


class LoggedChoices(Interactions):
    """Facts: `item_ids` (the actions), `features`, `label` (of the rewards), `binary`, `rates`, `habits`, `divided`."""

    experiment: Experiment

    @cached_property
    def requests(self) -> "ChoiceRequests":
        return ChoiceRequests(self)

    @property
    def columns(self) -> list[features.Facts]:
        """The columns of the context."""
        return [one for one in self.facts.get("features", {}).values() if one["of"] == "event"]

    def splits(self) -> Splits:
        settings = self.experiment.data
        catalogue, notes = splits.load(settings, self.facts or None, repetitions=splits.repetitions_of(self.experiment))
        log = catalogue.log
        if log.ratings is None or catalogue.item_ids is None:
            raise DataError(f"{log.place}: learning from logged choices needs actions and rewards (data.item_key, data.rating_key)")
        if not self.facts:
            check_several(list(catalogue.item_ids.values[:2]), log.place, "action", "a choice")
        taken = next((one["name"] for one in catalogue.features if one["name"] in (*LOGGED, *MEANINGS)), None)
        if taken is not None:
            raise DataError(f"{log.place}: a column of the context is called {taken!r}, as something else is here; rename it")
        if not any(one["of"] == "event" for one in catalogue.features):
            raise DataError(f"{log.place}: no column of the context is named (data.numbers, data.categories, data.lists)")
        train = catalogue.parts == TRAIN
        if not train.any():
            raise DataError(f"{log.place}: no choice to train on")
        propensities = np.full(len(log), 1 / len(catalogue.item_ids)) if log.propensities is None else log.propensities
        rewards, actions, likely = log.ratings[train].astype(np.float64), catalogue.items[train] - 1, propensities[train]
        facts = self.facts or {
            **{name: value for name, value in catalogue.facts().items() if name != "user_ids"},  # users are in no policy
            "features": {one["name"]: one for one in catalogue.features},
            "history_events": 0,
            "divided": notes[0],
            "binary": bool(np.isin(rewards, (0.0, 1.0)).all()),
            "label": {"mean": float(rewards.mean()), "low": float(rewards.min()), "high": float(rewards.max()),
                      "std": float(rewards.std()) or 1.0},
            "rates": mean_rewards(actions, rewards, likely, len(catalogue.item_ids)).tolist(),
            "habits": (np.bincount(actions, np.log(likely)) / np.bincount(actions)).tolist(),
        }
        if facts["binary"] and not np.isin(log.ratings, (0.0, 1.0)).all():
            wrong = int(np.flatnonzero(~np.isin(log.ratings, (0.0, 1.0)))[0])
            raise DataError(f"{log.name(wrong)}: {log.ratings[wrong]:g} in column {settings.rating_key}: all rewards of train are 0 or 1")
        self.catalogue = catalogue
        arrays = {
            **features.event_arrays(log, catalogue.features, settings),
            "action": catalogue.items - 1,  # -1: no action of train
            "reward": log.ratings.astype(np.float32),
            "propensity": propensities.astype(np.float32),
        }
        parts = {name: self._source(catalogue, arrays, number) for number, name in enumerate(NAMES)}
        self.validation = parts["validation"]
        assert parts["train"] is not None
        return Splits(parts["train"], parts["validation"], parts["test"], facts, log.skipped, tuple(notes), log.left_out - len(log.skipped))

    def _source(self, catalogue: Catalogue, arrays: dict[str, np.ndarray], part: int) -> LoggedSource | None:
        numbers, log, key = np.flatnonzero(catalogue.parts == part), catalogue.log, self.experiment.data.position_key
        if not len(numbers):
            return None
        places = np.asarray(log.features[key].cast("string").to_pylist(), object)[numbers] if key else None
        return LoggedSource(
            {name: value[numbers] for name, value in arrays.items()},
            users=log.users[numbers] if log.users is not None else None,
            places=places,
            names=lambda number: log.name(int(numbers[number])),
            fingerprint=f"{log.digest}-{NAMES[part]}-{len(numbers)}",
        )

    def units_of(self, source: LoggedSource, numbers: np.ndarray) -> Units:
        """What intervals draw: users where the log names them."""
        return EXAMPLES if source.users is None else grouped(source.users[numbers], "user")

    def prepare(self, examples: Tensors, *, keys: tf.Tensor | None = None, seed: tf.Tensor | None = None,
                epoch: tf.Tensor | None = None) -> tuple[Tensors, Tensors]:
        """Inputs of `PolicyModel`, and of a request `draw` and `exclude`."""
        return {name: value for name, value in examples.items() if name not in LOGGED}, {}

    def raw_spec(self) -> dict[str, tf.TensorSpec]:
        """The context's columns, and what a request says beside."""
        return {**columns_spec(self.columns), "request": tf.TensorSpec([None], tf.string),
                "exclude": tf.TensorSpec([None, None], id_dtype(self.facts["item_ids"]))}

    @property
    def signature(self) -> Signature:  # type: ignore[override]
        """A request of a made-up number with all actions open."""
        item = id_dtype(self.facts["item_ids"])
        return Signature(
            {**{one["name"]: COLUMN_MEANINGS[one["kind"]] for one in self.columns}, **MEANINGS},
            {"request": 'tf.constant(["request 1"])', "exclude": f"tf.constant([[{missing(item)!r}]], tf.{item.name})  # none"})

    def receive(self, raw: Tensors) -> Tensors:
        """Values as given into numbers. `draw` [batch] float32 above 0 and below 1, by a hash of the request, of the place where there is
        one, and of what is excluded, so that the choices of one list are drawn apart."""
        ids = self.facts["item_ids"]
        excluded = raw["exclude"]
        texts = excluded
        if excluded.dtype != tf.string:
            texts = tf.where(excluded == missing(excluded.dtype), "", tf.strings.as_string(excluded))
        apart = [raw["request"], tf.strings.reduce_join(tf.where(texts == "", "", texts + "\x1f"), -1)]
        if self.experiment.data.position_key:
            apart.append(raw[self.experiment.data.position_key])
        drawn = tf.strings.to_hash_bucket_fast(tf.strings.join(apart, "\x1e"), STEPS)
        return {**columns_received(self.columns, raw), "draw": (tf.cast(drawn, tf.float32) + 0.5) / STEPS, "exclude": finder(ids)(excluded)}


class ChoiceRequests(Requests):
    """The context of a choice, as an object with a value of each column."""

    sends = 'a request: an object with the columns of the context, and "request", a text that draws the choice, or "exclude", actions'
    input: LoggedChoices

    @property
    def fills(self) -> dict[str, Any]:
        """What fills up lists in a batch."""
        return {"exclude": missing(id_dtype(self.input.facts["item_ids"]))}

    def read(self, inputs: list[str]) -> Iterator[Read]:
        """Contexts as JSON or in tables, a row each. Without a text of its own (`request`) a row is drawn by its name."""
        for name, row, *fields in requests(inputs, self._keys, self._first, raw=self._asked,
                                            subjects=[one["name"] for one in self.input.columns]):
            if isinstance(row, dict) and not row["request"]:
                row["request"] = name
            yield name, row, *fields  # type: ignore[misc]

    def take(self, sent: Any) -> dict[str, Any]:
        """Without a text of its own a request is drawn at random."""
        row = self._asked(parsed(sent, list(self._keys), self._first))
        return row if row["request"] else {**row, "request": uuid4().hex}

    def form(self) -> list[Field]:
        kinds = {"number": "number", "category": "word", "list": "words"}
        return [*(Field(kinds[one["kind"]], one["name"], needed=False) for one in self.input.columns),
                Field("word", "request", "a text that draws the choice; without one it is drawn at random", needed=False),
                Field("words", "exclude", "actions that may not be chosen", needed=False)]

    @property
    def _keys(self) -> dict[str, str]:
        return {name: name for name in self.input.raw_spec()}

    @property
    def _first(self) -> str:
        """The column that a bare value is of."""
        return str(self.input.columns[0]["name"])

    def _asked(self, request: Request) -> dict[str, Any]:
        separator, ids = self.input.experiment.data.list_separator, id_dtype(self.input.facts["item_ids"])
        row = {one["name"]: column_value(one, request.get(one["name"]), separator) for one in self.input.columns}
        row["request"] = "" if request.get("request") is None else str(request["request"])
        row["exclude"] = as_ids(request.get("exclude") or [], ids == tf.int64) or [missing(ids)]
        return row

"""The input of recsys.ranking: events with a rating or a click, and what is known of users and items."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.base.errors import DataError
from pipelines.data.source import ArraySource, Tensors
from pipelines.task.contract import Read, Requests, Signature, Splits
from pipelines.task.form import Field
from recsys.closed_form import biases, factors
from recsys.data import features, known, splits
from recsys.data.catalogue import Catalogue
from recsys.data.protocol import NAMES, TEST, TRAIN, VALIDATION
from recsys.data.requests import COLUMN_MEANINGS, Request, as_id, column_value, parsed, requests
from recsys.models.store import columns_received, columns_spec, finder, id_dtype, missing
from recsys.settings import Factors
from recsys.settings import Ranking as Experiment
from recsys.tasks.interactions import Interactions

LABEL = "label"  # no feature column may have this name


class RatedSource(ArraySource):
    """Events to be judged, with what a judgement needs beside answers: baselines, fitted when asked for, and whose events they are."""

    def __init__(
        self,
        arrays: dict[str, np.ndarray],
        *,
        baselines: Callable[[np.ndarray], dict[str, np.ndarray]],
        groups_of: dict[str, np.ndarray],
        users: np.ndarray | None,
        **options: Any,
    ):
        super().__init__(arrays, **options)
        self.baselines, self.groups_of, self.users = baselines, groups_of, users


class RatedEvents(Interactions):
    """Facts: `user_ids`, `item_ids`, `features`, `label` (mean, low, high, std), `history_events`, `divided`, `digest` (of the data)."""

    experiment: Experiment

    def __init__(self, task: Any):
        super().__init__(task)
        self.biases: biases.Biases | None = None
        self._factors: Factors | None = None  # settings of the baseline, by validation

    @property
    def clicks(self) -> bool:
        """Whether clicks are learned, and not ratings."""
        return self.experiment.loss.name == "click"

    @cached_property
    def requests(self) -> Requests:
        return PairRequests(self)

    @property
    def signature(self) -> Signature:  # type: ignore[override]
        """The feature columns among it; as examples a known user and a known item, just after all that is known of the user."""
        meanings = {
            "user": "a user's id",
            "item": "an item's id",
            "time": "of the event, whole seconds: "
            + ("the nearest ratings count most" if known.all_known(self.experiment.data) else "only earlier ratings count")
            + "; 0: just after the last one that is known of the user",
            **{one["name"]: COLUMN_MEANINGS[one["kind"]] for one in self.columns},
        }
        examples = {}
        for name in ("user", "item"):
            if ids := self.facts.get(f"{name}_ids"):
                examples[name] = f"tf.constant([{ids[0]!r}], tf.{id_dtype(ids).name})  # one of the run's ids"
        return Signature(meanings, examples)

    def splits(self) -> Splits:
        settings = self.experiment.data
        catalogue, notes = splits.load(settings, self.facts or None, repetitions=splits.repetitions_of(self.experiment),
                                       described=splits.described_of(self.experiment))
        log = catalogue.log
        if log.ratings is None:
            raise DataError(f"{log.place}: ranking needs the column of the rating or click (data.rating_key)")
        if self.clicks and not np.isin(log.ratings, (0.0, 1.0)).all():
            wrong = int(np.flatnonzero(~np.isin(log.ratings, (0.0, 1.0)))[0])
            raise DataError(
                f"{log.name(wrong)}: {log.ratings[wrong]:g} in column {settings.rating_key} is no click, 0 or 1; for ratings "
                "set loss: {name: rating}"
            )
        if self.experiment.model.history and known.timeless(settings):
            catalogue.log = replace(log, times=known.random_order(len(log), settings.split_seed))
        train = catalogue.parts == TRAIN
        ratings = log.ratings[train]
        histories = catalogue.rated_histories((TRAIN,))
        columns = {one["name"]: one for one in catalogue.features}
        label = {"mean": float(ratings.mean()), "low": float(ratings.min()), "high": float(ratings.max()),
                 "std": 1.0 if self.clicks else float(ratings.std(dtype=np.float64)) or 1.0}
        facts = {
            **catalogue.facts(),
            "features": columns,
            "history_events": len(histories.items),
            "divided": notes[0],
            "label": label,
            "digest": log.digest,
        }
        users, items = len(facts.get("user_ids", ())), len(facts.get("item_ids", ()))
        fitted = biases.fit(catalogue.users[train], catalogue.items[train], ratings, users, items)
        self.catalogue, self.biases, self.histories = catalogue, fitted, histories
        arrays = self._arrays(catalogue)
        parts = {name: self._source(catalogue, arrays, number) for number, name in enumerate(NAMES)}
        self.validation = parts["validation"]
        if parts["train"] is None:
            raise DataError(f"{log.place}: no event to train on")
        return Splits(parts["train"], parts["validation"], parts["test"], facts, log.skipped, tuple(notes), log.left_out - len(log.skipped))

    def _arrays(self, catalogue: Catalogue) -> dict[str, np.ndarray]:
        log, settings = catalogue.log, self.experiment.data
        arrays: dict[str, np.ndarray] = {}
        if catalogue.user_ids is not None:
            arrays["user"] = catalogue.users
        if catalogue.item_ids is not None:
            arrays["item"] = catalogue.items
        arrays |= features.event_arrays(log, catalogue.features, settings)
        if self.experiment.model.history:
            times = known.whole(log.times if log.times is not None else log.rows.astype(np.float64))
            arrays["time"] = times
            if self.facts and self.facts.get("digest") != log.digest:  # other data than the run's, whose histories the model holds
                arrays["at"] = np.full(len(log), known.known_at(settings) if log.times is not None else known.ALL, np.int64)
            else:
                arrays["at"] = known.places(catalogue, times, settings)
        arrays[LABEL] = log.ratings.astype(np.float32)  # type: ignore[union-attr]
        return arrays

    def _source(self, catalogue: Catalogue, arrays: dict[str, np.ndarray], part: int) -> RatedSource | None:
        numbers = np.flatnonzero(catalogue.parts == part)
        if not len(numbers):
            return None
        users, items = catalogue.users[numbers], catalogue.items[numbers]
        groups: dict[str, np.ndarray] = {}
        if part != TRAIN:
            if catalogue.user_ids is not None:
                trained = catalogue.users[catalogue.parts == TRAIN]
                groups["user's events in train"] = np.bincount(trained, minlength=catalogue.users.max() + 1)[users]
            if catalogue.item_ids is not None:
                groups["item's events in train"] = catalogue.counts[items]
        return RatedSource(
            {key: value[numbers] for key, value in arrays.items()},
            baselines=lambda chosen: self._baselines(catalogue, part, users[chosen], items[chosen]),
            groups_of=groups,
            users=catalogue.log.users[numbers] if catalogue.log.users is not None else None,
            names=lambda number, catalogue=catalogue, numbers=numbers: catalogue.log.name(int(numbers[number])),  # type: ignore[misc]
            fingerprint=f"{catalogue.log.digest}-{NAMES[part]}-{len(numbers)}",
        )

    def _rated(self, catalogue: Catalogue, *parts: int) -> factors.Rated:
        """The events of these parts."""
        there = np.isin(catalogue.parts, parts)
        return catalogue.users[there], catalogue.items[there], catalogue.log.ratings[there]  # type: ignore[index]

    def fitted(self, settings: Factors, *, final: bool = False) -> factors.FittedFactors:
        catalogue = self.catalogue
        assert catalogue is not None and catalogue.user_ids is not None and catalogue.item_ids is not None
        train, validation = self._rated(catalogue, TRAIN, *((VALIDATION,) if final else ())), self._rated(catalogue, VALIDATION)
        chooses = validation if len(validation[0]) and not final else None
        return factors.fit(train, len(catalogue.user_ids), len(catalogue.item_ids), settings, chooses, self.experiment.train.seed)

    def _baselines(self, catalogue: Catalogue, part: int, users: np.ndarray, items: np.ndarray) -> dict[str, np.ndarray]:
        """What cheap models say of users and items [n], name -> [n]; for test they learn from validation, too."""
        final = part == TEST
        learned = self._rated(catalogue, TRAIN, *((VALIDATION,) if final else ()))
        baselines = {"share of clicks" if self.clicks else "mean": np.full(len(users), float(learned[2].mean()))}
        if catalogue.user_ids is None or catalogue.item_ids is None or part == TRAIN:
            return baselines
        fitted = biases.fit(*learned, len(catalogue.user_ids), len(catalogue.item_ids))
        baselines["user and item biases"] = np.clip(fitted(users, items), learned[2].min(), learned[2].max())
        if not self.clicks and not self.closed_form and self.experiment.evaluate.baseline:
            self._factors = self._factors or self.fitted(Factors(name="factors")).settings
            baselines["matrix factorisation"] = self.fitted(self._factors, final=final)(users, items)
        return baselines

    def prepare(self, examples: Tensors, *, keys: tf.Tensor | None = None, seed: tf.Tensor | None = None,
                epoch: tf.Tensor | None = None) -> tuple[Tensors, Tensors]:
        """Inputs of `RankingModel`."""
        return {name: value for name, value in examples.items() if name != LABEL}, {}

    @property
    def columns(self) -> list[features.Facts]:
        return [one for one in self.facts.get("features", {}).values() if one["of"] == "event"]

    def raw_spec(self) -> dict[str, tf.TensorSpec]:
        """user and item as ids, a time in seconds (0: just after all that is known) where there is a history, and the event's columns."""
        there = [name for name in ("user", "item") if f"{name}_ids" in self.facts]
        spec = {name: tf.TensorSpec([None], id_dtype(self.facts[f"{name}_ids"])) for name in there}
        if self.experiment.model.history:
            spec["time"] = tf.TensorSpec([None], tf.int64)
        return spec | columns_spec(self.columns)

    def receive(self, raw: Tensors) -> Tensors:
        """Ids and values as given into numbers, name -> [batch, ...]."""
        examples: Tensors = {name: finder(self.facts[f"{name}_ids"])(raw[name]) for name in ("user", "item") if f"{name}_ids" in self.facts}
        if self.experiment.model.history:
            examples["time"] = raw["time"]
            code = known.known_at(self.experiment.data)
            examples["at"] = tf.where(raw["time"] != 0, tf.constant(code, tf.int64), tf.constant(known.ALL, tf.int64))
        return examples | columns_received(self.columns, raw)


class PairRequests(Requests):
    """A user and an item, with whatever else the run reads."""

    sends = 'a request: an object such as {"user": 42, "item": 7}, with whatever else the run reads, or the text user,item'
    input: RatedEvents

    def read(self, inputs: list[str]) -> Iterator[Read]:
        """Requests: {"user": ..., "item": ..., "time": ..., column: ...}, as JSON or in tables; or user,item."""
        yield from requests(inputs, self._keys, "user", raw=self._asked)

    def take(self, sent: Any) -> dict[str, Any]:
        return self._asked(parsed(sent, list(self._keys), "user"))

    def form(self) -> list[Field]:
        """An id or a value for each raw input, as texts; the item alone is needed."""
        meanings = self.input.signature.meanings
        return [Field("word" if len(one.shape) == 1 else "words", name, meanings.get(name, ""), needed=name == "item")
                for name, one in self.input.raw_spec().items()]

    @property
    def _keys(self) -> dict[str, str]:
        """What a request may say -> the raw input it is."""
        settings, spec = self.input.experiment.data, self.input.raw_spec()
        ours = {"user": str(settings.user_key), "item": str(settings.item_key), "time": str(settings.time_key)}
        return {theirs: name for name, theirs in ours.items() if name in spec} | {name: name for name in spec}

    def _asked(self, request: Request) -> dict[str, Any]:
        spec, pair = self.input.raw_spec(), request.get("user")
        if len(request) == 1 and isinstance(pair, str) and "," in pair and "item" in spec:
            request = dict(zip(("user", "item"), (part.strip() for part in pair.split(",", 1))))
        keys = self._keys
        return self._raw({keys[key]: value for key, value in request.items()}, spec)

    def _raw(self, request: dict[str, Any], spec: dict[str, tf.TensorSpec]) -> dict[str, Any]:
        if "item" in spec and request.get("item") is None:
            raise DataError(
                "no item: what is predicted is of a user and an item. Give both, as USER,ITEM or as "
                '{"user": ..., "item": ...}; lists of items for a user are recsys.retrieval'
            )
        row: dict[str, Any] = {}
        columns = {one["name"]: one for one in self.input.columns}
        for name, one in spec.items():
            value = request.get(name)
            if name in ("user", "item"):
                row[name] = missing(one.dtype) if value is None else as_id(value, one.dtype == tf.int64)
            elif name == "time":
                row[name] = _seconds(value, self.input.experiment.data.time_format)
            else:
                row[name] = column_value(columns[name], value, self.input.experiment.data.list_separator)
        return row


def _seconds(value: Any, how: str) -> int:
    """A time as data.time_format has it; 0 for none."""
    import pyarrow as pa

    from pipelines.data.times import MEANINGS, read_times

    if value is None:
        return 0
    read = read_times(pa.chunked_array([[value]]), how) if isinstance(value, (str, int, float)) else None
    if read is None or read.wrong:
        raise DataError(f"{value!r} is no time {MEANINGS[how]}")
    if read.ambiguous:
        raise DataError(f"{value!r} may have the day or the month first; write it as 2026-11-21")
    return round(float(read.seconds[0]))

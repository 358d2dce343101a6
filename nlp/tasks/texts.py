"""The input of every task on texts: from stored strings to token numbers."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import tensorflow as tf

from nlp import tokens
from nlp.data import number_splits, requests, splits
from nlp.settings import TextClassification, TextData, TextRegression, text_keys
from nlp.tokens.base import PAD
from nlp.tokens.offsets import placed_tokens
from pipelines.base.errors import ConfigError
from pipelines.data.lengths import Lengths
from pipelines.data.source import Tensors
from pipelines.serving.output import WARNING
from pipelines.task.contract import Input, Read, Requests, Signature, Splits
from pipelines.task.form import Field

SENTENCES = ("yes", "Is there a table for two on Friday evening?",
             "I have waited for an hour, the soup was cold, and nobody could tell us when the main course would come; never again!")
LONG = 1 << 14  # bytes of a text that is worth other threads
LARGE = 1 << 20  # bytes of a text that takes long to cut into words
BLANK = r"[\s\pZ\pC]*"  # only separators and invisible characters


class Texts(Input):
    """Inputs of the model are token numbers [batch, time] int32. Facts: those of tokens and of a pretrained encoder (nlp.data.splits).

    With `offsets`, examples also have `starts` and `ends`, [batch, time] int32: the bytes of the text, as it was given, between which the
    word of each token lies (nlp.tokens.offsets); for outputs whose answers are places.
    """

    experiment: TextClassification | TextRegression
    offsets = False

    @property
    def signature(self) -> Signature:  # type: ignore[override]
        return Signature(
            {"text": "UTF-8, of any length; cut at the limit of tokens",
             "warning": "why the answer is only a guess: an empty text, or one without any word of train; empty otherwise"},
            {"text": "tf.constant(['a text, as it is'])"},
            ("tensorflow_text",) if self.experiment.own_tokens else (), lambda: self.tokenizer.resources)

    @property
    def lengths(self) -> Lengths:  # type: ignore[override]
        """An encoder costs what its tokens cost, padding among them, and may have no places beyond its limit."""
        return Lengths("length", 1 if self.experiment.own_tokens else 8, most=self.experiment.limit)

    @property
    def tokenizer(self) -> tokens.Tokenizer:
        cached = getattr(self, "_tokenizer", None)
        if cached is None or cached[0] is not self.facts:
            if self.experiment.own_tokens:
                from nlp.models import pretrained

                cached = self.facts, pretrained.tokenizer(self.experiment.model, self.facts)
            else:
                cached = self.facts, tokens.make(self.experiment.cutting, self.facts)
            self._tokenizer = cached
        return cached[1]

    @cached_property
    def requests(self) -> Requests:
        return TextRequests(self)

    def splits(self) -> Splits:
        if isinstance(self.experiment, TextRegression):
            return number_splits.load_numbers(self.experiment, self.facts)
        return splits.load_texts(self.experiment, self.facts)

    def decode(self, raw: Tensors, key: tf.Tensor | None = None) -> Tensors:
        """One text as {"tokens": [length] int32, "length"}, with all else that is stored of it."""
        cut = self.cut({name: raw[name][None] for name in self.read_from(raw)})
        return {**{name: value[0] for name, value in cut.items()}, **self._others(raw)}

    def decode_batch(self, raw: Tensors) -> Tensors:  # type: ignore[override]
        """Texts [batch] as `decode` has each: one call of the string operations for the batch is 10 times as fast as one for each."""
        return {**self.cut(raw), **self._others(raw)}

    def prepare(
        self, examples: Tensors, *, keys: tf.Tensor | None = None, seed: tf.Tensor | None = None, epoch: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, Tensors]:
        """Token numbers [batch, time] int32, 0 where there is padding."""
        return examples["tokens"], {}

    def raw_spec(self) -> dict[str, tf.TensorSpec]:
        return {"text": tf.TensorSpec([None], tf.string)}

    def receive(self, raw: Tensors) -> Tensors:
        """Texts [batch] string into token numbers [batch, time] int32, with a warning where the answer means little."""
        cut = self.cut(raw)
        return {**cut, WARNING: self._warnings(raw["text"], cut["tokens"])}

    def is_simple(self, row: dict[str, Any]) -> bool:
        return len(row["text"]) <= LONG and self.tokenizer.is_plain(row["text"])

    def receive_simple(self, raw: Tensors) -> Tensors:
        if self.tokenizer.cut_plain is None or self.offsets:
            return self.receive(raw)
        cut = self._padded(self.tokenizer.cut_plain(raw["text"]).ids)
        return {**cut, WARNING: self._warnings(raw["text"], cut["tokens"])}

    def slow_to_decode(self, row: dict[str, Any]) -> bool:
        return len(row["text"]) > LARGE

    def _others(self, raw: Tensors) -> Tensors:
        """What is stored beside what is sent."""
        return {name: value for name, value in raw.items() if name not in self.raw_spec()}

    def read_from(self, raw: Tensors) -> list[str]:
        """The names of the texts that `cut` takes of an example."""
        return list(self.raw_spec())

    def cut(self, raw: Tensors) -> Tensors:
        """What `decode_batch` makes of texts, [batch] string each. Traced once: a preset's tokenizer has a thousand operations, and a run
        cuts texts in a dozen graphs."""
        tokenizer, names = self.tokenizer, tuple(self.read_from(raw))
        if getattr(self, "_traced", (None,))[0] is not tokenizer:
            self._traced: tuple[tokens.Tokenizer, dict[tuple[str, ...], Any]] = tokenizer, {}
        traced = self._traced[1]
        if names not in traced:
            signature = [{name: tf.TensorSpec([None], tf.string) for name in names}]
            traced[names] = tf.function(lambda given: self._cut(given), input_signature=signature, autograph=False)
        found: Tensors = traced[names]({name: raw[name] for name in names})
        return found

    def _cut(self, raw: Tensors) -> Tensors:
        if not self.offsets:
            return self._padded(self.tokenizer.ids(raw["text"]))
        if getattr(self.experiment.model if self.experiment.own_tokens else self.experiment.cutting, "html", False):
            raise ConfigError(f"{self.experiment.task}: the places of words are those of the text as it is; leave html out")
        ids, starts, ends = placed_tokens(self.tokenizer, raw["text"], self.experiment.limit)
        return {**self._padded(ids), "starts": starts.to_tensor(), "ends": ends.to_tensor()}

    def _padded(self, ids: tf.RaggedTensor) -> Tensors:
        return {"tokens": ids.to_tensor(PAD), "length": tf.cast(ids.row_lengths(), tf.int32)}

    def _warnings(self, texts: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """Why an answer to these texts is only a guess, [batch] string: their tokens are those of an empty text."""
        with tf.init_scope():  # at once, and not with each batch
            nothing = self.tokenizer.ids(tf.constant([""]))[0].numpy()
        same = tf.reduce_all((ids == PAD) | tf.reduce_any(ids[..., None] == nothing, -1), -1)
        blank = tf.strings.regex_full_match(texts, BLANK)
        return tf.where(same, tf.where(blank, "the text is empty", "no word of the text is in the training data"), "")


def unpacked(packed: tf.Tensor, width: int) -> tuple[tf.Tensor, tf.Tensor]:
    """int32 in the bytes of strings, [] or [batch], as rows of `width`: [rows, width] or [batch, rows, width], and how many rows there are,
    [] or [batch] int32; behind the last they are 0."""
    count = tf.strings.length(packed) // (4 * width)
    if packed.shape.rank == 0:
        return tf.reshape(tf.io.decode_raw(packed, tf.int32), [-1, width]), count
    most = tf.maximum(tf.reduce_max(count), 1)
    numbers = tf.io.decode_raw(packed, tf.int32, fixed_length=4 * width * most)
    return tf.reshape(numbers, [tf.shape(packed)[0], most, width]), count


class TextRequests(Requests):
    """Texts, alone or in the columns of a table."""

    read_at_once = (256, 1024)
    sends = 'a text; in JSON a text or an object of columns such as {"text": "..."}'
    input: Texts

    @property
    def data(self) -> TextData:
        """Which columns of a table are read."""
        return self.input.experiment.data

    def read(self, inputs: list[str]) -> Iterator[Read]:
        yield from requests.read_texts(inputs, self.data)

    def take(self, sent: Any) -> dict[str, Any]:
        return requests.request_example(sent, self.data)

    def form(self) -> list[Field]:
        keys = [str(key) for key in text_keys(self.data)]
        return [Field("text", key) for key in keys] if len(keys) > 1 else [Field("text")]

    def typical(self) -> list[dict[str, Any]]:
        known = [word for word in self.input.facts.get("vocabulary") or () if word.isascii() and word.isalpha()][:40]
        return [{"text": text.encode()} for text in (*SENTENCES, " ".join(known)) if text]

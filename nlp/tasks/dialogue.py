"""nlp.dialogue: what is answered in a dialogue."""

import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nlp.data import requests
from nlp.data.chat_template import COLUMNS, JOINER, WRITTEN, ChatTemplate, Message, messages_of, opened, without_oldest
from nlp.data.dialogues import load_dialogues, tokens_of
from nlp.data.documents import ANSWERED, TOKENS
from nlp.data.facts import DialogueFacts
from nlp.settings import DialogueModel, text_keys
from nlp.tasks.language_model import Documents, LanguageModelling, NextTokens, Prompts
from nlp.tokens.alphabet import Alphabet
from nlp.tokens.normalise import quoted
from pipelines.base.errors import DataError
from pipelines.data import text_rows
from pipelines.data.dialect import JSON_LINES, PARQUET, ending
from pipelines.data.source import Source, Tensors
from pipelines.task import intervals
from pipelines.task.contract import Answers, Read, Requests, Signature, Splits
from pipelines.task.results import Judgement

AT_ONCE = 16  # dialogues that are answered together
SHOWN = 20  # of them in the report's table
LONGEST = 600  # characters of a text in it


class Dialogues(Documents):
    """Inputs of the model are {"tokens"} [batch, length + 1] int32 and {"answered"} [batch, length + 1] bool; of what is to be answered
    {"prompt"} [batch, any] int32. Facts: those of a preset, and `template`."""

    experiment: DialogueModel  # type: ignore[assignment]

    @property
    def signature(self) -> Signature:  # type: ignore[override]
        return Signature(
            {"text": "UTF-8: a message of the user; or U+E002 and a dialogue as the template writes it, up to where the answer begins; its "
                     f"last {self.room} tokens are seen",
             "warning": "why the answer means little; else empty"},
            {"text": "tf.constant(['What is the capital of France?'])"}, ("tensorflow_text",), lambda: self.alphabet.resources)

    def _made(self) -> Alphabet:
        self._template, alphabet = tokens_of(self.facts)
        return alphabet

    @property
    def template(self) -> ChatTemplate:
        """That writes dialogues."""
        _ = self.alphabet
        return self._template

    @cached_property
    def requests(self) -> Requests:
        return DialogueRequests(self)

    def splits(self) -> Splits:
        return load_dialogues(self.experiment, self.facts)

    def prepare(self, examples: Tensors, *, keys: tf.Tensor | None = None, seed: tf.Tensor | None = None, epoch: tf.Tensor | None = None,
                ) -> tuple[Tensors, Tensors]:
        if "prompt" in examples:
            return {"prompt": examples["prompt"]}, {}
        own = {name: examples[name] for name in (TOKENS, ANSWERED)}
        return own, {}

    def receive(self, raw: Tensors) -> Tensors:
        """Texts [batch] string into {"prompt"} [batch, any] int32. A text is a message of the user, in which marks are none."""
        before, behind = self.template.around(self.experiment.writing.system)
        message = tf.strings.strip(raw["text"]) if self.template.trims else raw["text"]
        for mark in self.template.marks:
            message = tf.strings.regex_replace(message, quoted(mark), _replacing(mark[0] + JOINER + mark[1:]))
        rest = tf.strings.regex_replace(raw["text"], f"^{WRITTEN}", "", replace_global=False)
        whole = tf.strings.regex_full_match(raw["text"], f"(?s){WRITTEN}.*")
        return self.seen(self.alphabet.ids(tf.where(whole, rest, tf.strings.join([before, message, behind]))))

    def written(self, messages: list[Message]) -> str:
        """A dialogue as the text that `receive` takes; where it is too long, without its oldest questions and answers. Raises DataError."""
        messages = opened(messages, self.experiment.writing.system)
        if messages[-1]["role"] != "user":
            raise DataError("the last message is none of the user; there is nothing to answer")

        def fits(some: list[Message]) -> bool:
            if len(some) > self.experiment.limit or not self.fits("".join(one["content"] for one in some)):
                return False
            text = self.template.write(some, ask=True)
            return self.fits(text) and len(self.cut(text)) <= self.room

        return WRITTEN + self.template.write(without_oldest(messages, fits), ask=True)


def _replacing(text: str) -> str:
    return text.replace("\\", "\\\\")


class DialogueRequests(Prompts):
    """Dialogues: messages of the user, or JSON with all of them."""

    sends = ('a message of the user; in JSON a text, or a dialogue: {"messages": [{"role": "user", "content": "..."}, ...]}, whose last '
             "message is answered")
    input: Dialogues  # type: ignore[assignment]

    def read(self, inputs: list[str]) -> Iterator[Read]:
        for given in inputs:
            path = Path(given)
            if ending(path) in (*JSON_LINES, *PARQUET) and path.is_file() and " " not in given:
                yield from self._table(path)
            else:
                yield from requests.read_texts([given], self.data)

    def _table(self, path: Path) -> Iterator[Read]:
        """A dialogue in each row, in the column that has it; or a message in the only one."""
        rows = iter(text_rows.records(path, named=True, lenient=True))
        names = next(rows)[1]
        wanted = [key for key in (*text_keys(self.data), *COLUMNS, "text") if key in names] or names
        place = names.index(wanted[0])
        for line, record in rows:
            if isinstance(record, str):
                yield f"{path}:{line}", ValueError(record), dict.fromkeys(names)
                continue
            try:
                yield f"{path}:{line}", self.take(record[place]), dict(zip(names, record))
            except DataError as error:
                yield f"{path}:{line}", error, dict(zip(names, record))

    def take(self, sent: Any) -> dict[str, Any]:
        if isinstance(sent, dict) and set(sent) == {"text"}:
            sent = sent["text"]
        if isinstance(sent, (list, dict)):
            messages = messages_of(sent)
            while messages and messages[-1]["role"] == "assistant":  # the answer that a table has
                messages = messages[:-1]
            if not messages:
                raise DataError("no message of the user; there is nothing to answer")
            return {"text": self.input.written(messages).encode("utf-8", "replace")}
        raw = requests.request_example(sent, self.data)
        return {"text": raw["text"].replace(WRITTEN.encode(), b"")}


class Replies(NextTokens):
    """Outputs of the model are logits of the tokens behind the first, [batch, length, tokens] float32; targets are "tokens" [batch,
    length + 1] int32 and "answered" [batch, length + 1] bool: only those of answers are learned and judged."""

    answers = Answers({"written": "the answer", "confidence": "mean probability of its tokens; not calibrated"})
    dialogues = True
    input: Dialogues
    experiment: DialogueModel  # type: ignore[assignment]

    def prompt(self, sent: Any) -> np.ndarray:
        """The tokens of a dialogue's messages, or of a text as the template has it, [n] int32. Raises DataError."""
        return self.input.cut(sent if isinstance(sent, str) else self.input.written(messages_of(sent)).removeprefix(WRITTEN))

    def targets(self, examples: Tensors, changes: Tensors | None = None) -> Tensors:
        return {name: examples[name] for name in (TOKENS, ANSWERED)} if TOKENS in examples else {}

    def _counted(self, targets: Any) -> tuple[tf.Tensor, tf.Tensor]:
        return targets[TOKENS][:, 1:], tf.cast(targets[ANSWERED][:, 1:], tf.float32)

    def _truth(self, inputs: Any) -> Any:
        return inputs

    def explain(self, model: keras.Model, judgement: Judgement, answers: dict[str, np.ndarray], targets: dict[str, np.ndarray],
                source: Source) -> None:
        """Adds answers that are written, beside the true ones, and how many are the same and of the asked form."""
        settings, end = self.experiment.evaluate, self.input.alphabet.end
        if not settings.answers or not len(source):
            return
        numbers = np.unique(np.linspace(0, len(source) - 1, min(settings.answers, len(source)), dtype=np.int64))
        values = source.gather(numbers)
        prompts, true = zip(*(_last(ids, own) for ids, own in zip(values[TOKENS].numpy(), values[ANSWERED].numpy())))
        wanted = self._cut(self.texts(_padded([ids[ids != end] for ids in true])))
        written = self.answered(model, [ids[-self.input.room:] for ids in prompts])
        same = np.array([one.strip() == other.strip() for one, other in zip(written, wanted)])
        shares = {"same_answer": same}
        if settings.form is not None:
            shares["well_formed"] = np.array([re.fullmatch(settings.form, one.strip(), re.DOTALL) is not None for one in written])
        judgement.metrics |= {name: intervals.share(hits, resamples=settings.bootstrap) for name, hits in shares.items()}
        judgement.notes.append(f"{len(numbers):,} answers were written, the last of as many dialogues, and compared with the true ones.")
        asked = self.texts(_padded([ids[-200:] for ids in prompts]))
        order = np.argsort(same, kind="stable")[:SHOWN]
        judgement.tables["written"] = [
            {"example": source.name(int(numbers[at])), "asked": asked[at][-LONGEST:], "written": written[at][:LONGEST],
             "true": wanted[at][:LONGEST], "same": bool(same[at])} for at in order]

    def answered(self, model: Any, prompts: list[np.ndarray]) -> list[str]:
        """What a model answers to prompts [n] int32 each."""
        def whole(some: tf.Tensor) -> Tensors:
            return self.respond(self.answer(lambda each: model(each, training=False), {"prompt": some}))

        run = tf.function(whole, autograph=False, input_signature=[tf.TensorSpec([None, None], tf.int32)])
        order, found = np.argsort([len(one) for one in prompts], kind="stable"), [""] * len(prompts)
        for start in range(0, len(order), AT_ONCE):
            some = order[start:start + AT_ONCE]
            texts = run(tf.constant(_padded([prompts[at] for at in some])))["written"].numpy()
            for at, text in zip(some, texts):
                found[at] = text.decode()
        return found

    def _cut(self, texts: list[str]) -> list[str]:
        """Up to where writing would end."""
        for stop in self.experiment.writing.stop:
            texts = [text.split(stop)[0] for text in texts]
        return texts


def _last(ids: np.ndarray, own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of a window: what stands before its last answer, and that."""
    end = int(np.flatnonzero(own)[-1]) + 1
    outside = np.flatnonzero(~own[:end])
    start = int(outside[-1]) + 1
    return ids[:start], ids[start:end]


def _padded(rows: list[np.ndarray]) -> np.ndarray:
    longest = max(1, *map(len, rows)) if rows else 1
    return np.stack([np.pad(one, (0, longest - len(one))) for one in rows]).astype(np.int32)


class Dialogue(LanguageModelling):
    """nlp.dialogue."""

    input_class = Dialogues
    output_class = Replies
    facts_schema = DialogueFacts  # type: ignore[assignment]
    input: Dialogues
    output: Replies
    experiment: DialogueModel  # type: ignore[assignment]

    def facts_error(self) -> str | None:
        try:
            _ = self.input.alphabet
        except DataError as error:
            return f"template: {error}"
        return None

"""Dialogues, written as text by a model's template, as windows of tokens of which those of answers are learned."""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from nlp.data import chat_template
from nlp.data.chat_template import ChatTemplate, Message, messages_of
from nlp.data.documents import ANSWERED, TOKENS, texts_of
from nlp.data.rows import Rows
from nlp.data.sources import Read, open_unlabelled
from nlp.settings import DialogueData, DialogueModel, text_keys
from nlp.tokens.units_preset import PresetTokens
from pipelines.base.errors import DataError
from pipelines.base.json_text import parse_json
from pipelines.data import text_rows
from pipelines.data.divide import divide
from pipelines.data.fingerprint import of_files
from pipelines.data.opened import Opened
from pipelines.data.source import ArraySource, Source
from pipelines.data.split import describe
from pipelines.stores.remote import local
from pipelines.task.contract import Splits

LEARNED = ("encoder", "backbone", "tokenizer", "template")


def read_shipped(data: DialogueData, pattern: str | None, numbers: Any) -> Read:
    """Tables, or a folder of them; a dialogue is kept as JSON."""
    place = local(data.path or "")
    files = text_rows.split_files(place, None, (data.validation, data.test)) if place.is_dir() else {"all": place}

    def read(split: str, labelled: bool) -> Rows:
        path = files[split]
        keys = text_keys(data)
        table = text_rows.read(path, keys, settings=["data.text_key"] * len(keys), header=data.header, delimiter=data.delimiter,
                               encoding=data.encoding, quote=data.quote, lenient=data.on_bad_example == "skip", names=data.columns)
        texts, lines, bad = [], [], [(f"{path}:{line}", reason) for line, reason in table.bad]
        for number, cells in enumerate(zip(*table.values)):
            try:
                texts.append(json.dumps(_messages(cells), ensure_ascii=False))
                lines.append(number)
            except DataError as error:
                bad.append((table.place(number), str(error)))
        digest = of_files([path], path.parent, whole=True)
        return Rows(texts, [None] * len(texts), lambda number: table.place(lines[number]), None, bad,
                    hashlib.sha256(f"{digest} {keys}".encode()).hexdigest()[:16])

    return str(place), list(files), read, []


def _messages(cells: tuple[Any, ...]) -> list[Message]:
    """What a row says. Raises DataError."""
    if len(cells) == 2:
        asked, answer = ("" if cell is None else str(cell) for cell in cells)
        found = [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]
    else:
        (cell,) = cells
        try:
            found = messages_of(parse_json(cell) if isinstance(cell, str) else cell)
        except ValueError as error:
            raise DataError(f"the messages are no JSON: {error}") from None
    begin = next((number for number, one in enumerate(found) if one["role"] == "user"), len(found))
    found = [one for number, one in enumerate(found) if number >= begin or one["role"] == "system"]  # no answers before a question
    while found and found[-1]["role"] != "assistant":
        found.pop()
    if not any(one["role"] == "assistant" and one["content"].strip() for one in found):
        raise DataError("no message of the assistant that answers one of the user, which is what is learned")
    return found


def load_dialogues(experiment: DialogueModel, known: dict[str, Any] | None = None) -> Splits:
    """The splits. Examples are {"tokens" [length + 1] int32, padded with 0, "answered" [length + 1] bool}.

    Args:
        known: facts of a finished run, whose tokens and template are then reused.

    Facts:
        template: of the preset, or the file's of the experiment.
        splits: for each split its dialogues and fingerprint.

    Raises:
        DataError: names the row, and the remedy.
    """
    opened, divided, notes = dialogues_of_splits(experiment.data)
    facts = {name: known[name] for name in LEARNED} if known else learned(experiment)
    template, alphabet = tokens_of(facts)
    parts: dict[str, Source | None] = {}
    for name, source in divided.items():
        if source is not None:
            cut = windows(source, template, alphabet, experiment)
            opened.skipped.extend(cut.bad)
            notes = [*notes, *(f"{name}: {note}" for note in cut.notes)]
            parts[name] = cut.source
    facts["splits"] = describe(parts)
    train = parts["train"]
    assert train is not None
    return Splits(train=train, validation=parts.get("validation"), test=parts.get("test"), facts=facts, skipped=tuple(opened.skipped),
                  notes=(*opened.notes, *notes))


def learned(experiment: DialogueModel) -> dict[str, Any]:
    """The facts of a preset and its template. Raises ConfigError."""
    from nlp.models import language_pretrained
    from pipelines.encoders.presets import find

    facts = language_pretrained.learn(experiment.model)
    preset = find(experiment.model.preset, domain="nlp")
    text = chat_template.read(local(experiment.template)) if experiment.template else chat_template.of_preset(preset.folder, preset.handle)
    return {**facts, "template": text}


def tokens_of(facts: dict[str, Any]) -> tuple[ChatTemplate, PresetTokens]:
    """The template and the tokens of these facts; a text ends with the template's mark. Raises DataError for a template that ends none."""
    alphabet = PresetTokens(facts["tokenizer"])
    config = facts["tokenizer"]["config"]
    template = ChatTemplate(facts["template"], str(config.get("bos_token") or ""), str(config.get("eos_token") or ""), alphabet.marks)
    alphabet.ended_by(template.end)
    return template, alphabet


def dialogues_of_splits(data: DialogueData) -> tuple[Opened, dict[str, Source | None], list[str]]:
    """The dialogues of train, validation and test, and notes for the report."""
    opened = open_unlabelled(data)
    train, validation, test, notes = divide(opened.names, opened.load, data, opened.place)
    return opened, {"train": train, "validation": validation, "test": test}, notes


@dataclass
class Cut:
    """Dialogues as windows."""

    source: ArraySource
    bad: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def windows(dialogues: Source, template: ChatTemplate, alphabet: PresetTokens, experiment: DialogueModel) -> Cut:
    """A window of each dialogue. Of one that is too long the oldest questions and answers are left out, and of a single answer the end.

    Raises:
        DataError: not one has an answer within the window; or, where data.on_bad_example is stop, the template refuses one.
    """
    size, rows, kept, bad = experiment.limit + 1, [], [], []
    shorter = cut = 0
    for number, text in enumerate(texts_of(dialogues)):
        messages = chat_template.opened(parse_json(text), experiment.writing.system)
        try:
            part = chat_template.without_oldest(messages, lambda some: len(_encoded(some, template, alphabet)[0]) <= size)
            ids, own = _encoded(part, template, alphabet)
        except DataError as error:
            bad.append(f"{dialogues.name(number)}: {error}")
            continue
        if not own[:size].any():
            asked = int(np.argmax(own))
            bad.append(f"{dialogues.name(number)}: what is asked has {asked:,} tokens, and {size - 1} are seen (model.length)")
            continue
        shorter += len(part) < len(messages)
        cut += len(ids) > size
        rows.append((np.pad(ids[:size], (0, max(0, size - len(ids)))), np.pad(own[:size], (0, max(0, size - len(ids))))))
        kept.append(number)
    if bad and (experiment.data.on_bad_example == "stop" or not rows):
        more = f" (and {len(bad) - 1:,} more such dialogues)" if len(bad) > 1 else ""
        raise DataError(f"{bad[0]}{more}. Repair or remove it, or set data.on_bad_example: skip")
    digest = hashlib.sha256(f"{dialogues.fingerprint()} {size} {template.text} {experiment.writing.system}".encode()).hexdigest()[:16]
    source = ArraySource({TOKENS: np.stack([ids for ids, _ in rows]), ANSWERED: np.stack([own for _, own in rows])}, title="dialogues",
                         names=lambda number: dialogues.name(kept[number]), fingerprint=digest)
    notes = [f"{count:,} of {len(rows):,} dialogues have more than {size - 1} tokens (model.length): {what}" for count, what in
             ((shorter, "their oldest questions and answers are left out"), (cut, "the end of an answer is not learned")) if count]
    return Cut(source, bad, notes)


def _encoded(messages: list[Message], template: ChatTemplate, alphabet: PresetTokens) -> tuple[np.ndarray, np.ndarray]:
    """Tokens [n] int32, and which of them stand in an answer [n] bool. Raises DataError."""
    parts = template.parts(messages)
    with tf.device("CPU:0"):
        ids = alphabet.ids(tf.constant([text for text, _ in parts]))
    own = np.repeat([answered for _, answered in parts], ids.row_lengths().numpy())
    return ids.flat_values.numpy().astype(np.int32), own

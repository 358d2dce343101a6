"""Running texts as documents, and these as windows of tokens: of train one behind the other, else each document by itself."""

import hashlib
from typing import Any

import numpy as np
import tensorflow as tf

from nlp.data.document_files import split_files
from nlp.data.rows import Rows
from nlp.data.sources import Read, open_unlabelled, read_shipped_tables
from nlp.settings import DocumentData, LanguageModel
from nlp.tokens import units
from nlp.tokens.alphabet import Alphabet
from pipelines.base.errors import DataError
from pipelines.data import text_rows
from pipelines.data.divide import divide
from pipelines.data.fingerprint import of_files
from pipelines.data.opened import Opened
from pipelines.data.source import ArraySource, Source, origin
from pipelines.data.split import describe
from pipelines.stores.remote import local
from pipelines.task.contract import Splits

ALONE = 10  # documents below which shares for validation and test are their ends, and not some of them
TOKENS, ANSWERED = "tokens", "answered"  # of dialogues, which tokens stand in an answer
LEARNED = ("vocabulary", "encoder", "backbone", "tokenizer")  # facts of tokens and of a preset


def read_shipped(data: DocumentData, pattern: str | None, numbers: Any) -> Read:
    """Files of plain text, each a document, or tables."""
    if data.source == "table":
        return read_shipped_tables(data)
    place = local(data.path or "")
    files = split_files(place)

    def read(split: str, labelled: bool) -> Rows:
        texts, places, bad = [], [], []
        for path in files[split]:
            try:
                texts.append(text_rows.text_of(path, data.encoding))
                places.append(str(path))
            except (DataError, OSError) as error:
                bad.append((str(path), str(error).removeprefix(f"{path}: ")))
        digest = of_files(files[split], place if place.is_dir() else place.parent, whole=True)
        return Rows(texts, [None] * len(texts), places.__getitem__, None, bad, digest)

    return str(place), list(files), read, []


def load_documents(experiment: LanguageModel, known: dict[str, Any] | None = None) -> Splits:
    """The splits. Examples are {"tokens"}: of train [2 x length + 1] int32, of which `length + 1` are drawn, else [length + 1], padded
    with 0 at the end. The first one is what stands before the others.

    Args:
        known: facts of a finished run, whose tokens are then reused.

    Facts:
        vocabulary: characters or pieces of train, where tokens learn any.
        splits: for each split its windows and fingerprint.

    Raises:
        DataError: names file or row, and the remedy.
    """
    opened, divided, notes = texts_of_splits(experiment.data)
    texts = {name: source for name, source in divided.items() if source is not None}
    facts = {name: known[name] for name in LEARNED if known.get(name) is not None} if known else _learned(experiment, texts["train"])
    alphabet = units.make(experiment.cutting, facts)
    alone = bool(known) and list(texts) == ["train"]  # new data for a finished run: judged
    parts: dict[str, Source | None] = {
        name: windows(source, alphabet, experiment.limit, packed=name == "train" and not alone) for name, source in texts.items()}
    for name, source in parts.items():
        if source is None or not len(source):
            raise DataError(f"{opened.place}: {name} has no text")
    facts["splits"] = describe(parts)
    kept = parts["train"]
    assert kept is not None
    return Splits(train=kept, validation=parts.get("validation"), test=parts.get("test"), facts=facts, skipped=tuple(opened.skipped),
                  notes=(*opened.notes, *notes))


def _learned(experiment: LanguageModel, train: Source) -> dict[str, Any]:
    """The facts of a preset, or of train's texts."""
    if experiment.own_tokens:
        from nlp.models import language_pretrained

        return language_pretrained.learn(experiment.model)
    vocabulary = units.learn(experiment.cutting, iter([_texts(train)]))
    return {"vocabulary": vocabulary} if vocabulary else {}


def texts_of_splits(data: DocumentData) -> tuple[Opened, dict[str, Source | None], list[str]]:
    """The documents of train, validation and test, and notes for the report."""
    opened = open_unlabelled(data)
    if len(opened.names) == 1 and (data.validation or data.test) and len(whole := opened.load(opened.names[0])) < ALONE:
        train, validation, test, notes = _ends(whole, data, opened)
    else:
        train, validation, test, notes = divide(opened.names, opened.load, data, opened.place)
    return opened, {"train": train, "validation": validation, "test": test}, notes


def texts_of(source: Source) -> list[str]:
    """The documents of a source."""
    return [text.decode("utf-8", "replace") for text in _texts(source).numpy().tolist()]


def _texts(source: Source) -> tf.Tensor:
    base, numbers = origin(source)
    with tf.device("CPU:0"):
        return tf.gather(base.texts, numbers)  # type: ignore[attr-defined]


class _Text(ArraySource):
    """Documents that were cut from others."""

    def __init__(self, texts: list[str], names: list[str], fingerprint: str):
        super().__init__({"number": np.arange(len(texts))}, names=names.__getitem__, fingerprint=fingerprint)
        with tf.device("CPU:0"):
            self.texts = tf.constant([text.encode() for text in texts])


def _ends(source: Source, data: DocumentData, opened: Opened) -> tuple[Source, Source | None, Source | None, list[str]]:
    """Few documents: train is their beginning, validation what follows, and test the end; cut at ends of lines."""
    if isinstance(data.validation, str) or isinstance(data.test, str):
        raise DataError(f"{opened.place} is one text: data.validation and data.test are shares of it, such as 0.1, or null")
    test = float(data.test or 0.0)
    validation = float(data.validation or 0.0) * (1.0 - test)
    cut: list[list[str]] = [[], [], []]
    for text in (text.decode("utf-8", "replace") for text in _texts(source).numpy()):
        edges = [0]
        for share in (1.0 - test - validation, 1.0 - test):
            place = round(share * len(text))
            line = text.find("\n", place) + 1
            edges.append(max(edges[-1], line if 0 < line <= place + 10_000 else place))
        for part, (start, end) in zip(cut, zip(edges, [*edges[1:], len(text)])):
            part.append(text[start:end])
    names = [source.name(number) for number in range(len(source))]
    found: list[Source | None] = [
        _Text(texts, names, f"{source.fingerprint()}-{number}") if any(texts) else None for number, texts in enumerate(cut)]
    if found[0] is None:
        raise DataError(f"{opened.place}: nothing is left for train")
    note = "validation and test are the ends of the text, in this order: less than ten documents are not divided among splits"
    return found[0], found[1], found[2], [note]


def windows(documents: Source, alphabet: Alphabet, length: int, *, packed: bool) -> ArraySource:
    """Windows of documents.

    Args:
        documents: with their `texts`.
        packed: one behind the other, twice as long as a window; else each document by itself.
    """
    texts = _texts(documents)
    each = [np.concatenate([[alphabet.end], alphabet.ids(texts[number:number + 1]).flat_values.numpy(), [alphabet.end]]).astype(np.int32)
            for number in range(len(documents))]
    if packed:  # the end of a document stands before the next one
        each = [np.concatenate([*(one[:-1] for one in each), [alphabet.end]]).astype(np.int32)]
    parts = [_cut(one, length, 2 * length if packed else length) for one in each]
    owners = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    starts = np.concatenate([np.arange(len(part)) * length for part in parts])
    digest = hashlib.sha256(f"{documents.fingerprint()} {length} {packed} {alphabet.strings}".encode()).hexdigest()[:16]

    def name(number: int) -> str:
        return f"window {number:,} of train" if packed else f"{documents.name(int(owners[number]))} from token {starts[number]:,}"

    return ArraySource({TOKENS: np.concatenate(parts)}, title="windows", names=name, fingerprint=digest,
                       groups=owners if len(documents) > 1 and not packed else None)


def _cut(ids: np.ndarray, step: int, size: int) -> np.ndarray:
    """Windows of `size` tokens and the one before them, [n, size + 1], each `step` behind the last, padded with 0."""
    count = -(-(len(ids) - 1) // step)
    padded = np.pad(ids, (0, max(0, (count - 1) * step + size + 1 - len(ids))))
    return np.lib.stride_tricks.sliding_window_view(padded, size + 1)[::step][:count]

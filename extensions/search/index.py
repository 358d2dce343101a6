"""An index with the encoder that its vectors come from: rows are added, and queries are answered. Imports no TensorFlow until then."""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from extensions.search.documents import read_documents
from extensions.search.store import MANIFEST, Store, write_store
from pipelines.base.errors import ConfigError, DataError
from pipelines.commands.answering import open_encoder
from pipelines.runs.folder import RunFolder
from pipelines.serving.output import Prediction

if TYPE_CHECKING:
    from pipelines.serving.load import LoadedRun
    from pipelines.serving.predict import Predictor
    from pipelines.task.contract import Read

COUNT, CANDIDATES = 5, 50
ANSWERS = ("value", "similarity")  # of runs on pairs that give a number; beside the first stand the ends of its interval
INPUT = "input"  # the column of what is no row of a table: a text, or the name of a file
Failed = Callable[[Prediction], None]


@dataclass(frozen=True)
class Hit:
    """A row that was found.

    Attributes:
        similarity: the cosine of both vectors; of a search that is reranked the reranker's score.
        row: its columns; of what is no row of a table `input`, a text or the name of a file.
    """

    similarity: float
    row: dict[str, Any]


def fingerprint(run: "LoadedRun") -> str:
    """SHA-256 of an encoder's weights."""
    found = hashlib.sha256()
    for value in run.model.get_layer("features").get_weights():
        found.update(np.ascontiguousarray(value).tobytes())
    return found.hexdigest()


def build_index(encoder: str | Path, inputs: str | Sequence[str], folder: str | Path, *, runs: str | Path = "runs", append: bool = False,
                replace: bool = False, settings: Sequence[str] = (), batch: int | None = None, failed: Failed | None = None,
                followed: Callable[[Iterable[Prediction]], Iterable[Prediction]] = iter) -> "Index":
    """Keeps the vectors of inputs, each with its row.

    Args:
        encoder: a run of a pretrained encoder, or a preset.
        inputs: files, folders or patterns as `predict` takes them; texts; a folder of texts is read by passages.
        folder: of the index, written whole or not at all.
        append: to what is there, which the same encoder must have made.
        replace: what is there.
        settings: how tables are read, such as data.text_key=body.
        failed: is told of an input that cannot be read; such are left out.
        followed: wraps the answers as they come.

    Raises:
        ConfigError: the encoder cannot be used, an index is there already, or another encoder has made it.
        DataError: no input could be read.
    """
    folder = Path(folder)
    if append and replace:
        raise ConfigError("--append adds to what is there, --replace does not keep it; give one of the two")
    there = (folder / MANIFEST).exists()
    if there and not (append or replace):
        raise ConfigError(f"{folder}: an index is there already; --append adds to it, --replace builds it anew")
    if folder.exists() and not there and any(folder.iterdir()):
        raise ConfigError(f"{folder}: is a folder of other things; name one that is new or empty")
    old = Store.open(folder) if there and append else None
    reading = list(settings) or (old.manifest.reading if old is not None else [])
    run, name = open_encoder(Path(runs), str(encoder))
    mark = fingerprint(run)
    if old is not None and old.manifest.fingerprint != mark:
        raise ConfigError(f"{folder}: was made by another encoder, {old.manifest.encoder}; vectors of two cannot be compared. Build an "
                          "index of its own, or this one anew with --replace")
    predictor = encoding(run, reading, batch)
    rows, vectors = list[dict[str, Any]](), list[np.ndarray]()
    for one in followed(predictor.answers(_read(predictor, [inputs] if isinstance(inputs, str) else inputs))):
        if one.error is None:
            rows.append(dict(one.fields or {INPUT: one.name}))
            vectors.append(one.values["vector"])
        elif failed is not None:
            failed(one)
    if not rows:
        raise DataError("no input could be read")
    write_store(folder, np.stack(vectors), rows, name, mark, reading, more=old)
    return Index(Store.open(folder), predictor)


def _read(predictor: "Predictor", inputs: Sequence[str]) -> "Iterator[Read]":
    """As `predict` reads them; folders for an encoder of texts by passages."""
    for given in map(str, inputs):
        if set(predictor.inputs) == {"text"} and os.path.isdir(given):
            yield from read_documents(Path(given), predictor.take)
        else:
            yield from predictor.run.task.input.requests.read([given])


def open_index(folder: str | Path) -> "Index":
    """Opens an index and its encoder. Raises ConfigError where either is not there, or the encoder has changed since."""
    store = Store.open(Path(folder))
    run, _ = open_encoder(Path("runs"), store.manifest.encoder)
    if fingerprint(run) != store.manifest.fingerprint:
        raise ConfigError(f"{folder}: its encoder, {store.manifest.encoder}, is no longer what it was when the index was made; build the "
                          "index anew with --replace")
    return Index(store, encoding(run, store.manifest.reading))


def encoding(run: "LoadedRun", settings: Sequence[str], batch: int | None = None) -> "Predictor":
    """What makes vectors of inputs, whose tables are read as the settings say."""
    from pipelines.serving.embed import vectors
    from pipelines.serving.load import reading_as
    from pipelines.serving.predict import Predictor

    return Predictor(reading_as(run, settings), batch=batch, answer=vectors)


class Index:
    """Answers queries."""

    def __init__(self, store: Store, predictor: "Predictor"):
        self.store, self.predictor = store, predictor

    def __len__(self) -> int:
        return self.store.manifest.rows

    def search(self, query: Any, count: int = COUNT, *, where: Mapping[str, str] | None = None, rerank: "Reranker | None" = None,
               candidates: int = CANDIDATES) -> list[Hit]:
        """The rows nearest to a text, or to the bytes of a picture or a recording, best first.

        Args:
            where: columns with the value that rows must have.
            rerank: orders the nearest `candidates` anew.

        Raises:
            DataError: the query cannot be read.
        """
        answer = self.predictor.together([("query", self.predictor.take(query))])[0]
        if answer.error is not None:
            raise DataError(f"the query cannot be read: {answer.error}")
        return self.of_vector(answer.values["vector"], query, count, where=where, rerank=rerank, candidates=candidates)

    def of_vector(self, vector: np.ndarray, query: Any, count: int, *, where: Mapping[str, str] | None = None,
                  rerank: "Reranker | None" = None, candidates: int = CANDIDATES) -> list[Hit]:
        """As `search`, of a query whose vector is known."""
        numbers, cosines = self.store.nearest(vector[None], max(count, candidates) if rerank else count, where)
        rows = self.store.rows(numbers[0])
        hits = [Hit(float(cosine), row) for cosine, row in zip(cosines[0], rows)]
        return rerank.order(query, hits, self.text_of)[:count] if rerank is not None and hits else hits

    def text_of(self, row: Mapping[str, Any]) -> str:
        """What the encoder read of a row. Raises ConfigError where that is no text."""
        taken = self.predictor.take(row[INPUT] if list(row) == [INPUT] else dict(row))
        if "text" not in taken:
            raise ConfigError("only texts can be reranked")
        return bytes(taken["text"]).decode("utf-8", "replace")


class Reranker:
    """A run on pairs of texts, such as a cross-encoder, that says how well a row answers a query."""

    def __init__(self, folder: RunFolder):
        """Raises ConfigError for a run that says neither one number of two texts nor which of two classes they have."""
        from pipelines.serving.forms import open_run
        from pipelines.serving.predict import Predictor

        self.predictor = Predictor(open_run(folder, where=1))
        number = next((name for name in ANSWERS if name in self.predictor.columns), None)
        classes = next((name for name, rank in self.predictor.columns.items() if rank == 2), None)
        two = classes is not None and len(self.predictor.classes or ()) == 2
        if set(self.predictor.inputs) != {"text", "text_pair"} or not (two or number):
            raise ConfigError(f"--rerank: {folder.path}: a run on pairs of texts is needed, that gives a number or one of two classes")
        self.score: Callable[[Mapping[str, Any]], float] = (
            (lambda values: float(values[str(classes)][1])) if two else (lambda values: float(values[str(number)])))

    def order(self, query: Any, hits: Sequence[Hit], text_of: Callable[[Mapping[str, Any]], str]) -> list[Hit]:
        """Hits with its scores, best first. Raises DataError for a query that is no text."""
        if not isinstance(query, str):
            raise DataError("a query has to be a text to be reranked")
        taken = [("pair", self.predictor.take([query, text_of(hit.row)])) for hit in hits]
        answers = [one for start in range(0, len(taken), self.predictor.batch)
                   for one in self.predictor.together(taken[start:start + self.predictor.batch])]
        scored = [Hit(self.score(one.values), hit.row) for one, hit in zip(answers, hits) if one.error is None]
        return sorted(scored, key=lambda hit: -hit.similarity)

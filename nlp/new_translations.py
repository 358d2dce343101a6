"""An experiment for texts with what is to be written of them: tables with a column of each."""

import re
from itertools import islice
from pathlib import Path
from typing import Any

from pipelines.base.errors import DataError
from pipelines.config.draft import Asked, Draft, Entry, section
from pipelines.data import text_rows
from pipelines.data.columns import plain
from pipelines.data.divide import find
from pipelines.data.kinds import LANGUAGES
from pipelines.machine.startup import start_tensorflow

# columns of what is read and what is written of it, as data sets name them
NAMES = (("source", "target"), ("src", "tgt"), ("src", "trg"), ("article", "highlights"), ("article", "summary"), ("document", "summary"),
         ("dialogue", "summary"), ("text", "summary"), ("input", "output"))
_SEVERAL = re.compile(r"\s|[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]")  # more than a word, or of scripts without blanks
_SAID = {"label", "labels", "class", "category", "score", "rating", "similarity", "entailment"}  # columns that say something of both
LOOKED_AT = 2000  # rows of a table
FEWEST = 10  # texts without which there is nothing to divide
FEW, MANY = 10_000, 200_000  # texts below which a network from scratch learns little, and from which it may be larger
STEPS = 6000  # that a network from scratch wants, about
MOST_TOKENS = 512


def columns_of(path: Path, asked: Asked) -> list[str] | None:
    """The columns of a table, or of a folder's train, that hold texts and what is to be written of them: as they were named, or by their
    names; where the task was asked for, else the first two columns of texts. None where there are none."""
    try:
        names, rows = _head(_train(path), 50)
    except (DataError, OSError, UnicodeError, StopIteration):
        return None
    if asked.task is None and asked.columns:
        return None
    given = [asked.column(role, names, path) for role in ("text", "label")]
    if all(given):
        return given  # type: ignore[return-value]
    texts = [name for place, name in enumerate(names) if rows and sum(
        isinstance(row[place], str) and bool(_SEVERAL.search(row[place].strip())) for row in rows) > 0.5 * len(rows)]
    known = {plain(str(name)): name for name in reversed(texts)}
    if asked.task is None and not _SAID.isdisjoint(plain(str(name)) for name in names):
        return None
    for pair in NAMES:
        if all(name in known for name in pair):
            return [known[name] for name in pair]
    spoken = [name for name in texts if plain(str(name)) in LANGUAGES.split()]
    if len(spoken) == 2:
        return spoken
    return None if asked.task is None or len(texts) < 2 else texts[:2]


def _train(path: Path) -> Path:
    if not path.is_dir():
        return path
    files = text_rows.split_files(path)
    return files[find("train", list(files)) or next(iter(files))]


def _head(file: Path, count: int) -> tuple[list[str], list[Any]]:
    """The names of a table's columns, and its first rows."""
    if file.suffix.lower() not in text_rows.SUFFIXES:
        raise DataError(f"{file} is no table")
    records = iter(text_rows.records(file, named=True))
    names = next(records)[1]
    return names, [row for _, row in islice(records, count) if not isinstance(row, str)]


def draft(path: Path, columns: list[str]) -> Draft:
    """Raises DataError for too few texts."""
    start_tensorflow()
    file = _train(path)
    splits = list(text_rows.split_files(path)) if path.is_dir() else []
    names, _ = _head(file, 1)
    places = [names.index(name) for name in columns]
    count, bad, lengths = 0, "", []
    for line, row in text_rows.records(file, named=True):
        if isinstance(row, str) or (line and not all(isinstance(row[place], str) and row[place].strip() for place in places)):
            bad = bad or f"{file}:{line}"
        elif line:
            count += 1
            if count <= LOOKED_AT:
                lengths.append([len(row[place].split()) for place in places])
    if count < FEWEST:
        raise DataError(f"{path}: {count} texts are too few to train on and to judge by; give {FEWEST} or more")
    words = [sorted(side) for side in zip(*lengths)]
    middle, long = ([side[int(share * (len(side) - 1))] for side in words] for share in (0.5, 0.99))
    found = [f"Found: {count:,} training texts in columns {columns[0]} and {columns[1]}, of {middle[0]} and {middle[1]} words (medians)."]
    found += [f"Some rows cannot be used, such as {bad}; `quartet check` lists them."] if bad else []
    found += [f"A network from scratch learns little of {count:,} texts: expect it to repeat what train has; give {FEW:,} or more."
              ] if count < FEW else []
    entries: list[Entry] = [
        ("source", "table", ""), ("path", str(path), "" if path.is_absolute() else "from the current directory"),
        *([("text_key", columns, "what is read, and what is written of it")] if columns != ["source", "target"] else []),
        ("validation", find("validation", splits) or 0.1, "chooses the epoch"),
        ("test", find("test", splits) or 0.1, "judged once, at the end"),
        *([("on_bad_example", "skip", "leaves them out, and counts them")] if bad else [])]
    vocabulary = 4000 if count < 50_000 else 8000 if count < 1_000_000 else 16_000
    limit = 8 * -(-min(MOST_TOKENS, max(16, 3 * max(long))) // 8)
    width, hidden, depth = (192, 512, 3) if count < MANY else (256, 1024, 4) if count < 1_000_000 else (512, 2048, 6)
    batch = 128 if count >= FEW else 32
    epochs = min(100, max(3, round(STEPS * batch / count)))
    body = "\n".join([
        "task: nlp.translation", section("data", entries),
        section("tokens", [("vocabulary", vocabulary, "pieces of words, learned from train"), ("limit", limit, "of a text at most")]),
        section("model", [("name", "transformer", "from scratch"), ("width", width, ""), ("depth", depth, "layers that read"),
                          ("writing_depth", depth, ""), ("hidden", hidden, ""),
                          ("dropout", 0.3 if count < 50_000 else 0.1, "more for fewer texts")]),
        section("writing", [("beam", 4, "texts followed at the same time; 1 is faster, and a little worse")]),
        section("train", [("epochs", epochs, ""), ("batch_size", batch, "texts per update, of similar length"),
                          ("optimizer", {"name": "adamw", "weight_decay": 0.01}, ""),
                          ("learning_rate", {"peak": 0.003 if width < 256 else 0.001, "schedule": "cosine", "warmup": 0.1}, ""),
                          ("ema", 0.995, "the mean of the last few hundred steps is what is judged and kept"),
                          ("validate_every", max(1, epochs // 10), "writing costs more than a pass")])])
    return Draft(f"Texts of {path.name}: {columns[1]} is written of {columns[0]}.", tuple(found), body,
                 "what train has for the most similar text")

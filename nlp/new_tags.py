"""An experiment for texts in which things are marked: CoNLL columns, or JSON with spans in characters."""

from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any, Literal

from nlp.data.other_forms import tagged
from nlp.data.tag_spans import items, object_of, read_conll, read_json, split_files
from nlp.new_encoder import downloaded, propose_encoder
from nlp.settings import TagData
from pipelines.base.errors import DataError
from pipelines.base.json_text import parse_json
from pipelines.config.draft import Asked, Draft, Entry, section
from pipelines.data import text_rows
from pipelines.data.divide import find
from pipelines.machine.startup import start_tensorflow

Form = Literal["conll", "jsonl"]
LOOKED_AT = 500  # items of a file
FEWEST = 10  # texts without which there is nothing to divide
MANY = 2000  # texts from which five epochs are enough
TOKENS = 256  # of the encoder's own, at most, that it reads at once


def form_of(path: Path) -> Form | None:
    """Whether things are marked in a file, or in those of a folder that are called train, dev or test; None where they are not."""
    try:
        files = split_files(path, TagData(source="conll", path=str(path)))
        file = files.get("train") or next(iter(files.values()))
        if path.is_dir() and file.suffix.lower() in (".csv", ".parquet"):
            return None
        text = text_rows.text_of(file, None)
    except (DataError, OSError, UnicodeError):
        return None
    return "jsonl" if _spans(text, path) else "conll" if tagged(text) else None


def _spans(text: str, path: Path) -> bool:
    if text.lstrip()[:1] not in ("[", "{"):
        return False
    data, found = TagData(source="jsonl", path=str(path)), 0
    for number, item in items(text):
        if number > LOOKED_AT:
            break
        try:
            found += len(object_of(parse_json(item) if isinstance(item, str) else item, data)[1])
        except (DataError, ValueError, RecursionError):
            continue
    return found > 0


def draft(path: Path, form: Form, asked: Asked) -> Draft:
    """Raises DataError for too few texts, or no encoder."""
    start_tensorflow()
    data = TagData(source=form, path=str(path))
    files = split_files(path, data)
    read, note = read_conll(files, data) if form == "conll" else (read_json(files, data), "")
    pool = find("train", list(read)) or next(iter(read))
    rows = read[pool]
    if len(rows.labels) < FEWEST:
        raise DataError(f"{path}: {len(rows.labels)} texts are too few to train on and to judge by; give {FEWEST} or more")
    kinds = Counter(kind for spans in rows.labels for _, _, kind in spans)
    if not kinds:
        raise DataError(f"{path}: nothing is marked in {len(rows.labels):,} training texts")
    words = sorted(len(text.split()) for text in rows.texts)
    names = ", ".join(f"{name} ({count:,})" for name, count in kinds.most_common(8)) + (", ..." if len(kinds) > 8 else "")
    bad = sum(len(one.bad) for one in read.values())
    found = (f"Found: {len(rows.labels):,} training texts of {median(words):g} words (median), with {kinds.total():,} things of "
             f"{len(kinds)} types: {names}.", *([f"{note[:1].upper()}{note[1:]}."] if note else []),
             *([f"{bad:,} texts cannot be used, such as {rows.bad[0][0] if rows.bad else ''}; `quartet check` lists them."] if bad else []))
    proposal = propose_encoder(asked, rows.texts, reason="since it knows words that train never names",
                               gain="things are found that train never names")
    preset: Any = proposal.preset.handle if proposal.preset else downloaded(rows.texts)
    documents = form == "conll" and "group_by" in note
    entries: list[Entry] = [
        ("source", form, ""), ("path", str(path), "" if path.is_absolute() else "from the current directory"),
        ("validation", find("validation", list(read)) or 0.1, "chooses the epoch"),
        ("test", find("test", list(read)) or 0.2, "judged once, at the end"),
        *([("group_by", "document", "keeps each on one side of a split")] if documents else []),
        *([("on_bad_example", "skip", "leaves them out, and counts them")] if bad else [])]
    limit = 8 * -(-min(TOKENS, max(32, 2 * words[int(0.99 * (len(words) - 1))] + 2)) // 8)
    model: list[Entry] = [
        ("name", "pretrained", ""), ("preset", preset, "quartet encoders lists others"),
        ("limit", limit, "of its tokens are read at once; longer texts in windows"),
        ("finetune", {"name": "whole", "head": "new", "learning_rate": 0.0003}, "")]
    train: list[Entry] = [
        ("epochs", 5 if len(rows.labels) >= MANY else 10, ""), ("batch_size", 32 if len(rows.labels) >= 500 else 16, "texts per update"),
        ("optimizer", {"name": "adamw", "weight_decay": 0.01}, ""),
        ("learning_rate", {"schedule": "linear", "warmup": 0.1, "peak": 0.003}, "of the last layer; finetune has the encoder's")]
    body = "\n".join(["task: nlp.tagging", section("data", entries), section("model", model), section("train", train)])
    title = f"Things named in texts of {path.name}: {len(kinds)} type{'s' if len(kinds) > 1 else ''}."
    return Draft(title, found, body, "a dictionary of train's things", proposal.notes)

"""An experiment for questions whose answers stand in passages: JSON as SQuAD has it, or tables."""

from pathlib import Path
from statistics import median
from typing import Any, Literal

from nlp.data.answers import answers_of, read, split_files
from nlp.new_encoder import downloaded, propose_encoder
from nlp.settings import AnswerData
from pipelines.base.errors import DataError
from pipelines.config.draft import Asked, Draft, Entry, section
from pipelines.data import text_rows
from pipelines.data.columns import plain
from pipelines.data.divide import find
from pipelines.machine.startup import start_tensorflow

Form = Literal["squad", "table"]
START = 1 << 16  # characters of a file in which its form shows
LOOKED_AT = 200  # rows of a table
FEWEST = 10  # questions without which there is nothing to divide
MANY, FEW = 5000, 1000  # questions from which two epochs are enough, and below which five are
PASSAGES, ANSWERS = ("context", "passage", "paragraph", "document", "article"), ("answers", "answer", "answer_text", "gold_answer")


def form_of(path: Path) -> tuple[Form, dict[str, Any]] | None:
    """Whether a file, or those of a folder by the splits in their names, hold questions with answers in passages, and the settings of the
    data section that say where; None where they do not."""
    forms: tuple[Form, ...] = ("squad", "table")
    for form in forms:
        data = AnswerData(source=form, path=str(path))
        try:
            files = split_files(path, data)
            file = (files.get("train") or next(iter(files.values())))[0]
            if form == "squad" and file.suffix.lower() == ".json":
                start = text_rows.text_of(file, None)[:START]
                if '"context"' in start and '"qas"' in start:
                    return form, {}
            elif form == "table" and file.suffix.lower() in text_rows.SUFFIXES and (columns := _columns(file)):
                return form, columns
        except (DataError, OSError, UnicodeError):
            continue
    return None


def _columns(file: Path) -> dict[str, Any] | None:
    """The columns of a table, where answers stand in the passages."""
    rows = iter(text_rows.records(file, named=True))
    names = next(rows)[1]
    known = {plain(str(name)): name for name in reversed(names)}
    found = [next((known[name] for name in wanted if name in known), None) for wanted in (("question",), PASSAGES, ANSWERS)]
    if None in found:
        return None
    places, inside, seen = [names.index(name) for name in found], 0, 0
    for _, row in rows:
        if seen == LOOKED_AT:
            break
        if isinstance(row, str):
            continue
        passage, stored = row[places[1]], row[places[2]]
        try:
            given = answers_of(stored)
        except DataError:
            given = [("\0", None)]
        if given:
            seen += 1
            inside += any(text.strip() in str(passage) for text, _ in given)
    if not seen or inside < 0.5 * seen:
        return None
    columns = {"text_key": found[:2], "answer_key": found[2]}
    return {key: value for key, value in columns.items() if value not in (["question", "context"], "answers")}


def draft(path: Path, form: Form, columns: dict[str, Any], asked: Asked) -> Draft:
    """Raises DataError for too few questions."""
    start_tensorflow()
    data = AnswerData(source=form, path=str(path), **columns)
    reading = read(split_files(path, data), data)
    names = list(reading.rows)
    rows = reading.rows[find("train", names) or names[0]]
    if len(rows.labels) < FEWEST or not any(rows.labels):
        raise DataError(f"{path}: {sum(map(bool, rows.labels))} questions with an answer are too few to train on and to judge by; give "
                        f"{FEWEST} or more")
    passages = {passage for _, passage in rows.texts}
    lengths = [[len(text.split()) for text in texts] for texts in (passages, (
        passage[start:end] for (_, passage), places in zip(rows.texts, rows.labels) for start, end in places[:1]))]
    none, bad = sum(not places for places in rows.labels), [one for split in reading.rows.values() for one in split.bad]
    found = (f"Found: {len(rows.labels):,} training questions on {len(passages):,} passages of {median(lengths[0]):g} words, with "
             f"answers of {median(lengths[1]):g} (medians).", *([f"{none:,} questions have no answer in their passage."] if none else []),
             *(f"{note[:1].upper()}{note[1:]}." for note in reading.notes()),
             *([f"{len(bad):,} cannot be used, such as {bad[0][0]}; `quartet check` lists them."] if bad else []))
    sample = [question for question, _ in rows.texts]
    proposal = propose_encoder(asked, sample, reason="since it knows words that mean the same", gain="answers are found in other words")
    shared = _shared(reading.rows)
    entries: list[Entry] = [
        ("source", form, ""), ("path", str(path), "" if path.is_absolute() else "from the current directory"),
        *((key, value, "") for key, value in columns.items()),
        ("validation", find("validation", names) or 0.1, "chooses the epoch"),
        ("test", find("test", names) or 0.2, "judged once, at the end"),
        *([("group_by", None, "passages stand in several of the data's own splits")] if shared else []),
        *([("on_bad_example", "skip", "leaves them out, and counts them")] if bad else [])]
    preset = proposal.preset.handle if proposal.preset else downloaded(sample)
    count = len(rows.labels)
    model: list[Entry] = [("name", "pretrained", ""), ("preset", preset, "quartet encoders lists others"),
                          ("finetune", {"name": "whole", "head": "new", "learning_rate": 0.00015}, "")]
    train: list[Entry] = [
        ("epochs", 2 if count >= MANY else 5 if count < FEW else 3, ""), ("batch_size", 16, "questions per update"),
        ("optimizer", {"name": "adamw", "weight_decay": 0.01}, ""),
        ("learning_rate", {"schedule": "linear", "warmup": 0.1, "peak": 0.001}, "of the last layer; finetune has the encoder's")]
    body = "\n".join(["task: nlp.question_answering", section("data", entries), section("model", model), section("train", train)])
    return Draft(f"Answers in passages of {path.name}.", found, body, "words of the sentence that is most like the question",
                 proposal.notes)


def _shared(rows: dict[str, Any]) -> bool:
    """Whether a passage stands in several splits."""
    seen: dict[str, str] = {}
    return any(seen.setdefault(group, name) != name for name, one in rows.items() for group in one.groups or ())

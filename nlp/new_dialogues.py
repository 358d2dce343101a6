"""An experiment for dialogues: tables with a column of messages."""

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from nlp.data import chat_template
from pipelines.base.errors import ConfigError, DataError
from pipelines.base.json_text import parse_json
from pipelines.config.draft import Draft, Entry, section
from pipelines.data import text_rows
from pipelines.data.dialect import JSON_LINES, PARQUET, ending
from pipelines.data.divide import find
from pipelines.encoders.locate import presets_folder, read_json

LOOKED_AT = 2000  # rows
PER_TOKEN = 3.0  # characters, at least
ROUND = 32


def column_of(path: Path) -> str | None:
    """The column with the messages of a table or a folder of tables; None where there is none."""
    try:
        file = next(iter(text_rows.split_files(path).values())) if path.is_dir() else path
        if ending(file) not in (*JSON_LINES, *PARQUET):
            return None
        _, names = next(iter(text_rows.records(file, named=True, lenient=True)))
    except (DataError, OSError, StopIteration):
        return None
    return next((name for name in chat_template.COLUMNS if name in names), None)


def draft(path: Path, column: str) -> Draft:
    """Raises DataError where no dialogue can be read, or no language model for dialogues is here."""
    files = text_rows.split_files(path) if path.is_dir() else {"all": path}
    names = list(files)
    dialogues = _dialogues(files[find("train", names) or names[0]], column)
    if not dialogues:
        raise DataError(f"{path}: column {column} holds no dialogue with an answer")
    sizes = np.array([[sum(len(one["content"]) + 12 for one in messages), max(len(one["content"]) for one in messages if
                                                                             one["role"] == "assistant")] for messages in dialogues])
    whole, answer = (np.quantile(sizes, 0.98, axis=0) / PER_TOKEN).astype(int)
    most = int(min(512, ROUND * (answer // ROUND + 1)))
    length = int(min(1024, max(2 * most, ROUND * ((whole + 40) // ROUND + 1))))
    entries: list[Entry] = [("source", "messages", ""), ("path", str(path), "" if path.is_absolute() else "from the current directory")]
    if column != "messages":
        entries.append(("text_key", column, ""))
    entries += [("validation", find("validation", names) or 0.1, "chooses the epoch"), ("test", find("test", names) or 0.1, "judged once")]
    found = (f"Found: {len(dialogues):,} dialogues of training, {sum(len(one) for one in dialogues) / len(dialogues):.1f} messages each.",)
    body = "\n".join([
        "task: nlp.dialogue", section("data", entries),
        section("model", [("name", "pretrained", ""), ("preset", _preset(path), "a language model that was trained for dialogues"),
                          ("length", length, "tokens of a dialogue that are seen"), ("lora", 8, "null: all weights train")]),
        section("writing", [("most", most, "tokens of an answer")]),
        section("train", [("epochs", 3, ""), ("batch_size", 16, "dialogues per update"), ("optimizer", {"name": "adamw"}, ""),
                          ("learning_rate", {"peak": 0.001, "schedule": "cosine", "warmup": 0.05}, ""),
                          ("clip", {"global_norm": 1.0}, "")])])
    return Draft(f"What is answered in the dialogues of {path.name}.", found, body, "counts of runs of up to 6 tokens")


def _dialogues(path: Path, column: str) -> list[list[dict[str, str]]]:
    rows = iter(text_rows.records(path, named=True, lenient=True))
    place = next(rows)[1].index(column)
    found = []
    for _, record in islice(rows, LOOKED_AT):
        cell: Any = None if isinstance(record, str) else record[place]
        try:
            messages = chat_template.messages_of(parse_json(cell) if isinstance(cell, str) else cell)
        except (DataError, ValueError):
            continue
        if any(one["role"] == "assistant" for one in messages):
            found.append(messages)
    return found


def _preset(path: Path) -> str:
    """The smallest language model here that has a template."""
    folder = presets_folder()
    known = []
    for place in sorted(folder.iterdir()) if folder.is_dir() else ():
        try:
            kind = str(read_json(place / "config.json").get("class_name", "")) if (place / "config.json").is_file() else ""
            if kind in ("LlamaBackbone", "Llama3Backbone", "MistralBackbone"):
                chat_template.of_preset(place, place.name)
                known.append((sum(file.stat().st_size for file in place.glob("model.*")), place.name))
        except (ConfigError, OSError):
            continue
    if not known:
        raise DataError(f"{path}: holds dialogues, and no language model for them is in {folder}: copy a preset of Llama's kind with its "
                        "chat_template.jinja there (docs/writing.md)")
    return min(known)[1]

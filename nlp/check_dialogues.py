"""`quartet check` for dialogues: copies, questions that stand in several splits, empty answers, sizes. Needs no preset."""

import hashlib
import json
from collections.abc import Callable

import numpy as np

from nlp.data.chat_template import Message
from nlp.data.dialogues import dialogues_of_splits
from nlp.data.documents import texts_of
from nlp.settings import DialogueModel
from pipelines.base.errors import DataError
from pipelines.base.json_text import parse_json
from pipelines.data.check import LEVELS, Check, Finding, Read, check
from pipelines.data.opened import LENIENT
from pipelines.data.source import Source


def check_dialogues(experiment: DialogueModel, progress: Callable[[int, int], None] | None = None) -> Check:
    """Raises DataError where there are no splits to look at; everything else is a finding."""
    data = experiment.data
    opened, parts, notes = dialogues_of_splits(data.model_copy(update=LENIENT))
    there: dict[str, Source] = {name: source for name, source in parts.items() if source is not None}
    if not len(there["train"]):
        raise DataError(f"{opened.place}: train has no dialogue that can be used")
    dialogues = {name: [parse_json(text) for text in texts_of(source)] for name, source in there.items()}
    result = check(opened.place, dict(there), {name: _read(one) for name, one in dialogues.items()}, [], identical="the same dialogue",
                   skip=data.on_bad_example == "skip", lost=opened.skipped, notes=notes)
    known = {_asked(one) for one in dialogues["train"]}
    for name, some in dialogues.items():
        if name != "train" and (same := sum(_asked(one) in known for one in some)):
            what = f"{name}: {same:,} of {len(some):,} dialogues begin with a question of train: what is judged was learned"
            result.findings.append(Finding("warning", what))
        empty = sum(not message["content"].strip() for one in some for message in one if message["role"] == "assistant")
        if empty:
            result.findings.append(Finding("warning", f"{name}: {empty:,} empty answers, which are learned as such"))
    result.findings.sort(key=lambda finding: LEVELS.index(finding.level))
    return result


def _asked(messages: list[Message]) -> str:
    return next((one["content"].strip() for one in messages if one["role"] == "user"), "")


def _read(dialogues: list[list[Message]]) -> Read:
    prints = [hashlib.blake2b(json.dumps(one).encode(), digest_size=8).digest() for one in dialogues]
    answers = [sum(len(message["content"]) for message in one if message["role"] == "assistant") for one in dialogues]
    return Read([], np.array([int.from_bytes(one, "little") for one in prints], np.uint64), {
        "messages": np.array([len(one) for one in dialogues]), "characters of answers": np.array(answers),
        "characters": np.array([sum(len(message["content"]) for message in one) for one in dialogues])})

"""Files of texts that are no texts to classify: tags of words, answers in passages, a running text. Imports no TensorFlow."""

import re
from pathlib import Path

from pipelines.data.columns import role_of
from pipelines.data.walk import PassedOver, files_below

START = 1 << 16  # bytes of a file in which its form shows
OPENED = 20  # files of a folder that are looked at
RUNNING = 10_000  # characters from which a file without columns is one running text
SUFFIXES = (".conll", ".conllu", ".bio", ".iob", ".iob2", ".json", ".txt", ".tsv", "")
_TAG = re.compile(r"[BIESLUO](-[\w-]+)?$")


def other_form(path: Path) -> str | None:
    """What a file, or one of the first files of a folder, asks for that is not there yet, with what to do; None where it is not known."""
    files = sorted(files_below(path, PassedOver()))[:OPENED] if path.is_dir() else [path]
    for file in files:
        if file.suffix.lower() not in SUFFIXES or not file.is_file():
            continue
        with file.open("rb") as opened:
            start = opened.read(START).decode("utf-8", "replace")
        if '"context"' in start and ('"qas"' in start or '"question' in start):
            return (f"{file}: holds questions with answers in passages: give that file, or its folder with train, dev and test in the "
                    "files' names, as the data, and task: nlp.question_answering finds such answers")
        if tagged(start):
            return (f"{file}: holds a word and its tag on each line: give that file, or its folder with files called train, dev and "
                    "test, as the data, and task: nlp.tagging finds such things")
    text = running_text(path)
    if text is not None:
        return (f"{text}: holds a running text without classes, which --task language_model learns to write on. Else give a table of texts "
                "and classes, or a folder of .txt files for each class")
    return None


def running_text(path: Path) -> Path | None:
    """A file of plain text that is long and by itself, or the first of those called train, test and the like; None where there is none."""
    files = sorted(files_below(path, PassedOver()))[:OPENED] if path.is_dir() else [path]
    plain = [file for file in files if file.suffix.lower() == ".txt" and not file.stem.lower().startswith(("readme", "license"))]
    split = [file for file in plain if role_of(file.stem)]
    found = (split or plain)[0] if split or len(plain) == 1 else None
    return found if found is not None and found.is_file() and found.stat().st_size >= RUNNING else None


def tagged(start: str) -> bool:
    """Whether most lines are a word and its tag, with a blank line after each sentence."""
    lines = start.splitlines()[:1000]
    filled = [line.split() for line in lines if line.strip() and not line.startswith(("#", "-DOCSTART-"))]
    tagged = sum(len(words) >= 2 and _TAG.match(words[-1]) is not None for words in filled)
    return len(filled) >= 10 and tagged > 0.9 * len(filled) and any(not line.strip() for line in lines)

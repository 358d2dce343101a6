"""Answers as files of a folder: those that are bytes, such as pictures and sounds, and forms of a task's own. Imports no TensorFlow."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.serving.output import Prediction
from pipelines.stores.remote import OutputFolder, write_output
from pipelines.task.form import AnswerFormat, ending


def to_files(predictions: Iterable[Prediction], folder: OutputFolder, kinds: Mapping[str, str]) -> Iterator[Prediction]:
    """The predictions with the path of a file, `000001-mask.png` for the first input, in place of bytes; each is written whole.

    Args:
        kinds: as a task's answers have them; files of bytes of which nothing is said end in .bin.
    """
    def stored(value: Any, stem: str, suffix: str) -> Any:
        if isinstance(value, bytes):
            folder.write(stem + suffix, value)
            return f"{folder}/{stem}{suffix}"
        if isinstance(value, np.ndarray) and value.dtype == object:
            paths = np.empty(value.size, object)
            paths[:] = [stored(one, f"{stem}-{place}", suffix) for place, one in enumerate(value.flat, 1)]
            return paths.reshape(value.shape)
        return value

    for number, one in enumerate(predictions, 1):
        values = {name: stored(value, f"{number:06d}-{name}", ending(kinds.get(name)) or ".bin") for name, value in one.values.items()}
        yield replace(one, values=values)


def write_format(predictions: Iterable[Prediction], form: AnswerFormat, output: Path) -> None:
    """All answers in a form of the task's own: a folder of files, or one file; inputs without an answer have none."""
    files = form.files((one.name, one.values) for one in predictions if one.error is None)
    if form.alone:
        write_output(output, lambda file: file.writelines(content for _, content in files))
        return
    folder, used = OutputFolder(output), set[str]()
    for name, content in files:
        folder.write(free_name(name, used), content)


def drawn(predictions: Iterable[Prediction], folder: OutputFolder, draw: Callable[[str, Mapping[str, Any]], bytes]) -> Iterator[Prediction]:
    """Passes predictions on; of each answer a picture in the folder, called as its input."""
    used = set[str]()
    for one in predictions:
        if one.error is None:
            folder.write(free_name(f"{Path(one.name).stem}.png", used), draw(one.name, one.values))
        yield one


def free_name(name: str, used: set[str]) -> str:
    """The name, with a number where another input has it; added to those that are used."""
    stem, suffix = Path(name).stem, Path(name).suffix
    free, count = name, 1
    while free in used:
        count += 1
        free = f"{stem}-{count}{suffix}"
    used.add(free)
    return free

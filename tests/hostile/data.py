"""Data sets too poor to be learned from, made by code: one class, one item, users of one event, ... REFUSED are those that training
refuses, ALLOWED those that it takes all the same."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipelines.config.load import from_dict
from tests.recsys.small_tables import ROWS, table
from tests.recsys.small_tables import experiment as events
from tests.speech.synthetic_recordings import class_folders
from tests.vision.synthetic_images import folder

FAST: dict[str, Any] = {"train": {"epochs": 1, "batch_size": 2, "devices": "cpu", "precision": "float32"},
                        "evaluate": {"bootstrap": 100}, "monitor": {"tensorboard": False}}


def _built(task: str, model: dict[str, Any], data: dict[str, Any], **more: Any) -> Any:
    return from_dict({"task": task, "model": model, "data": data, **FAST, **more}, check_paths=False)


def images(path: Path, counts: dict[str, int], **data: Any) -> Any:
    return _built("vision.classification", {"name": "cnn", "widths": [2, 2], "hidden": 2}, {
        "source": "folder", "path": str(folder(path / "images", counts)), "test": 0.2, "validation": 0.2, **data})


def sounds(path: Path, counts: dict[str, int], **data: Any) -> Any:
    return _built("speech.classification", {"name": "ds_cnn"}, {
        "source": "folder", "path": str(class_folders(path / "sounds", counts)), "rate": 8000, "test": 0.2, "validation": 0.2, **data})


def texts(path: Path, rows: list[tuple[str, str]], **more: Any) -> Any:
    (path / "texts.csv").write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows), encoding="utf-8")
    data = {"source": "table", "path": str(path / "texts.csv"), "test": 0.2, "validation": 0.2, **more.pop("data", {})}
    return _built("nlp.classification", {"name": "bag"}, data, **more)


def interactions(path: Path, task: str, rows: list[str], **data: Any) -> Any:
    text = "\n".join([ROWS.splitlines()[0], *rows]) + "\n"
    sections = {name: dict(value) for name, value in FAST.items()}
    return events(table(path, text), task, data, **sections)


ONE_ITEM = [f"{user},a,4.0,{time},good" for user in range(6) for time in (1, 2, 3)]
ONE_EVENT = [f"{user},{'abc'[user % 3]},4.0,{user},good" for user in range(12)]
ONE_USER = [f"1,{item},4.0,{place},good" for place, item in enumerate("abcdefgh")]

REFUSED: dict[str, Callable[[Path], Any]] = {
    "images of one class": lambda path: images(path, {"cat": 10}, test=None, validation=0.0),
    "one image": lambda path: images(path, {"cat": 1}),
    "images of which train has one class": lambda path: images(path, {"cat": 10, "dog": 10}, limit=1),
    "recordings of one class": lambda path: sounds(path, {"go": 5}, test=None, validation=0.0),
    "texts of one class": lambda path: texts(
        path, [(f"room {number}", "low") for number in range(20)], data={"test": None, "validation": 0.0}),
    "one item, lists": lambda path: interactions(path, "recsys.retrieval", ONE_ITEM),
    "one item, a sequence": lambda path: interactions(path, "recsys.sequential", ONE_ITEM),
    "users of one event, a sequence": lambda path: interactions(path, "recsys.sequential", ONE_EVENT),
    "one event": lambda path: interactions(path, "recsys.sequential", ONE_EVENT[:1]),
}
ALLOWED: dict[str, Callable[[Path], Any]] = {
    "one image of each class": lambda path: images(path, {"cat": 1, "dog": 1}),
    "one recording of each class": lambda path: sounds(path, {"go": 1, "stop": 1}),
    "one text of each class": lambda path: texts(path, [("a room", "low"), ("a lamp", "high")]),
    "texts without words": lambda path: texts(path, [("  ", "low"), (" ", "high")] * 10),
    "one item, ratings": lambda path: interactions(path, "recsys.ranking", ONE_ITEM),
    "users of one event, lists": lambda path: interactions(path, "recsys.retrieval", ONE_EVENT),
    "users of one event, ratings": lambda path: interactions(path, "recsys.ranking", ONE_EVENT),
    "one user, a sequence": lambda path: interactions(path, "recsys.sequential", ONE_USER),
    "one user, lists": lambda path: interactions(path, "recsys.retrieval", ONE_USER),
}

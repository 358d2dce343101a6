"""A prepared TFDS folder before TFDS sees it: refused where its files would make TFDS import, follow or allocate what they name.

TFDS imports the module of every class that `features.json` (or `features` in `dataset_info.json`) names, opens the label files that
old entries name, and formats the shards' names from a template. Imports no TFDS.
"""

import os
import re
from pathlib import Path
from typing import Any

from pipelines.base.errors import DataError
from pipelines.base.inside import other_kind, read_small
from pipelines.base.json_text import TooDeep, parse_json
from pipelines.data.walk import entries

CLASSES = "tensorflow_datasets.core.features."  # where all of TFDS' own feature classes are
LARGEST = 16 << 20  # bytes of a JSON file beside the shards; TFDS' own stay below 1 MB
NAMES = 256 << 20  # bytes of a text file, which holds the names of classes
DEEPEST = 200  # levels of JSON
MOST_CLASSES = 10_000_000  # classes of a label: TFDS makes a list of as many names
_CLASS = re.compile(re.escape(CLASSES) + r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*")
_TEMPLATE = re.compile(r"(?:[^{}]|\{[A-Z_]+\})*")  # no widths or attributes of Python's format language
_CLASS_KEYS = ("pythonClassName", "python_class_name", "type")
_FILE_KEYS = ("names_file",)
_COUNT_KEYS = ("numClasses", "num_classes")
_TEMPLATE_KEYS = ("filepathTemplate", "filepath_template")
_READ = ("features.json", "dataset_info.json")  # what TFDS makes classes and paths of


def check_folder(folder: Path) -> None:
    """Checks the folder of one version.

    Raises:
        DataError: names the file and the fault: a class that is not TFDS' own, a path to another file, a link out of the data set,
            a file that is not regular, JSON that is too large or too deep.
    """
    for entry in sorted(entries(folder), key=lambda entry: entry.name):
        path = folder / entry.name
        check_inside(path, folder)
        kind = other_kind(path)
        if kind == "a folder":
            continue
        if kind:
            raise DataError(f"{path} is {kind}, not a regular file; remove it")
        if path.name in _READ:
            _check_values(path, read_json(path))
        elif path.suffix == ".json":
            read_small(path, LARGEST)
        elif path.suffix == ".txt" and path.stat().st_size > NAMES:
            raise DataError(f"{path} has more than {NAMES:,} bytes, more than the names of classes ever need; it is not read")


def check_inside(path: Path, folder: Path) -> None:
    """Raises DataError where `path`, links resolved, lies outside of the data set whose version is `folder`."""
    home = os.path.realpath(folder.parent)
    if os.path.commonpath([home, os.path.realpath(path)]) != home:
        raise DataError(f"{path} leads out of the data set's folder {folder.parent}, to {os.path.realpath(path)}, which is not followed; "
                        "if it belongs there, put the file itself in its place")


def read_json(path: Path) -> Any:
    """A small JSON file in UTF-8. Raises DataError, or OSError where it cannot be opened."""
    try:
        return parse_json(read_small(path, LARGEST).decode("utf-8"))
    except ValueError as error:
        raise DataError(f"{path} is not readable JSON: {error}; prepare the data set again") from error


def _check_values(path: Path, document: Any) -> None:
    """Every value of a document, also those within texts that are JSON, as TFDS' older format has them."""
    left = [(document, 0)]
    while left:
        value, depth = left.pop()
        if depth > DEEPEST:
            raise DataError(f"{path} is nested deeper than {DEEPEST} levels; prepare the data set again")
        if isinstance(value, dict):
            for key, item in value.items():
                _check_entry(path, key, item)
            left += [(item, depth + 1) for item in value.values()]
        elif isinstance(value, list):
            left += [(item, depth + 1) for item in value]
        elif isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
            try:
                left.append((parse_json(value), depth + 1))
            except TooDeep as error:
                raise DataError(f"{path}: {error}; prepare the data set again") from None
            except ValueError:
                continue  # a text that only begins like JSON


def _check_entry(path: Path, key: str, value: Any) -> None:
    # without a dot there is no module; TensorFlow Metadata has such a "type", too
    if key in _CLASS_KEYS and isinstance(value, str) and "." in value and not _CLASS.fullmatch(value):
        raise DataError(f"{path}: {key} is {value[:200]!r}, and TFDS would import that module: code of another origin. Only TFDS' own "
                        f"features are read ({CLASSES}...); prepare the data set with those")
    if key in _FILE_KEYS and isinstance(value, str):
        raise DataError(f"{path}: {key} names another file, {value[:200]!r}, which is not followed; prepare the data set again")
    if key in _TEMPLATE_KEYS and isinstance(value, str) and not _TEMPLATE.fullmatch(value):
        raise DataError(f"{path}: {key} is {value[:200]!r}, which is no pattern of file names; prepare the data set again")
    if key in _COUNT_KEYS and str(value).isdigit() and int(value) > MOST_CLASSES:
        raise DataError(f"{path}: {key} is {value}, more than {MOST_CLASSES:,} classes; prepare the data set again")

"""The data of an experiment as Croissant 1.0 describes data sets (https://docs.mlcommons.org/croissant/), for search engines and programs.

`croissant.json` of `quartet check` and of each run: files, fields, classes, and the splits with their counts. Files are named from the
data's own folder on: no path of this machine stands in it, and a copy beside the data reads them. What Croissant has no words for - a
draw of validation examples, the inside of .npz and TFRecord files - is said in the description.
"""

import csv
import hashlib
import io
import mimetypes
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.base.errors import DataError
from pipelines.base.json_text import parse_json
from pipelines.config.schema import Data
from pipelines.data import tables
from pipelines.data.dialect import TEXT, content_of, ending
from pipelines.data.source import Source
from pipelines.data.table_formats import dialect_of
from pipelines.stores.remote import local

FILE = "croissant.json"
RECORDS = "examples"
PATH = "path of the"  # image: the kind of a column that names files
TYPES = {"image": "sc:ImageObject", "audio": "sc:AudioObject", "number": "sc:Float"}  # of other kinds: sc:Text
FORMATS = {".csv": "text/csv", ".tsv": "text/tab-separated-values", ".tab": "text/tab-separated-values", ".txt": "text/plain",
           **dict.fromkeys(tables.JSON_LINES, "application/jsonlines"), **dict.fromkeys(tables.PARQUET, "application/x-parquet")}
CLASSES = 1000  # most that are named
BEGINNING = 1_000_000  # bytes of a table in which its columns are looked for
CONTEXT = {
    "@language": "en", "@vocab": "https://schema.org/", "sc": "https://schema.org/", "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/", "dct": "http://purl.org/dc/terms/", "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"}, "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{name: f"cr:{name}" for name in (
        "citeAs", "column", "equivalentProperty", "extract", "field", "fileProperty", "fileObject", "fileSet", "format", "includes",
        "isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet", "references", "regex", "repeated", "replace",
        "samplingRate", "separator", "source", "subField", "transform")},
}


@dataclass
class _Place:
    """Where the examples come from: what of it is a file, what an example is read from, and what Croissant cannot say."""

    title: str = ""
    files: list[dict[str, Any]] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)


def croissant(data: Data, parts: Mapping[str, Source | None], *, name: str, task: str, classes: Sequence[str] = (),
              notes: Iterable[str] = ()) -> dict[str, Any]:
    """The description, JSON-LD.

    Args:
        data: of the experiment, which names the data.
        parts: train, validation and test, as the run has them.
        name: the experiment's, for data that have no name of their own.
        classes: by label, where there are any.
        notes: how the splits were made.

    Raises:
        DataError, OSError: a file of the data cannot be read.
    """
    sources = {split: source for split, source in parts.items() if source is not None}
    place = _place(data, sources, classes)
    if len(classes) > CLASSES:
        place.notes.append(f"It has {len(classes):,} classes, too many to be named here: facts.json of a model trained on it names them.")
    said = [f"The data of {name}, for {task}.", *filter(None, place.notes), *(note if note.endswith(".") else f"{note}." for note in notes)]
    return {
        "@context": CONTEXT, "@type": "sc:Dataset", "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": place.title or name, "description": " ".join(said), **place.about,
        "distribution": place.files,
        "recordSet": [*place.records, _splits(sources), *_classes(sources, classes)],
    }


def _place(data: Data, sources: Mapping[str, Source], classes: Sequence[str]) -> _Place:
    kind, path = str(getattr(data, "source", "")), getattr(data, "path", None)
    if data.prepared is not None:
        return _Place(notes=["The examples were read from files that quartet prepare wrote of the original.", _in_words(data)])
    if kind == "tfds":
        return _of_tfds(data)
    if path and kind == "folder":
        return _of_folder(local(path).expanduser(), data, sources, classes)
    if path and kind == "table":
        return _of_tables(local(path).expanduser(), data, sources)
    if path and kind == "npz":
        file = local(path).expanduser()
        described = _file(file, "application/zip")
        return _Place(file.stem, [described], _packed(data.described(), {"fileObject": {"@id": described["@id"]}}),
                      ["What is called a column here is an array in a .npz file of NumPy."])
    return _Place(notes=[f"The examples come from a program (data.source: {kind or 'its own'}), from no file.", _in_words(data)])


def _of_folder(root: Path, data: Data, sources: Mapping[str, Source], classes: Sequence[str]) -> _Place:
    """A file an example; the class is a folder's name, where it is the same folder in all paths."""
    base = os.path.join(root, "")
    files, labels = [], []
    for source in sources.values():
        files += [source.name(number).partition("#t=")[0].removeprefix(base).replace(os.sep, "/") for number in range(len(source))]
        labels += [classes[label] for label in source.labels] if source.labels is not None and classes else []
    place = _Place(root.resolve().name, [_file_set(files)])
    fields = []
    for column, kind in data.described():
        if kind == "label":
            pattern = getattr(data, "label_pattern", None) or _class_pattern(files, labels)
            if pattern is None:
                place.notes.append("Not every class is the name of a folder.")
                continue
            where = {"extract": {"fileProperty": "fullpath"}, "transform": {"regex": pattern if pattern[0] == "^" else f".*?{pattern}"}}
            fields.append(_field(column, kind, {"fileSet": {"@id": "files"}, **where}))
        elif not any(one["name"] == "file" for one in fields):
            fields.append(_field("file", kind, {"fileSet": {"@id": "files"}, "extract": {"fileProperty": "content"}}))
        elif kind == "text":
            place.notes.append(f"The {column} of a file stands in a file of the same name beside it.")
    place.records.append(_record_set(RECORDS, fields))
    return place


def _class_pattern(files: Sequence[str], labels: Sequence[str]) -> str | None:
    """What finds the class in a path: that of the folder at the same depth in all paths."""
    for depth in range(3):
        if len(labels) == len(files) and all(file.split("/")[depth:depth + 1] == [label] for file, label in zip(files, labels)):
            return "^" + "[^/]+/" * depth + "([^/]+)/"
    return None


def _of_tables(path: Path, data: Data, sources: Mapping[str, Source]) -> _Place:
    """One table, or one for each split in a folder, and those of items and users beside it."""
    own = [path] if path.is_file() else sorted(one for one in path.iterdir() if tables.is_table(one) and one.is_file())
    place = _Place(path.resolve().stem)
    for file in own:
        _add_table(place, file, data, data.described(), RECORDS if len(own) == 1 else file.stem)
    for setting in ("items", "users"):
        if other := getattr(data, setting, None):
            file = local(other).expanduser()
            numbers = getattr(data, "numbers", [])
            _add_table(place, file, None, [(name, "number" if name in numbers else "text") for name in _columns(file, None) or ()], setting)
    if any(one["description"].startswith(PATH) for record in place.records for one in record["field"]):
        base = os.path.join(path.parent, "")
        names = [source.name(number).partition("#t=")[0] for source in sources.values() for number in range(len(source))]
        if all(name.startswith(base) for name in names):
            place.files.append(_file_set([name.removeprefix(base).replace(os.sep, "/") for name in names]))
    return place


def _add_table(place: _Place, path: Path, data: Data | None, described: Sequence[tuple[str | int, str]], title: str) -> None:
    given = _columns(path, data)
    file = _file(path, FORMATS.get(ending(path), "text/csv"))
    if ending(path) in TEXT:
        how = dialect_of(path, getattr(data, "delimiter", None), getattr(data, "encoding", None))
        if how.delimiter not in (",", "\t"):
            file["description"] = f"Fields are separated by {how.delimiter!r}."
            place.notes.append(f"In {path.name}, fields are separated by {how.delimiter!r}, for which Croissant has no word.")
    fields = []
    for column, kind in described:
        if given is None:
            fields.append(_field(column, kind, {"fileObject": {"@id": file["@id"]}, "extract": {"column": str(column)}}))
        elif column in given:
            fields.append(_field(column, *_in_table(path, str(column), kind, file["@id"])))
    if given is None:
        names = getattr(data, "columns", None)
        place.notes.append(f"{path.name} has no header row; its columns are " + (f"{', '.join(names)}." if names else "counted from 0."))
    place.files.append(file)
    if fields:
        place.records.append(_record_set(title, fields))


def _in_table(path: Path, column: str, kind: str, file: str) -> tuple[str, dict[str, Any]]:
    """Kind and place of a column; of files that it names, their paths."""
    source: dict[str, Any] = {"fileObject": {"@id": file}, "extract": {"column": column}}
    if kind not in ("image", "audio"):
        return kind, source
    if ending(path) in tables.PARQUET:
        import pyarrow as pa
        import pyarrow.parquet

        found = pyarrow.parquet.read_schema(path).field(column).type
        if pa.types.is_struct(found):
            return kind, {**source, "transform": {"jsonPath": "bytes"}}
        if pa.types.is_binary(found) or pa.types.is_large_binary(found):
            return kind, source
    return f"{PATH} {kind}", source


def _columns(path: Path, data: Data | None) -> list[str] | None:
    """The columns that the file itself names; None where it names none."""
    if ending(path) in tables.PARQUET:
        import pyarrow.parquet

        return list(pyarrow.parquet.read_schema(path).names)
    if ending(path) in tables.JSON_LINES:
        first = content_of(path, BEGINNING).decode("utf-8", "replace").lstrip("﻿").splitlines()[:1]
        try:
            return [str(name) for name in parse_json(first[0])]
        except (ValueError, IndexError, TypeError):
            return None
    how = dialect_of(path, getattr(data, "delimiter", None), getattr(data, "encoding", None))
    by_number = any(isinstance(column, int) for column, _ in data.described()) if data is not None else False
    if getattr(data, "columns", None) or by_number or how.fasttext or len(how.delimiter) > 1:
        return None
    text = content_of(path, BEGINNING).decode(how.encoding, "replace").lstrip("﻿")
    return next(csv.reader(io.StringIO(text, newline=""), delimiter=how.delimiter), None)


def _of_tfds(data: Data) -> _Place:
    from pipelines.data.tfds import features, prepared

    builder = prepared(str(data.name), getattr(data, "data_dir", None))  # type: ignore[attr-defined]
    info, known = builder.info, features(builder)
    place = _Place(info.full_name, notes=[str(info.description or "").strip()] if info.description else [])
    for split, about in sorted(info.splits.items()):
        pattern = f"{builder.name}-{split}.{info.file_format.file_suffix}*"
        place.files.append({"@type": "cr:FileSet", "@id": f"split-{_identifier(split)}", "name": split, "includes": pattern,
                            "description": f"{about.num_examples:,} examples.",
                            "encodingFormat": f"application/x-{info.file_format.value.replace('_', '')}"})
    place.notes.append(f"What is called a column here is a feature that TensorFlow Datasets reads: tfds.load({info.full_name!r}).")
    place.records = _packed([one for one in data.described() if one[0] in known], {"fileSet": {"@id": place.files[0]["@id"]}})
    place.about = {name: value for name, value in {
        "url": info.homepage, "license": getattr(info.redistribution_info, "license", None), "citeAs": info.citation,
        "version": str(builder.version)}.items() if value}
    return place


def _packed(described: Sequence[tuple[str | int, str]], source: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What an example holds, in files that only a program takes apart."""
    fields = [_field(column, kind, {**source, "extract": {"column": str(column)}}) for column, kind in described]
    return [_record_set(RECORDS, fields)] if fields else []


def _in_words(data: Data) -> str:
    """What an example holds, where there is no file that a field could be of."""
    parts = [f"{column} ({kind})" if column != kind else kind for column, kind in data.described()]
    return f"An example has {', '.join(parts)}." if parts else ""


def _file(path: Path, form: str) -> dict[str, Any]:
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
        size = path.stat().st_size
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    return {"@type": "cr:FileObject", "@id": _identifier(path.name), "name": path.name, "contentUrl": path.name,
            "contentSize": f"{size} B", "encodingFormat": form, "sha256": digest.hexdigest()}


def _file_set(names: Sequence[str]) -> dict[str, Any]:
    """The files that are examples, by their endings; all that lie below the folder with such an ending belong to it."""
    suffixes = sorted({os.path.splitext(name)[1] for name in names})
    below = "**/" if all("/" in name for name in names) else ""
    forms = list(dict.fromkeys(mimetypes.guess_type(f"a{suffix.lower()}")[0] or "application/octet-stream" for suffix in suffixes))
    return {"@type": "cr:FileSet", "@id": "files", "name": "files", "encodingFormat": forms,
            "includes": [f"{below}*{suffix}" for suffix in suffixes],
            "description": f"{len(set(names)):,} files, named from the folder of the data on."}


def _field(column: str | int, kind: str, source: Mapping[str, Any]) -> dict[str, Any]:
    return {"@type": "cr:Field", "name": str(column), "description": kind, "dataType": TYPES.get(kind, "sc:Text"),
            "source": source}


def _record_set(title: str, fields: Sequence[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """With identifiers, which mlcroissant's users name fields by: `examples/image`."""
    own, taken = _identifier(title), set[str]()
    for one in fields:
        name = _identifier(one["name"])
        while name in taken:
            name += "_"
        taken.add(name)
        one["@id"] = f"{own}/{name}"
    return {"@type": "cr:RecordSet", "@id": own, "name": title, **more, "field": list(fields)}


def _constant(title: str, kind: str, rows: Iterator[dict[str, Any]]) -> dict[str, Any]:
    """A record set whose records stand in the description itself."""
    records = list(rows)
    types = {name: "sc:Integer" if isinstance(value, int) else "sc:Text" for name, value in records[0].items()}
    fields = [{"@type": "cr:Field", "name": name, "dataType": one} for name, one in types.items()]
    found = _record_set(title, fields, dataType=kind)
    return {**found, "data": [{one["@id"]: value for one, value in zip(fields, row.values())} for row in records]}


def _splits(sources: Mapping[str, Source]) -> dict[str, Any]:
    return _constant("splits", "cr:Split", (
        {"name": split, "examples": len(source), "fingerprint": source.fingerprint()} for split, source in sources.items()))


def _classes(sources: Mapping[str, Source], classes: Sequence[str]) -> list[dict[str, Any]]:
    """Each class with its examples in each split, where each example has one."""
    counts = {split: np.bincount(source.labels, minlength=len(classes)) for split, source in sources.items()
              if source.labels is not None and len(source.labels) and source.labels.min() >= 0}
    if not classes or any(len(each) != len(classes) for each in counts.values()):
        return []
    if len(classes) > CLASSES:
        return []
    return [_constant("classes", "sc:Enumeration", (
        {"name": str(title), **{split: int(each[number]) for split, each in counts.items()}} for number, title in enumerate(classes)))]


def _identifier(text: str) -> str:
    return re.sub(r"[^\w.-]+", "-", text).strip("-") or "column"

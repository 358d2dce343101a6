"""Pascal VOC: an XML file for each picture. Imports no TensorFlow.

Pixels of VOC are counted from 1, both ends within the box. Where some coordinate of the data is 0, they are counted from 0.
"""

import re
from pathlib import Path
from xml.parsers import expat

import numpy as np

from pipelines.base.errors import DataError
from pipelines.base.inside import check_regular
from pipelines.data.divide import ALIASES
from pipelines.data.walk import PassedOver, files_below
from vision.data.boxes.pictures import Annotated, Picture, by_stem
from vision.data.files import ENDINGS

LARGEST = 8 << 20  # bytes of an annotation: some 30,000 boxes
DEEPEST = 20
CORNERS = ("xmin", "ymin", "xmax", "ymax")
_OBJECT = ("annotation", "object")
_NAMED = re.compile("|".join(alias for names in ALIASES.values() for alias in names) + "|trainval", re.IGNORECASE)


def read(root: Path) -> Annotated:
    """All pictures below a folder that have an annotation; splits are those of ImageSets/Main, or folders called so.

    Raises:
        DataError: there are none, or a list names a picture that has none.
    """
    images, files = dict[str, Path](), list[Path]()
    for file in files_below(root, PassedOver()):
        if file.suffix.lower() == ".xml":
            files.append(file)
        elif file.suffix.lower() in ENDINGS:
            images[_key(file)] = file
    stems = by_stem(images.values())
    found, by_name, pictures = Annotated({}), dict[str, Picture](), list[Picture]()
    for file in sorted(files):
        try:
            names, rows, places = parse(file)
        except DataError as error:
            found.bad.append(str(error))
            continue
        image = images.get(_key(file)) or stems.get(file.stem)
        if image is None:
            found.bad.append(f"{file}: there is no picture of the name {file.stem} below {root}")
            continue
        by_name[file.stem] = Picture(image, np.array(rows), names, places, file)
        pictures.append(by_name[file.stem])
    if not pictures:
        raise DataError(f"{root}: none of {len(files):,} XML files is an annotation of Pascal VOC with its picture"
                        + (f": {found.bad[0]}" if found.bad else ""))
    _from_zero(pictures, found.notes)
    found.splits = _listed(root, by_name, found) or _by_folder(root, pictures)
    return found


def parse(file: Path) -> tuple[list[str], list[list[float]], list[str]]:
    """(names, [left, top, right, bottom] as they are written, and the line of each object) of an annotation.

    Raises:
        DataError: no such XML, too large, or with a document type, whose entities could grow without bound.
    """
    check_regular(file)
    if file.stat().st_size > LARGEST:
        raise DataError(f"{file}: {file.stat().st_size:,} bytes are more than an annotation of one picture has")
    try:
        return _Reader(file).read(file.read_bytes())
    except expat.ExpatError as error:
        raise DataError(f"{file}: line {error.lineno}: no XML: {expat.errors.messages[error.code]}") from error


class _Reader:
    """Collects the objects of one file."""

    def __init__(self, file: Path):
        self.file, self.path, self.text = file, list[str](), list[str]()
        self.names, self.rows, self.places = list[str](), list[list[float]](), list[str]()
        self.parser = expat.ParserCreate()
        self.parser.StartDoctypeDeclHandler = self._refuse
        self.parser.StartElementHandler, self.parser.EndElementHandler = self._begin, self._end
        self.parser.CharacterDataHandler = self.text.append
        self.values = dict[str, str]()

    def read(self, content: bytes) -> tuple[list[str], list[list[float]], list[str]]:
        self.parser.Parse(content, True)
        return self.names, self.rows, self.places

    def _refuse(self, *_: object) -> None:
        raise DataError(f"{self.file}: line {self.parser.CurrentLineNumber}: a document type (<!DOCTYPE ...>) is not read, since its "
                        "entities can grow without bound; remove it")

    def _begin(self, name: str, _: dict[str, str]) -> None:
        if len(self.path) >= DEEPEST:
            raise DataError(f"{self.file}: line {self.parser.CurrentLineNumber}: elements lie deeper within one another than {DEEPEST}")
        self.path.append(name)
        self.text.clear()
        if tuple(self.path) == _OBJECT:
            self.values, self.line = {}, self.parser.CurrentLineNumber

    def _end(self, name: str) -> None:
        if tuple(self.path) == _OBJECT:
            self._add()
        elif self.path[:2] == list(_OBJECT) and (self.path[2:] == ["name"] or (self.path[2:3] == ["bndbox"] and len(self.path) == 4)):
            self.values[name] = "".join(self.text).strip()
        self.path.pop()
        self.text.clear()

    def _add(self) -> None:
        missing = next((name for name in ("name", *CORNERS) if not self.values.get(name)), None)
        if missing:
            raise DataError(f"{self.file}: line {self.line}: the object has no {missing}")
        try:
            row = [float(self.values[name]) for name in CORNERS]
        except ValueError:
            raise DataError(f"{self.file}: line {self.line}: the box has a corner that is no number: "
                            f"{', '.join(self.values[name][:20] for name in CORNERS)}") from None
        self.names.append(self.values["name"])
        self.rows.append(row)
        self.places.append(f"line {self.line}")


def _from_zero(pictures: list[Picture], notes: list[str]) -> None:
    """Turns coordinates that count pixels into distances from the corner; boxes whose ends are the same pixel stay empty."""
    every = np.concatenate([picture.boxes for picture in pictures])
    first = 0 if np.any(every[:, :2] == 0) else 1
    if first == 0:
        notes.append("Pixels of the boxes are counted from 0: some coordinate is 0.")
    for picture in pictures:
        longer = np.all(picture.boxes[:, 2:] > picture.boxes[:, :2], 1, keepdims=True)
        ends = np.where(longer, np.array([-first, -first, 1 - first, 1 - first], np.float32), np.float32(-first))
        picture.boxes = picture.boxes + ends


def _key(file: Path) -> str:
    """A file by its folder and name without ending."""
    return str(file.with_suffix(""))


def _listed(root: Path, pictures: dict[str, Picture], found: Annotated) -> dict[str, list[Picture]]:
    """The splits that ImageSets/Main lists; none where there is no such folder."""
    lists = {file.stem.lower(): file for folder in sorted(root.glob("**/ImageSets/Main")) for file in folder.glob("*.txt")
             if _NAMED.fullmatch(file.stem)}
    if {"train", "val"} <= lists.keys() or "trainval" not in lists:
        lists.pop("trainval", None)
    else:
        lists["train"] = lists.pop("trainval")
    splits = dict[str, list[Picture]]()
    for name, file in lists.items():
        stems = [line.split()[0] for line in file.read_text("utf-8", "replace").splitlines() if line.split()]
        absent = [stem for stem in stems if stem not in pictures]
        found.bad += [f"{file}: {stem} has no annotation that can be read, or no picture" for stem in absent]
        splits[name] = [pictures[stem] for stem in stems if stem in pictures]
    return splits


def _by_folder(root: Path, pictures: list[Picture]) -> dict[str, list[Picture]]:
    """By the folder directly below `root`, where it is called like a split; else in one piece."""
    splits = dict[str, list[Picture]]()
    for picture in pictures:
        parts = picture.file.relative_to(root).parts
        name = next((part for part in parts[:-1] if _NAMED.fullmatch(part)), "all")
        splits.setdefault(name, []).append(picture)
    return splits if "train" in {name.lower() for name in splits} or len(splits) == 1 else {"all": pictures}

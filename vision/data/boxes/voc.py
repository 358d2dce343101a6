"""Pascal VOC: an XML file for each picture. Imports no TensorFlow.

Objects that are called difficult are left out, as crowds of COCO are. Pixels of VOC are counted from 1, both ends within the box; where
some coordinate of the data is 0, they are counted from 0.
"""

from pathlib import Path

import numpy as np

from pipelines.base.errors import DataError
from pipelines.data.walk import PassedOver, files_below
from vision.data.boxes.pictures import NAMED, Annotated, Picture, by_folder, by_stem
from vision.data.boxes.xml_files import Reader
from vision.data.files import ENDINGS

LARGEST = 8 << 20  # bytes of an annotation: some 30,000 boxes
CORNERS = ("xmin", "ymin", "xmax", "ymax")
_OBJECT = ("annotation", "object")


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
    difficult = 0
    for file in sorted(files):
        try:
            one = parse(file)
        except DataError as error:
            found.bad.append(str(error))
            continue
        image = images.get(_key(file)) or stems.get(file.stem)
        if image is None:
            found.bad.append(f"{file}: there is no picture of the name {file.stem} below {root}")
            continue
        by_name[file.stem] = Picture(image, np.array(one.rows), one.names, one.places, file)
        difficult += one.difficult
        pictures.append(by_name[file.stem])
    if not pictures:
        raise DataError(f"{root}: none of {len(files):,} XML files is an annotation of Pascal VOC with its picture"
                        + (f": {found.bad[0]}" if found.bad else ""))
    if difficult:
        found.notes.append(f"{difficult:,} objects that are called difficult are left out.")
    _from_zero(pictures, found.notes)
    found.splits = _listed(root, by_name, found) or by_folder(root, pictures)
    return found


def parse(file: Path) -> "_Objects":
    """The objects of an annotation. Raises DataError as `Reader.read`, and for one without a name or a corner."""
    found = _Objects(file)
    found.read(LARGEST)
    return found


class _Objects(Reader):
    """Names, [left, top, right, bottom] as they are written, and the line of each object but for the `difficult` ones."""

    def __init__(self, file: Path):
        super().__init__(file)
        self.names, self.rows, self.places = list[str](), list[list[float]](), list[str]()
        self.difficult, self.values = 0, dict[str, str]()

    def begin(self, attributes: dict[str, str]) -> None:
        if tuple(self.path) == _OBJECT:
            self.values, self.began = {}, self.line

    def end(self) -> None:
        inner = self.path[2:]
        if tuple(self.path) == _OBJECT:
            self._add()
        elif self.path[:2] == list(_OBJECT) and (inner in (["name"], ["difficult"]) or (inner[:1] == ["bndbox"] and len(inner) == 2)):
            self.values[self.path[-1]] = "".join(self.text).strip()

    def _add(self) -> None:
        if self.values.get("difficult") == "1":
            self.difficult += 1
            return
        missing = next((name for name in ("name", *CORNERS) if not self.values.get(name)), None)
        if missing:
            raise DataError(f"{self.file}: line {self.began}: the object has no {missing}")
        try:
            row = [float(self.values[name]) for name in CORNERS]
        except ValueError:
            raise DataError(f"{self.file}: line {self.began}: the box has a corner that is no number: "
                            f"{', '.join(self.values[name][:20] for name in CORNERS)}") from None
        self.names.append(self.values["name"])
        self.rows.append(row)
        self.places.append(f"line {self.began}")


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
             if NAMED.fullmatch(file.stem)}
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

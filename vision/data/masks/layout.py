"""Where pictures and their masks lie in a folder, by the names that people give: images/ beside masks/, with train/, validation/ and test/
above or below them or not, and Pascal VOC's JPEGImages/ beside SegmentationClass/. Imports no TensorFlow."""

import os
from collections.abc import Sequence
from pathlib import Path

from pipelines.base.errors import DataError
from pipelines.data.columns import plain, role_of
from pipelines.data.kinds import MASKS, PICTURES
from pipelines.data.walk import PassedOver, files_below, folders_in
from vision.data.files import images_below, is_image_file
from vision.data.masks.by_class import files_by_class
from vision.data.masks.part import Part

LISTS = ("ImageSets/Segmentation", "ImageSets")  # Pascal VOC's lists of names, a file for each split
WHOLE = "all"  # the split of data that come in one piece


def find(root: Path) -> dict[str, Part]:
    """Split -> its pictures with their masks; of data in one piece `all`; empty where no such folders are there."""
    folders = _folders(root)
    if _pair(folders):
        pictures, masks = _pair(folders)
        below = {folder.name for folder in _folders(pictures)} & {folder.name for folder in _folders(masks)}
        splits = sorted(name for name in below if role_of(name))
        if len(splits) > 1:
            return {name: paired(pictures / name, masks / name) for name in splits}
        whole = paired(pictures, masks)
        return _listed(root, whole) or {WHOLE: whole}
    pairs = {folder.name: _pair(_folders(folder)) for folder in folders if role_of(folder.name)}
    return {name: paired(*pair) for name, pair in sorted(pairs.items()) if pair}


def _folders(root: Path) -> list[Path]:
    return folders_in(root, PassedOver())


def _pair(folders: Sequence[Path]) -> tuple[Path, ...]:
    """(the folder of pictures, that of masks); empty where there is not one of each."""
    found = [[folder for folder in folders if plain(folder.name).replace("_", "") in {name.replace("_", "") for name in names}]
             for names in (PICTURES, MASKS)]
    of_classes = [folder for folder in found[1] if plain(folder.name) == "segmentation_class"]
    found[1] = of_classes or found[1]
    one_each = all(len(some) == 1 for some in found)
    return tuple(some[0] for some in found) if one_each and any(map(is_image_file, files_below(found[1][0], PassedOver()))) else ()


def each_by_itself(root: Path) -> list[tuple[Path, Path]]:
    """(picture, the folder of its masks, one for each thing) where each picture has a folder of its own, with images/ and masks/ in it, as
    the Data Science Bowl of 2018 has them; empty where there are no such folders."""
    found = []
    for folder in _folders(root):
        pictures, masks = folder / "images", folder / "masks"
        if pictures.is_dir() and masks.is_dir() and len(images := images_below(pictures, PassedOver())) == 1:
            found.append((images[0], masks))
    return found


def paired(pictures: Path, masks: Path) -> Part:
    """Each picture with the mask of its name, or of its name with an ending that all masks have: street_1.jpg and street_1_mask.png; or
    with a file for each class.

    Raises:
        DataError: no picture has a mask.
    """
    images, files = images_below(pictures, PassedOver()), images_below(masks, PassedOver())
    by_name = {_name(file, masks): file for file in files}
    names = [_name(image, pictures) for image in images]
    if classes := files_by_class(names, by_name):
        there = [number for number, one in enumerate(classes) if one]
        return Part([images[number] for number in there], [next(iter(classes[number].values())) for number in there],
                    [image for image, one in zip(images, classes) if not one], [classes[number] for number in there])
    for ending in ("", *_endings(names, list(by_name))):
        found = [by_name.get(name + ending) for name in names]
        if any(found):
            both = [(image, mask) for image, mask in zip(images, found) if mask is not None]
            return Part([image for image, _ in both], [mask for _, mask in both],
                        [image for image, mask in zip(images, found) if mask is None])
    raise DataError(f"{masks}: holds {len(files):,} files, of which none is called as a picture of {pictures} ({len(images):,} files): a "
                    "mask has its picture's name, with another ending or a further word")


def _name(file: Path, root: Path) -> str:
    return os.fspath(file.relative_to(root).with_suffix(""))


def _endings(names: list[str], masks: list[str]) -> list[str]:
    """What the masks' names have behind those of the pictures, judged by the first."""
    return sorted({mask.removeprefix(names[0]) for mask in masks if names and mask.startswith(names[0])}, key=len)


def _listed(root: Path, whole: Part) -> dict[str, Part]:
    """The splits that lists of names make, where they are there: train.txt, val.txt, test.txt."""
    folder = next((root / name for name in LISTS if (root / name).is_dir()), None)
    lists = {file.stem: file for file in sorted(folder.glob("*.txt")) if role_of(file.stem)} if folder else {}
    if "train" not in {role_of(name) for name in lists}:
        return {}
    numbers = {image.stem: number for number, image in enumerate(whole.images)}
    parts = {}
    for name, file in lists.items():
        wanted = [line.split()[0] for line in file.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        chosen = [numbers[one] for one in wanted if one in numbers]
        parts[name] = Part([whole.images[one] for one in chosen], [whole.masks[one] for one in chosen],
                           [] if len(chosen) == len(wanted) else [image for image in whole.alone if image.stem in set(wanted)],
                           [whole.by_class[one] for one in chosen] if whole.by_class else [])
    return {name: part for name, part in parts.items() if part.images}

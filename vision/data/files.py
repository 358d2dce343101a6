"""Which files are images, the same for training, `quartet new` and `predict`; and the files that paths, folders and globs name.

Imports no TensorFlow.
"""

import glob
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pipelines.data.walk import PassedOver, files_below, refuse_special
from vision.data.headers import SUFFIXES

MORE_SUFFIXES = (".jpe", ".jfif")
# images that no decoder here reads: examples too, so that they are reported as bad, not ignored
UNREAD = (".tif", ".tiff", ".heic", ".heif", ".avif", ".jxl")
ENDINGS = (*SUFFIXES, *MORE_SUFFIXES, *UNREAD)
SNIFF = 32  # bytes that identify an image whatever its name


def is_image(start: bytes) -> bool:
    """True for the first bytes of a JPEG, PNG, GIF, BMP with a usual header, or WebP."""
    return (start[:3] == b"\xff\xd8\xff" or start[:8] == b"\x89PNG\r\n\x1a\n" or start[:4] == b"GIF8"
            or (start[:2] == b"BM" and start[14:18] in (b"\x28\0\0\0", b"\x6c\0\0\0", b"\x7c\0\0\0"))
            or (start[:4] == b"RIFF" and start[8:12] == b"WEBP"))


def is_image_file(path: Path) -> bool:
    """Whether a file in a folder is taken for an image: by its ending, in whatever case, or else by its first bytes."""
    if path.suffix.lower() in ENDINGS:
        return True
    try:
        with open(path, "rb") as file:
            return is_image(file.read(SNIFF))
    except OSError:
        return False


def images_below(folder: Path, passed: PassedOver | None = None) -> list[Path]:
    """The images in a folder, at any depth, sorted; other files are counted in `passed`.

    Raises:
        DataError: without `passed`, where something other than a regular file is named like an image.
    """
    into = PassedOver() if passed is None else passed
    images = []
    for path in files_below(folder, into):
        if is_image_file(path):
            images.append(path)
        else:
            into.add(path)
    if passed is None:
        refuse_special(into, ENDINGS)
    return sorted(images)


def find_images(inputs: Sequence[str], note: Callable[[str], None] = lambda text: None) -> Iterator[Path]:
    """Paths in the order given, folders and globs sorted; a named file is yielded whatever its ending, even if it does not exist.

    Args:
        note: called for each folder with ignored files.
    """
    for text in inputs:
        path = Path(text)
        if path.is_dir():
            passed = PassedOver()
            yield from images_below(path, passed)
            if passed.others:
                note(f"{path}: ignored files that are not images: {passed.listed()}")
            for special, kind in passed.special:
                note(f"{special}: ignored, because it is {kind}")
        elif not path.exists() and glob.has_magic(text):
            yield from sorted(Path(name) for name in glob.glob(text, recursive=True) if Path(name).is_file())
        else:
            yield path

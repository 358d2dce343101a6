"""Files of running texts. Imports no TensorFlow."""

from pathlib import Path

from pipelines.base.errors import DataError
from pipelines.config.messages import listed
from pipelines.data.columns import plain, role_of

SUFFIXES = (".txt", ".text", ".md")


def split_files(place: Path) -> dict[str, list[Path]]:
    """The files of a folder by the split that a word of their names says, or all of them, or the one file. Raises DataError."""
    if place.is_file():
        return {"all": [place]}
    if not place.is_dir():
        raise DataError(f"{place} does not exist (data.path)")
    files = [path for path in sorted(place.rglob("*")) if path.suffix.lower() in SUFFIXES and path.is_file()
             and not path.stem.lower().startswith(("readme", "license"))]
    if not files:
        raise DataError(f"{place} has no {listed(list(SUFFIXES), 'or')} file (data.path)")
    found: dict[str, list[Path]] = {}
    for path in files:
        role = next(filter(None, map(role_of, plain(path.stem).split("_"))), None)
        found.setdefault(role or "", []).append(path)
    if "train" not in found:
        return {"all": files}
    found.pop("", None)
    return found

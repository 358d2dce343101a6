"""LJSpeech's table. Imports no TensorFlow."""

from pathlib import Path

from pipelines.base.regular import check_regular

LJ = "metadata.csv"  # LJSpeech: id|text|normalized text, no header, recordings in wavs/


def is_lj(path: Path) -> bool:
    """Whether a table is LJSpeech's, which has no header and `|` between its columns."""
    if path.name != LJ:
        return False
    check_regular(path)
    try:
        with open(path, encoding="utf-8-sig") as file:
            return file.readline().count("|") >= 1
    except (OSError, UnicodeDecodeError):
        return False

"""metrics.jsonl: one line of JSON for each logging point of a run, readable after a kill at any moment.

Each line has `step`, `epoch`, `time_s` and whatever was measured there: `train/loss`, `validation/accuracy`, `learning_rate`.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from pipelines.base import stored
from pipelines.base.errors import ConfigError
from pipelines.base.files import append_whole, finite, open_to_append, write_whole, writing


class MetricsLog:
    """Appends lines to metrics.jsonl. Opened at step s of a resumed run, it first drops the lines after s.

    Raises:
        OSError: as the system gives it, such as a full disk; what was written before stays readable.
    """

    def __init__(self, path: Path | str, *, resume_step: int | None = None, unjudged: bool = False):
        """
        Args:
            path: the file; its folder is created.
            resume_step: the run resumes from here: lines with a later step, and a torn last line, are removed (the
                file is rewritten whole). None for a new run, which begins an empty file.
            unjudged: the epoch that ended at `resume_step` is judged again, so that its line is removed, too.
        """
        self.path = Path(path)
        if resume_step is None or not self.path.exists():
            write_whole(self.path, "")
        else:
            rows, whole = _rows(self.path)
            kept = [row for row in rows if row.get("step", 0) < resume_step + (not (unjudged and _of_epoch(row)))]
            if len(kept) < len(rows) or not whole:
                write_whole(self.path, "".join(map(_line, kept)))
        self._file: BinaryIO | None = None

    def append(self, row: Mapping[str, Any]) -> None:
        """Writes one line, at once. Numbers of numpy are unpacked; a value that is not finite becomes null.

        Raises:
            ValueError: `step` is missing.
        """
        if "step" not in row:
            raise ValueError(f"a line of metrics needs its step, got {sorted(row)}")
        if self._file is None:
            self._file = open_to_append(self.path)
        append_whole(self._file, _line(row).encode())

    def close(self) -> None:
        """Flushes the lines to the disk and closes the file; a later `append` opens it again."""
        if self._file is not None:
            with writing(self.path):
                os.fsync(self._file.fileno())
            self._file.close()
            self._file = None

    def __enter__(self) -> "MetricsLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_rows(path: Path | str) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl as dicts, in order; empty where there is no file. A torn last line is left out.

    Raises:
        ConfigError: a line before the last is not one of metrics: the file is damaged; names file and line.
    """
    path = Path(path)
    return _rows(path)[0] if path.exists() else []


def _rows(path: Path) -> tuple[list[dict[str, Any]], bool]:
    """The rows, and whether the file holds nothing else."""
    text = stored.read_bytes(path).decode("utf-8", errors="replace")
    # A crash of the machine can leave zeros in place of a line.
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip("\0 \r")]
    rows: list[dict[str, Any]] = []
    for number, line in lines:
        try:
            rows.append(stored.parsed(line, stored.Row, f"{path}, line {number}").model_dump(exclude_unset=True))
        except ConfigError:
            if number != lines[-1][0]:
                raise
            return rows, False
    return rows, "\0" not in text and (not text or text.endswith("\n"))


def _of_epoch(row: Mapping[str, Any]) -> bool:
    return any(name.startswith("epoch/") for name in row)


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(finite(dict(row)), ensure_ascii=False, allow_nan=False) + "\n"

"""What was measured of this machine, kept in the user's cache folder: it is not measured at each start. Imports no TensorFlow."""

import contextlib
import os
from pathlib import Path
from typing import Any

from pipelines.base.files import write_json
from pipelines.base.json_text import parse_json


def measurements(name: str) -> Path:
    """The file of one kind of measurement."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "quartet" / f"{name}.json"


def read_measured(file: Path) -> dict[str, Any]:
    """Key -> value; empty where nothing was kept, or the file cannot be read."""
    try:
        content = parse_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def keep_measured(file: Path, key: str, value: Any) -> None:
    """Where it cannot be written, it is measured again next time."""
    with contextlib.suppress(OSError):
        write_json(file, {**read_measured(file), key: value})

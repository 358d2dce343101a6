"""Files written whole or not at all.

Everything in a run directory goes through `write_whole`: a reader, a resume or a kill at any moment sees
either the old file or the new one.
"""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO


def write_whole(path: Path | str, content: bytes | str | Callable[[BinaryIO], None]) -> None:
    """Writes a file beside its target, flushes it to the disk, and renames it into place.

    Args:
        path: the target; its folder is made.
        content: bytes, text (UTF-8), or a function that writes to the open binary file.

    Raises:
        OSError: as the system gives it (a full disk, no permission); the target is then as it was.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_json(path: Path | str, value: Any) -> None:
    """Writes `value` as indented JSON, whole; NaN and infinities become null, so that any reader takes it."""
    write_whole(path, json.dumps(finite(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def finite(value: Any) -> Any:
    """`value` with plain Python types for JSON: numpy numbers unpacked, non-finite floats as None."""
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if hasattr(value, "tolist"):
        return finite(value.tolist())
    if isinstance(value, float) and not (value == value and abs(value) != float("inf")):
        return None
    if isinstance(value, Path):
        return str(value)
    return value


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

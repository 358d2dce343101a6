"""A command over what the hook has written."""

from pathlib import Path

import quartet


def count_ends(file: Path) -> None:
    """Count the runs in a file of ends."""
    if not file.is_file():
        raise quartet.ConfigError(f"{file}: is not there")
    count = len(file.read_text(encoding="utf-8").splitlines())
    print(f"{count} {'run' if count == 1 else 'runs'}")

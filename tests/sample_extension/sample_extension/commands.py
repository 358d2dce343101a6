"""A command over what the hook has written."""

from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

import quartet


@contextmanager
def aloud(aloud: Annotated[bool, typer.Option("--aloud", help="Say so when the command ends.")] = False):
    """The option --aloud."""
    yield
    if aloud:
        print("it is done")


def count_ends(file: Path) -> None:
    """Count the runs in a file of ends."""
    if not file.is_file():
        raise quartet.ConfigError(f"{file}: is not there")
    count = len(file.read_text(encoding="utf-8").splitlines())
    print(f"{count} {'run' if count == 1 else 'runs'}")

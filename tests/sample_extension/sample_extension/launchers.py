"""A launcher that trains in a process of its own, where the option --apart asks for it."""

import subprocess
import sys
from contextlib import contextmanager
from typing import Annotated

import typer

import quartet

asked = False


@contextmanager
def apart(apart: Annotated[bool, typer.Option("--apart", help="Train in a process of its own.")] = False):
    """The option --apart."""
    global asked
    asked = apart
    yield
    asked = False


class Apart(quartet.Launcher):
    elsewhere = True

    def train(self, call):
        print("trained apart", file=sys.stderr, flush=True)
        return subprocess.run([sys.executable, "-P", "-m", "quartet", "train", *call.arguments], check=False).returncode


def choose(command):
    """Called for each command that a launcher may take over."""
    return Apart() if asked else None

"""The tasks of this domain, by name."""

from speech.commands import CommandTask

TASKS = {"speech.commands": CommandTask}

"""The tasks of this domain, by name."""

from speech.tasks.commands import CommandTask
from speech.tasks.transcription import TranscriptionTask

TASKS = {"speech.commands": CommandTask, "speech.transcription": TranscriptionTask}

"""The tasks of this domain, by name."""

from speech.commands import CommandTask
from speech.transcription import TranscriptionTask

TASKS = {"speech.commands": CommandTask, "speech.transcription": TranscriptionTask}

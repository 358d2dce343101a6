"""speech.transcription as its model writes: step by step for CTC, or by a decoder of its own."""

from typing import Any

from speech.settings import Transcription
from speech.tasks.transcription import TranscriptionTask
from speech.tasks.whisper import WhisperTask


class TranscriptionByModel(TranscriptionTask):
    """The task that suits the experiment's model."""

    def __new__(cls, experiment: Transcription, facts: dict[str, Any] | None = None) -> TranscriptionTask:  # type: ignore[misc]
        return WhisperTask(experiment, facts) if experiment.own_decoder else TranscriptionTask(experiment, facts)

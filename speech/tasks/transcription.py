"""speech.transcription: text per recording, by CTC or as Whisper writes it."""

from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from pipelines.data.source import Tensors
from pipelines.task.contract import Task
from speech.data.facts import TranscriptFacts
from speech.metrics import sound_figures, word_errors
from speech.models import transcript_model
from speech.settings import Transcription
from speech.tasks.transcript import Transcript
from speech.tasks.utterances import Utterances
from speech.tasks.whisper import WhisperTranscript, WhisperUtterances

if TYPE_CHECKING:
    from pipelines.monitoring.tensorboard import Writer

SHOWN = 6  # recordings in TensorBoard each epoch


class TranscriptionTask(Task):
    """The input and output that suit the experiment's model: of CTC, or of Whisper whole. Facts: those of both."""

    facts_schema = TranscriptFacts
    hub_name = "automatic-speech-recognition"
    input: Utterances
    output: Transcript
    experiment: Transcription

    def __init__(self, experiment: Transcription, facts: dict[str, Any] | None = None):
        own = experiment.own_decoder
        self.input_class, self.output_class = (WhisperUtterances, WhisperTranscript) if own else (Utterances, Transcript)
        super().__init__(experiment, facts)

    def facts_error(self) -> str | None:
        return self.input.features_error()

    def model(self) -> keras.Model:
        width = self.input.front_end.width
        model = transcript_model(self.experiment.model, width=width, tokens=len(self.facts["tokens"]), facts=self.facts)
        if self.experiment.own_decoder:
            settings = self.experiment.evaluate
            model.width = settings.beam if settings.search == "beam" else 1
        return model

    def show_epoch(self, model: keras.Model, writer: "Writer", step: int, *, examples: Tensors, inputs: Any, targets: Any) -> None:
        """Audio, spectrograms before and after augmentation, and each hypothesis under its reference.

        Texts each epoch; sounds and figures only now and then where epochs are short.
        """
        count = min(SHOWN, len(inputs["frames"]))
        lengths, said = examples["length"].numpy(), self._references(targets, count)
        before, _ = self.prepare({name: value[:count] for name, value in examples.items()})
        answers = self.output.answer(lambda batch: model(batch, training=False), before)
        written = self.output.texts(answers["tokens"].numpy())
        blocks = ["\n".join(word_errors.lines(word_errors.align(truth.split(), guess.split()))) for truth, guess in zip(said, written)]
        writer.text("predictions on train (said, written)", "```\n" + "\n\n".join(blocks) + "\n```", step)
        if not self.drawing.due():
            return
        pictures = [[self.input.front_end.bands(batch["features"][row]).numpy()[:int(batch["frames"][row])] for batch in (before, inputs)]
                    for row in range(count)]
        clips = [examples["samples"][row].numpy()[:lengths[row]] / np.float32(32768.0) for row in range(count)]
        with self.drawing:
            writer.audio("recordings", clips, self.experiment.data.rate, step, captions=said)
            hop = self.input.front_end.seconds
            writer.figure("features", sound_figures.spectrograms(pictures, said, ["as recorded", "after augmentation"], hop=hop), step)

    def _references(self, targets: Any, count: int) -> list[str]:
        tokens, counts = targets["tokens"].numpy(), targets["token_count"].numpy()
        return [self.output.alphabet.text(tokens[row][:counts[row]].tolist()) for row in range(count)]

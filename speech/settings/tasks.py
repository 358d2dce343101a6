"""The experiments on recordings: what is learned of one, and how it is judged. Imports no TensorFlow."""

from typing import Annotated, Any, Literal

from pipelines.base.formatting import LOW, LOW_SHARE, MetricKind, declare
from pipelines.config.label_settings import problems_of_labels
from pipelines.config.registry import register_task
from pipelines.config.schema import ClassificationLoss, Evaluate, Experiment, Section, setting
from pipelines.fitting.settings import problems_at_once
from pipelines.outputs.settings import NumberEvaluate, NumberLoss, NumberTarget, number_problems
from speech.settings.models import COMMAND_MODELS, TRANSCRIPT_MODELS, Yamnet
from speech.settings.recordings import COMMAND_SOURCES, TRANSCRIPT_SOURCES, Augment, CommandData, Frontend, SpeechData, TranscriptData

declare({
    "wer": MetricKind("min", True, "Word error rate"),
    "normalized_wer": MetricKind("min", True, "Word error rate without signs"), "cer": MetricKind("min", True, "Character error rate"),
    "eer": MetricKind("min", True, "EER"), "class_eer": MetricKind("min", True, "Equal error rate of one class"),
    "real_time_factor": MetricKind("min", title="Real-time factor"), "time_factor": LOW,
    "substitution_share": LOW_SHARE, "deletion_share": LOW_SHARE, "insertion_share": LOW_SHARE,
})


class CommandEvaluate(Evaluate):
    """Evaluation of commands."""

    keyword: str | None = setting(None, "the class, such as a keyword, for which the report draws a DET curve; default: the hardest")
    piece: float | None = setting(
        None, "predict: a recording is answered in pieces of this length, each with its time (what is left at the end counts from a "
        "tenth of it on); default: by its loudest data.seconds",
        unit="s", ge=0.1, le=600.0)


class Tokens(Section):
    """What the model writes."""

    unit: Literal["characters", "subwords", "words"] = setting(
        "characters", "what an output step represents; subwords are learned from train's transcripts by sentencepiece")
    size: int = setting(128, "subwords: how many", ge=8)
    lowercase: bool = setting(True, "write transcripts in lower case")
    remove: str = setting("", "characters taken out of all transcripts, such as '.,;:!?'")


class Decode(Evaluate):
    """Evaluation of transcription."""

    search: Literal["greedy", "beam"] = setting("greedy", "the best token of each step, or a beam over texts")
    beam: int = setting(16, "beam: texts followed at the same time; Whisper's reference takes 5", ge=1, le=1000)
    batch_size: int | None = setting(32, "recordings per evaluation batch over all devices", unit="examples", ge=1)
    piece: float = setting(20.0, "predict: longer recordings are split at silence into pieces of at most this length", unit="s", ge=2.0)


class SpeechExperiment(Experiment):
    """What all tasks have."""

    frontend: Frontend = setting(Frontend, "features")
    augment: Augment = setting(Augment, "training augmentation")
    data: SpeechData

    @property
    def own_front_end(self) -> bool:
        """Whether the model has a front end of its own, that of its pretrained encoder, as its settings declare."""
        return getattr(getattr(self, "model", None), "own_front_end", False)

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems() + problems_at_once(self)
        data, frontend, augment = self.data, self.frontend, self.augment
        if self.own_front_end and frontend != Frontend():
            found.append(("frontend", "a pretrained encoder has a front end of its own, its preset's; leave this section out"))
        window, hop = round(frontend.window * data.rate), round(frontend.hop * data.rate)
        if window < 2 or hop < 1:
            found.append(("frontend.window", (
                f"{frontend.window:g} s and frontend.hop {frontend.hop:g} s are under a sample at {data.rate} Hz")))
        if frontend.fft is not None and frontend.fft < window:
            found.append(("frontend.fft", f"{frontend.fft} samples do not hold the window of {window} samples"))
        high = frontend.high or data.rate / 2
        if high > data.rate / 2:
            found.append(("frontend.high", f"{high:g} Hz is above half the sample rate, {data.rate / 2:g} Hz"))
        if frontend.low >= high:
            found.append(("frontend.low", f"{frontend.low:g} Hz is not below frontend.high = {high:g} Hz"))
        if frontend.kind == "mfcc" and frontend.coefficients > frontend.mels:
            found.append(("frontend.coefficients", f"{frontend.coefficients} coefficients cannot be made of {frontend.mels} mel bands"))
        if augment.warp and frontend.kind == "mfcc":
            found.append(("augment.warp", "frequencies are moved among mel bands, which frontend.kind: mfcc no longer has; use log_mel"))
        if augment.snr[0] > augment.snr[1]:
            found.append(("augment.snr", f"{augment.snr} is not [lowest, highest]"))
        return found


@register_task("speech.tasks.classification:Classification")
class SoundClassification(SpeechExperiment):
    """One label per recording, or several."""

    formerly = ("speech.commands",)
    task: Literal["speech.classification"]
    data: Annotated[CommandData, COMMAND_SOURCES]
    model: Annotated[Any, COMMAND_MODELS]
    loss: ClassificationLoss = setting(ClassificationLoss, "the loss")
    evaluate: CommandEvaluate = setting(CommandEvaluate, "judging")

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems() + problems_of_labels(self)
        if self.data.labels == "many" and self.data.keywords:
            found.append(("data.keywords", "they are for labels: one; leave them out"))
        if self.data.labels == "many" and self.evaluate.keyword is not None:
            found.append(("evaluate.keyword", "it is for labels: one; leave it out"))
        if self.untrained != (self.data.source == "none"):
            found.append(("data.source", "none is for model.name: yamnet, which is used as it is; other models learn from data" if not
                          self.untrained else f"{self.data.source}: model.name: yamnet learns nothing from data; set source: none, or "
                          "model: {name: kernel, preset: yamnet}"))
        if self.untrained and self.data.labels == "one":
            found.append(("data.labels", "model.name: yamnet hears several sounds at once; set labels: many"))
        return found

    @property
    def untrained(self) -> bool:
        """Whether the model is used as it is."""
        return isinstance(self.model, Yamnet)


@register_task("speech.tasks.regression:Regression")
class SoundRegression(SpeechExperiment):
    """One or several numbers per recording."""

    task: Literal["speech.regression"]
    data: Annotated[CommandData, COMMAND_SOURCES]
    model: Annotated[Any, COMMAND_MODELS]
    target: NumberTarget = setting(NumberTarget, "what is known of the numbers in data.label_key")
    loss: NumberLoss = setting(NumberLoss, "the loss")
    evaluate: NumberEvaluate = setting(NumberEvaluate, "judging")

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems() + number_problems(self)
        if self.data.source in ("synthetic", "folder", "none"):
            found.append(("data.source", "numbers come from a column of a table, or a feature of TFDS"))
        if isinstance(self.model, Yamnet):
            found.append(("model.name", "yamnet names sounds; for numbers set model: {name: kernel, preset: yamnet}"))
        found += [(f"data.{name}", "is for classes; leave it out") for name in ("keywords",) if getattr(self.data, name)]
        found += [(f"model.{name}", "is for classes; leave it out") for name in ("names",) if getattr(self.model, name, None)]
        return found


@register_task("speech.tasks.transcription:TranscriptionTask")
class Transcription(SpeechExperiment):
    """Text per recording."""

    task: Literal["speech.transcription"]
    data: Annotated[TranscriptData, TRANSCRIPT_SOURCES]
    model: Annotated[Any, TRANSCRIPT_MODELS]
    tokens: Tokens = setting(Tokens, "what the model writes")
    evaluate: Decode = setting(Decode, "judging")

    @property
    def own_decoder(self) -> bool:
        """Whether the model writes by a decoder of its own in place of CTC, as its settings declare."""
        return getattr(self.model, "own_decoder", False)

    @property
    def untrained(self) -> bool:
        """Whether the model is used as it is."""
        return self.own_decoder and self.model.trains == "nothing"

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems()
        data, model = self.data, self.model
        if data.source == "connected":
            if data.fold:
                found.append(("data.fold", "source: connected divides its data by speakers, not into folds"))
            if not data.name:
                found.append(("data.name", "source: connected joins the recordings of a tfds data set of digits, such as spoken_digit"))
            if not data.test_speakers:
                found.append(("data.test_speakers", "source: connected needs the speakers of the test split"))
        for name in ("digits", "gap", "snr"):
            low, high = getattr(data, name)
            if low > high or (name == "gap" and low < 0):
                found.append((f"data.{name}", f"[{low:g}, {high:g}] is not [lowest, highest]"))
        if data.test == 1 and not self.untrained:
            found.append(("data.test", "1 leaves nothing to train on; it is for model.name: whisper as it is; set a share such as 0.2"))
        if self.own_decoder:
            if getattr(model, "times", False) and model.trains != "nothing":
                found.append(("model.times", "transcripts have no time stamps to learn from; leave it out, or model.trains"))
            if data.source == "none" and model.trains != "nothing":
                found.append(("data.source", f"none: there is nothing to train on, and model.trains is {model.trains}"))
        elif data.source == "none":
            found.append(("data.source", "none is for model.name: whisper, which writes without training; other models learn from data"))
        if self.augment.copies:
            found.append(("augment.copies", "copies are made for speech.classification only; augment.speed does much the same here"))
        return found

"""The settings of speech: where recordings lie, the front end, models, augmentation. Imports no TensorFlow."""

import re
from typing import Annotated, Literal

from pydantic import Field

from pipelines.config.schema import ClassificationLoss, Evaluate, Experiment, FileData, Section, Share, pattern_problem, setting

Count = Annotated[int, Field(ge=1)]
MAX_SECONDS = 600.0  # some 120 MB at 48 kHz, and as much again where it is resampled


class SpeechData(FileData):
    """Where recordings lie, and what is known of them."""

    source: Literal["synthetic", "tfds", "folder", "table", "connected"] = setting(
        ..., "synthetic: recordings made by this package, not voices; tfds: a TensorFlow data set; folder: a folder per class; "
        "table: CSV, TSV, JSONL, Parquet or an LJSpeech metadata.csv naming files")
    name: str | None = setting(None, "tfds: the data set, such as spoken_digit or librispeech")
    path: str | None = setting(None, "folder or table: the folder or file", path=True)
    data_dir: str | None = setting(None, "tfds: the data directory; default as TFDS has it", path=True)
    train: str = setting("train", "the split that is trained on, of data that name it otherwise")
    rate: int = setting(16_000, "sample rate of the model; recordings of another are resampled once", unit="Hz", ge=1000, le=96_000)
    stored_rate: int | None = setting(
        None, "tfds: sample rate of the stored recordings, where the data set does not say it", unit="Hz", ge=1000, le=192_000)
    channel: Literal["mean"] | Annotated[int, Field(ge=0)] = setting(
        "mean", "recordings of several channels: their mean, or the number of one, from 0")
    max_seconds: float = setting(
        MAX_SECONDS, "a recording, or a part of one, longer than that by its header is refused undecoded, in training, judging and "
        "serving alike; of files over 48 kHz proportionally less", unit="s", gt=0.0)
    audio_key: str | None = setting(
        None, "tfds feature or table column with the recordings; default: the first of audio, speech, path, file, audio_filepath, wav")
    label_key: str | Annotated[list[str], Field(min_length=2)] = setting(
        "label", "tfds feature or table column with the class; a list of columns, one of which holds 1 in each row, the others 0")
    speaker_key: str = setting("speaker", "table column or tfds feature with the speaker, where there is one")
    start_key: str = setting("start", "table column with where in the file the recording starts, where there is one", unit="s")
    duration_key: str = setting("duration", "table column with how long the recording is, where there is one", unit="s")
    speaker_pattern: str | None = setting(
        None, "regular expression whose first group finds the speaker in a recording's name, which for files is the path from data.path's "
        "folder on: '/([0-9a-f]+)_nohash_'")
    test_names: str | None = setting(None, "regular expression: recordings whose name it matches anywhere are the test split")
    test_last: int | None = setting(None, "so many recordings, the last by name, are the test split", unit="recordings", ge=1)

    def problems_here(self) -> list[tuple[str, str]]:
        """As Experiment.problems, of this section."""
        found = super().problems_here()
        if self.source == "tfds" and not self.name:
            found.append(("data.name", "source: tfds needs the data set's name, such as spoken_digit"))
        if isinstance(self.label_key, list) and self.source != "table":
            found.append(("data.label_key", "several columns, one of which holds 1, are for source: table"))
        if self.source in ("folder", "table") and not self.path:
            found.append(("data.path", f"source: {self.source} needs a path"))
        if problem := pattern_problem("data.speaker_pattern", self.speaker_pattern):
            found.append(problem)
        if self.test_names is not None:
            try:
                re.compile(self.test_names)
            except re.error as error:
                found.append(("data.test_names", f"{self.test_names!r} is no regular expression: {error}"))
        if self.test_names is not None and self.test_last is not None:
            found.append(("data.test_last", "test_names says already which recordings are the test split; set one of the two"))
        return found


class CommandData(SpeechData):
    """Recordings of one class each."""

    source: Literal["synthetic", "tfds", "folder", "table"] = setting(  # type: ignore[assignment]
        ..., "synthetic: recordings made by this package, not voices; tfds: a TensorFlow data set; folder: a folder per class; "
        "table: CSV, TSV, JSONL or Parquet naming files")

    seconds: float = setting(
        1.0, "length that the model hears: shorter recordings stand in its middle, of longer ones the loudest part is taken", unit="s",
        gt=0.05, le=30.0)
    keywords: list[str] = setting(
        list, "the words to tell apart; recordings of all other classes become the class _unknown_. Default: every class is one")
    unknown: float = setting(
        1.0, "with keywords: recordings of _unknown_ kept in train, as a multiple of the mean keyword's", gt=0.0)


class TranscriptData(SpeechData):
    """Recordings with what is said in them."""

    source: Literal["synthetic", "tfds", "folder", "table", "connected"] = setting(
        ..., "synthetic, tfds, folder (of recordings, each with a .txt of the same name), table; connected: strings of digits joined from "
        "single recordings of a tfds data set of digits")
    text_key: str = setting("text", "tfds feature or table column with the transcript; a sequence of classes is joined by blanks")
    words: list[str] = setting(list, "tfds: what class 0, 1, ... is in words, where the text is made of classes")
    strings: int = setting(3000, "connected: strings made for training", unit="recordings", ge=1)
    test_strings: int = setting(400, "connected: strings made for the test split", unit="recordings", ge=1)
    digits: list[Count] = setting(lambda: [3, 7], "connected: [fewest, most] digits in a string", min_length=2, max_length=2)
    gap: list[float] = setting(
        lambda: [0.02, 0.4], "connected: [shortest, longest] gap between digits", unit="s", min_length=2, max_length=2)
    snr: list[float] = setting(
        lambda: [15.0, 40.0], "connected: [lowest, highest] ratio of voice to the noise laid under a string", unit="dB", min_length=2,
        max_length=2)
    test_speakers: list[str] = setting(list, "connected: speakers whose strings are the test split; none of them is trained on")
    longest: float = setting(35.0, "longer recordings are no examples of training: left out and said so", unit="s", gt=0.1)


class Frontend(Section):
    """From waveform to the features that the model sees; equal to librosa's melspectrogram, power_to_db and mfcc."""

    kind: Literal["log_mel", "mfcc"] = setting("log_mel", "log-mel spectrogram, or mel-frequency cepstral coefficients made of it")
    window: float = setting(0.025, "length of the Hann window", unit="s", gt=0.0, le=1.0)
    hop: float = setting(0.010, "time from frame to frame", unit="s", gt=0.0, le=1.0)
    fft: int | None = setting(
        None, "length of the Fourier transform; default: the power of two that holds the window", unit="samples", ge=16)
    mels: int = setting(40, "mel bands", ge=4, le=256)
    low: float = setting(20.0, "lowest frequency of the mel bands", unit="Hz", ge=0.0)
    high: float | None = setting(None, "highest frequency of the mel bands; default: half the sample rate", unit="Hz", gt=0.0)
    coefficients: int = setting(20, "mfcc: coefficients kept", ge=2)
    top_db: float | None = setting(
        80.0, "values lower than this below the recording's loudest are raised to it; null: none", unit="dB", gt=0.0)
    normalize: Literal["train", "recording", "none"] = setting(
        "train", "each band to mean 0 and deviation 1 over train, or to mean 0 over the recording (and train's deviation); or as it is")


class Augment(Section):
    """Training augmentation; each random choice depends on seed, epoch and example only."""

    shift: float = setting(0.0, "largest shift in time, to both sides", unit="s", ge=0.0)
    speed: float = setting(
        0.0, "largest change of speed (and so of pitch), as a share: 0.1 plays at 0.9 to 1.1", unit="share", ge=0.0, lt=0.5)
    gain: float = setting(0.0, "largest change of loudness, up and down", unit="dB", ge=0.0, le=40.0)
    noise: float = setting(0.0, "share of recordings under which noise is laid", unit="share", ge=0.0, le=1.0)
    noise_folder: str | None = setting(
        None, "folder of recordings of noise, the first minute of each, or less where all come to over an hour; default: white to brown "
        "noise, made", path=True)
    snr: list[float] = setting(lambda: [5.0, 30.0], "[lowest, highest] ratio of voice to noise", unit="dB", min_length=2, max_length=2)
    warp: float = setting(
        0.0, "vocal tract length perturbation (Jaitly and Hinton 2013): largest change of all frequencies, as a share, at the same tempo; "
        "for speakers that train has not", unit="share", ge=0.0, lt=0.5)
    frequency_masks: int = setting(0, "SpecAugment (Park et al. 2019): masks over bands", ge=0, le=10)
    frequency_width: int = setting(8, "most bands of a mask", unit="bands", ge=1)
    time_masks: int = setting(0, "SpecAugment: masks over frames", ge=0, le=20)
    time_width: float = setting(0.2, "longest mask over frames", unit="s", gt=0.0)
    copies: int = setting(
        0, "commands: further copies of each training recording, stretched and shifted in pitch once by librosa and kept (slow to make)",
        ge=0, le=20)
    pitch: float = setting(2.0, "copies: largest shift of pitch, up and down", unit="semitones", ge=0.0, le=12.0)
    stretch: float = setting(0.1, "copies: largest change of tempo, as a share", unit="share", ge=0.0, lt=0.5)


class DsCnn(Section):
    """Depthwise separable convolutions, after Zhang et al. 2017, "Hello Edge" (arXiv:1711.07128)."""

    name: Literal["ds_cnn"]
    width: int = setting(64, "filters of each convolution", ge=4)
    depth: int = setting(4, "separable blocks after the first convolution", ge=1, le=20)
    dropout: Share = setting(0.2, "dropout before the last layer", unit="share")


class Broadcast(Section):
    """Broadcasted residual learning, after Kim et al. 2021 (arXiv:2106.04140): convolutions over bands, residuals over time."""

    name: Literal["broadcast"]
    width: int = setting(16, "channels of the first stage; the others have 1, 1.5, 2 and 2.5 times as many", ge=4)
    depth: list[Count] = setting(lambda: [2, 2, 4, 4], "blocks of the four stages", min_length=4, max_length=4)
    dropout: Share = setting(0.1, "dropout in the blocks", unit="share")


class Quartz(Section):
    """Separable convolutions over time with residuals, after QuartzNet (Kriman et al. 2019, arXiv:1910.10261)."""

    name: Literal["quartz"]
    width: int = setting(128, "channels", ge=8)
    kernels: list[Annotated[int, Field(ge=3)]] = setting(
        lambda: [11, 13, 15, 17], "length of the convolutions of each block, odd", unit="frames", min_length=1)
    repeat: int = setting(2, "separable convolutions in a block", ge=1, le=10)
    stride: int = setting(2, "frames that become one step of the output", unit="frames", ge=1, le=8)
    dropout: Share = setting(0.1, "dropout in the blocks", unit="share")


class Conformer(Section):
    """Attention and convolution, after Gulati et al. 2020 (arXiv:2005.08100); four frames become one step."""

    name: Literal["conformer"]
    width: int = setting(144, "channels", ge=16)
    depth: int = setting(4, "blocks", ge=1, le=40)
    heads: int = setting(4, "attention heads", ge=1)
    kernel: int = setting(15, "length of the convolution, odd", unit="steps", ge=3)
    dropout: Share = setting(0.1, "dropout in the blocks", unit="share")


CommandModel = Annotated[DsCnn | Broadcast, Field(discriminator="name")]
TranscriptModel = Annotated[Quartz | Conformer, Field(discriminator="name")]


class CommandEvaluate(Evaluate):
    """Judging commands."""

    keyword: str | None = setting(None, "the class for which the report draws a DET curve; default: the hardest")


class Tokens(Section):
    """What the model writes."""

    unit: Literal["characters", "subwords", "words"] = setting(
        "characters", "what a step of the output stands for; subwords are learned from train's transcripts by sentencepiece")
    size: int = setting(128, "subwords: how many", ge=8)
    lowercase: bool = setting(True, "write transcripts in lower case")
    remove: str = setting("", "characters taken out of all transcripts, such as '.,;:!?'")


class Decode(Evaluate):
    """Judging transcription."""

    search: Literal["greedy", "beam"] = setting("greedy", "the best token of each step, or a beam over texts")
    beam: int = setting(16, "beam: texts followed at the same time", ge=1, le=1000)
    batch_size: int | None = setting(32, "recordings per evaluation batch over all devices", unit="examples", ge=1)
    piece: float = setting(20.0, "predict: longer recordings are split at silence into pieces of at most this length", unit="s", ge=2.0)


class SpeechExperiment(Experiment):
    """What both tasks have."""

    frontend: Frontend = setting(Frontend, "features")
    augment: Augment = setting(Augment, "training augmentation")
    data: SpeechData

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems()
        data, frontend, augment = self.data, self.frontend, self.augment
        found += data.problems_here()
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


class Commands(SpeechExperiment):
    """One label per recording."""

    task: Literal["speech.commands"]
    data: CommandData
    model: CommandModel
    loss: ClassificationLoss = setting(ClassificationLoss, "the loss")
    evaluate: CommandEvaluate = setting(CommandEvaluate, "judging")


class Transcription(SpeechExperiment):
    """Text per recording."""

    task: Literal["speech.transcription"]
    data: TranscriptData
    model: TranscriptModel
    tokens: Tokens = setting(Tokens, "what the model writes")
    evaluate: Decode = setting(Decode, "judging")

    def problems(self) -> list[tuple[str, str]]:
        found = super().problems()
        data, model = self.data, self.model
        if data.source == "connected":
            if not data.name:
                found.append(("data.name", "source: connected joins the recordings of a tfds data set of digits, such as spoken_digit"))
            if not data.test_speakers:
                found.append(("data.test_speakers", "source: connected needs the speakers of the test split"))
        for name in ("digits", "gap", "snr"):
            low, high = getattr(data, name)
            if low > high or (name == "gap" and low < 0):
                found.append((f"data.{name}", f"[{low:g}, {high:g}] is not [lowest, highest]"))
        lengths = model.kernels if model.name == "quartz" else [model.kernel]
        for length in lengths:
            if length % 2 == 0:
                found.append((f"model.{'kernels' if model.name == 'quartz' else 'kernel'}", f"{length} is not odd"))
        if model.name == "conformer" and model.width % model.heads:
            found.append(("model.width", f"{model.width} is not a multiple of model.heads = {model.heads}"))
        if self.augment.copies:
            found.append(("augment.copies", "copies are made for speech.commands only; augment.speed does much the same here"))
        return found


EXPERIMENTS = {"speech.commands": Commands, "speech.transcription": Transcription}
QUICK_START = "speech/quickstart"

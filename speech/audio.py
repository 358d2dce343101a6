"""Sound files of every kind that libsndfile reads (WAV of any width, FLAC, MP3, OGG, AIFF, ...) as mono samples at the model's rate.

Resampling is soxr's, at high quality. Every failure is a DataError in one line that says what is wrong with the file.
"""

import io
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipelines.errors import DataError
from pipelines.regular import other_kind

SUFFIXES = (".wav", ".flac", ".mp3", ".ogg", ".opus", ".oga", ".aif", ".aiff", ".au", ".w64", ".caf")
UNREAD = (".m4a", ".aac", ".wma", ".amr", ".webm", ".mp4", ".3gp")  # recordings too, so that they are named as bad and never passed over


@dataclass(frozen=True)
class Header:
    """What a file says of itself: samples a channel, Hz, channels."""

    frames: int
    rate: int
    channels: int

    @property
    def seconds(self) -> float:
        return self.frames / self.rate


def header(path: str | Path) -> Header:
    """Reads the header alone. Raises DataError."""
    import soundfile

    _check_file(path)
    try:
        info = soundfile.info(os.fspath(path))
    except (soundfile.LibsndfileError, OSError, RuntimeError) as error:
        raise DataError(_why(Path(path), error)) from error
    return Header(info.frames, info.samplerate, info.channels)


def read(file: str | Path | bytes, rate: int, *, channel: str | int = "mean", start: float = 0.0, duration: float | None = None,
         ) -> np.ndarray:
    """A recording, or a part of one, float32 [samples], full scale -1 to 1.

    Args:
        file: a path, or the bytes of a file.
        rate: samples a second of the result, Hz; another rate is resampled.
        channel: "mean" of the channels, or the number of one.
        start, duration: of the part, s; None: to the end.

    Raises:
        DataError: no sound file, broken, empty, not finite, no such channel, or a part that is not there.
    """
    import soundfile

    place = Path(file) if isinstance(file, (str, Path)) else None
    if place is not None:
        _check_file(place)
    try:
        with soundfile.SoundFile(io.BytesIO(file) if isinstance(file, bytes) else os.fspath(file)) as sound:
            stored = sound.samplerate
            first = round(start * stored)
            if first:
                if first >= sound.frames:
                    raise DataError(f"starts at {start:g} s, but the file lasts {sound.frames / stored:g} s")
                sound.seek(first)
            frames = -1 if duration is None else round(duration * stored)
            if frames > sound.frames - first + round(0.05 * stored):
                raise DataError(f"is to last from {start:g} to {start + (duration or 0):g} s, but the file lasts "
                                f"{sound.frames / stored:g} s")
            samples = sound.read(frames, dtype="float32", always_2d=True)
            expected = sound.frames - first if frames < 0 else min(frames, sound.frames - first)
    except (soundfile.LibsndfileError, OSError, RuntimeError) as error:
        raise DataError(_why(place, error)) from error
    if not len(samples):
        raise DataError("holds no samples")
    if len(samples) < expected - round(0.1 * stored):
        raise DataError(f"breaks off: {len(samples) / stored:.2f} s of the {expected / stored:.2f} s that its header promises")
    mono = one_channel(samples, channel)
    if not np.isfinite(mono).all():
        raise DataError("holds samples that are no finite numbers")
    return resampled(mono, stored, rate)


def one_channel(samples: np.ndarray, channel: str | int) -> np.ndarray:
    """[samples, channels] to [samples]."""
    if channel == "mean":
        return samples[:, 0] if samples.shape[1] == 1 else samples.mean(axis=1, dtype=np.float32)
    if int(channel) >= samples.shape[1]:
        there = f"{samples.shape[1]} channel{'s' if samples.shape[1] > 1 else ''}"
        raise DataError(f"has {there}, so there is no channel {channel} (data.channel)")
    return samples[:, int(channel)]


def resampled(samples: np.ndarray, stored: int, rate: int) -> np.ndarray:
    """float32 [samples] at another rate, of `resampled_length` samples."""
    if stored == rate:
        return np.ascontiguousarray(samples, np.float32)
    import soxr

    made = soxr.resample(np.asarray(samples, np.float32), stored, rate, quality="HQ")
    wanted = resampled_length(len(samples), stored, rate)
    return np.ascontiguousarray(np.pad(made, (0, max(0, wanted - len(made))))[:wanted], np.float32)


def resampled_length(samples: int, stored: int, rate: int) -> int:
    """Samples that a recording has at another rate, at least 1."""
    return samples if stored == rate else max(1, round(samples * rate / stored))


def _check_file(path: str | Path) -> None:
    kind = other_kind(path)
    if kind:
        raise DataError(f"is {kind}; only regular files are read")


def _why(path: Path | None, error: Exception) -> str:
    """What is wrong with a file that libsndfile does not read, in words for its owner."""
    if path is not None:
        if not path.exists():
            return "the file is not there"
        if not os.access(path, os.R_OK):
            return "the file may not be read (permission denied)"
        if not path.stat().st_size:
            return "the file is empty"
        if path.suffix.lower() in UNREAD:
            return f"{path.suffix[1:].upper()} is not read here; convert it to WAV or FLAC"
    text = str(getattr(error, "error_string", "") or error).strip().rstrip(".")
    return f"no sound file that can be read ({text})"

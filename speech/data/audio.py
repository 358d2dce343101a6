"""Sound files of every kind that libsndfile reads (WAV of any width, FLAC, MP3, OGG, AIFF, ...) as mono samples at the model's rate.

Resampling is soxr's, at high quality. Every failure is a DataError in one line that says what is wrong.
"""

import io
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.base.errors import DataError
from pipelines.base.inside import other_kind
from speech.settings import MAX_SECONDS

SUFFIXES = (".wav", ".flac", ".mp3", ".ogg", ".opus", ".oga", ".aif", ".aiff", ".au", ".w64", ".caf")
UNREAD = (".m4a", ".aac", ".wma", ".amr", ".webm", ".mp4", ".3gp")  # listed so that they are reported as unreadable, not ignored

RATES = (1000, 768_000)  # Hz; from telephones to bat recorders; a header of 1 Hz would be resampled to hours
CHANNELS = 64
USUAL_RATE = 48_000  # Hz; files of higher rates may last proportionally less
STRETCH = 1 << 18  # samples of each channel decoded at a time
LONG = 10_000_000  # samples of all channels that take about as long to decode as others should wait: some 0.2 s
SMALL = 1 << 20  # bytes of a compressed file whose length is looked up; of samples as they are 16 times as many
TAGS = 100  # of an MP3 file, at its beginning
SILENT = 10 ** (-60 / 20)  # peak, as a share of full scale, below which nothing is audible
CHUNKS = 1000  # of a WAV file that are searched for its samples


@dataclass(frozen=True)
class Header:
    """A sound file's header: samples a channel, Hz, channels."""

    frames: int
    rate: int
    channels: int

    @property
    def seconds(self) -> float:
        return self.frames / self.rate


class _Content(io.BytesIO):
    """The bytes of a file. Where a broken header makes libsndfile seek to before the beginning, it stays where it is: an exception would be
    a traceback on standard error, which nobody can catch."""

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        with suppress(ValueError, OverflowError):
            return super().seek(offset, whence)
        return self.tell()


def _opened(file: str | Path | bytes) -> "str | _Content":
    """What soundfile opens. The texts of an MP3 file's ID3 tags are left out: its decoder writes a line to standard error for each that it
    does not like, hundreds of MB for a file of 25."""
    if not isinstance(file, bytes):
        with open(file, "rb") as opened:
            if opened.read(3) != b"ID3":
                return os.fspath(file)
            file = b"ID3" + opened.read()
    place = 0
    parts: list[bytes] = []
    while file[place:place + 3] == b"ID3" and place + 10 <= len(file) and len(parts) < TAGS:
        size = sum((byte & 127) << shift for byte, shift in zip(file[place + 6:place + 10], (21, 14, 7, 0)))
        parts.append(file[place:place + 10] + bytes(min(size, len(file) - place - 10)))
        place += 10 + size
    return _Content(b"".join([*parts, file[place:]]) if parts else file)


def header(file: str | Path | bytes) -> Header:
    """Reads the header alone, of a path or of the bytes of a file. Raises DataError."""
    import soundfile

    place = Path(file) if isinstance(file, (str, Path)) else None
    if place is not None:
        _check_file(place)
    try:
        info = soundfile.info(_opened(file))
    except (soundfile.LibsndfileError, OSError, RuntimeError) as error:
        raise DataError(_why(place, error)) from error
    return Header(info.frames, info.samplerate, info.channels)


def is_long(content: bytes) -> bool:
    """Whether a file takes long to decode, by its bytes and header: some 0.2 s or more."""
    if len(content) > SMALL * (16 if content[:4] in (b"RIFF", b"FORM") else 1):
        return True
    try:
        info = header(content)
    except DataError:
        return False
    return info.frames * info.channels > LONG


def check_header(info: Header, longest: float, frames: int | None = None) -> None:
    """Raises DataError where decoding what a header promises would take too much memory.

    Args:
        longest: s.
        frames: samples a channel to decode; None: all.
    """
    frames = info.frames if frames is None else frames
    if not RATES[0] <= info.rate <= RATES[1]:
        raise DataError(f"its header says {info.rate:,} Hz; {RATES[0]:,} to {RATES[1]:,} Hz are read")
    if info.channels > CHANNELS:
        raise DataError(f"its header says {info.channels:,} channels; {CHANNELS} at most are read")
    if frames > longest * min(info.rate, USUAL_RATE):
        raise DataError(f"lasts {frames / info.rate:,.0f} s by its header, over the {longest * min(1, USUAL_RATE / info.rate):g} s that "
                        "are decoded at once (data.max_seconds); cut it into parts")


def read(file: str | Path | bytes, rate: int, *, channel: str | int = "mean", start: float = 0.0, duration: float | None = None,
         longest: float = MAX_SECONDS) -> np.ndarray:
    """A recording, or a part of one, float32 [samples], full scale -1 to 1.

    Args:
        file: a path, or the bytes of a file.
        rate: samples a second of the result, Hz; another rate is resampled.
        channel: "mean" of the channels, or the number of one.
        start, duration: of the part, s; None: to the end.
        longest: s that may be decoded.

    Raises:
        DataError: no sound file, broken, empty, not finite, too long by its header, no such channel, or a part that is not there.
    """
    import soundfile

    place = Path(file) if isinstance(file, (str, Path)) else None
    if place is not None:
        _check_file(place)
    try:
        with soundfile.SoundFile(_opened(file)) as sound:
            stored = sound.samplerate
            check_header(Header(0, stored, sound.channels), longest)
            first = round(start * stored)
            if first:
                if first >= sound.frames:
                    raise DataError(f"starts at {start:g} s, but the file lasts {sound.frames / stored:g} s")
                sound.seek(first)
            frames = -1 if duration is None else round(duration * stored)
            if frames > sound.frames - first + round(0.05 * stored):
                raise DataError(f"should last from {start:g} to {start + (duration or 0):g} s, but the file lasts "
                                f"{sound.frames / stored:g} s")
            expected = sound.frames - first if frames < 0 else min(frames, sound.frames - first)
            check_header(Header(sound.frames, stored, sound.channels), longest, expected)
            mono = _mono(sound, expected, channel)
    except (soundfile.LibsndfileError, OSError, RuntimeError) as error:
        raise DataError(_why(place, error)) from error
    if not len(mono):
        raise DataError("holds no samples")
    promised = expected if duration is not None or start else max(expected, _promised(file))
    if len(mono) < promised - round(0.1 * stored):
        raise DataError(f"breaks off: {len(mono) / stored:.2f} s of the {promised / stored:.2f} s that its header promises")
    if not np.isfinite(mono).all():
        raise DataError("holds samples that are not finite numbers")
    return resampled(mono, stored, rate)


def _mono(sound: Any, frames: int, channel: str | int) -> np.ndarray:
    """The next `frames` of an open file, float32; a stretch at a time, so that many channels take no more memory than one."""
    parts, left, loudest = [], frames, 0.0
    while left > 0:
        samples = sound.read(min(STRETCH, left), dtype="float32", always_2d=True)
        if not len(samples):
            break
        loudest = max(loudest, float(np.abs(samples).max()))
        parts.append(one_channel(samples, channel))
        left -= len(samples)
    mono = np.concatenate(parts) if parts else np.zeros(0, np.float32)
    if channel == "mean" and loudest >= 10 * SILENT and np.abs(mono).max() < SILENT:  # one is another upside down
        raise DataError(f"its {sound.channels} channels cancel one another: their mean is silent; data.channel: 0 takes the first")
    return mono


def _promised(file: str | Path | bytes) -> int:
    """Samples a channel that the header of a WAV file promises, whatever is there; 0 for other files, and where it leaves them open.

    libsndfile believes the file's size before its header.
    """
    with io.BytesIO(file) if isinstance(file, bytes) else open(file, "rb") as opened:
        start = opened.read(12)
        if start[:4] != b"RIFF" or start[8:] != b"WAVE":
            return 0
        block = 0
        for _ in range(CHUNKS):
            name, size = opened.read(4), int.from_bytes(opened.read(4), "little")
            if name == b"data":
                # a recorder that writes to a pipe does not know the size
                left_open = size == 0 or min(abs(size - (1 << 31)), (1 << 32) - size) <= 1 << 12
                return 0 if left_open or not block else size // block
            if len(name) < 4 or not name.strip(b"\0"):
                return 0
            content = opened.read(16) if name == b"fmt " else b""
            if len(content) >= 14:
                block = int.from_bytes(content[12:14], "little")
            opened.seek(size + size % 2 - len(content), os.SEEK_CUR)
    return 0


def loud_span(file: str | Path) -> float:
    """Seconds of a recording, at most its first 30, that hold all but 1 % of its energy. Raises DataError as read."""
    info = header(file)
    samples = read(file, info.rate, duration=min(30.0, info.seconds))
    step = max(1, info.rate // 100)
    energy = np.cumsum(np.add.reduceat(np.square(samples - samples.mean(), dtype=np.float64), np.arange(0, len(samples), step)))
    first, last = np.searchsorted(energy, [0.005 * energy[-1], 0.995 * energy[-1]])
    return float(last - first + 1) * step / info.rate


def one_channel(samples: np.ndarray, channel: str | int) -> np.ndarray:
    """[samples, channels] to [samples]."""
    if channel == "mean":
        with np.errstate(invalid="ignore", over="ignore"):  # of what is not finite; the caller says so
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

    converted = soxr.resample(np.asarray(samples, np.float32), stored, rate, quality="HQ")
    wanted = resampled_length(len(samples), stored, rate)
    return np.ascontiguousarray(np.pad(converted, (0, max(0, wanted - len(converted))))[:wanted], np.float32)


def resampled_length(samples: int, stored: int, rate: int) -> int:
    """Samples that a recording has at another rate, at least 1."""
    return samples if stored == rate else max(1, round(samples * rate / stored))


def _check_file(path: str | Path) -> None:
    kind = other_kind(path)
    if kind:
        raise DataError(f"is {kind}; only regular files are read")


def _why(path: Path | None, error: Exception) -> str:
    """Why libsndfile does not read a file, for its owner."""
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
    return f"not a readable sound file ({text})"

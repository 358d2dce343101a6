"""Recordings synthesised by this package, for a quick start without data: a few vowels and hisses in a row, NOT voices.

Each word is a sequence of sounds made of harmonics shaped by formants (or of filtered noise); each speaker has a pitch, a
length of vocal tract, a tempo and a noise floor. A model trained on them works on nothing else.
"""

from dataclasses import dataclass

import numpy as np

WORDS = ("bada", "sushi", "lolo", "mimi", "kata", "noun", "esse", "yuri")
RATE = 8000  # Hz
SPEAKERS = 10
TAKES = 12  # recordings of each word and speaker

# formants in Hz and bandwidths share; approximating textbook values for vowels
_FORMANTS = {"a": (730, 1090, 2440), "e": (530, 1840, 2480), "i": (270, 2290, 3010), "o": (570, 840, 2410), "u": (300, 870, 2240),
             "m": (250, 1000, 2200), "n": (250, 1500, 2500), "l": (360, 1300, 2700), "r": (420, 1200, 1600), "y": (280, 2100, 2900)}
_HISS = {"s": (3000, 3900), "h": (1000, 2500)}
_STOPS = "bdkt"


@dataclass(frozen=True)
class Recording:
    """One recording: float32 samples at RATE, the word, the speaker, and which take."""

    samples: np.ndarray
    word: str
    speaker: str
    take: int


def say(text: str, speaker: int, rng: np.random.Generator) -> np.ndarray:
    """A text of the letters above, spoken by a synthetic speaker; float32 samples at RATE, without noise."""
    own = np.random.default_rng(1000 + speaker)
    pitch, tract, tempo = own.uniform(90, 240), own.uniform(0.85, 1.15), own.uniform(0.8, 1.25)
    pitch, tempo = pitch * rng.uniform(0.93, 1.07), tempo * rng.uniform(0.9, 1.1)
    parts: list[np.ndarray] = []
    for letter in text:
        length = int(RATE * tempo * rng.uniform(0.9, 1.15) * (0.035 if letter in _STOPS else 0.08 if letter in _HISS else 0.1))
        if letter == " ":
            parts.append(np.zeros(int(RATE * rng.uniform(0.08, 0.2))))
        elif letter in _STOPS:
            burst = rng.standard_normal(length) * np.exp(-np.arange(length) / (0.004 * RATE))
            burst[: length // 2] *= 0.02
            parts.append(np.roll(burst, length // 2) * 0.4)
        elif letter in _HISS:
            spectrum = np.fft.rfft(rng.standard_normal(length))
            hertz = np.fft.rfftfreq(length, 1 / RATE) / tract
            low, high = _HISS[letter]
            spectrum *= (hertz > low) & (hertz < high)
            noise = np.fft.irfft(spectrum, length)
            parts.append(0.25 * noise / max(np.abs(noise).max(), 1e-9))
        else:
            parts.append(_voiced(_FORMANTS[letter], length, pitch * rng.uniform(0.97, 1.03), tract, 0.6 if letter in "mn" else 1.0))
    return _smoothed(parts)


def _voiced(formants: tuple[int, ...], length: int, pitch: float, tract: float, loud: float) -> np.ndarray:
    time = np.arange(length) / RATE
    harmonics = np.arange(1, int(RATE / 2 / pitch))
    hertz = harmonics * pitch
    gain = np.zeros(len(hertz))
    for formant, weight in zip(formants, (1.0, 0.6, 0.3)):
        gain += weight / (1 + ((hertz - formant * tract) / (60 + 0.06 * formant)) ** 2)
    glide = 1 + 0.03 * np.sin(2 * np.pi * 3 * time)
    phases = 2 * np.pi * pitch * np.cumsum(glide) / RATE
    return loud * 0.5 * (gain[:, None] * np.sin(harmonics[:, None] * phases[None])).sum(0) / 2.0


def _smoothed(parts: list[np.ndarray]) -> np.ndarray:
    """Parts in a row, each fading in and out over 8 ms."""
    fade = int(0.008 * RATE)
    recordings = []
    for part in parts:
        part = part.copy()
        ends = min(fade, len(part) // 2)
        ramp = np.linspace(0, 1, ends, endpoint=False)
        part[:ends] *= ramp
        part[len(part) - ends:] *= ramp[::-1]
        recordings.append(part)
    return np.concatenate(recordings).astype(np.float32) if recordings else np.zeros(0, np.float32)


def commands() -> list[Recording]:
    """Every word by every speaker, TAKES times each; deterministic."""
    recordings = []
    for speaker in range(SPEAKERS):
        rng = np.random.default_rng(speaker)
        for word in WORDS:
            recordings += [Recording(_recorded(say(word, speaker, rng), rng), word, f"made{speaker}", take) for take in range(TAKES)]
    return recordings


def sentences(count: int = 400, words: tuple[int, int] = (2, 5)) -> list[Recording]:
    """Sentences of some words by every speaker in turn; deterministic."""
    rng = np.random.default_rng(4711)
    spoken = []
    for number in range(count):
        text = " ".join(rng.choice(WORDS, rng.integers(words[0], words[1] + 1)))
        spoken.append(Recording(_recorded(say(text, number % SPEAKERS, rng), rng), text, f"made{number % SPEAKERS}", number // SPEAKERS))
    return spoken


def _recorded(samples: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """With silence around it, some noise, and a random loudness."""
    before, after = (int(RATE * rng.uniform(0.02, 0.15)) for _ in range(2))
    samples = np.pad(samples, (before, after))
    samples = samples + rng.standard_normal(len(samples)) * 10 ** rng.uniform(-3.2, -2.2)
    return (samples * 10 ** rng.uniform(-0.5, 0.0) * 0.5).astype(np.float32)

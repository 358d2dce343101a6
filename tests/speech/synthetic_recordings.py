"""Synthetic recordings, in files of every kind."""

from pathlib import Path

import numpy as np
import soundfile


def tone(seconds: float = 0.5, rate: int = 8000, hertz: float = 440.0, seed: int = 0) -> np.ndarray:
    """A tone that swells, with a little noise, float32 [samples]."""
    time = np.arange(round(seconds * rate)) / rate
    noise = np.random.default_rng(seed).standard_normal(len(time)) * 0.003
    return (0.4 * np.sin(2 * np.pi * hertz * time) * np.hanning(len(time)) + noise).astype(np.float32)


def write(path: Path, samples: np.ndarray, rate: int = 8000, **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, rate, **options)
    return path


def class_folders(root: Path, counts: dict[str, int], *, rate: int = 8000, suffix: str = ".wav") -> Path:
    """A folder per class; each class a pitch of its own, speaker a, b or c in the name."""
    for place, (name, count) in enumerate(sorted(counts.items())):
        for number in range(count):
            write(root / name / f"{'abc'[number % 3]}_{number}{suffix}", tone(0.3 + 0.02 * number, rate, 300 + 250 * place, number), rate)
    return root

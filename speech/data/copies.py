"""Further copies of training recordings, stretched and shifted in pitch by librosa: made once and cached with the rest.

Unlike augment.speed these change tempo and pitch separately, and roughly keep the formants only within a semitone or two; they cost
about 20 ms for each second of each recording.
"""

from dataclasses import replace

import numpy as np

from pipelines.data.source import Source
from speech.data.features import to_int16
from speech.data.recordings import Recordings
from speech.settings import Augment


def with_copies(train: Source, settings: Augment, rate: int, seed: int) -> Recordings:
    """Train followed by `settings.copies` further versions of each recording.

    Copy c of recording n is a function of (seed, n, c) alone.
    """
    assert isinstance(train, Recordings)
    count, versions = len(train), settings.copies + 1
    numbers = np.tile(np.arange(count), versions)
    wide = train.subset(numbers)
    facts = wide.facts
    names = [name if place < count else f"{name} copy {place // count}" for place, name in enumerate(facts.names)]
    fields = {name: value for name, value in wide.fields.items() if name != "label"}

    def load(number: int) -> np.ndarray:
        samples = train.load(number % count)
        if number < count:
            return samples
        import librosa

        rng = np.random.default_rng([seed, number % count, number // count])
        steps, tempo = rng.uniform(-settings.pitch, settings.pitch), 1.0 + rng.uniform(-settings.stretch, settings.stretch)
        wave = samples.astype(np.float32) / 32768.0
        size = min(1024, 1 << max(6, len(wave).bit_length() - 2))
        wave = librosa.effects.time_stretch(wave, rate=tempo, n_fft=size)
        return to_int16(librosa.effects.pitch_shift(wave, sr=rate, n_steps=steps, n_fft=size))

    identity = f"{train.fingerprint()} copies {settings.copies} {settings.pitch} {settings.stretch} {seed}"
    return Recordings(load, replace(facts, names=names, lengths=None), identity, fields=fields, labels=wide.label, groups=wide.groups,
                      stamp=train.stamp())

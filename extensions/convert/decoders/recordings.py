"""A sound file as a converted command model takes it, with soundfile, soxr and numpy alone: its loudest window as a log-mel spectrogram, as
speech.data.features has it. `quartet export` puts a copy of this file beside the model, so it imports nothing of this project."""

import numpy as np
import soundfile

NEEDS = ["soundfile", "soxr"]
FLOOR = 1e-10  # smallest power


def decode(settings, given):
    """The path of a sound file, or an open file, as [1, frames, mels] float32."""
    samples, rate = soundfile.read(given, dtype="float32", always_2d=True)
    channel = settings["channel"]
    mono = samples.mean(axis=1, dtype=np.float32) if channel == "mean" else samples[:, channel]
    if rate != settings["rate"]:
        import soxr

        mono = soxr.resample(mono, rate, settings["rate"], quality="HQ")
    return features(settings, mono)


def features(settings, mono):
    """Samples at the model's rate, float32 of full scale -1 to 1, as [1, frames, mels] float32."""
    window = _window(np.clip(np.rint(mono * 32768.0), -32768, 32767).astype(np.int64), settings["window"])
    waveform = np.pad(window.astype(np.float32) / 32768.0, (0, settings["silence"]))
    return _normalised(_decibels(waveform, settings), settings)[None].astype(np.float32)


def _window(samples, window):
    """Its loudest part of so many samples, less its mean; a shorter recording stands in the middle of silence."""
    count = max(len(samples), 1)
    mean = (2 * samples.sum() + count) // (2 * count)
    samples = np.clip(samples - mean, -32768, 32767)
    if len(samples) > window:
        energy = np.concatenate([[0], np.cumsum(samples * samples)])
        start = int(np.argmax(energy[window:] - energy[:-window]))
        return samples[start:start + window]
    before = (window - len(samples)) // 2
    return np.pad(samples, (before, window - len(samples) - before))


def _decibels(waveform, settings):
    fft, hop, length = settings["fft"], settings["hop"], settings["frame"]
    hann = np.zeros(fft)
    hann[(fft - length) // 2:][:length] = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(length) / length)
    padded = np.pad(waveform.astype(np.float64), fft // 2)
    frames = np.lib.stride_tricks.sliding_window_view(padded, fft)[::hop] * hann
    power = np.abs(np.fft.rfft(frames)) ** 2
    if "triangles" not in settings:
        settings["triangles"] = _mel(settings)
    decibels = 10.0 * np.log10(np.maximum(power @ settings["triangles"], FLOOR))
    if settings["top_db"] is not None:
        decibels = np.maximum(decibels, decibels.max() - settings["top_db"])
    return decibels


def _normalised(features, settings):
    facts = settings["facts"]
    if settings["normalize"] == "recording":
        features = features - features.mean(axis=0)
    return features if settings["normalize"] == "none" else (features - np.array(facts["mean"])) / np.array(facts["std"])


def _mel(settings):
    """Triangles of equal area on Slaney's mel scale, [fft / 2 + 1, mels]."""
    edges = _hertz(np.linspace(_mels(settings["low"]), _mels(settings["high"]), settings["mels"] + 2))
    bins = np.arange(settings["fft"] // 2 + 1) * settings["rate"] / settings["fft"]
    rising = (bins[:, None] - edges[None, :-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[None, 2:] - bins[:, None]) / (edges[2:] - edges[1:-1])
    return np.maximum(0.0, np.minimum(rising, falling)) * 2.0 / (edges[2:] - edges[:-2])


def _mels(hertz):
    """Linear below 1,000 Hz, 15 mels there, and logarithmic above: 27 mels for a factor of 6.4."""
    return hertz * 3 / 200 if hertz < 1000 else 15 + 27 * np.log(hertz / 1000) / np.log(6.4)


def _hertz(mels):
    return np.where(mels < 15, mels * 200 / 3, 1000 * np.exp((mels - 15) / 27 * np.log(6.4)))

"""Sound files of every kind; what is wrong with a file is said in a line."""

import numpy as np
import pytest
import soundfile

from pipelines.base.errors import DataError
from speech.data import audio
from tests.speech.synthetic_recordings import tone, write


@pytest.mark.parametrize(("suffix", "subtype", "close"), [
    (".wav", "PCM_U8", 2e-2), (".wav", "PCM_16", 1e-4), (".wav", "PCM_24", 1e-6), (".wav", "PCM_32", 1e-6), (".wav", "FLOAT", 1e-7),
    (".wav", "DOUBLE", 1e-7), (".flac", "PCM_16", 1e-4), (".flac", "PCM_24", 1e-6), (".ogg", "VORBIS", 0.1), (".mp3", None, 0.2),
])
def test_every_kind_of_file(tmp_path, suffix, subtype, close):
    samples = tone(rate=16_000)
    path = write(tmp_path / f"one{suffix}", samples, 16_000, **({"subtype": subtype} if subtype else {}))
    found = audio.read(path, 16_000)
    assert found.dtype == np.float32 and audio.header(path).rate == 16_000
    if suffix != ".mp3":  # whose coder adds a little at the ends
        assert len(found) == len(samples)
    size = min(len(found), len(samples))
    assert np.abs(found[:size] - samples[:size]).max() <= close


def test_resampled_as_long_as_promised_and_in_tune(tmp_path):
    for stored, rate in ((44_100, 16_000), (8000, 16_000), (11_025, 8000), (48_000, 8000)):
        samples = tone(0.731, stored)
        path = write(tmp_path / f"{stored}.wav", samples, stored, subtype="FLOAT")
        found = audio.read(path, rate)
        assert len(found) == audio.resampled_length(len(samples), stored, rate) == round(len(samples) * rate / stored)
        peak = np.argmax(np.abs(np.fft.rfft(found))) * rate / len(found)
        assert abs(peak - 440) < 2 * rate / len(found)


def test_channels_and_parts(tmp_path):
    left, right = tone(), tone(hertz=900.0)
    path = write(tmp_path / "two.wav", np.stack([left, right], 1), subtype="FLOAT")
    assert np.allclose(audio.read(path, 8000), (left + right) / 2, atol=1e-6)
    assert np.array_equal(audio.read(path, 8000, channel=1), right)
    assert np.array_equal(audio.read(path, 8000, channel=0, start=0.1, duration=0.2), left[800:2400])
    assert np.array_equal(audio.read(path.read_bytes(), 8000, channel=0), left)
    with pytest.raises(DataError, match=r"2 channels, so there is no channel 2 \(data.channel\)"):
        audio.read(path, 8000, channel=2)
    with pytest.raises(DataError, match=r"starts at 0\.9 s, but the file lasts 0\.5 s"):
        audio.read(path, 8000, start=0.9)
    with pytest.raises(DataError, match=r"should last from 0\.4 to 0\.9 s"):
        audio.read(path, 8000, start=0.4, duration=0.5)


def test_what_is_wrong_is_said(tmp_path):
    whole = write(tmp_path / "whole.wav", tone())
    cases = {
        "gone.wav": (None, "the file is not there"), "empty.wav": (b"", "the file is empty"),
        "text.wav": (b"no sound at all" * 20, "not a readable sound file"),
        "call.m4a": (b"\0\0\0 ftypM4A " * 9, "M4A is not read here; convert it"),
        "head.wav": (whole.read_bytes()[:44], "no samples|breaks off|not a readable"),
    }
    for name, (content, message) in cases.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=message):
            audio.read(tmp_path / name, 8000)
    with pytest.raises(DataError, match="is a folder"):
        audio.read(tmp_path, 8000)
    bad = tone()
    bad[7] = np.nan
    with pytest.raises(DataError, match="not finite numbers"):
        audio.read(write(tmp_path / "nan.wav", bad, subtype="FLOAT"), 8000)
    with pytest.raises(DataError, match="holds no samples"):
        audio.read(write(tmp_path / "none.wav", np.zeros(0, np.float32)), 8000)


def test_what_takes_long_to_decode_is_known_by_its_header(tmp_path):
    silence = np.zeros([2_000_000, 6], np.float32)
    long = write(tmp_path / "long.flac", silence, 8_000).read_bytes()
    assert len(long) < audio.SMALL and audio.is_long(long)
    assert not audio.is_long(write(tmp_path / "short.flac", silence[:100_000], 8_000).read_bytes())
    assert not audio.is_long(write(tmp_path / "short.wav", silence[:100_000], 8_000).read_bytes())  # 1.2 MB
    assert not audio.is_long(b"nothing") and audio.is_long(bytes(audio.SMALL + 1))


def test_channels_that_cancel_are_not_called_silence(tmp_path):
    sound = tone(0.5)
    soundfile.write(tmp_path / "both.wav", np.stack([sound, -sound], 1), 8000)
    with pytest.raises(DataError, match=r"its 2 channels cancel one another: their mean is silent; data\.channel: 0 takes the first"):
        audio.read(tmp_path / "both.wav", 8000)
    assert np.abs(audio.read(tmp_path / "both.wav", 8000, channel=0)).max() > 0.1
    soundfile.write(tmp_path / "quiet.wav", np.zeros((4000, 2), np.float32), 8000)
    assert not audio.read(tmp_path / "quiet.wav", 8000).any()

"""Small files that would take all memory: refused by their headers, in every way in which they are read."""

import io
import struct
import wave
import zlib

import numpy as np
import pytest
import soundfile
import tensorflow as tf
from PIL import Image

from pipelines.base.errors import DataError
from pipelines.data.arrays import read_npz
from speech.data import audio
from speech.data.recording_files import file_lengths, files_loader
from speech.listen import recording
from speech.settings import CommandData
from tests.speech.synthetic_recordings import tone, write
from tests.vision.synthetic_images import encoded, picture
from vision.data.decode import decode_image, pixels
from vision.data.headers import image_header
from vision.data.limits import CHUNKS, WALKED, without_texts
from vision.data.plain import is_large, is_plain
from vision.data.scan import examine

KEY = tf.constant([1, 2])
KINDS = ["JPEG", "PNG", "GIF", "BMP", "WEBP"]


def promised(content: bytes, width: int, height: int) -> bytes:
    """An image file whose header promises another size."""
    data = bytearray(content)
    if data[:2] == b"\xff\xd8":
        at = next(place for place in range(2, len(data)) if data[place] == 0xFF and data[place + 1] in (0xC0, 0xC2))
        struct.pack_into(">HH", data, at + 5, height, width)
    elif data[:4] == b"\x89PNG":
        struct.pack_into(">II", data, 16, width, height)
        struct.pack_into(">I", data, 29, zlib.crc32(data[12:29]))
    elif data[:4] == b"GIF8":
        struct.pack_into("<HH", data, 6, width, height)
    elif data[:2] == b"BM":
        struct.pack_into("<ii", data, 18, width, -height)
    else:
        struct.pack_into("<HH", data, 26, width, height)
    return bytes(data)


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_of_too_many_pixels_is_not_decoded(kind):
    content = encoded(picture(), kind)
    width, height, _ = image_header(content)
    decode = tf.function(lambda raw: decode_image(raw, (8, 8), 3, max_pixels=width * height))
    crop = tf.function(lambda raw: decode_image(raw, (8, 8), 3, crop_key=KEY, area=(0.1, 1.0), max_pixels=width * height))
    for way in (decode, crop):
        assert way(tf.constant(content)).shape == (8, 8, 3)
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"too large: 864 pixels are allowed \(data.max_pixels\)"):
            way(tf.constant(promised(content, width, height + 1)))
    with pytest.raises(tf.errors.InvalidArgumentError, match="64,000,000 pixels are allowed"):
        pixels(tf.constant(promised(content, 16_000, 16_000)), 3)


@pytest.mark.parametrize("lossless", [False, True])
def test_every_kind_of_webp(lossless):
    for mode in ("RGB", "RGBA"):
        content = encoded(Image.fromarray(picture()).convert(mode), "WEBP", lossless=lossless)
        assert pixels(tf.constant(content), 3, 24 * 36).shape == (24, 36, 3)
        with pytest.raises(tf.errors.InvalidArgumentError, match="pixels are allowed"):
            pixels(tf.constant(content), 3, 24 * 36 - 1)


def test_a_jpeg_whose_scans_would_keep_the_decoder_busy_for_hours():
    """A scan of 31 bytes costs 10 ms at 16 million pixels: 64 MiB of them would take six hours."""
    content = encoded(picture(), "JPEG", progressive=True)
    assert pixels(tf.constant(content), 3, 24 * 36).shape == (24, 36, 3)
    last = content[content.rindex(b"\xff\xda"):-2]
    with pytest.raises(tf.errors.InvalidArgumentError, match="pixels are allowed"):
        pixels(tf.constant(content[:-2] + 20 * last + content[-2:]), 3, 24 * 36)


def test_texts_of_a_png_are_left_out_before_they_are_unpacked():
    """A text of 7 kB is one of 7.5 MB: 300 of them took 15 s and 2.3 GB."""
    def text(kind):
        body = kind + b"name\0" + (b"\0" if kind == b"zTXt" else b"\1\0\0\0") + zlib.compress(b"a" * 1000)
        return struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))

    def strip(content):
        return without_texts(tf.constant(content)).numpy()

    plain = encoded(picture(), "PNG")
    few = plain[:33] + 2 * text(b"zTXt") + plain[33:-12] + 2 * text(b"iTXt") + plain[-12:]
    many = plain[:33] + 9 * text(b"zTXt") + plain[33:-12] + 9 * text(b"iTXt") + plain[-12:]
    assert strip(few) == few and strip(many) == strip(many + 9 * text(b"zTXt")) == plain
    assert is_large(many) and not is_plain(many, 24, 36) and not is_large(few) and is_plain(few, 24, 36)
    assert np.array_equal(pixels(tf.constant(many), 3), picture())
    for broken in (many[:100], many[:20] + 9 * b"TXt", many[:8] + b"\xff" * 4 + 9 * b"zTXt"):
        with pytest.raises(tf.errors.InvalidArgumentError):
            pixels(tf.constant(broken), 3)
    with pytest.raises(tf.errors.InvalidArgumentError, match="save it without"):
        strip(plain[:33] + CHUNKS * struct.pack(">I4sI", 0, b"zTXt", 0) + plain[33:])


def test_scans_of_a_jpeg_are_counted_to_an_end():
    content = encoded(picture(), "JPEG")
    marks = b"\xff\xfe" + struct.pack(">H", 4002) + b"\xff\xda" * 2000
    with pytest.raises(tf.errors.InvalidArgumentError, match="pixels are allowed"):
        pixels(tf.constant(content[:2] + marks + content[2:]), 3)


def test_frames_of_a_gif_that_are_larger_than_its_screen_or_too_many():
    content = bytearray(encoded(picture(), "GIF"))
    first = content.index(b"\x2c" + bytes(4) + struct.pack("<HH", 36, 24))
    struct.pack_into("<HH", content, first + 5, 30_000, 30_000)
    with pytest.raises(tf.errors.InvalidArgumentError, match="pixels are allowed"):
        pixels(tf.constant(bytes(content)), 3)
    frames = [Image.fromarray(picture(seed)) for seed in range(10)]
    moving = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    for most, fits in ((24 * 36 * 10 // 4, True), (24 * 36 * 10 // 4 - 1, False)):
        if fits:
            assert pixels(tf.constant(moving), 3, most).shape == (24, 36, 3)
        else:
            with pytest.raises(tf.errors.InvalidArgumentError, match="pixels are allowed"):
                pixels(tf.constant(moving), 3, most)
    # what only looks like a frame's header is none: within the data of a comment
    comment = b"!\xfe\x0b\x00\x2c\0\0\0\0\xff\xff\xff\xff\0\0"
    still = encoded(picture(), "GIF")
    first = still.index(b"\x2c" + bytes(4) + struct.pack("<HH", 36, 24))
    assert np.array_equal(pixels(tf.constant(still[:first] + comment + still[first:]), 3), pixels(tf.constant(still), 3))


def test_blocks_of_a_gif_are_counted_before_the_decoder_keeps_them():
    """25 MB of blocks of a byte each took 1 GB; a picture of as many bytes is decoded as before."""
    still = encoded(picture(), "GIF")
    first = still.index(b"\x2c" + bytes(4) + struct.pack("<HH", 36, 24))
    with pytest.raises(tf.errors.InvalidArgumentError, match="blocks make the GIF"):
        pixels(tf.constant(still[:first] + b"!\xfe" + b"\1a" * WALKED + b"\0" + still[first:]), 3)
    noise = np.random.default_rng(0).integers(0, 256, (1200, 1000), np.uint8)
    large = encoded(Image.fromarray(noise), "GIF")
    assert len(large) > WALKED and np.array_equal(pixels(tf.constant(large), 1)[..., 0], noise)
    with pytest.raises(tf.errors.InvalidArgumentError, match="pixels are allowed"):
        pixels(tf.constant(large), 1, noise.size - 1)


def test_check_says_how_large_an_image_is(tmp_path):
    from pipelines.data.files import FileSource

    (tmp_path / "a.png").write_bytes(encoded(picture(), "PNG"))
    (tmp_path / "b.jpg").write_bytes(promised(encoded(picture(), "JPEG"), 20_000, 20_000))
    seen = examine(FileSource([tmp_path / "a.png", tmp_path / "b.jpg"], key="image"))
    assert seen.bad == [(1, "20000 x 20000 px, and 64,000,000 pixels are allowed (data.max_pixels)")]


def test_transparency_is_laid_on_white_exactly():
    values = np.stack(np.meshgrid(np.arange(256), np.arange(256)), -1).astype(np.uint8)
    image = values[..., [0, 0, 0, 1]]
    got = pixels(tf.constant(encoded(Image.fromarray(image, "RGBA"), "PNG")), 1).numpy()[..., 0]
    wide = image.astype(int)
    assert np.array_equal(got, (wide[..., 0] * wide[..., 3] + 255 * (255 - wide[..., 3]) + 127) // 255)


def test_texts_of_an_mp3_do_not_reach_its_decoder(capfd, tmp_path):
    """It writes a line to standard error for each that it does not like."""
    made = io.BytesIO()
    soundfile.write(made, tone(0.2, 16_000), 16_000, format="MP3", subtype="MPEG_LAYER_III")
    tag = b"ID3\x03\0\0\0\0\x09\x30" + 100 * b"TXXX\0\0\0\2\0\0\0a"
    (tmp_path / "a.mp3").write_bytes(2 * tag + made.getvalue())
    expected = audio.read(made.getvalue(), 16_000)
    for given in (2 * tag + made.getvalue(), tmp_path / "a.mp3"):
        assert np.array_equal(audio.read(given, 16_000), expected) and audio.header(given).rate == 16_000
    assert "error" not in capfd.readouterr().err


def wav(rate: int, samples: int, *, channels: int = 1, data_size: int | None = None) -> bytes:
    """A WAV file of silence, whose header may promise another size."""
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(bytes(2 * samples * channels))
    content = bytearray(made.getvalue())
    if data_size is not None:
        struct.pack_into("<I", content, 40, data_size)
    return bytes(content)


def flac(frames: int, **options) -> bytes:
    """A FLAC file of a second of silence, whose header promises `frames`."""
    made = io.BytesIO()
    soundfile.write(made, np.zeros(8000, np.int16), 8000, format="FLAC", **options)
    content = bytearray(made.getvalue())
    content[21] = content[21] & 0xF0 | frames >> 32
    struct.pack_into(">I", content, 22, frames & 0xFFFFFFFF)
    return bytes(content)


HOSTILE = {
    "a header of 1 Hz": (wav(1, 100_000), "says 1 Hz; 1,000 to 768,000"),
    "24 hours promised, 1 s there": (wav(16_000, 16_000, data_size=24 * 3600 * 32_000), "breaks off: 1.00 s of the 86400.00 s"),
    "hours of silence": (wav(1000, 601_000), "lasts 601 s by its header, over the 600 s"),
    "100 channels": (wav(8000, 100, channels=100), "says 100 channels; 64 at most"),
    "2^36 samples": (flac((1 << 36) - 1), "by its header, over the 600 s"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_recordings(name, tmp_path):
    content, words = HOSTILE[name]
    path = tmp_path / "x.wav"
    path.write_bytes(content)
    data = CommandData(source="folder", path=str(tmp_path))
    for read in (lambda: audio.read(content, 16_000), lambda: audio.read(path, 16_000), lambda: files_loader([(path, 0.0, None)], data)(0)):
        with pytest.raises(DataError, match=words):
            read()
    assert file_lengths([(path, 0.0, None)], data)[0] in (0, 16_000)


def test_a_recorder_that_wrote_to_a_pipe_is_believed():
    for size in (0xFFFFFFFF, 0x7FFFF000, 0x80000000, 0xFFFFFFFF - 36):
        assert len(audio.read(wav(8000, 8000, data_size=size), 8000)) == 8000


def test_parts_of_long_files_are_read_and_long_files_in_stretches(tmp_path):
    whole = tone(3.0)
    path = write(tmp_path / "long.flac", whole)
    data = CommandData(source="folder", path=str(tmp_path), rate=8000, max_seconds=0.7)
    with pytest.raises(DataError, match=r"lasts 3 s by its header, over the 0\.7 s"):
        files_loader([(path, 0.0, None)], data)(0)
    assert len(files_loader([(path, 2.0, 0.5)], data)(0)) == 4000
    assert np.array_equal(np.concatenate(list(recording(path, data))), audio.read(path, 8000))


def test_an_array_of_a_few_kilobytes_that_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("pipelines.machine.memory.free", lambda: 1_000_000)
    path = tmp_path / "a.npz"
    np.savez_compressed(path, image=np.zeros((2000, 32, 32), np.uint8), label=np.zeros(2000, np.int64))
    with pytest.raises(DataError, match="array 'image' is larger, by its header, than the free memory"):
        read_npz(path, {"image": "image", "label": "label"}, {}, settings={"image": "data.image_key", "label": "data.label_key"})

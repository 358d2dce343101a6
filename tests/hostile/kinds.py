"""What strangers give: presets, checkpoints, images, recordings, tables, arrays. Each is made small, and used as commands do."""

from pathlib import Path
from typing import Any

from pipelines.base.errors import QuartetError
from pipelines.serving.predict import UNREADABLE
from tests.hostile import exports
from tests.hostile.mutations import Kind

IMAGES = {"JPEG": "a.jpg", "PNG": "b.png", "GIF": "c.gif", "BMP": "d.bmp", "WEBP": "e.webp"}


def _preset(place: Path) -> list[str]:
    from tests.encoders import tiny

    tiny.bert(place / "preset")
    names = ("config.json", "tokenizer.json", "model.weights.h5", "model.weights.h5", "assets/tokenizer/vocabulary.txt")
    return [f"preset/{one}" for one in names]


def _use_preset(place: Path) -> None:
    from pipelines.encoders import presets

    presets.load(presets.find(str(place / "preset")))


def _images(place: Path) -> list[str]:
    from tests.vision.synthetic_images import encoded, picture

    for kind, name in IMAGES.items():
        (place / name).write_bytes(encoded(picture(), kind))
    return list(IMAGES.values())


def _use_images(place: Path) -> None:
    import tensorflow as tf

    from vision.data.decode import pixels
    from vision.data.headers import image_header

    for name in IMAGES.values():
        content = (place / name).read_bytes()
        image_header(content)
        pixels(tf.constant(content), 3, 1_000_000)


def _recordings(place: Path) -> list[str]:
    from tests.speech.synthetic_recordings import tone, write

    names = ["a.wav", "b.flac", "c.ogg"]
    for name in names:
        write(place / name, tone(0.5))
    return names


def _use_recordings(place: Path) -> None:
    from speech.data import audio
    from speech.data.recording_files import file_lengths
    from speech.settings import CommandData

    for file in sorted(place.iterdir()):
        file_lengths([(file, 0.0, None)], CommandData(source="folder", path=str(place)))
        audio.read(file, 8000)


def _tables(place: Path) -> list[str]:
    import gzip

    import pyarrow as pa
    import pyarrow.feather
    import pyarrow.parquet

    table = pa.table({"text": [f"a room, number {number}" for number in range(40)], "label": ["low", "high"] * 20, "stars": [*range(40)]})
    rows = table.to_pylist()
    lines = "text,label,stars\n" + "".join(f'"{row["text"]}",{row["label"]},{row["stars"]}\n' for row in rows)
    (place / "a.csv").write_text(lines)
    (place / "b.tsv").write_text(lines.replace('"', "").replace(", ", " ").replace(",", "\t"))
    import json

    (place / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pyarrow.parquet.write_table(table, place / "d.parquet")
    (place / "e.csv.gz").write_bytes(gzip.compress(lines.encode()))
    return ["a.csv", "b.tsv", "c.jsonl", "d.parquet", "d.parquet", "e.csv.gz"]


def _use_tables(place: Path) -> None:
    from pipelines.data.tables import column, labels_of, read_table, values_of

    for file in sorted(place.iterdir()):
        table = read_table(file)
        values_of(table, "text", file, "data.text_key")
        labels_of(table, "label", file)
        column(table, "stars", file, "data.rating").to_pylist()


def _arrays(place: Path) -> list[str]:
    import numpy as np

    np.savez(place / "a.npz", image=np.arange(20 * 64, dtype=np.uint8).reshape(20, 8, 8), label=np.arange(20))
    np.savez_compressed(place / "b.npz", image=np.zeros((20, 8, 8), np.uint8), label=np.arange(20))
    return ["a.npz", "b.npz"]


def _use_arrays(place: Path) -> None:
    from pipelines.data.arrays import read_npz

    for file in sorted(place.iterdir()):
        read_npz(file, {"image": "image", "label": "label"}, {}, settings={"image": "data.image_key", "label": "data.label_key"})


def _checkpoint(place: Path) -> list[str]:
    import numpy as np

    np.savez(place / "resume.npz", about=np.frombuffer(b'{"step": 3}', np.uint8), **{"weights/0000": np.ones([4, 4], np.float32)})
    return ["resume.npz"]


def _use_checkpoint(place: Path) -> None:
    import keras
    import numpy as np

    from pipelines.training import state

    variable = keras.Variable(np.zeros([4, 4], np.float32))
    state.load(place / "resume.npz", {"weights": [variable]})


_OURS: tuple[type[Any], ...] = (QuartetError,)
KINDS = {
    "preset": Kind(_preset, _use_preset, _OURS),
    "images": Kind(_images, _use_images, (QuartetError, *UNREADABLE)),
    "recordings": Kind(_recordings, _use_recordings, _OURS),
    "tables": Kind(_tables, _use_tables, _OURS),
    "arrays": Kind(_arrays, _use_arrays, _OURS),
    "checkpoint": Kind(_checkpoint, _use_checkpoint, _OURS),
    "saved model": Kind(exports.make_saved, exports.use_saved, _OURS),
}

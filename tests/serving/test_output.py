"""How answers are written: numbers as a person would."""

import io
import json

import numpy as np
import pytest

from pipelines.serving.answer_files import to_files
from pipelines.serving.output import WRITERS, Prediction, Shown, as_object
from pipelines.serving.predict import rows_of
from pipelines.stores.remote import OutputFolder


def test_json_has_the_shortest_numbers_that_are_these():
    shown = Shown(["scores"], "probabilities", ["a", "b"], top=1, all=True)
    one = Prediction("x", {"scores": np.array([0.1], np.float32), "probabilities": np.array([0.02, 0.98], np.float32)})
    assert json.loads(json.dumps(as_object(one, shown))) == {
        "input": "x", "scores": [0.1], "top": [{"label": "b", "probability": 0.98}], "probabilities": {"a": 0.02, "b": 0.98}}


PICTURE = b"\x89PNG\r\n\x1a\n\xff\x00"
B64 = {"b64": "iVBORw0KGgr/AA=="}


def answered():
    """An output of text, one of files, a list of these, and one that is not said to be of files and holds no text."""
    values = {"label": ["caf\u00e9".encode()], "mask": [PICTURE], "parts": [[PICTURE, b"text"]], "other": [b"\xff"]}
    (row,) = rows_of({name: np.array(value, object) for name, value in values.items()}, (), (), {"mask": "mask", "parts": ".png"})
    return Prediction("x", row), Shown(list(values))


def test_bytes_stay_bytes_until_they_are_written():
    one, shown = answered()
    assert as_object(one, shown) == {"input": "x", "label": "caf\u00e9", "mask": PICTURE, "parts": [PICTURE, b"text"], "other": b"\xff"}


@pytest.mark.parametrize("kind", ["jsonl", "csv", "text", "table"])
def test_bytes_are_base64_in_json_and_csv(kind):
    one, shown = answered()
    file = io.StringIO()
    WRITERS[kind]([one], shown if kind != "text" else Shown(["mask"]), file)
    written = file.getvalue()
    assert "\ufffd" not in written
    if kind == "jsonl":
        assert json.loads(written) == {"input": "x", "label": "caf\u00e9", "mask": B64, "parts": [B64, {"b64": "dGV4dA=="}],
                                       "other": {"b64": "/w=="}}
    else:
        assert "10 bytes" in written if kind == "table" else B64["b64"] in written


def test_bytes_are_written_as_files_of_a_folder(tmp_path):
    one, shown = answered()
    (row,) = to_files([one], OutputFolder(tmp_path / "files"), {"mask": ".png", "parts": ".png"})
    found = as_object(row, shown)
    assert found["label"] == "caf\u00e9" and found["mask"] == f"{tmp_path}/files/000001-mask.png"
    assert (tmp_path / "files" / "000001-mask.png").read_bytes() == PICTURE
    assert (tmp_path / "files" / "000001-parts-2.png").read_bytes() == b"text"
    assert found["other"].endswith("000001-other.bin")

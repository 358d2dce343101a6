"""Plain text and CTM: what is written for words with times, pieces of files, errors, and answers that have no words."""

import io
import json

import numpy as np
import pytest

from pipelines.base.errors import ConfigError
from pipelines.serving.output import WRITERS, Prediction, Shown

RANKS = {"text": 1, "words": 2, "starts": 2, "ends": 2}
SHOWN = Shown.of(RANKS, None, details=("words", "starts", "ends"))


def said(name: str, text: str, start: float) -> Prediction:
    words = text.split()
    starts = np.array([*(start + 0.5 * place for place in range(len(words))), -1.0], np.float32)
    return Prediction(name, {"text": text, "words": np.array([*words, ""], object), "starts": starts,
                             "ends": np.where(starts < 0, -1.0, starts + 0.25)})


MADE = [said("a b.wav", "yes no", 0.25), Prediction("broken.wav", error="no sound file"), said("long.wav#t=12.50,20.00", "oui", 1.0),
        said("still.wav", "", 0.0)]


def written(kind: str, shown: Shown = SHOWN) -> str:
    file = io.StringIO()
    WRITERS[kind](iter(MADE), shown, file)
    return file.getvalue()


def test_ctm_counts_from_the_beginning_of_the_file():
    assert written("ctm").splitlines() == ["a_b.wav 1 0.25 0.25 yes", "a_b.wav 1 0.75 0.25 no", "long.wav 1 13.50 0.25 oui"]


def test_text_has_a_line_for_each_input():
    assert written("text").splitlines() == ["yes no", "", "oui", ""]


def test_json_lines_hold_the_details_and_tables_do_not():
    rows = [json.loads(line) for line in written("jsonl").splitlines()]
    assert rows[0]["words"] == ["yes", "no", ""] and rows[0]["starts"] == [0.25, 0.75, -1.0] and rows[1]["error"]
    assert "starts" not in written("csv") and "yes no" in written("table")


def test_ctm_needs_words():
    with pytest.raises(ConfigError, match="ctm is of words with times"):
        written("ctm", Shown.of({"label": 1}, None))

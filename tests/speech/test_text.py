"""Texts to tokens and back, and long recordings in pieces."""

import itertools

import numpy as np
import pytest

from pipelines.base.errors import DataError
from speech.data.recordings import pieces
from speech.data.tokens import learn, normalized, steps_needed
from speech.settings import Tokens

TEXTS = ["one two three", "two two one", "three one two three", "zero"] * 20


def test_normalised():
    assert normalized("well-known -- it's - so", Tokens()) == "well-known it's so"
    assert normalized(" Cafe\u0301,  NO! ", Tokens(remove=",!")) == "café no" and normalized("No", Tokens(lowercase=False)) == "No"


@pytest.mark.parametrize("unit", ["characters", "words", "subwords"])
def test_there_and_back(unit):
    encoder = learn(TEXTS, Tokens(unit=unit, size=20))
    for text in set(TEXTS):
        numbers = encoder.encode(text)
        assert numbers and encoder.alphabet.text(numbers) == text
    again = learn(TEXTS, Tokens(unit=unit, size=20))
    assert again.alphabet == encoder.alphabet
    if unit != "subwords":
        assert encoder.alphabet.text(encoder.encode("one ümlaut two")).startswith("one")


def test_too_little_to_learn_from():
    with pytest.raises(DataError, match="transcripts of train are empty"):
        learn(["", ""], Tokens())


def test_steps_that_ctc_needs():
    assert steps_needed([1, 1, 2, 1]) == 5 and steps_needed([]) == 0


def test_long_recordings_are_cut_where_it_is_quiet():
    rng = np.random.default_rng(0)
    loud = rng.normal(0, 0.2, 80_000).astype(np.float32)
    for place in (17_000, 39_000, 60_000):
        loud[place - 900:place + 900] *= 0.001
    found = pieces(loud, 8000, 3.0)
    assert found[0][0] == 0 and found[-1][1] == 80_000 and all(first[1] == second[0] for first, second in itertools.pairwise(found))
    assert max(end - start for start, end in found) <= 24_000
    assert [abs(end - place) < 900 for (_, end), place in zip(found, (17_000, 39_000, 60_000))] == [True] * 3
    assert pieces(loud[:24_000], 8000, 3.0) == [(0, 24_000)]
    assert len(pieces(np.zeros(100_000, np.float32), 8000, 5.0)) == 3

"""Texts written beside one another, piece by piece: what they are does not depend on what else is written."""

import re
import threading
from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf

from nlp.models import language
from nlp.models.language_steps import LanguageSteps
from nlp.settings import LanguageTransformer
from pipelines.base.errors import DataError
from pipelines.outputs.automata import TokenTrie, compile_form
from pipelines.outputs.streams import Streams
from pipelines.task.writer import Way, Writer
from tests.nlp.test_automata import needs_forms

SIZE, MOST = 30, 24
LETTERS = [b"", b"", *(bytes([ord("a") + number]) for number in range(SIZE - 3)), b""]


def network(**how):
    keras.utils.set_random_seed(1)
    settings = LanguageTransformer(name="transformer", length=MOST, width=16, depth=2, heads=4, groups=2, hidden=24, dropout=0.0)
    return language.build(settings, size=SIZE, writing=Way(**{"most": 8, "temperature": 0.0, **how}))


def writer_of(model):
    return Writer(lambda rows: LanguageSteps(model, rows=rows, most=MOST), prompt=np.array,
                  text=lambda ids: "".join(chr(ord("a") + one - 2) for one in ids), way=Way(8, 0.0), limit=MOST, end=SIZE - 1, first=2,
                  form=lambda asked: compile_form(asked, TokenTrie(LETTERS), SIZE - 1))


def text_of(model, prompt):
    ids = model({"prompt": tf.constant([prompt])})["tokens"].numpy()[0]
    return "".join(chr(ord("a") + one - 2) for one in ids if one)


def written(streams, asked):
    """(text, why it ended, pieces) of each prompt and way, all begun at once."""
    found = [([], [], threading.Event()) for _ in asked]
    for (prompt, way), (pieces, ends, done) in zip(asked, found):
        def told(text, ended, pieces=pieces, ends=ends, done=done):
            pieces.append(text)
            if ended:
                ends.append(ended)
                done.set()

        streams.write(np.array(prompt), way, told, lambda error, ends=ends, done=done: (ends.append(error), done.set()))
    for _, _, done in found:
        assert done.wait(60)
    return [("".join(pieces), ends[0], len(pieces)) for pieces, ends, _ in found]


@pytest.mark.parametrize("how", [{}, {"temperature": 1.3, "top_p": 0.9, "seed": 4}, {"temperature": 0.9, "top_k": 5, "repetition": 1.4},
                                 {"temperature": 1.3, "fewest": 8}])
def test_a_text_is_what_the_model_writes_whatever_is_written_beside_it(how):
    model, draw = network(**how), np.random.default_rng(0)
    prompts = [[SIZE - 1, *draw.integers(2, SIZE - 1, count).tolist()] for count in (0, 5, 2, 9, 12, 1, 7)]
    way = Way(8, **{"temperature": 0.0, **how})
    streams = Streams(writer_of(model), rows=3)
    try:
        both = written(streams, [pair for prompt in prompts for pair in ((prompt, way), (prompt, Way(3, 2.0, seed=9)))])
        for prompt, (text, ended, _) in zip(prompts, both[::2]):
            assert len(text) >= how.get("fewest", 0)
            assert text == text_of(model, prompt) and ended == ("length" if len(text) == 8 else "stop")
        assert all(len(text) <= 3 for text, _, _ in both[1::2])
    finally:
        streams.close()


def test_pieces_come_one_by_one_and_end_before_a_stop():
    model = network(temperature=1.0, seed=5)
    prompt = [SIZE - 1, 4, 5]
    whole = text_of(model, prompt)
    assert len(whole) > 4
    streams = Streams(writer_of(model))
    try:
        [(text, ended, pieces)] = written(streams, [(prompt, Way(8, seed=5))])
        assert (text, pieces >= len(whole)) == (whole, True)
        [(text, ended, _)] = written(streams, [(prompt, Way(8, seed=5, stop=(whole[2:4], "Z")))])
        assert (text, ended) == (whole[:whole.index(whole[2:4])], "stop")
        with pytest.raises(DataError, match="more than the 24 that are seen"):
            streams.write(np.array(prompt), Way(22), print, print)
    finally:
        streams.close()


def test_who_leaves_makes_room_and_what_fails_is_said():
    model, begun, after = network(temperature=1.0), threading.Event(), threading.Event()
    steps = LanguageSteps(model, rows=1, most=2000)
    told = []
    never_ends = replace(writer_of(model), steps=lambda rows: steps, text=lambda ids: "x" * len(ids), limit=2000, end=-1)
    streams = Streams(never_ends, rows=1)
    try:
        first = streams.write(np.array([2]), Way(1900), lambda text, ended: (told.append(text), begun.set()), print)
        second = streams.write(np.array([2]), Way(1), lambda text, ended: after.set(), print)
        assert begun.wait(60)
        assert not after.is_set() and streams.busy == 2
        first.left = True
        assert after.wait(60) and second.used == 1 and len(told) < 1900
        steps.begin = lambda row, ids: 1 / 0
        assert isinstance(written(streams, [([2], Way(2))])[0][1], ZeroDivisionError)
    finally:
        streams.close()


@needs_forms
@pytest.mark.parametrize("how", [{}, {"temperature": 1.3, "top_p": 0.9, "seed": 4}, {"temperature": 0.9, "top_k": 2, "repetition": 1.4}])
def test_a_text_has_its_form_alone_beside_others_and_in_a_saved_model(how, tmp_path):
    form = writer_of(network()).form({"regex": "(ab|c)*d[e-h]{2}|xyz"})
    model, way = network(**how, form=form), Way(8, **{"temperature": 0.0, **how}, form=form)
    prompts = [[SIZE - 1, *np.random.default_rng(1).integers(2, SIZE - 1, count).tolist()] for count in (0, 5, 2, 9)]
    streams = Streams(writer_of(model), rows=3)
    try:
        ways = replace(way, fewest=8, stop=("d",)), Way(5, 2.0), replace(way, most=3)  # a form says itself when a text ends
        found = written(streams, [(prompt, each) for prompt in prompts for each in ways])
        for prompt, (text, ended, _), (short, end, _) in zip(prompts, found[::3], found[2::3]):
            assert text == text_of(model, prompt) and ended == end == "stop"
            assert all(re.fullmatch("(ab|c)*d[e-h]{2}|xyz", one) for one in (text, short)) and len(short) == 3
        module = tf.Module()
        module.write = tf.function(lambda ids: model({"prompt": ids})["tokens"], input_signature=[tf.TensorSpec([None, None], tf.int32)])
        module.model = model
        tf.saved_model.save(module, str(tmp_path / "saved"))
        saved = tf.saved_model.load(str(tmp_path / "saved"))
        np.testing.assert_array_equal(saved.write(tf.constant([prompts[1]])), model({"prompt": tf.constant([prompts[1]])})["tokens"])
        with pytest.raises(DataError, match="the shortest text of this form has 3 tokens, and 2 at most"):
            streams.write(np.array(prompts[0]), replace(way, most=2), print, print)
    finally:
        streams.close()

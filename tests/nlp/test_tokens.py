"""Cutting: the same in a batch and alone, in a graph and outside; learned from train alone; n-grams cover the words they say."""

import numpy as np
import pytest
import tensorflow as tf

from nlp import tokens
from nlp.settings import Hashed, Subwords, Words
from nlp.tokens import base
from nlp.tokens.base import joined

TEXTS = ["The cat sat on the mat.", "A dog barked!", "", "naïve café 東京 👍", "the the the the cat sat"]
SETTINGS = [Words(name="words", least=1, vocabulary=12), Hashed(name="hashed", words=3, characters=[2, 4], buckets=5000),
            Hashed(name="hashed", words=2, buckets=3000, distinct=True),
            Hashed(name="hashed", words=2, characters=[2, 3], buckets=3000, character_buckets=700),
            Subwords(name="subwords", vocabulary=60),
            Subwords(name="subwords", vocabulary=60, algorithm="unigram")]


def made(settings, texts=TEXTS):
    return tokens.make(settings, tokens.learn(settings, [tf.constant(texts * 5)]))


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda one: f"{one.name}{SETTINGS.index(one)}")
def test_cutting_keeps_its_promises(settings):
    tokenizer = made(settings)
    cut = tokenizer.cut(tf.constant(TEXTS))
    words = tokenizer.words(tf.constant(TEXTS))
    alone = [tokenizer.ids(tf.constant([text]))[0].numpy().tolist() for text in TEXTS]
    assert cut.ids.to_list() == alone
    traced = tf.function(lambda texts: tokenizer.ids(texts), input_signature=[tf.TensorSpec([None], tf.string)])
    assert traced(tf.constant(TEXTS)).to_list() == alone
    graph = traced.get_concrete_function().graph.as_graph_def()
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    assert "Transpose" not in {node.op for node in nodes}  # of numbers: oneDNN would complain on the terminal
    for ids, first, last, own in zip(cut.ids.to_list(), cut.first.to_list(), cut.last.to_list(), words.to_list()):
        assert len(ids) >= 1 and min(ids) > base.PAD and max(ids) < tokenizer.size
        assert len(first) == len(last) == len(ids)
        assert all(0 <= a <= b < len(own) for a, b in zip(first, last))


PLAIN = [b"The cat sat on the mat.", b" a\tdog\r\nBARKED!", b"!", b"x" * 500, b"[a] {b} `c` ~d^ e_f; 1<2 & 3>=2"]
OTHERS = [b"", b" \n", "é".encode(), b"\xff", b"a\0b", b"a\x0bb", b"\x7f"]


@pytest.mark.parametrize("settings", [*SETTINGS[:4], Words(name="words", least=1, lower=False, html=True, limit=3)])
def test_plain_texts_take_a_way_without_branches_to_the_same(settings):
    tokenizer = made(settings)
    plain = [text for text in PLAIN if tokenizer.is_plain(text)]
    assert plain == (PLAIN[:-1] if settings.html else PLAIN) and not any(map(tokenizer.is_plain, OTHERS))
    traced = tf.function(lambda texts: tokenizer.cut_plain(texts).ids, input_signature=[tf.TensorSpec([None], tf.string)])
    assert traced(tf.constant(plain)).to_list() == tokenizer.ids(tf.constant(plain)).to_list()
    assert not traced.get_concrete_function().graph.as_graph_def().library.function  # neither branches nor loops


def test_words_come_by_frequency_and_others_are_unknown():
    settings = Words(name="words", least=2)
    learned = tokens.learn(settings, [tf.constant(["b a a", "a b c"])])
    assert learned == {"vocabulary": ["a", "b"]}
    assert tokens.make(settings, learned).ids(tf.constant(["a B c"])).to_list() == [[2, 3, base.UNKNOWN]]


def test_limit_cuts_words():
    for settings in (Words(name="words", least=1, limit=3), Hashed(name="hashed", words=1, limit=3),
                     Subwords(name="subwords", vocabulary=40, limit=3)):
        assert made(settings).ids(tf.constant(["the cat sat on the mat"])).row_lengths().numpy().tolist() == [3]


def test_ngrams_of_words_are_runs_within_a_text():
    tokenizer = tokens.make(Hashed(name="hashed", words=3, buckets=1 << 20), {})
    cut = tokenizer.cut(tf.constant(["a b c", "b c", "a"]))
    spans = [list(zip(*pair)) for pair in zip(cut.first.to_list(), cut.last.to_list())]
    assert spans == [[(0, 0), (1, 1), (2, 2), (0, 1), (1, 2), (0, 2)], [(0, 0), (1, 1), (0, 1)], [(0, 0)]]
    first, second, third = (dict(zip(pair, ids)) for pair, ids in zip(spans, cut.ids.to_list()))
    assert first[1, 2] == second[0, 1] and first[1, 1] == second[0, 0] and first[0, 0] == third[0, 0]
    assert len(set(first.values())) == 6, "six n-grams share no row of a million"


def test_ngrams_of_letters_stay_within_words():
    tokenizer = tokens.make(Hashed(name="hashed", words=1, characters=[2, 3], buckets=1 << 20), {})
    one, other = tokenizer.cut(tf.constant(["ab c", "ab"])).ids.to_list()
    # words, then <a ab b> <ab ab> and <c c> <c>
    assert len(one) == 2 + 3 + 2 + 2 + 1 and len(other) == 1 + 3 + 2
    assert set(other) <= set(one)


def test_parts_of_a_text_stand_behind_each_other():
    parts = [(tf.ragged.constant(rows, tf.int64), tf.ragged.constant(rows, tf.int32)) for rows in (
        [[1, 2], [], [3]], [[], [], [4, 5]], [[6], [7, 8], []])]
    for field, found in enumerate(joined(parts)):
        assert found.to_list() == tf.concat([part[field] for part in parts], 1).to_list() == [[1, 2, 6], [7, 8], [3, 4, 5]]
        assert found.dtype == parts[0][field].dtype


def test_characters_may_have_numbers_of_their_own():
    settings = Hashed(name="hashed", words=2, characters=[2, 3], buckets=300, character_buckets=100, distinct=True)
    tokenizer = tokens.make(settings, {})
    assert tokenizer.size == 400 and tokenizer.letters == 300
    texts = tf.constant(["the cat sat on the mat", "at", ""])
    ids = tokenizer.ids(texts)
    words = tokens.make(settings.model_copy(update={"characters": None, "character_buckets": None}), {}).ids(texts)
    for row, own in zip(ids.to_list(), words.to_list()):
        assert sorted(number for number in row if number < 300) == sorted(own) and max(row) < 400 and max(row) >= 300


def test_hashes_spread():
    tokenizer = tokens.make(Hashed(name="hashed", words=1, buckets=1000), {})
    ids = tokenizer.ids(tf.constant([" ".join(f"w{number}" for number in range(1000))])).flat_values.numpy()
    counts = np.bincount(ids, minlength=1000)[1:]
    assert counts.sum() == 1000 and 0.25 < np.mean(counts == 0) < 0.48  # 1/e expected


def test_subwords_take_the_longest_piece_and_lose_no_letter():
    settings = Subwords(name="subwords", vocabulary=80)
    learned = tokens.learn(settings, [tf.constant(["walking talking walker talker", "the walker walks and talks"] * 20)])
    pieces = learned["vocabulary"]
    tokenizer = tokens.make(settings, learned)
    text = "walker talks walkings"
    ids = tokenizer.ids(tf.constant([text]))[0].numpy().tolist()
    assert "".join(pieces[number - base.FIRST] for number in ids) == "".join("\u2581" + word for word in text.split())
    rest = "\u2581walkings"
    for number in [number for number, word in zip(ids, tokenizer.cut(tf.constant([text])).first[0].numpy()) if word == 2]:
        longest = max((piece for piece in pieces if rest.startswith(piece)), key=len)
        assert pieces[number - base.FIRST] == longest
        rest = rest[len(longest):]
    assert not rest


def test_unknown_letters_are_one_token_each():
    tokenizer = made(Subwords(name="subwords", vocabulary=40), ["aaa bbb"] * 4)
    ids = tokenizer.ids(tf.constant(["aaa жж"]))[0].numpy().tolist()
    assert ids.count(base.UNKNOWN) == 2


PLACED = ["The cat  sat, on\tthe mat.", "", " \n", "naïve café 東京 👍!", "ﬁne… ×2 Ω"]


@pytest.mark.parametrize("settings", [SETTINGS[0], SETTINGS[4]], ids=["words", "subwords"])
def test_tokens_have_the_places_of_their_words_in_the_text_as_it_was_given(settings):
    from nlp.tokens.offsets import placed_tokens, placed_words

    words, starts, ends = (value.to_list() for value in placed_words(tf.constant(PLACED)))
    cut = [[text.encode()[start:end] for start, end in zip(*row)] for text, *row in zip(PLACED, starts, ends)]
    assert cut == words
    assert [word.decode() for word in words[0]] == ["The", "cat", "sat", ",", "on", "the", "mat", "."]
    assert [word.decode() for word in words[3]] == ["naïve", "café", "東", "京", "👍", "!"] and words[1] == words[2] == []
    tokenizer = made(settings, PLACED)
    ids, starts, ends = placed_tokens(tokenizer, tf.constant(PLACED), 50)
    whole = tokenizer.ids(tf.constant(PLACED)).to_list()
    assert ids.to_list()[:4] == whole[:4]
    for text, numbers, *places in zip(PLACED, ids.to_list(), starts.to_list(), ends.to_list()):
        assert len(numbers) == len(places[0]) == len(places[1])
        for number, start, end in zip(numbers, *places):
            assert number in tokenizer.ids(tf.constant([text.encode()[start:end]]))[0]
    assert placed_tokens(tokenizer, tf.constant(PLACED), 3)[1].row_lengths().numpy().max() == 3


def test_texts_hand_on_the_places_of_their_tokens_when_stored_and_when_asked():
    from nlp.tasks.classification import TextTask
    from nlp.tasks.texts import Texts
    from pipelines.config.load import from_text

    class Placed(Texts):
        offsets = True

    class PlacedTask(TextTask):
        input_class = Placed
        output_class = staticmethod(lambda task: None)

    experiment = from_text("task: nlp.classification\ndata: {source: quick}\nmodel: {name: bag, width: 4}\n").experiment
    task = PlacedTask(experiment)
    task.facts = task.splits().facts
    given = task.input.receive({"text": tf.constant(["a film, then", "good"])})
    stored = [task.input.decode({"text": tf.constant(text)}) for text in ("a film, then", "good")]
    assert given["starts"].numpy().tolist() == [[0, 2, 6, 8], [0, 0, 0, 0]] and given["ends"].numpy()[0].tolist() == [1, 6, 7, 12]
    for place, one in enumerate(stored):
        for name in ("tokens", "starts", "ends"):
            np.testing.assert_array_equal(given[name][place, :one["length"]], one[name])

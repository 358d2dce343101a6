"""The same text written in different ways is the same text; nothing a person may write breaks the cutting."""

import unicodedata

import pytest
import tensorflow as tf

from nlp.tokens.normalise import decompositions, normalised, words


def split(*texts, **options):
    return [[word.decode("utf-8") for word in row] for row in words(tf.constant(texts), **options).to_list()]


def test_words_and_marks_stand_apart():
    assert split("Don't panic: 42 towels!") == [["don", "'", "t", "panic", ":", "42", "towels", "!"]]
    assert split("No", lower=False) == [["No"]]
    assert split("a<br />b <b>c</b>", html=True) == [["a", "b", "c"]]
    assert split("1 < 2 and 3 > 2", html=True) == [["1", "<", "2", "and", "3", ">", "2"]]


@pytest.mark.parametrize("one, other", [
    ("café", "cafe\u0301"), ("ＡＢＣ", "abc"), ("ﬁne", "fine"), ("Ünïcödé", "u\u0308ni\u0308co\u0308de\u0301"), ("x\u00a0y", "x y"),
    ("½", "1\u20442"), ("STRAßE", "straße"), ("①", "1")])
def test_ways_of_writing_are_one(one, other):
    assert split(one) == split(other)


def test_scripts_without_spaces_and_emoji_are_cut():
    assert split("東京は好き") == [["東", "京", "は", "好", "き"]]
    assert split("good 👍🏽😀")[0][:2] == ["good", "👍"]
    assert split("한국어 좋아요") == [["한국어", "좋아요"]]
    assert split("Привет, мир") == [["привет", ",", "мир"]]
    assert len(split("สวัสดี")[0]) == 6


def test_what_is_not_utf8_or_not_seen_passes():
    assert split(b"a \xff\xfe b") == [["a", "\ufffd", "\ufffd", "b"]]
    assert split("a\0b\u200bc\ufeffd") == [["a", "b", "c", "d"]]
    assert split("", "   ", "!") == [[""], [""], ["!"]]


def test_a_text_does_not_change_its_neighbours():
    """ASCII goes a shorter way: the same text comes out the same beside others and alone."""
    texts = ["plain text, one", "naïve", "", "tab\there", "\x07bell", "ÀÉ"]
    together = split(*texts)
    assert together == [split(text)[0] for text in texts]


def test_decompositions_are_those_of_unicode():
    keys, starts, parts = decompositions()
    for place in range(0, len(keys), 97):
        made = "".join(map(chr, parts[starts[place]:starts[place + 1]]))
        assert made == unicodedata.normalize("NFKD", chr(keys[place]))
    every = "".join(map(chr, keys[keys < 0x3000]))
    assert normalised(tf.constant([every]), lower=False).numpy()[0].decode().split() == split(every, lower=False)[0]


def test_a_text_of_ten_megabytes_passes():
    long = "word é " * (10_000_000 // 8)
    assert len(split(long)[0]) == 2 * (10_000_000 // 8)

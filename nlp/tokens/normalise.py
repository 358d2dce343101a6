"""Text normalisation, in graph, with TensorFlow alone: valid UTF-8, compatibility forms resolved, lower case, marks set apart.

Different encodings of a letter (é as one code point or two, full-width Ａ, the ligature ﬁ) become the same. That is Unicode's
NFKD without its reordering of several marks on one letter, and without the decomposition of Hangul syllables, which keyboards
write composed. Texts of printable ASCII, which need none of it, take a shorter way to the same result.
"""

import functools
import re
import unicodedata

import numpy as np
import tensorflow as tf

from nlp.tokens.base import joined

TAG = r"<[A-Za-z/!][^<>]{0,500}>"
# a token of its own: each mark and symbol (emoji among them), and each letter of scripts written without spaces
APART = r"([\pP\pS\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}])"
APART_PLAIN = r"([!-/:-@\[-`{-~])"  # those of printable ASCII
GAP = r"[\pZ\pC]+"  # separators and invisible characters: controls, joiners, byte order marks
PLAIN = r"[\t\n\r\x20-\x7e]*"  # printable ASCII
PLAIN_BYTES = re.compile(PLAIN.encode())
HANGUL = range(0xAC00, 0xD7A4)


def normalised(texts: tf.Tensor, *, lower: bool = True, html: bool = False) -> tf.Tensor:
    """Texts with spaces around each token.

    Args:
        texts: [n] string, UTF-8; invalid bytes become U+FFFD.
        lower: lower case, of every script that has one.
        html: tags are left out.

    Returns:
        [n] string, UTF-8.
    """
    plain = tf.strings.regex_full_match(texts, PLAIN)
    texts = tf.cond(tf.reduce_all(plain), lambda: texts, lambda: _some(texts, ~plain))
    if html:
        texts = tf.strings.regex_replace(texts, TAG, " ")
    if lower:
        texts = tf.strings.lower(texts, encoding="utf-8")
    return tf.strings.regex_replace(texts, APART, r" \1 ")


def is_plain(text: bytes, html: bool) -> bool:
    """Whether it is printable ASCII with a word or a mark, and with no tags where these are left out: a look in Python."""
    return PLAIN_BYTES.fullmatch(text) is not None and not text.isspace() and text != b"" and not (html and b"<" in text)


def plain_words(texts: tf.Tensor, *, lower: bool = True, html: bool = False) -> tf.RaggedTensor:
    """As `words`, of plain texts alone: without branches, which take most of the time of a few short texts."""
    texts = tf.strings.lower(texts) if lower else texts
    return tf.strings.split(tf.strings.regex_replace(texts, APART_PLAIN, r" \1 "))


def words(texts: tf.Tensor, *, lower: bool = True, html: bool = False) -> tf.RaggedTensor:
    """[n] string -> [n, None] string: words and marks. A text without any has the one word `` (empty)."""
    tokens = tf.strings.split(normalised(texts, lower=lower, html=html))
    empty = tokens.row_lengths() == 0
    nothing = tf.cast(empty, tf.int64)
    return tf.cond(tf.reduce_any(empty), lambda: joined(
        [[tokens], [tf.RaggedTensor.from_row_lengths(tf.fill([tf.reduce_sum(nothing)], ""), nothing)]])[0], lambda: tokens)


def _some(texts: tf.Tensor, which: tf.Tensor) -> tf.Tensor:
    """The texts with those of `which` decomposed: word by word, since most words need no change."""
    places = tf.where(which)
    parts = tf.strings.split(tf.gather_nd(texts, places))
    odd = tf.where(~tf.strings.regex_full_match(parts.flat_values, PLAIN))
    chosen = tf.strings.unicode_transcode(tf.gather_nd(parts.flat_values, odd), "UTF-8", "UTF-8", errors="replace")
    decomposed = tf.strings.unicode_encode(_decomposed(tf.strings.unicode_decode(chosen, "UTF-8")), "UTF-8")
    flat = tf.tensor_scatter_nd_update(parts.flat_values, odd, tf.strings.regex_replace(decomposed, GAP, " "))
    joined = tf.strings.reduce_join(parts.with_flat_values(flat), axis=1, separator=" ")
    return tf.tensor_scatter_nd_update(texts, places, joined)


def _decomposed(points: tf.RaggedTensor) -> tf.RaggedTensor:
    """Code points [n, None] int32, those that have a compatibility decomposition replaced by it."""
    where, starts, parts = (tf.constant(value) for value in _lookup())
    flat = points.flat_values
    place = tf.gather(where, tf.minimum(flat, where.shape[0] - 1))
    sizes = tf.gather(starts[1:] - starts[:-1], place)  # 0 for code points that stay
    counts = tf.maximum(sizes, 1)
    begin = tf.cumsum(counts, exclusive=True)
    total = tf.reduce_sum(counts)
    # which code point each place of the result comes from: 1 at each beginning, summed up (tf.repeat would take several times as long)
    owner = tf.cumsum(tf.scatter_nd(begin[:, None], tf.ones_like(begin), total[None])) - 1
    inner = tf.range(total) - tf.gather(begin, owner)
    replaced = tf.gather(parts, tf.minimum(tf.gather(tf.gather(starts, place), owner) + inner, parts.shape[0] - 1))
    values = tf.where(tf.gather(sizes, owner) > 0, replaced, tf.gather(flat, owner))
    edges = tf.concat([begin, total[None]], 0)
    return tf.RaggedTensor.from_row_splits(values, tf.gather(edges, tf.cast(points.row_splits, tf.int32)))


@functools.cache
def _lookup() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each code point (the last stands for all above) the place of its decomposition, 0 for none; where those begin; their parts."""
    keys, starts, parts = decompositions()
    where = np.zeros(int(keys[-1]) + 2, np.int32)
    where[keys] = np.arange(1, len(keys) + 1)
    return where, np.concatenate([[0], starts]).astype(np.int32), parts


@functools.cache
def decompositions() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Code points that NFKD changes [k] int32 ascending, where their parts begin [k + 1] int32, and the parts int32."""
    keys: list[int] = []
    parts: list[int] = []
    starts = [0]
    for point in range(0x80, 0x110000):
        if point in HANGUL or 0xD800 <= point < 0xE000:
            continue
        letter = chr(point)
        if unicodedata.decomposition(letter):
            decomposed = unicodedata.normalize("NFKD", letter)
            if decomposed != letter:
                keys.append(point)
                parts.extend(map(ord, decomposed))
                starts.append(len(parts))
    return np.array(keys, np.int32), np.array(starts, np.int32), np.array(parts, np.int32)


def quoted(text: str) -> str:
    """As a regular expression of RE2 that finds this text."""
    return re.sub(r"[^\w\s\u0080-\U0010ffff]", r"\\\g<0>", text)

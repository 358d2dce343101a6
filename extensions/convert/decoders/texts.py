"""A text as token numbers, as a converted model of hashed n-grams or of words takes it, with Python and numpy alone.

As nlp.tokens has it for printable ASCII; other texts are normalised by this Python's Unicode tables, which may be of another version than
TensorFlow's. `quartet export` puts a copy of this file beside the model, so it imports nothing of this project.
"""

import re
import unicodedata
from functools import lru_cache

import numpy as np

NEEDS: list = []
K0, K1, K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F  # of FarmHash
GOLDEN, MIX1, MIX2 = (np.int64(value - (1 << 64)) for value in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
LETTERS = np.int64(0x2545F4914F6CDD1D)
ALL = (1 << 64) - 1
TAG = re.compile(r"<[A-Za-z/!][^<>]{0,500}>")
APART = ("CJK UNIFIED", "CJK COMPATIBILITY", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")  # without spaces between words


def decode(settings, given):
    """A text as [1, tokens] int32."""
    words = _words(given, settings)[:settings["limit"]]
    if settings["name"] == "words":
        places = settings.setdefault("places", {word: place for place, word in enumerate(settings["facts"]["vocabulary"], 2)})
        return np.array([[places.get(word, 1) for word in words]], np.int32)
    return _hashed(words, settings)[None]


def words(settings, answers):
    """The label and its confidence, or `outside` where the model is not sure enough; several labels where a text may have them."""
    facts, shares = settings["facts"], answers["probabilities"]
    classes, threshold = facts["classes"], facts.get("threshold")
    named = dict(zip(classes, shares.tolist()))
    if settings["many"]:
        least = np.array(facts.get("thresholds") or [0.5 if threshold is None else threshold] * len(classes), np.float32)
        chosen = [place for place in np.argsort(-shares, kind="stable") if shares[place] >= least[place]]
        return {"labels": [classes[place] for place in chosen], "probabilities": named}
    best = int(shares.argmax())
    sure = not settings["outside"] or threshold is None or shares[best] >= np.float32(threshold)
    return {"label": classes[best] if sure else settings["outside"], "confidence": float(shares[best]), "probabilities": named}


def _words(text, settings):
    parts = [part if part.isascii() and part.isprintable() else _decomposed(part) for part in re.split(r"[\t\n\v\f\r ]+", text)]
    text = " ".join(parts)
    if settings["html"]:
        text = TAG.sub(" ", text)
    if settings["lower"]:
        text = text.lower()
    return "".join(f" {letter} " if _apart(letter) else letter for letter in text).split() or [""]


def _decomposed(part):
    letters = (letter if "\uac00" <= letter <= "\ud7a3" else unicodedata.normalize("NFKD", letter) for letter in part)
    return "".join(" " if unicodedata.category(letter)[0] in "ZC" else letter for whole in letters for letter in whole)


@lru_cache(1 << 16)
def _apart(letter):
    if letter.isalnum() and letter.isascii():
        return False
    return unicodedata.category(letter)[0] in "PS" or (not letter.isascii() and unicodedata.name(letter, "").startswith(APART))


def _hashed(words, settings):
    with np.errstate(over="ignore"):
        own = np.array([_hash(word) for word in words], np.int64)
        rows, whole = [], own
        for size in range(1, settings["words"] + 1):
            if size > 1:
                whole = whole[:-1] * GOLDEN + own[size - 1:]
            rows.append(_rows(whole, 1, settings["buckets"]))
        if settings["characters"]:
            more = settings["character_buckets"]
            begin, end = (settings["buckets"], settings["buckets"] + more) if more else (1, settings["buckets"])
            for size in range(settings["characters"][0], settings["characters"][1] + 1):
                runs = [_runs(word, size) for word in words]
                rows.append(_rows(np.concatenate(runs), begin, end))
    ids = np.concatenate(rows)
    if settings["distinct"]:
        ids = ids[np.sort(np.unique(ids, return_index=True)[1])]
    return ids


@lru_cache(1 << 16)
def _hash(word):
    return farmhash(word.encode()) % (1 << 62)


def _runs(word, size):
    """Hashes of all runs of so many letters, the ends of the word among them."""
    letters = np.array([2, *map(ord, word), 3], np.int64)
    whole = letters + LETTERS
    for step in range(1, size):
        whole = whole[:-1] * GOLDEN + letters[step:]
    return whole


def _rows(values, begin, end):
    for factor in (MIX1, MIX2):
        values = (values ^ (values >> 30 & np.int64((1 << 34) - 1))) * factor
    return (((values ^ (values >> 31)) & np.int64((1 << 62) - 1)) % (end - begin) + begin).astype(np.int32)


def farmhash(data):
    """FarmHash's 64-bit fingerprint of bytes (Pike and Alakuijala 2014), as tf.strings.to_hash_bucket_fast has it."""
    size = len(data)
    if size > 64:
        return _long(data)
    mul = K2 + 2 * size
    if size > 16:
        a, b = _at(data, 0) * (K1 if size <= 32 else K2), _at(data, 8)
        c, d = _at(data, size - 8) * mul, _at(data, size - 16) * K2
        y = _turned(a + b, 43) + _turned(c, 30) + d
        z = _pair(y, a + _turned(b + K2, 18) + c, mul)
        if size <= 32:
            return z
        e, f = _at(data, 16) * mul, _at(data, 24)
        g, h = (y + _at(data, size - 32)) * mul, (z + _at(data, size - 24)) * mul
        return _pair(_turned(e + f, 43) + _turned(g, 30) + h, e + _turned(f + a, 18) + g, mul)
    if size >= 8:
        a, b = _at(data, 0) + K2, _at(data, size - 8)
        return _pair(_turned(b, 37) * mul + a, (_turned(a, 25) + b) * mul, mul)
    if size >= 4:
        return _pair(size + (_at(data, 0, 4) << 3), _at(data, size - 4, 4), mul)
    if size:
        y, z = data[0] + (data[size >> 1] << 8), size + (data[-1] << 2)
        return _mixed(y * K2 ^ z * K0) * K2 & ALL
    return K2


def _long(data):
    size = len(data)
    x, y = 81, (81 * K1 + 113) & ALL
    z = _mixed(y * K2 + 113) * K2
    v, w = (0, 0), (0, 0)
    x = x * K2 + _at(data, 0)
    whole = range(0, (size - 1) // 64 * 64, 64)
    for turn, start in enumerate((*whole, size - 64)):
        mul, nine = K1, 1
        if turn == len(whole):  # the last 64 bytes, which overlap those before
            mul, nine = K1 + ((z & 0xFF) << 1), 9
            w = (w[0] + ((size - 1) & 63), w[1])
            v = (v[0] + w[0], v[1])
            w = (w[0] + v[0], w[1])
        x = _turned(x + y + v[0] + _at(data, start + 8), 37) * mul
        y = _turned(y + v[1] + _at(data, start + 48), 42) * mul
        x = (x & ALL) ^ (w[1] * nine & ALL)
        y = y + v[0] * nine + _at(data, start + 40)
        z = _turned(z + w[0], 33) * mul
        v = _weak(data, start, v[1] * mul, x + w[0])
        w = _weak(data, start + 32, z + w[1], y + _at(data, start + 16))
        z, x = x & ALL, z & ALL
    return _pair(_pair(v[0], w[0], mul) + _mixed(y) * K0 + z, _pair(v[1], w[1], mul) + x, mul)


def _weak(data, start, a, b):
    w, x, y, z = (_at(data, start + step) for step in (0, 8, 16, 24))
    a += w
    b = _turned(b + a + z, 21)
    c = a
    a += x + y
    return (a + z) & ALL, (b + _turned(a, 44) + c) & ALL


def _at(data, start, size=8):
    return int.from_bytes(data[start:start + size], "little")


def _turned(value, bits):
    value &= ALL
    return (value >> bits | value << 64 - bits) & ALL


def _mixed(value):
    value &= ALL
    return value ^ value >> 47


def _pair(u, v, mul):
    a = _mixed(((u ^ v) & ALL) * mul)
    return _mixed((v ^ a) * mul) * mul & ALL

"""Reads texts once; gives each one's length, fingerprint, word pairs, language and damage."""

import functools
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import tensorflow as tf

from nlp.tokens.base import Tokenizer, joined
from nlp.tokens.hashed import word_ngrams
from nlp.tokens.normalise import TAG, words

STEP = 512
LANGUAGE_CHARACTERS = 400  # beginning of a text by which its language is guessed
CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]")
MOJIBAKE = re.compile("[ÃÂâð][\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ\xa0-\xbf]")
# words that are frequent in one language and rare in others
COMMON = {
    "English": "the and of to is was that it for with this are have not you i my what how a in on at be so do no me we your if but or out "
    "will can just get now from up when who all there one go good know like call where",
    "German": "der die das und ist nicht ich ein eine mit zu auf von für auch wie es",
    "French": "le la les et est une des que pas dans pour je vous avec sur qui",
    "Spanish": "el los las y es una que por para con no del lo como mi",
    "Italian": "il gli e è una che non di per con sono mi della come",
    "Portuguese": "o os e é uma que não para com do da em um meu como",
    "Dutch": "de het een en is niet ik van voor met op dat zijn aan",
}
_COMMON = {name: set(text.split()) for name, text in COMMON.items()}


@dataclass
class Examined:
    """Findings by text.

    Attributes:
        characters, tokens: [n] int64.
        fingerprints: [n] uint64, equal for identical texts.
        empty: [n] bool, no word.
        kinds: [n] language or script, guessed.
        shingles: [n, None] int64, hashes of pairs of neighbouring words (of single words where there is one only).
        damaged: kind of damage -> numbers.
        tagged: texts with tags.
    """

    characters: np.ndarray
    tokens: np.ndarray
    fingerprints: np.ndarray
    empty: np.ndarray
    kinds: np.ndarray
    shingles: tf.RaggedTensor
    damaged: dict[str, list[int]] = field(default_factory=dict)
    tagged: int = 0


def examine(texts: tf.Tensor, cutter: Tokenizer, progress: Callable[[int, int], None] | None = None) -> Examined:
    """Every text of [n] string; `progress` is called now and then with (texts read, n)."""
    count = int(texts.shape[0])
    report = progress or (lambda done, of: None)
    measure: Callable[[tf.Tensor], tuple[tf.Tensor, ...]] = functools.partial(_measures, cutter=cutter)
    if count > STEP:  # to trace it takes seconds, in which a few hundred texts are long read
        measure = tf.function(measure, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    parts = []
    for start in range(0, count, STEP):
        report(start, count)
        parts.append([value.numpy() for value in measure(texts[start:start + STEP])])
    report(count, count)
    characters, tokens, prints, empty, tagged, flat, sizes = (np.concatenate(column) for column in zip(*parts)) if parts else (
        np.zeros(0, kind) for kind in (np.int64, np.int64, np.uint64, bool, bool, np.int64, np.int64))
    damaged: dict[str, list[int]] = {"replaced": [], "mojibake": [], "controls": []}
    kinds = []
    for number, stored in enumerate(texts.numpy().tolist()):
        text = stored.decode("utf-8", "replace")
        kinds.append(language(text))
        if CONTROLS.search(text):
            damaged["controls"].append(number)
        if not text.isascii():
            if "\ufffd" in text:
                damaged["replaced"].append(number)
            if MOJIBAKE.search(text) and _repairable(text):
                damaged["mojibake"].append(number)
    shingles = tf.RaggedTensor.from_row_lengths(flat, sizes)
    return Examined(characters, tokens, prints, empty, np.array(kinds, object), shingles, damaged, int(tagged.sum()))


def _measures(part: tf.Tensor, cutter: Tokenizer) -> tuple[tf.Tensor, ...]:
    tokens = words(part, html=True)
    single, double = (one[0] for one in word_ngrams(tokens, 2))
    alone = tokens.row_lengths() == 1
    lone = tf.RaggedTensor.from_row_lengths(tf.boolean_mask(single.flat_values, tf.repeat(alone, tokens.row_lengths())),
                                            tf.cast(alone, tf.int64))
    shingles = joined([[lone], [double]])[0]
    prints = tf.raw_ops.Fingerprint(data=tf.strings.strip(part)[:, None], method="farmhash64")
    return (tf.cast(tf.strings.length(part, unit="UTF8_CHAR"), tf.int64), cutter.cut(part).ids.row_lengths(),
            tf.bitcast(prints, tf.uint64), tf.reduce_all(tokens == "", 1),
            tf.strings.regex_full_match(part, f"(?s).*{TAG}.*"), shingles.flat_values, shingles.row_lengths())


def language(text: str) -> str:
    """The language that a text seems to be in, by its script and, in Latin letters, by frequent words; "other" where neither decides."""
    start = text[:LANGUAGE_CHARACTERS]
    if not start.isascii():
        scripts: dict[str, int] = {}
        for letter in start:
            if letter.isalpha():
                name = "LATIN" if letter.isascii() else unicodedata.name(letter, "?").split(" ")[0]
                scripts[name] = scripts.get(name, 0) + 1
        main = max(scripts, key=lambda name: scripts[name]) if scripts else ""
        if main in ("HIRAGANA", "KATAKANA") or (main == "CJK" and {"HIRAGANA", "KATAKANA"} & set(scripts)):
            return "Japanese"
        if main and main != "LATIN":
            return {"CJK": "Chinese", "HANGUL": "Korean"}.get(main, f"{main.capitalize()} script")
    used = re.findall(r"[^\W\d_]+", start.lower())
    counts = {name: sum(word in common for word in used) for name, common in _COMMON.items()}
    best = max(counts, key=lambda name: counts[name])
    second = max(count for name, count in counts.items() if name != best)
    # a word such as `no`, common to many languages, decides nothing
    return best if counts[best] > second and counts[best] >= 0.1 * len(used) else "other"


def _repairable(text: str) -> bool:
    """Whether the text, encoded as Windows-1252, is UTF-8: a real é or Ã is not."""
    for match in MOJIBAKE.finditer(text):
        try:
            text[match.start():match.start() + 4].encode("cp1252", "ignore").decode("utf-8")
            return True
        except UnicodeDecodeError as error:
            if error.start >= 2:
                return True
    return False

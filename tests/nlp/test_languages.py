"""Which encoder is proposed for texts that are not English."""

import numpy as np
import pytest
import tensorflow as tf

from nlp.tokens import languages
from nlp.tokens.base import Cut, Tokenizer
from pipelines.config.draft import new
from pipelines.config.load import from_text
from tests.encoders import tiny

GERMAN = [f"der zug nach {town} hat heute {count} minuten verspätung" for town in ("köln", "bern", "wien") for count in range(10)]


def cutting(pieces: int, size: int = 1000, unknown: float = 0.0) -> Tokenizer:
    """Each word in so many pieces, of which a share is unknown; between two marks."""
    draw = np.random.default_rng(0)

    def cut(texts: tf.Tensor) -> Cut:
        rows = [[2, *(1 if word == languages.NO_LETTER or draw.random() < unknown else 4 for word in text.decode().split()
                      for _ in range(pieces)), 3] for text in texts.numpy()]
        ids = tf.ragged.constant(rows, tf.int32)
        return Cut(ids, ids, ids)

    return Tokenizer(size, tf.strings.split, cut)


@pytest.mark.parametrize(("tokenizer", "said"), [
    (cutting(1), None), (cutting(2), "reads a word as 2.0 pieces"), (cutting(2, languages.MULTILINGUAL), None),
    (cutting(3, languages.MULTILINGUAL), "as 3.0 pieces"), (cutting(1, languages.MULTILINGUAL, 0.5), "% of their parts are unknown")])
def test_a_language_is_known_by_pieces_and_unknown_ones(tokenizer, said):
    found = languages.foreign(tokenizer, GERMAN)
    assert found is None if said is None else said in found


@pytest.mark.slow
def test_new_proposes_an_encoder_that_knows_the_language(tmp_path, monkeypatch):
    keras_hub = pytest.importorskip("keras_hub", reason="needs the extra `pretrained`: what it tests is not tested here")
    tiny.bert(tmp_path / "presets" / "letters")
    monkeypatch.setenv("QUARTET_PRESETS", str(tmp_path / "presets"))
    lines = [line for text in GERMAN for line in [*(f"{word}\t{'B-town' if word in ('köln', 'bern', 'wien') else 'O'}"
                                                    for word in text.split()), ""]]
    (tmp_path / "all.conll").write_text("\n".join(lines), encoding="utf-8")
    text = new("nlp", tmp_path / "all.conll")
    assert "None of the encoders at hand fits these data: with one that does, in the texts' language, things" in text
    assert "multilingual" in from_text(text).experiment.model.preset
    pieces = [*tiny.PIECES, *sorted({word for text in GERMAN for word in text.split()})]
    folder = tmp_path / "presets" / "words"
    keras_hub.models.BertBackbone(vocabulary_size=len(pieces), num_layers=1, num_heads=2, hidden_dim=32, intermediate_dim=32,
                                  max_sequence_length=32).save_to_preset(str(folder))
    keras_hub.models.BertTokenizer(vocabulary=pieces, lowercase=True, strip_accents=False).save_to_preset(str(folder))
    text = new("nlp", tmp_path / "all.conll")
    assert from_text(text).experiment.model.preset == "words" and "and their language" in text
    assert from_text(new("nlp", tmp_path / "all.conll", encoder="letters")).experiment.model.preset == "letters"
    english = "\n".join(lines).replace("der", "the").replace("nach", "to").replace("hat", "is on").split("\n")
    (tmp_path / "english.conll").write_text("\n".join(english).replace("heute", "the").replace("minuten", "of"), encoding="utf-8")
    assert from_text(new("nlp", tmp_path / "english.conll")).experiment.model.preset == "letters"

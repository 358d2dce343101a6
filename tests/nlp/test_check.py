"""`quartet check` on texts with one of everything that can be wrong."""

import numpy as np
import pytest
import tensorflow as tf

from nlp import tokens
from nlp.check import check_texts
from nlp.data.near_duplicates import near_pairs
from nlp.data.scan import STEP, examine, language
from nlp.settings import TextClassification, Words


def checked(path, cutting=None, **data):
    return check_texts(TextClassification.model_validate({
        "task": "nlp.classification", "model": {"name": "bag"}, "tokens": cutting,
        "data": {"source": "table", "path": str(path), "validation": 0.2, "test": 0.2, **data}}))


def plain(count=60):
    things = ["shower", "lamp", "window", "heating", "door", "wifi", "towel", "pillow", "kettle", "mirror"]
    return [(f"please look at the {things[number % 10]} in room {number}, it does not work", ("low", "high")[number % 2])
            for number in range(count)]


def write(folder, **splits):
    for name, rows in splits.items():
        (folder / f"{name}.csv").write_text("text,label\n" + "".join(f'"{text}",{label}\n' for text, label in rows), encoding="utf-8")
    return folder


def said(result, level=None):
    return "\n".join(finding.text + "\n" + "\n".join(finding.details) for finding in result.findings if level in (None, finding.level))


def test_clean_texts_have_nothing_but_notes(tmp_path):
    result = checked(write(tmp_path, train=plain()))
    assert not result.failed and {finding.level for finding in result.findings} == {"note"}
    assert result.splits["train"]["measures"]["tokens"]["median"] >= 12 and result.splits["train"]["common"][0][0] == "English"


def test_a_question_that_is_not_answered_is_said_of_an_experiment(tmp_path):
    rows = [f"{text},so {text.split(',')[0]},{number % 40 / 7:.3f}" for number, (text, _) in enumerate(plain(200))]
    (tmp_path / "t.csv").write_text("sentence1,more,sentence2,score\n" + "\n".join(rows) + "\n")
    warnings = said(checked(tmp_path / "t.csv", text_key="sentence1", label_key="score"), "warning")
    assert "the classes hold numbers (0 to 5.571, 40 different): the task for numbers, called regression, predicts them" in warnings
    assert "columns sentence1 and sentence2 are pairs of texts, and sentence1 alone is read" in warnings
    assert "pairs of texts" not in said(checked(tmp_path / "t.csv", text_key=["sentence1", "sentence2"], label_key="score"))


def test_everything_that_is_wrong_is_found(tmp_path):
    story = "we stayed three nights in this hotel by the harbour and the breakfast was the best that we had in years, really"
    rows = plain()
    train = [*rows, (story, "low"), ("", "low"), ("...", "high"), ("the same words", "low"), ("cafÃ© au lait was â€œgoodâ€\x9d", "high"),
             ("lost letter \ufffd here", "low"), ("long " * 300, "high"), ("only\x07bell rings", "low")]
    test = [(story.upper() + "!", "high"), ("the same words", "high"), ("another one", "low"), ("one more here", "low")]
    result = checked(write(tmp_path, train=train, test=test), test="test", cutting={"name": "hashed", "limit": 100})
    warnings = said(result, "warning")
    assert "the same text in more than one split" in warnings and "the same text with different labels" in warnings
    assert "nearly the same text in more than one split: 1 texts outside of train" in warnings
    assert "nearly the same text with different labels" in warnings
    assert "1 text is empty" in warnings or "2 texts are empty" in warnings
    assert "read as Windows-1252" in warnings and "U+FFFD" in warnings and "control characters" in warnings
    assert "longer than the limit of 100 tokens; 200 tokens" in said(result)
    assert not result.failed


def test_bad_rows_and_unknown_classes_fail(tmp_path):
    folder = write(tmp_path, train=plain(), test=[("a new kind", "never seen"), ("known", "low")])
    with (folder / "train.csv").open("a") as file:
        file.write("one field\nno label here,\n")
    result = checked(folder, test="test")
    assert result.failed
    errors = said(result, "error")
    assert "2 examples cannot be read" in errors and "train.csv:62: 1 field" in errors and "never seen" in errors
    assert not checked(write(tmp_path, test=[("known", "low")]), test="test", on_bad_example="skip").failed
    # what training would skip is no error, and is said
    skipped = checked(write(tmp_path, test=[("a new kind", "never seen"), ("known", "low")]), test="test", on_bad_example="skip")
    assert not skipped.failed and "class never seen is not in train" in said(skipped, "warning")
    assert skipped.splits["test"]["examples"] == 1


def test_several_labels_are_counted_and_compared(tmp_path):
    train = [(text, "low;loud" if number % 2 else "low") for number, (text, _) in enumerate(plain())]
    folder = write(tmp_path, train=[*train, ("the same words", "low"), ("the same words", "loud;low"), ("the same words", "")],
                   test=[("once more", "low"), ("a new kind", "low;strange")])
    result = checked(folder, test="test", labels="many", validation=0.0)
    assert result.splits["train"]["classes"] == {"loud": 31, "low": 62, "strange": 0}
    assert "is low = " in said(result, "warning") and "is loud, low = " in said(result, "warning")
    assert "is without label" in said(result, "warning")
    assert result.failed and "test has 1 class of which train has no example\nstrange" in said(result, "error")
    assert not checked(folder, test="test", labels="many", on_bad_example="skip").failed


def test_rejection_without_validation_is_an_error(tmp_path):
    for validation, failed in ((0.0, True), (0.2, False)):
        made = check_texts(TextClassification.model_validate({
            "task": "nlp.classification", "model": {"name": "bag"}, "reject": {"accept": 0.9},
            "data": {"source": "table", "path": str(write(tmp_path, train=plain())), "validation": validation, "test": 0.2}}))
        assert made.failed is failed and ("no validation split" in said(made, "error")) is failed


def test_the_limit_is_that_of_the_setting_that_sets_it(tmp_path):
    folder = write(tmp_path, train=[(text * 40, label) for text, label in plain()])
    made = check_texts(TextClassification.model_validate({
        "task": "nlp.classification", "model": {"name": "pretrained", "preset": "some_preset"},
        "data": {"source": "table", "path": str(folder), "validation": 0.2, "test": 0.2}}))
    assert "longer than the limit of 128 tokens" in said(made) and "model.limit sets it" in said(made)


def test_markup_is_told(tmp_path):
    result = checked(write(tmp_path, train=[(f"{text}<br /><br />and so on", label) for text, label in plain()]))
    assert "tokens.html: true leaves them out" in said(result)


def test_many_texts_are_measured_as_few_are():
    """Beyond a batch the function is traced; what it finds is the same."""
    texts = tf.constant([f"{text} <b>{'words ' * (number % 7)}" for number, (text, _) in enumerate(plain(STEP + 40))])
    cutter = tokens.make(Words(name="words", limit=100), {"vocabulary": []})
    whole, parts = examine(texts, cutter), [examine(part, cutter) for part in (texts[:STEP], texts[STEP:])]
    for name in ("characters", "tokens", "fingerprints", "empty", "kinds"):
        assert np.array_equal(getattr(whole, name), np.concatenate([getattr(one, name) for one in parts])), name
    assert whole.shingles.to_list() == [row for one in parts for row in one.shingles.to_list()] and whole.tagged == STEP + 40


@pytest.mark.parametrize("text, name", [
    ("the room was not what i had hoped for and it was loud", "English"), ("ich habe das Zimmer nicht mit einer Frau geteilt", "German"),
    ("je ne suis pas content de la chambre que vous avez", "French"), ("мы не можем открыть дверь", "Cyrillic script"),
    ("部屋がとても汚いです", "Japanese"), ("房间很脏", "Chinese"), ("방이 더러워요", "Korean"), ("xyzzy plugh", "other"), ("", "other")])
def test_languages_are_guessed(text, name):
    assert language(text) == name


def test_near_pairs_are_those_that_overlap():
    base = list(range(100, 200))
    rows = [base, [*base[:95], 1, 2, 3], [*base[:50], *range(50)], [], [7], [7]]
    pairs, capped = near_pairs([tf.ragged.constant(rows[:3], dtype=tf.int64), tf.ragged.constant(rows[3:], dtype=tf.int64, ragged_rank=1)])
    assert [(one, other) for one, other, _ in pairs] == [(0, 1), (4, 5)] and not capped
    assert pairs[0][2] == pytest.approx(95 / 103)


def test_english_with_no_is_not_spanish():
    assert language("No u dont. call me") == "English" and language("No, nada") in ("other", "Spanish")

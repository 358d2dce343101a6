"""Errors counted by hand, aligned, by word and by speaker."""

import jiwer
import numpy as np
import pytest
import tensorflow as tf

from pipelines.task.units import EXAMPLES
from speech.metrics import detection, sound_figures, word_errors
from speech.metrics.word_errors import spoken_form

pytestmark = pytest.mark.figures

SAID = ["one two three", "four", "five six", "", "seven eight nine"]
WRITTEN = ["one too three", "", "five six six", "oh", "seven eight nine"]


def test_counts_by_hand_and_by_jiwer():
    counted = word_errors.count(SAID, WRITTEN)
    assert counted.table[:, :4].tolist() == [[2, 1, 0, 0], [0, 0, 1, 0], [2, 0, 0, 1], [0, 0, 0, 1], [3, 0, 0, 0]]
    found = word_errors.metrics(counted, resamples=100)
    assert found["wer"].value == pytest.approx(4 / 9) and found["wer"].low < 4 / 9 < found["wer"].high
    assert found["deletion_share"].value == pytest.approx(1 / 9) and found["sentence_accuracy"].value == pytest.approx(1 / 5)
    spoken = [place for place, text in enumerate(SAID) if text]
    both = [SAID[place] for place in spoken], [WRITTEN[place] for place in spoken]
    some = word_errors.metrics(word_errors.count(*both), resamples=100)
    assert some["wer"].value == pytest.approx(jiwer.wer(*both)) and some["cer"].value == pytest.approx(jiwer.cer(*both))


def test_without_an_error_the_interval_still_says_how_little_was_heard():
    found = word_errors.metrics(word_errors.count(["one two"] * 30, ["one two"] * 30), resamples=100)
    assert found["wer"].value == found["wer"].low == 0.0 and 0.03 < found["wer"].high < 0.08
    assert found["sentence_accuracy"].value == found["sentence_accuracy"].high == 1.0 and found["sentence_accuracy"].low < 0.9


def test_by_word_and_by_speaker():
    counted = word_errors.count(SAID, WRITTEN)
    rows = {row["word"]: row for row in word_errors.per_word(counted)}
    assert rows["two"]["written_instead"] == "too 1" and rows["two"]["error_rate"] == 1.0
    assert rows["four"]["missed"] == 1 and rows["six"]["inserted"] == 1 and rows["oh"]["error_rate"] is None
    people = word_errors.per_speaker(counted, ["a", "b", "a", "b", "b"])
    assert [row["speaker"] for row in people] == ["b", "a"] and people[0]["wer"] == pytest.approx(2 / 4) and people[1]["inserted"] == 1
    assert word_errors.per_speaker(counted, None) == []


def test_the_worst_come_first_and_words_stand_under_words():
    counted = word_errors.count(SAID, WRITTEN)
    assert word_errors.worst(counted, 3) == [3, 1, 2]
    first, second = word_errors.lines(counted.pairs[0])
    assert first == "one TWO three" and second == "one TOO three"
    first, second = word_errors.lines(word_errors.align(["five", "six"], ["five", "six", "six"]))
    assert len(first) == len(second) and first.count("*") == 3 and "SIX" in second


def test_det_and_equal_error_rate():
    rng = np.random.default_rng(0)
    truth = rng.random(4000) < 0.3
    scores = rng.normal(truth * 2.0, 1.0)
    thresholds, alarms, misses = detection.det_curve(scores, truth)
    assert np.all(np.diff(alarms) <= 0) and np.all(np.diff(misses) >= 0) and (alarms[-1], misses[0]) == (0.0, 0.0)
    at = len(thresholds) // 2
    assert alarms[at] == pytest.approx(np.mean(scores[~truth] >= thresholds[at]))
    assert misses[at] == pytest.approx(np.mean(scores[truth] < thresholds[at]))
    assert detection.equal_error_rate(scores, truth) == pytest.approx(0.1587, abs=0.02)  # normal scores two deviations apart
    assert detection.equal_error_rate(truth.astype(float), truth) == 0.0 and np.isnan(detection.equal_error_rate(scores, truth | True))
    assert detection.figure({"go": (alarms, misses)}).axes


def test_accuracy_by_speaker_and_which_speakers_are_in_train():
    rows = sound_figures.accuracy_by_speaker(np.array([True, False, True, True]), ["a", "b", "b", "a"])
    assert [row["speaker"] for row in rows] == ["b", "a"] and rows[0]["accuracy"] == 0.5 and rows[1]["accuracy_low"] < 1.0
    assert sound_figures.speakers_in_train(["a"], ["b"]) == "The speaker judged is not in train."
    assert "All speakers" in sound_figures.speakers_in_train(["a", "b"], ["a", "b", "c"])
    assert sound_figures.speakers_in_train(["a", "d"], ["a"]).startswith("1 of the 2")
    assert sound_figures.speakers_in_train(None, ["a"]) is None


# the cheap model beside the score

def test_the_most_similar_training_recording_s_transcript_stands_beside_the_model():
    from speech.metrics import baseline

    rng = np.random.default_rng(0)
    pitches = {"low high": (2, 12), "high low": (12, 2), "low low": (2, 2)}

    def heard(text: str, frames: int) -> np.ndarray:
        bands = rng.normal(0.0, 0.1, [40, 16])
        for part, band in enumerate(pitches[text]):
            bands[part * frames // 2:(part + 1) * frames // 2, band] += 5.0
        bands[frames:] = 99.0  # not looked at
        return bands.astype(np.float32)

    def features(source):
        texts, frames = source
        bands = tf.constant(np.stack([heard(*one) for one in zip(texts, frames)]))
        seen = baseline.statistics_by_part(bands, tf.constant(frames), mfcc=False)
        return seen.numpy(), {"texts": texts}

    class Source(tuple):
        def __len__(self):
            return len(self[0])

    train = Source((list(pitches) * 4, [24, 30, 36] * 4))
    cheap = baseline.nearest(train, features, lambda targets: targets["texts"])
    assert cheap.score(Source((list(pitches), [27, 33, 30]))).tolist() == [1.0, 1.0, 1.0]
    assert cheap.metric == "word_accuracy"
    said, written = ["a b", "a b", "", "a"], ["a b", "b", "c", "a b c"]
    np.testing.assert_equal(baseline.word_accuracy(said, written), [1.0, 0.5, np.nan, -1.0])


@pytest.mark.parametrize(("written", "spoken"), [
    ("Well, it's the 21st: $1,250 for 3.5 twenty-gram bars!",
     "well it's the twenty first one thousand two hundred fifty dollars for three point five twenty gram bars"),
    ("In 1999, 2005 and 1100 people; 5% of 1,000,000.",
     "in nineteen ninety nine two thousand five and one thousand one hundred people five percent of one million"),
    ("Salt and pepper: one hundred and two", "salt and pepper one hundred two"),
    ("Don\u2019t, 'she' said \u2013 the 12th, at 10:30, A4", "don't she said the twelfth at ten thirty a4"),
    ("9" * 16, " ".join(["nine"] * 16)), ("", "")])
def test_what_is_compared_is_what_was_said(written, spoken):
    assert spoken_form(written, english=True) == spoken
    assert spoken_form(spoken, english=True) == spoken, "words stay as they are"


def test_the_normalised_rate_counts_what_is_heard():
    reference, hypothesis = ["It is 5 o'clock.", "two cats"], ["it is five o'clock", "Two dogs!"]

    def rate(english):
        return word_errors.normalized(reference, hypothesis, resamples=10, units=EXAMPLES, english=english).value
    assert rate(True) == pytest.approx(1 / 6) and rate(False) == pytest.approx(2 / 6)

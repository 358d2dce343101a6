"""Whether two recordings are of one voice: the two-covariance model against its definition, pairs, data, and answers by every way out."""

import base64
import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from scipy.stats import multivariate_normal

import quartet
from pipelines.base.errors import ConfigError, DataError
from pipelines.config.draft import new
from pipelines.config.load import from_text
from pipelines.runs.folder import RunFolder
from pipelines.runs.launch import task_class
from pipelines.runs.run import Call, train
from pipelines.serving.export import export
from pipelines.serving.exported import ExportedModel
from pipelines.serving.load import load_run
from pipelines.task.prepared import prepare, splits_of
from pipelines.task.requests import decoded
from pipelines.task.units import EXAMPLES
from speech.data.recordings import Facts, Recordings
from speech.data.voices import joined
from speech.metrics import detection
from speech.metrics import voices as pairs_of
from speech.models import voices
from tests.data.test_prepared import assert_same_splits

EXPERIMENT = """task: speech.verification
data: {source: synthetic, rate: 8000, seconds: 1.0, join: 1.0, validation: VALIDATION, test: 0.3}
model: MODEL
evaluate: {bootstrap: 100}
train: {precision: float32, devices: cpu, epochs: 2}
"""


def drawn(voices=60, recordings=8, width=4, seed=0, apart=2.0):
    """Features [n, width + 3] of voices, the last three of them noise, and the labels."""
    draw = np.random.default_rng(seed)
    labels = np.repeat(np.arange(voices), recordings)
    mixed = draw.normal(size=(width, width))
    own = apart * draw.normal(size=(voices, width))[labels] + draw.normal(size=(len(labels), width))
    return np.concatenate([own @ mixed, draw.normal(size=(len(labels), 3))], 1), labels


class TestTwoCovariances:
    def test_a_score_is_the_logarithm_of_the_ratio_of_both_densities(self):
        """By scipy's normal distribution, with the covariances that the fit has."""
        features, labels = drawn()
        ridges = (0.1, 0.03)
        fitted = voices._fit(features, labels, ridges)

        def standard(rows):
            scaled = (rows - features.mean(0)) / features.std(0)
            return scaled / np.linalg.norm(scaled, axis=1, keepdims=True) * 7**0.5

        def to_diagonal(matrix, share):
            return (1 - share) * matrix + share * np.diag(np.diag(matrix))

        scaled = standard(features)
        means = np.array([scaled[labels == voice].mean(0) for voice in range(60)])
        within = np.mean([(rows := scaled[labels == voice] - means[voice]).T @ rows / 8 for voice in range(60)], 0)
        within, between = to_diagonal(within, ridges[0]), to_diagonal(np.cov(means.T, bias=True), ridges[1])
        one = np.block([[between + within, between], [between, between + within]])
        new = drawn(seed=1)[0][:5]
        vectors = fitted.vectors(new)
        scores = voices.scores(vectors, vectors)
        for first in range(5):
            for second in range(5):
                a, b = standard(new[[first, second]])
                expected = multivariate_normal(np.tile(means.mean(0), 2), one).logpdf(np.concatenate([a, b])) - sum(
                    multivariate_normal(means.mean(0), between + within).logpdf(each) for each in (a, b))
                assert scores[first, second] == pytest.approx(expected, rel=1e-4, abs=1e-4)

    def test_the_layer_gives_what_was_fitted(self):
        features, labels = drawn()
        fitted = voices.fit(features, labels)
        layer = voices.TwoCovariances()
        layer.build([None, features.shape[1]])
        layer.put(fitted)
        given, expected = layer(features.astype(np.float32)).numpy(), fitted.vectors(features)
        np.testing.assert_allclose(voices.scores(given, given), voices.scores(expected, expected), rtol=1e-3, atol=2e-3)

    def test_new_voices_are_told_apart_with_probabilities_that_hold(self):
        features, labels = drawn(voices=80, width=12)
        fitted = voices.fit(features[:320], labels[:320])
        found = pairs_of.Pairs.of(voices.scores(*[fitted.vectors(features[320:])] * 2), labels[320:])
        plain = voices.normalized((features[320:] - features[:320].mean(0)) / features[:320].std(0))
        assert pairs_of.eer(found) < 0.1 < pairs_of.eer(pairs_of.Pairs.of(plain @ plain.T, labels[320:]))
        probability = 1 / (1 + np.exp(-found.scores))
        weights = np.where(found.same, 0.5 / found.same.sum(), 0.5 / (~found.same).sum())
        for low, high in ((0.05, 0.4), (0.4, 0.6), (0.6, 0.95)):  # where one and two are as likely before
            inside = (probability >= low) & (probability < high)
            share = np.sum(weights[inside] * found.same[inside]) / np.sum(weights[inside])
            assert share == pytest.approx(np.average(probability[inside], weights=weights[inside]), abs=0.12)

    @pytest.mark.parametrize(("features", "labels"), [
        (np.ones((8, 5)), np.repeat(np.arange(4), 2)),  # nothing varies
        (np.random.default_rng(0).normal(size=(7, 30)), np.array([0, 0, 1, 2, 3, 4, 5])),  # one pair of one voice
    ])
    def test_data_that_teach_nothing_give_finite_scores(self, features, labels):
        vectors = voices.fit(features, labels).vectors(features)
        assert np.isfinite(voices.scores(vectors, vectors)).all()

    def test_the_cosine_is_one_that_says_how_likely_one_voice_is(self):
        features, labels = drawn()
        vectors = voices.cosine(features, labels).vectors(features)
        found, values = voices.scores(vectors, vectors), voices.normalized((features - features.mean(0)) / features.std(0))
        cosines = values @ values.T / 7
        slope = (found[0, 1] - found[0, 2]) / (cosines[0, 1] - cosines[0, 2])
        assert slope > 0
        np.testing.assert_allclose(found, slope * cosines + (found[0, 0] - slope * cosines[0, 0]), atol=1e-6)

    def test_scores_that_say_nothing_are_log_odds_of_none(self):
        draw = np.random.default_rng(0)
        for fitted in (voices.fit, voices.cosine):
            vectors = fitted(draw.normal(size=(40, 6)), np.repeat(np.arange(10), 4)).vectors(draw.normal(size=(20, 6)))
            assert np.abs(voices.scores(vectors, vectors)).max() < 1.0

    def test_calibration_is_at_the_least_loss(self):
        draw = np.random.default_rng(0)
        same = draw.random(4000) < 0.1
        found = np.where(same, draw.normal(2, 1, 4000), draw.normal(-1, 1, 4000))  # log-odds 3 (s - 0.5), of equal normal distributions
        scale, offset, loss = voices.calibration(found, same)
        assert scale == pytest.approx(3.0, rel=0.1) and offset == pytest.approx(-1.5, abs=0.25)
        weights = np.where(same, 0.5 / same.sum(), 0.5 / (~same).sum())

        def of(scale, offset):
            return np.sum(weights * np.logaddexp(0, np.where(same, -1, 1) * (scale * found + offset)))
        assert loss == pytest.approx(of(scale, offset), abs=1e-4)
        assert all(of(scale + one, offset + other) > of(scale, offset) for one in (-0.1, 0.1) for other in (-0.1, 0.1))


class TestPairs:
    def test_rates_and_costs_as_counted_by_hand(self):
        draw = np.random.default_rng(0)
        labels = draw.integers(0, 4, 20)
        scores = draw.normal(size=(20, 20)).round(1)  # with ties
        scores = scores + scores.T
        found = pairs_of.Pairs.of(scores, labels)
        assert len(found.scores) == 190 and (np.diff(found.scores) >= 0).all()
        rows = [(scores[a, b], labels[a] == labels[b]) for a in range(20) for b in range(a)]
        costs = []
        for threshold in [*{score for score, _ in rows}, np.inf]:
            misses = np.mean([score < threshold for score, same in rows if same])
            alarms = np.mean([score >= threshold for score, same in rows if not same])
            costs.append((0.05 * misses + 0.95 * alarms) / 0.05)
        metrics = found.metrics(0.05, 100, EXAMPLES)
        assert metrics["min_dcf"].value == pytest.approx(min(costs))
        assert metrics["eer"].value == pytest.approx(detection.equal_error_rate(found.scores, found.same))
        assert metrics["false_match_rate"].value == pytest.approx(np.mean([score >= 0 for score, same in rows if not same]))
        assert metrics["false_non_match_rate"].value == pytest.approx(np.mean([score < 0 for score, same in rows if same]))
        assert all(metric.low <= metric.value <= metric.high for metric in metrics.values())

    def test_a_recording_drawn_twice_has_its_pairs_twice(self):
        found = pairs_of.Pairs.of(np.array([[0, 1, 2], [1, 0, 3], [2, 3, 0.0]]), np.array([0, 0, 1]))
        seen = []
        found.metric(lambda counts: (seen.extend(counts.tolist()), np.zeros(len(counts)))[1], 100, EXAMPLES)
        assert seen[0] == [1, 1, 1] and all(set(row) <= {0, 1, 2, 4} for row in seen)

    def test_the_most_alike_recording(self):
        scores = np.array([[9, 1, 2.0, 0], [1, 9, 0, 3], [2, 0, 9, 1], [0, 3, 1, 9]])
        nearest, right = pairs_of.found_voice(scores, np.array([0, 1, 0, 2]))
        assert nearest.tolist() == [2, 3, 0, 1]
        np.testing.assert_array_equal(right, [1, np.nan, 1, np.nan])


class TestData:
    def made(self, speakers, lengths):
        waves = [np.full(length, number, np.int16) for number, length in enumerate(lengths)]
        names = [f"{number}.wav" for number in range(len(waves))]
        return Recordings(waves.__getitem__, Facts(names, names, speakers=speakers, lengths=np.array(lengths, np.int32)), "made",
                          groups=np.array(speakers))

    def test_words_are_joined_by_voice_and_none_stands_twice(self):
        source = self.made([*"ababababab", "c", "c"], [10] * 10 + [3, 3])
        found = joined(source, 20, seed=0)
        assert sorted(found.facts.speakers) == ["a", "a", "b", "b", "c"]  # a fifth word of each is left; of c there is nothing else
        used = [set(found.load(number).tolist()) for number in range(len(found))]
        assert sum(map(len, used)) == len(set().union(*used)) == 10
        for number, own in enumerate(used):
            assert {source.facts.speakers[one] for one in own} == {found.facts.speakers[number]} == {found.groups[number]}
            assert len(found.load(number)) == found.facts.lengths[number]
        assert joined(source, 20, seed=0).fingerprint() == found.fingerprint() != joined(source, 20, seed=1).fingerprint()

    def experiment(self, folder, **data):
        settings = {"source": "folder", "path": str(folder), "rate": 8000, "seconds": 0.3, "validation": 0.0, "test": 0.4, **data}
        return from_text(f"task: speech.verification\ndata: {json.dumps(settings)}\nmodel: {{name: plda}}\n", [], file="voices").experiment

    def folders(self, place, names, count=3):
        draw = np.random.default_rng(0)
        for name in names:
            (place / name).mkdir()
            for number in range(count):
                soundfile.write(place / name / f"{number}.wav", draw.uniform(-0.3, 0.3, 2400), 8000)

    def test_folders_are_voices_of_which_none_is_in_two_splits(self, tmp_path):
        self.folders(tmp_path, [*"abcdefgh", "_background_noise_"])
        experiment = self.experiment(tmp_path)
        splits = task_class(experiment.task)(experiment).splits()
        train, test = ({*splits.train.facts.speakers}, {*splits.test.facts.speakers})
        assert train | test == set("abcdefgh") and not train & test and splits.facts["voices"] == sorted(train)
        assert min(splits.test.labels) == len(train)  # their numbers lie behind those of train

    def test_prepared_data_are_the_same(self, tmp_path):
        (tmp_path / "made").mkdir()
        self.folders(tmp_path / "made", "abcdefgh", count=4)
        one = self.experiment(tmp_path / "made", join=0.5)
        prepare(task_class(one.task)(one), tmp_path / "ready")
        again = self.experiment(tmp_path / "made", join=0.5, prepared=str(tmp_path / "ready"))
        assert_same_splits(task_class(one.task)(one).splits(), splits_of(task_class(again.task)(again)))

    def test_new_takes_the_column_of_the_speaker_or_says_that_there_is_none(self, tmp_path):
        self.folders(tmp_path, "abcdefgh")
        files = sorted(tmp_path.glob("*/*.wav"))
        table = tmp_path / "talk.csv"
        for header, label in (("file,speaker", "speaker"), ("file,text,speaker", "speaker"), ("file,who,class", "who")):
            rows = [",".join([str(file), *{"speaker": [file.parent.name], "text,speaker": [f"{file.stem} words", file.parent.name],
                                           "who,class": [file.parent.name, file.stem]}[header[5:]]]) for file in files]
            table.write_text("\n".join([header, *rows]))
            given = {"columns": {"label": label}} if label == "who" else {}
            experiment = from_text(new("speech", table, task="verification", **given), [], file="new").experiment
            splits = task_class(experiment.task)(experiment).splits()
            assert experiment.task == "speech.verification" and {*splits.train.facts.speakers} < set("abcdefgh")
        table.write_text("\n".join(["file,text", *(f"{file},{file.stem} words" for file in files)]))
        with pytest.raises(DataError, match=r"no column says who speaks; name it with --label"):
            new("speech", table, task="verification")

    def test_too_few_voices_or_recordings_are_refused(self, tmp_path):
        self.folders(tmp_path, "abcd")
        experiment = self.experiment(tmp_path)
        with pytest.raises(DataError, match=r"train has 2 voices; 4 or more are needed .*data\.speaker_pattern"):
            task_class(experiment.task)(experiment).splits()
        experiment = self.experiment(tmp_path, join=5.0, test=None)
        with pytest.raises(DataError, match=r"no voice of train has two recordings \(data\.join\)"):
            task_class(experiment.task)(experiment).splits()

    def test_a_network_needs_two_voices_to_be_validated_by(self):
        with pytest.raises(DataError, match=r"validation: it takes two voices.*hold out more of the voices"):
            trained("{name: ds_cnn, width: 8, depth: 1}", "0.05", None)


def trained(model, validation, folder):
    known = from_text(EXPERIMENT.replace("MODEL", model).replace("VALIDATION", validation), [], file="voices")
    if folder is None:
        return task_class(known.experiment.task)(known.experiment).splits()
    return train(known.experiment, RunFolder(folder), Call("voices", task_class(known.experiment.task), quiet=True))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "one"
    return trained("{name: plda}", "0.0", folder), quartet.load(str(folder)), folder


@pytest.fixture(scope="module")
def sounds(tmp_path_factory):
    """Three recordings of one synthetic voice, and one of another."""
    from speech.data import quickstart

    place, found = tmp_path_factory.mktemp("sounds"), []
    for number, speaker in enumerate((3, 3, 3, 8)):
        words = "".join(quickstart.WORDS[number:number + 3])
        found.append(place / f"{number}.wav")
        soundfile.write(found[-1], quickstart.say(words, speaker, np.random.default_rng(number)), quickstart.RATE)
    return [str(path) for path in found]


@pytest.mark.slow(seconds=20)
class TestARun:
    def test_the_report_judges_pairs_of_voices_that_were_not_heard(self, run):
        report = run[0]
        assert report["metrics"]["test/eer"]["value"] < 0.15 and 0 < report["metrics"]["test/min_dcf"]["value"] <= 1
        assert report["metrics"]["test/found_voice"]["value"] > 0.8
        assert len(report["tables"]["test/per_voice"]) == 3 and "cosine" in report["tables"]["test/baselines"][1]["model"]
        notes = " ".join(report["notes"])
        assert "of 3 voices" in notes and "None of the 3 speakers judged is in train" in notes

    def test_the_first_recording_is_compared_with_the_others(self, run, sounds):
        _, model, _ = run
        answers = model.predict(sounds)
        assert len(answers) == 3 and answers[0]["score"] > answers[2]["score"] and answers[1]["score"] > answers[2]["score"]
        for one in answers:
            assert one["probability"] == pytest.approx(1 / (1 + np.exp(-one["score"])), abs=1e-6) and one["same"] == (one["score"] > 0)
        back = model.predict([sounds[3], sounds[0]])[0]["score"]
        assert back == pytest.approx(answers[2]["score"], abs=1e-4)  # in either order

    def test_a_request_and_the_exported_model_answer_the_same(self, run, sounds, tmp_path):
        _, model, folder = run
        one, other = ({"b64": base64.b64encode(Path(path).read_bytes()).decode()} for path in sounds[:2])
        expected = model.predict(sounds[:2])[0]["score"]
        assert model.predict([json.dumps({"sound": one, "other": other})])[0]["score"] == pytest.approx(expected, abs=1e-5)
        loaded = load_run(RunFolder(folder), where="cpu")
        exported = ExportedModel(export(loaded, tmp_path / "exported"))
        row = loaded.task.input.requests.take(decoded({"sound": one, "other": other}))
        assert exported.together([("one", row)])[0].values["score"] == pytest.approx(expected, abs=1e-4)

    def test_bytes_are_answered_without_being_said_again(self, run, sounds):
        one, other = (Path(path).read_bytes() for path in sounds[:2])
        (answer,) = run[1].predict({"sound": one, "other": other})
        assert set(answer) == {"input", "score", "probability", "same"} and answer["input"] == "0"
        assert answer["score"] == pytest.approx(run[1].predict(sounds[:2])[0]["score"], abs=1e-5)

    @pytest.mark.parametrize(("given", "why"), [
        (lambda sounds: sounds[:1], "give two recordings or more"),
        (lambda sounds: ["nowhere.wav", sounds[0]], "nowhere.wav.*the first recording is the voice"),
    ])
    def test_what_cannot_be_compared_is_refused(self, run, sounds, given, why):
        with pytest.raises((DataError, ConfigError), match=why):
            run[1].predict(given(sounds))

    def test_what_a_client_may_send(self, run):
        requests = load_run(RunFolder(run[2]), where="cpu").task.input.requests
        for sent, why in ((b"RIFF", "send two sound files"), ({"sound": b"x", "other": b"x"}, "sound: not a readable sound file"),
                          ({"sound": b""}, "send two sound files"), ({"sound": 3, "other": 4}, "sound: ")):
            with pytest.raises(DataError, match=why):
                requests.take(sent)
        for sent, given in (({"sound": {"b64": "YQ=="}, "other": 3}, {"sound": b"a", "other": 3}), ({"b64": "YQ=="}, b"a"), ([1], [1])):
            assert decoded(sent) == given
        assert isinstance(decoded({"sound": {"b64": "%"}}), DataError) and "sound: b64" in str(decoded({"sound": {"b64": "%"}}))

    def test_a_network_learns_by_angles_and_validation_says_from_what_score_on_voices_are_one(self, tmp_path):
        report = trained("{name: ds_cnn, width: 8, depth: 1}", "0.3", tmp_path / "net")
        scale, _ = load_run(RunFolder(tmp_path / "net"), where="cpu").task.facts["calibration"]
        assert scale > 0
        own, cheap = report["tables"]["test/baselines"]
        assert cheap["eer"] < own["eer"] == report["metrics"]["test/eer"]["value"]  # two epochs teach little

    def test_a_margin_makes_its_own_voice_harder(self):
        known = from_text(EXPERIMENT.replace("MODEL", "{name: ds_cnn}").replace("VALIDATION", "0.3"), [], file="voices").experiment
        output = task_class(known.task)(known, {"voices": ["a", "b", "c", "d"], "mean": [0.0] * 40, "std": [1.0] * 40}).output
        cosines = np.float32([[0.6, 0.1, -0.2, 0.0]] * 2)
        outputs = {"vector": np.zeros([2, 9], np.float32), "cosines": cosines}
        targets = np.array([0, 7])  # the second voice is none of train's
        for training, margin in ((False, 0.0), (True, 0.2)):
            losses, counts = (part.numpy() for part in output.loss(outputs, targets, training))
            logits = 30.0 * np.array([np.cos(np.arccos(0.6) + margin), 0.1, -0.2, 0.0])
            assert losses[0] == pytest.approx(np.log(np.exp(logits).sum()) - logits[0], rel=1e-3, abs=1e-6)
            assert losses[1] == 0 and counts.tolist() == [1, 0]

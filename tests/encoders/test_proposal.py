"""Which encoder `quartet new` proposes, by what lies in the presets' folder, what a person asks for, and the kind of data."""

import csv
import importlib.util
import json
import os
import re
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from nlp.models import word_scores
from pipelines.base.errors import ConfigError
from pipelines.commands import main
from pipelines.commands.estimate import estimate
from pipelines.config.draft import look, new
from pipelines.config.load import from_text
from pipelines.encoders import listing
from tests import processes
from tests.encoders import tiny
from tests.encoders.test_presets import BERT, keras_preset
from tests.speech.synthetic_recordings import tone, write

HERE = all(importlib.util.find_spec(name) for name in ("keras_hub", "tensorflow_text"))
pytestmark = pytest.mark.skipif(not HERE and not os.environ.get("QUARTET_REQUIRE_EXTRAS"),
                                reason="needs the extra `pretrained` (keras-hub, tensorflow-text): what it tests is not tested here")


@pytest.fixture(autouse=True)
def there(monkeypatch, tmp_path):
    """The presets' folder."""
    folder = tmp_path / "presets"
    folder.mkdir()
    monkeypatch.setenv("QUARTET_PRESETS", str(folder))
    monkeypatch.setenv("KAGGLEHUB_CACHE", str(tmp_path / "kaggle"))
    return folder


def photos(folder: Path, count: int = 12, mode: str = "RGB", edge: int = 200, names: tuple[str, ...] = ("cat", "dog")) -> Path:
    for name in names:
        (folder / name).mkdir(parents=True)
        for number in range(count):
            Image.new(mode, (edge, edge), number).save(folder / name / f"{number}.png")
    return folder


def questions(path: Path, texts: str = "what is the {} of my account", classes: int = 4, count: int = 60) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        writer.writerows([texts.format(number), f"class {number % classes}"] for number in range(count))
    return path


def header(text: str) -> str:
    return "".join(line for line in text.splitlines() if line.startswith("#"))


def test_photos_get_the_encoder_that_is_at_hand(there, tmp_path):
    data = photos(tmp_path / "photos")
    without = new("vision", data)
    plain = from_text(without).experiment
    assert plain.model.name == "fast" and plain.loss.label_smoothing == 0, "answers would have less confidence than they are right"
    assert f"No pretrained encoder is at hand in {there}: with one, few photos are learned better" in header(without)
    keras_preset(there / "lite", "EfficientNetBackbone")
    keras_preset(there / "bert", **BERT)
    text = new("vision", data)
    experiment = from_text(text).experiment
    assert (experiment.model.name, experiment.model.preset) == ("pretrained", "lite") and experiment.data.image_size == 160
    assert "Encoder: lite (0.0 M weights, licence not stated), since 17 colour images are few" in header(text)
    assert "Encoder" not in (none := new("vision", data, encoder="none")) and from_text(none).experiment.model.name == "fast"


def test_how_an_encoder_of_images_trains_by_their_number(there, tmp_path):
    keras_preset(there / "lite", "EfficientNetBackbone")
    few = from_text(new("vision", photos(tmp_path / "few"))).experiment
    assert few.model.finetune.name == "frozen" and not few.augment.cutmix and not few.evaluate.flip
    assert few.data.validation == 0, "folds of train choose, and all of it is learned from"
    assert not (few.augment.flip or few.augment.shift), "a head that is fitted at once gains nothing by them"
    more = from_text(new("vision", photos(tmp_path / "more", count=250, edge=32))).experiment
    way = more.model.finetune
    assert (way.name, way.blocks, way.learning_rate) == ("last", 0.7, None), "the rate is the encoder's kind's own"
    assert more.data.validation == 0.1
    assert more.augment.cutmix and more.augment.mixup and more.evaluate.flip and more.train.keep == "best" and not more.loss.label_smoothing
    sided = from_text(new("vision", photos(tmp_path / "sided", count=250, edge=32, names=("left", "right")))).experiment
    assert sided.augment.cutmix and not (sided.augment.flip or sided.evaluate.flip), "a mirrored left is a right"


def test_small_grey_images_get_one_only_by_its_name(there, tmp_path):
    keras_preset(there / "lite", "EfficientNetBackbone")
    assert "since 17 grey images are few" in header(new("vision", photos(tmp_path / "scans", mode="L", edge=28)))
    data = photos(tmp_path / "digits", mode="L", edge=8)
    assert "ncoder" not in new("vision", data)
    text = new("vision", data, encoder="lite")
    experiment = from_text(text).experiment
    assert experiment.model.preset == "lite" and experiment.model.image_size == 160 and experiment.data.channels == 1
    assert "as asked for; that such data gain by one is not known" in header(text)


def test_short_english_texts_of_several_classes_get_one(there, tmp_path):
    keras_preset(there / "bert", **BERT)
    experiment = from_text(new("nlp", questions(tmp_path / "q.csv"))).experiment
    model = experiment.model
    assert (model.name, model.preset, model.finetune.name, experiment.data.validation) == ("pretrained", "bert", "frozen", 0)
    more = from_text(new("nlp", questions(tmp_path / "more.csv", count=800))).experiment
    assert (more.model.finetune.name, more.train.batch_size, more.data.validation) == ("whole", 32, 0), "80 texts choose nothing"
    many = from_text(new("nlp", questions(tmp_path / "many.csv", count=6500))).experiment
    assert many.model.finetune.name == "frozen", "all of it would train for most of an hour"
    for texts, classes, count, said in (("wie hoch ist der {} auf meinem Konto", 4, 60, "None of the encoders at hand fits these data"),
                                        ("what is the {} of my account", 2, 800, "")):
        text = new("nlp", questions(tmp_path / "other.csv", texts, classes, count))
        assert from_text(text).experiment.model.name == "bag" and said in header(text) and ("ncoder" in header(text)) == bool(said)


def test_few_texts_of_two_classes_and_long_ones_get_one_that_stays_as_it_is(there, tmp_path):
    keras_preset(there / "bert", **BERT)
    two = from_text(new("nlp", questions(tmp_path / "two.csv", classes=2))).experiment
    assert (two.model.name, two.model.finetune.name, two.data.validation) == ("pretrained", "frozen", 0)
    review = "number {} " + "i like the part of it and that is what it was for me. " * 20
    text = new("nlp", questions(tmp_path / "long.csv", review, 2, 700))
    long = from_text(text).experiment
    assert (long.model.name, long.model.finetune.name) == ("pretrained", "frozen") and 256 < long.model.limit <= 512
    assert "since 700 long texts are few" in header(text)
    for encoder, name in ((None, "bag"), ("bert", "pretrained")):
        many = from_text(new("nlp", questions(tmp_path / "many.csv", review, 2, 5001), encoder=encoder)).experiment
        assert many.model.name == name
    assert many.model.finetune.name == "frozen", "an epoch of long texts is too long for a first try"


def test_an_encoder_that_cannot_be_used_is_named(there, tmp_path):
    data = photos(tmp_path / "photos")
    keras_preset(there / "bert", **BERT)
    with pytest.raises(ConfigError, match=r"--encoder: bert \(BertBackbone\) is for text"):
        new("vision", data, encoder="bert")
    with pytest.raises(ConfigError, match="--encoder: there is no preset 'nowhere'"):
        new("vision", data, encoder="nowhere")


def test_recommendation_has_no_encoders(tmp_path):
    path = tmp_path / "clicks.csv"
    path.write_text("user,item\n" + "".join(f"u{number % 20},i{number % 7}\n" for number in range(200)))
    with pytest.raises(ConfigError, match="--encoder: recsys has no pretrained encoder for such data"):
        new("recsys", path, encoder="bert")


def test_what_is_listed(there):
    keras_preset(there / "lite", "EfficientNetBackbone")
    (there / "lite" / "SOURCE.md").write_text("- Licence: MIT\n")
    (there / "empty").mkdir()
    done = CliRunner().invoke(main.app, ["encoders", "--json"])
    assert done.exit_code == 0, done.output
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    lite, mobile = rows["lite"], rows["mobilenet_v3_small_100_imagenet"]
    assert (lite["domain"], lite["weights"], lite["licence"], lite["here"], lite["bytes"] > 0) == ("vision", 6, "MIT", True, True)
    assert (mobile["domain"], mobile["here"], mobile["bytes"], mobile["page"]) == (
        "vision", False, None, "https://www.kaggle.com/models/keras/mobilenetv3")
    assert "is no preset: there is no config.json" in rows["empty"]["problem"] and not rows["empty"]["here"]
    assert {rows[name]["domain"] for name in ("bert_tiny_en_uncased", "dinov2_small", "whisper_tiny_en")} == {"nlp", "vision", "speech"}
    assert "gemma_2b_en" not in rows and "esm2_t6_8M" not in rows


def test_the_table_of_a_domain(there):
    keras_preset(there / "lite", "EfficientNetBackbone")
    done = CliRunner().invoke(main.app, ["encoders", "vision"])
    assert "lite" in done.output and "resnet_50_imagenet" in done.output and "bert_tiny" not in done.output
    assert CliRunner().invoke(main.app, ["encoders", "recsys"]).exit_code == 2


def test_at_hand_are_usable_presets_of_a_domain_small_ones_first(there):
    keras_preset(there / "b", **BERT)
    keras_preset(there / "a", "EfficientNetBackbone")
    (there / "broken").mkdir()
    assert [preset.name for preset in listing.at_hand("nlp")] == ["b"]


def test_where_speakers_are_known_they_choose_in_place_of_validation(there, tmp_path):
    for digit in "01":
        for speaker in ("theo", "lucas", "anna"):
            for take in range(4):
                write(tmp_path / "digits" / digit / f"{digit}_{speaker}_{take}.wav", tone(0.3, 16_000, seed=take), 16_000)
        write(tmp_path / "words" / digit / f"{digit}.wav", tone(0.3, 16_000), 16_000)
        for take in range(9):
            write(tmp_path / "words" / digit / f"take {take}.wav", tone(0.3, 16_000, seed=take), 16_000)
    keras_preset(there / "whisper", "WhisperBackbone")
    unknown = from_text(new("speech", tmp_path / "words")).experiment.data
    assert (unknown.group_by, unknown.validation) == (None, 0), "without speakers, parts of train choose"
    for encoder, validation in (("whisper", 0), ("none", 0.1)):
        data = from_text(new("speech", tmp_path / "digits", encoder=encoder)).experiment.data
        assert (data.group_by, data.validation, data.test) == ("speaker", validation, 0.2)


def test_few_recordings_of_few_words_get_one_for_their_text(there, tmp_path):
    words = ["zero", "one", "two", "three"]
    for number in range(12):
        write(tmp_path / "said" / f"{number}.wav", tone(1.0, 16_000, seed=number), 16_000)
        (tmp_path / "said" / f"{number}.txt").write_text(f"{words[number % 4]} {words[number % 3]}")
    keras_preset(there / "whisper", "WhisperBackbone")
    text = new("speech", tmp_path / "said")
    experiment = from_text(text).experiment
    assert (experiment.model.name, experiment.model.finetune.name, experiment.model.finetune.head) == ("pretrained", "frozen", "linear")
    assert (experiment.model.layers, experiment.tokens.unit, experiment.data.validation, experiment.augment.speed) == (3, "words", 0, 0)
    assert "since 12 recordings are few" in header(text)
    assert from_text(new("speech", tmp_path / "said", encoder="none")).experiment.model.name == "quartz"


def test_many_recordings_of_few_words_train_its_last_blocks(there, tmp_path):
    keras_preset(there / "whisper", "WhisperBackbone")
    sound = tmp_path / "one.wav"
    write(sound, tone(0.5, 16_000), 16_000)
    rows = [f"one.wav,{'yes no' if number % 2 else 'no'}" for number in range(600)]
    (tmp_path / "said.csv").write_text("\n".join(["path,text", *rows]))
    experiment = from_text(new("speech", tmp_path / "said.csv", task="transcription")).experiment
    assert (experiment.model.finetune.name, experiment.model.layers) == ("last", 1)
    assert experiment.augment.speed == 0.15 and experiment.train.epochs >= 4


def test_english_sentences_are_written_without_training_or_with_it_in_the_same_file(there, tmp_path):
    names = ["ann", "ben", "cat", "dan", "eve", "fay", "gus", "hal", "ida", "jon", "kim", "lou"]
    for number, name in enumerate(names):
        write(tmp_path / f"{number}.wav", tone(1.0, 16_000, seed=number), 16_000)
        (tmp_path / f"{number}.txt").write_text(f"This is the {name} that {names[number - 1]} saw in a field of {names[number - 2]}s.")
    keras_preset(there / "whisper", "WhisperBackbone")
    text = new("speech", tmp_path)
    experiment = from_text(text).experiment
    assert (experiment.model.name, experiment.model.trains) == ("whisper", "nothing")
    assert (experiment.data.validation, experiment.data.test) == (0, 0.2)
    assert "since it writes English without training" in header(text) and "from scratch" not in header(text)
    (frozen,) = re.findall(r"#   (model: .*)", text)
    other = from_text(re.sub(r"(?m)^model:\n(  .*\n)+", f"{frozen}\n", text)).experiment
    assert other.model.finetune.name == "frozen" and other.data == experiment.data, "the same test"
    assert from_text(text.replace("trains: nothing", "trains: whole")).experiment.train.learning_rate.peak == 1e-5
    assert not experiment.tokens.remove
    for number in range(len(names)):  # without signs, those that it writes are not scored
        file = tmp_path / f"{number}.txt"
        file.write_text(file.read_text().replace(".", ""))
    assert from_text(new("speech", tmp_path)).experiment.tokens.remove == ".,?!"


def test_texts_of_many_words_get_one_where_it_is_asked_for(there, tmp_path):
    for number in range(12):
        write(tmp_path / f"{number}.wav", tone(1.0, 16_000, seed=number), 16_000)
        (tmp_path / f"{number}.txt").write_text(f"a{number} b{number} c{number}")
    keras_preset(there / "whisper", "WhisperBackbone")
    assert from_text(new("speech", tmp_path)).experiment.model.name == "quartz"
    text = new("speech", tmp_path, encoder="whisper")
    assert from_text(text).experiment.tokens.unit == "characters" and "such data gain by one is not known" in header(text)


def test_what_is_kept_of_a_run_is_the_whole_network(there, tmp_path):
    tiny.bert(there / "bert", width=128)
    texts = questions(tmp_path / "questions.csv")
    experiment = from_text(new("nlp", texts, encoder="bert")).experiment
    assert experiment.model.finetune.name == "frozen"
    weights = listing.at_hand("nlp")[0].weights
    said = dict(estimate(experiment))["disk"]
    told = re.search(r"([\d.]+) M weights", said)
    words = word_scores.LEAST * (1 + word_scores.FOLDS * 4)  # of four classes
    assert weights > 90_000 and float(told[1]) == pytest.approx((weights + words) / 1e6, abs=0.02)


def test_a_pretrained_encoder_is_measured_on_a_sample(there, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("pipelines.commands.estimate.SAMPLE", 20)
    tiny.bert(there / "bert")
    said: list[str] = []
    told = dict(estimate(from_text(new("nlp", questions(tmp_path / "questions.csv"), encoder="bert")).experiment, said.append))
    assert said == ["computing the features of 20 examples"] and "measured on 20 of the 48 examples" in told["time"]


@pytest.mark.slow(seconds=8)
def test_the_libraries_of_an_encoder_start_in_silence(there, tmp_path):
    keras_preset(there / "small", **BERT)
    texts = questions(tmp_path / "questions.csv")
    done = processes.run("-m", "quartet", "new", "nlp", "--data", texts, "-o", tmp_path / "one.yaml", "--no-estimate", anew=True,
                         check=True)
    assert "written" in done.stdout and "small" in (tmp_path / "one.yaml").read_text()
    assert done.stderr == ""


def test_encoders_at_hand_are_among_the_ways_that_are_tried(there, tmp_path):
    keras_preset(there / "lite", "EfficientNetBackbone")
    keras_preset(there / "bert", **BERT)
    digits, more = photos(tmp_path / "digits", mode="L", edge=8), photos(tmp_path / "more", count=250, edge=32)
    for domain, data, tuned in (("vision", digits, False), ("vision", more, True), ("nlp", questions(tmp_path / "q.csv"), False),
                                ("nlp", questions(tmp_path / "many.csv", count=800), True)):
        draft = look(domain, data).draft
        ways = draft.ways()
        frozen = next(way for way in ways if "frozen" in way.name)
        assert from_text(frozen.body).experiment.model.finetune.name == "frozen" and "Encoder: " in frozen.notes[0]
        assert (frozen.tuned is not None) == tuned
        bodies = [one.body for way in ways for one in (way, way.tuned) if one]
        assert bodies.count(draft.body) == 1 and all(from_text(body).experiment for body in bodies)
        assert not any("frozen" in way.name for way in look(domain, data, encoder="none").draft.ways())
        asked = "lite" if domain == "vision" else "bert"
        assert [way.name for way in look(domain, data, encoder=asked).draft.ways()] == [f"{asked}, frozen"]

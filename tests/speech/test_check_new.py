"""`quartet check` finds what was put into the data; `quartet new` writes settings that load for every form of data."""

import json
import re

import numpy as np
import pytest

from pipelines.base.errors import DataError
from pipelines.config.draft import new
from pipelines.config.load import from_text
from pipelines.config.registry import variants_at
from speech.check import CHECKS
from tests.speech.synthetic_recordings import class_folders, tone, write


def findings(text: str) -> dict[str, tuple[str, ...]]:
    experiment = from_text(text, check_paths=False).experiment
    made = CHECKS[experiment.task](experiment)
    return {f"{finding.level}: {finding.text}": finding.details for finding in made.findings}


def test_commands(tmp_path):
    class_folders(tmp_path, {"go": 12, "stop": 12})
    (tmp_path / "go" / "broken.wav").write_bytes(b"nothing")
    write(tmp_path / "go" / "still.wav", np.zeros(4000, np.float32))
    write(tmp_path / "stop" / "loud.wav", np.clip(tone() * 9, -1, 1))
    write(tmp_path / "stop" / "copy.wav", tone(0.3, 8000, 550, 0))
    write(tmp_path / "stop" / "long.wav", tone(3.0))
    found = findings("task: speech.classification\nmodel: {name: ds_cnn}\ndata:\n  source: folder\n  rate: 8000\n  test: 0.2\n"
                     f"  path: {tmp_path}\n")
    said = "\n".join(found)
    for text in ("cannot be read", "are silent", "are clipped", "last over 1 s and are heard in part"):
        assert text in said, said
    assert any("broken.wav: not a readable sound file" in detail for details in found.values() for detail in details)
    assert any("still.wav" in detail for details in found.values() for detail in details)
    assert "the same samples" in said


def test_transcripts(tmp_path):
    rows = []
    for number in range(20):
        write(tmp_path / f"{number}.wav", tone(1.0, seed=number))
        rows.append({"path": f"{number}.wav", "text": "one two", "speaker": f"s{number % 2}", "split": "test" if number > 14 else "train"})
    rows[1]["text"], rows[2]["text"], rows[16]["text"] = "", "many words " * 12, "one qqq"
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for number in (4, 17):
        write(tmp_path / f"{number}.wav", tone(2.5, seed=number))
    found = findings("task: speech.transcription\nmodel: {name: quartz, stride: 2}\ndata:\n  source: table\n  rate: 8000\n"
                     f"  split_key: split\n  test: test\n  validation: 0\n  longest: 2.0\n  path: {tmp_path / 'm.jsonl'}\n")
    said = "\n".join(found)
    assert "train: 1 recordings last over 2 s and are left out of training (data.longest)" in said and "test: 1 recordings last" not in said
    for text in ("warning: train: 1 transcripts are empty", "warning: test: 1 characters are not in train, so they cannot be written: 'q'",
                 "warning: train: 1 transcripts are longer than CTC can align",
                 "warning: train: 15 clips, 16 s with 4 different words, are too few to train a recogniser from scratch",
                 "warning: test: 2 of its 2 speakers are in train"):
        assert text in said, said
    assert any("2.wav: 131 steps needed, 51 there" in detail for details in found.values() for detail in details)


def made(root):
    """Every form of data, by name."""
    class_folders(root / "classes", {"go": 8, "stop": 9})
    for number in range(14):
        write(root / "texts" / f"{number}.wav", tone(1.0, 44_100), 44_100)
        (root / "texts" / f"{number}.txt").write_text("Yes, no.")
        write(root / "lj" / "wavs" / f"a{number}.wav", tone(0.5, 22_050), 22_050)
        for word in ("yes", "no"):
            write(root / "google" / "train" / word / f"{number:08x}_nohash_0.wav", tone(), 16_000)
            write(root / "google" / "test" / word / f"{number:08x}_nohash_1.wav", tone(), 16_000)
    (root / "lj" / "metadata.csv").write_text("".join(f"a{n}|One.|One.\n" for n in range(14)))
    rows = [{"wav": f"texts/{n}.wav", "word": "ab"[n % 2], "speaker_id": n % 4} for n in range(14)]
    (root / "labels.csv").write_text("wav,word,speaker_id\n" + "".join(",".join(map(str, row.values())) + "\n" for row in rows))
    (root / "said.jsonl").write_text("".join(json.dumps(
        {"audio_filepath": f"texts/{n}.wav", "text": "yes no", "split": "dev" if n > 10 else "train"}) + "\n" for n in range(14)))
    return root


def test_new_for_every_form(tmp_path):
    root = made(tmp_path)
    found = {name: from_text(new("speech", root / name)).experiment for name in (
        "classes", "texts", "lj/metadata.csv", "lj", "google", "labels.csv", "said.jsonl")}
    assert found["classes"].task == found["labels.csv"].task == found["google"].task == "speech.classification"
    assert found["texts"].task == found["lj/metadata.csv"].task == "speech.transcription" and found["lj"] == found["lj/metadata.csv"]
    assert found["classes"].data.rate == 8000 and found["texts"].data.rate == 16_000
    assert found["google"].data.test == "test" and found["google"].data.speaker_pattern == "/([0-9a-f]+)_nohash_"
    assert found["labels.csv"].data.label_key == "word" and found["labels.csv"].data.group_by == "speaker"
    assert found["labels.csv"].frontend.normalize == "recording" and found["labels.csv"].augment.warp > 0
    assert found["said.jsonl"].data.validation == "dev" and found["texts"].tokens.remove == ",."
    from pipelines.runs.launch import task_class

    for name in ("google", "labels.csv", "texts"):
        assert len(task_class(found[name].task)(found[name]).splits().train) > 5


def test_recordings_that_lie_elsewhere_than_their_table(tmp_path):
    """As ESC-50 has them, in audio/ beside meta/; elsewhere by --files."""
    rows = []
    for number in range(24):
        write(tmp_path / "esc" / "audio" / f"1-{number}-A.wav", tone(0.3, 8000, seed=number))
        rows.append(f"1-{number}-A.wav,{1 + number % 4},{number % 2},{('dog', 'rain')[number % 2]},{number}")
    (tmp_path / "esc" / "meta").mkdir()
    (tmp_path / "esc" / "meta" / "esc50.csv").write_text("\n".join(["filename,fold,target,category,src_file", *rows]) + "\n")
    text = new("speech", tmp_path / "esc", encoder="none")
    data = from_text(text).experiment.data
    assert (data.path, data.file_pattern, data.label_key, data.split_key) == (
        str(tmp_path / "esc/meta/esc50.csv"), "../audio/{}", "category", "fold")
    assert "# Not used: columns target, src_file." in text
    from speech.data.sources import open_data

    assert sum(len(opened.load(name)) for opened in [open_data(data, texts=False)] for name in opened.names) == 24
    (tmp_path / "tables" / "mine").mkdir(parents=True)
    (tmp_path / "esc" / "meta" / "esc50.csv").rename(tmp_path / "tables/mine/t.csv")
    with pytest.raises(DataError, match=r"which is not there; .* --files PATTERN says where they lie"):
        new("speech", tmp_path / "tables/mine/t.csv", encoder="none")
    data = from_text(new("speech", tmp_path / "tables/mine/t.csv", columns={"files": "../../esc/audio"}, encoder="none")).experiment.data
    assert data.file_pattern == "../../esc/audio/{}"


def test_new_trains_by_steps_and_hears_what_is_loud(tmp_path):
    for number in range(30):
        for word in ("yes", "no"):
            samples = np.random.default_rng(number).normal(0, 0.001, 16_000) + 0.08  # 2 s of a cheap sound card, 0.4 s of a word in it
            samples[6000:9200] += tone(0.4, seed=number)
            write(tmp_path / "commands" / word / f"{number}.wav", samples)
        write(tmp_path / "texts" / f"{number}.wav", tone(2.0))
        (tmp_path / "texts" / f"{number}.txt").write_text(f"word{number} is other{number}")
    commands, texts = (from_text(new("speech", tmp_path / name)).experiment for name in ("commands", "texts"))
    assert commands.data.seconds < 0.8 and commands.loss.class_weights == "none"
    assert commands.train.epochs * 60 * 0.72 / commands.train.batch_size >= 700 and commands.train.epochs == 300  # at most
    assert texts.train.batch_size == 6 and texts.train.epochs == 120 and texts.train.keep == "last"


def test_two_values_in_names_are_no_speakers(tmp_path):
    for number in range(24):
        name = "_".join(f"{number:05b}")  # the transcript is in the name, as in OpenSLR's yes and no
        write(tmp_path / f"{name}.wav", tone(0.5, seed=number))
        (tmp_path / f"{name}.txt").write_text(" ".join("yes" if sign == "1" else "no" for sign in f"{number:05b}"))
    experiment = from_text(new("speech", tmp_path)).experiment
    assert experiment.data.group_by is None and experiment.tokens.unit == "words" and experiment.model.stride == 4


def test_new_takes_out_signs_and_leaves_marks_that_belong_to_letters(tmp_path):
    said = ["नमस्ते, दुनिया।", "हाँ! कृपया (रुकें)", "Cafe\u0301 №5 — don't"]
    for number in range(12):
        write(tmp_path / f"{number}.wav", tone(1.0))
        (tmp_path / f"{number}.txt").write_text(said[number % 3], encoding="utf-8")
    experiment = from_text(new("speech", tmp_path)).experiment
    assert set(experiment.tokens.remove) == set(",।!()№—")
    from speech.data.tokens import normalized

    assert [normalized(text, experiment.tokens) for text in said] == ["नमस्ते दुनिया", "हाँ कृपया रुकें", "café 5 don't"]


@pytest.mark.parametrize(("name", "message"), [
    ("classes/go", "needs a folder of recordings for each class"),
    ("classes/go/a_0.wav", "is one recording"), ("empty", "there are no recordings"),
])
def test_new_says_what_it_does_not_understand(tmp_path, name, message):
    made(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=message):
        new("speech", tmp_path / name)


def test_speakers_in_names_are_suspected_by_check_and_new(tmp_path):
    for digit in "01":
        for speaker in ("theo", "lucas", "anna"):
            for take in range(6):
                write(tmp_path / digit / f"{digit}_{speaker}_{take}.wav", tone(0.3, 8000, seed=take))
    text = new("speech", tmp_path)
    data = from_text(text).experiment.data
    assert data.group_by == "speaker" and "The names hold what seems to be the speaker" in text
    said = "\n".join(findings("task: speech.classification\nmodel: {name: ds_cnn}\ndata:\n  source: folder\n  rate: 8000\n  test: 0.5\n"
                              f"  path: {tmp_path}\n"))
    assert "warning: test: the files' names hold what seems to be a person" in said and "all 3 of them are in train, too" in said
    said = "\n".join(findings("task: speech.classification\nmodel: {name: ds_cnn}\ndata:\n  source: folder\n  rate: 8000\n  test: 0.34\n"
                              f"  validation: 0\n  group_by: speaker\n  speaker_pattern: '{data.speaker_pattern}'\n  path: {tmp_path}\n"))
    assert "what seems to be a person" not in said and "speakers are in train, too" not in said


def test_letters_of_words_are_not_to_be_removed(tmp_path):
    rows = []
    for number in range(20):
        write(tmp_path / f"{number}.wav", tone(2.0, seed=number))
        rows.append({"path": f"{number}.wav", "text": "don't jump" if number == 3 else "one ~ two" if number == 4 else "one two -- three"})
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = "\n".join(findings("task: speech.transcription\nmodel: {name: quartz}\ndata:\n  source: table\n  rate: 8000\n  test: null\n"
                              f"  validation: 0\n  path: {tmp_path / 'm.jsonl'}\n"))
    letters = next(line for line in said.splitlines() if "too few to learn: words" in line)
    assert "'j'" in letters and '"\'"' in letters and "'~'; tokens.remove removes them" in said and "'-'" not in said


def like_esc(root):
    """Three sounds of four files each, cut into one, two or three takes, as ESC-50 names them: fold-source-take-class."""
    rows = []
    for fold in range(1, 6):
        for label in range(3):
            for number in range(3):
                for take in "ABC"[:number + 1]:
                    source = 1000 * fold + 37 * label + 11 * number
                    write(root / "audio" / f"{fold}-{source}-{take}-{label}.wav", tone(0.3, 8000, 200 + 100 * label, len(rows)))
                    rows.append(f"{fold}-{source}-{take}-{label}.wav,{fold},{label},{['cat', 'dog', 'rain'][label]},{source},{take}\n")
    (root / "meta.csv").write_text("filename,fold,target,category,src_file,take\n" + "".join(rows))
    return root / "meta.csv"


def test_all_but_one_fold_of_a_column_are_learned_from(tmp_path):
    table = like_esc(tmp_path)
    data = from_text(new("speech", table, encoder="none")).experiment.data
    assert (data.validation, data.test) == (0.1, "5"), "no whole fold is held out to choose by"
    assert (data.speaker_key, data.group_by) == ("src_file", "src_file"), "what was cut from one file is held out together"
    text = table.read_text().replace(",src_file,", ",speaker,")  # one voice in all folds
    table.write_text(re.sub(r",\d{4},([ABC])", r",1234,\1", text))
    assert from_text(new("speech", table, encoder="none")).experiment.data.group_by is None


def test_takes_are_no_people(tmp_path):
    table = like_esc(tmp_path)
    text = ("task: speech.classification\nmodel: {name: ds_cnn}\ndata:\n  source: table\n  rate: 8000\n  audio_key: filename\n"
            f"  label_key: category\n  file_pattern: audio/{{}}\n  path: {table}\n")
    own = "\n".join(findings(text + "  split_key: fold\n  validation: '4'\n  test: '5'\n"))
    assert "person" not in own and "apart" not in own, own
    drawn = "\n".join(findings(text + "  validation: 0\n  test: 0.4\n"))
    assert "person" not in drawn and "values of src_file are in train, too" in drawn, drawn
    assert "data.speaker_key: src_file with data.group_by: speaker keeps them apart" in drawn, drawn


def test_the_name_of_the_task_before_stays_valid(tmp_path):
    text = "task: NAME\ndata: {source: synthetic}\nmodel: {name: kernel}\n"
    old, new_one = (from_text(text.replace("NAME", name)).experiment for name in ("speech.commands", "speech.classification"))
    assert old == new_one and old.task == "speech.classification"
    assert variants_at("speech.commands", "model") is variants_at("speech.classification", "model")
    for word, pitch in (("up", 300), ("down", 600)):
        for number in range(6):
            write(tmp_path / word / f"{number}.wav", tone(0.4, 16_000, pitch))
    drafted = [new("speech", tmp_path, task=name) for name in ("commands", "speech.commands", "classification")]
    assert len(set(drafted)) == 1

"""Recordings from wherever they lie: folders, tables, LJSpeech's form, TFDS; splits that keep speakers apart; errors that name the row."""

import contextlib
import io
import json

import numpy as np
import pytest
import tensorflow as tf

from pipelines.base.errors import ConfigError, DataError
from pipelines.config.load import from_text
from pipelines.runs.launch import task_class
from speech.data.recordings import facts_of, waveform
from tests.data.prepared import need
from tests.speech.synthetic_recordings import class_folders, tone, write

pytestmark = pytest.mark.slow

COMMANDS = ("task: speech.classification\nmodel: {name: ds_cnn, width: 8, depth: 1}\nfrontend: {mels: 16}\n"
            "data:\n  rate: 8000\n  seconds: 0.5\n")
TEXTS = "task: speech.transcription\nmodel: {name: quartz, width: 8, kernels: [5]}\nfrontend: {mels: 16}\ndata:\n  rate: 8000\n"


def splits(start: str, lines: str):
    experiment = from_text(start + "".join(f"  {line}\n" for line in lines.split("; ")), check_paths=False).experiment
    return task_class(experiment.task)(experiment).splits()


def test_folder_per_class_with_speakers_apart(tmp_path):
    class_folders(tmp_path, {"go": 12, "stop": 15})
    where = f"source: folder; path: {tmp_path}; speaker_pattern: '/([a-c])_'"
    made = splits(COMMANDS, f"{where}; group_by: speaker; test: 0.3; validation: 0.4")
    assert made.facts["classes"] == ["go", "stop"]
    voices = [set(facts_of(source).speakers) for source in (made.train, made.validation, made.test)]
    assert not (voices[0] & voices[1] or voices[0] & voices[2] or voices[1] & voices[2])
    assert made.facts["speakers"] == sorted(voices[0]) and len(made.facts["mean"]) == 16


def test_resampled_once_and_kept(tmp_path):
    class_folders(tmp_path, {"go": 5, "stop": 5}, rate=44_100, suffix=".flac")
    made = splits(COMMANDS, f"source: folder; path: {tmp_path}; test: null; validation: 0.2")
    for number in range(len(made.train)):
        assert len(waveform(made.train, number)) == made.train.lengths[number]


def test_keywords_and_silence_as_in_speech_commands(tmp_path):
    class_folders(tmp_path, {"yes": 10, "no": 10, "cat": 10, "dog": 14})
    write(tmp_path / "_background_noise_" / "hum.wav", tone(6.0, hertz=50))
    lines = f"source: folder; path: {tmp_path}; keywords: ['yes', 'no']; test: 0.2; unknown: 0.5; validation: 0"
    made = splits(COMMANDS, lines)
    counts = dict(zip(made.facts["classes"], made.facts["class_counts"]))
    assert set(counts) == {"_silence_", "_unknown_", "no", "yes"}
    assert counts["_unknown_"] == 4 and counts["yes"] == 8 and counts["_silence_"] >= 9
    assert any("recordings of _unknown_ are used" in note for note in made.notes)
    with pytest.raises(DataError, match=r"data\.keywords: .* has no class 'yess'.*did you mean yes"):
        splits(COMMANDS, lines.replace("'yes'", "'yess'"))


@pytest.mark.parametrize(("files", "more"), [(3, ""), (20, ""), (6, "; speaker_pattern: '(\\w)_'; group_by: speaker")])
def test_noise_of_one_file_stands_on_one_side_or_at_the_files_end(tmp_path, files, more):
    class_folders(tmp_path, {"yes": 12, "no": 12})
    for number in range(files):
        write(tmp_path / "_background_noise_" / f"hum{number:02}.wav", tone(10.0, hertz=50 + number))
    made = splits(COMMANDS, f"source: folder; path: {tmp_path}; test: 0.2; validation: 0.2{more}")
    starts = []  # of each split: file -> seconds at which its pieces begin
    for source in (made.train, made.validation, made.test):
        own: dict[str, list[float]] = {}
        for name, label in zip(facts_of(source).names, source.labels):
            if made.facts["classes"][label] == "_silence_":
                path, _, start = name.partition("#t=")
                own.setdefault(path, []).append(float(start))
        starts.append(own)
    train, validation, test = starts
    assert train and (more or (validation and test))
    if files == 3:
        for path, first in train.items():
            assert max(first) < min(validation[path]) <= max(validation[path]) < min(test[path])
        assert any("the end of each" in note for note in made.notes)
    else:
        assert not set(train) & set(validation) and not set(train) & set(test) and not set(validation) & set(test)


def manifest(tmp_path, name: str = "m.jsonl", **changes):
    for number in range(12):
        write(tmp_path / "clips" / f"{number}.wav", tone(1.0, seed=number))
    rows = [{"path": f"clips/{number}.wav", "text": f"Word {'ab'[number % 2]}!", "speaker": f"s{number % 4}", "start": 0.25,
             "duration": 0.5, "split": "test" if number > 8 else "train"} for number in range(12)]
    rows[3] |= changes
    path = tmp_path / name
    if name.endswith(".jsonl"):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        sign = "\t" if name.endswith(".tsv") else ","
        path.write_text(sign.join(rows[0]) + "\n" + "".join(sign.join(map(str, row.values())) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["m.jsonl", "m.csv", "m.tsv"])
def test_manifests(tmp_path, name):
    path = manifest(tmp_path, name)
    made = splits(TEXTS, f"source: table; path: {path}; split_key: split; test: test; validation: 0.2")
    assert len(made.test) == 3 and facts_of(made.test).speakers == ["s1", "s2", "s3"]
    assert facts_of(made.train).texts[0] in ("word a!", "word b!")
    assert len(waveform(made.test, 0)) == 4000 and made.test.lengths[0] == 4000
    assert facts_of(made.test).names[0].endswith("9.wav#t=0.25,0.75")
    assert made.facts["tokens"] == [" ", "!", *"abdorw"] and made.facts["most_tokens"] == 7


@pytest.mark.parametrize(("changes", "message"), [
    ({"path": "clips/none.wav"}, r"m\.jsonl:4: .*none\.wav is not there; relative paths start at the table's folder"),
    ({"text": None}, r"m\.jsonl:4: no value in column text \(data\.text_key\)"),
    ({"duration": -1.0}, r"m\.jsonl:4: -1 s in column duration"), ({"path": " "}, r"m\.jsonl:4: no file named in column path"),
])
def test_manifests_that_are_wrong_name_the_row(tmp_path, changes, message):
    path = manifest(tmp_path, **changes)
    with pytest.raises(DataError, match=message):
        splits(TEXTS, f"source: table; path: {path}; test: 0.2")


def test_ljspeech(tmp_path):
    for number in range(10):
        write(tmp_path / "wavs" / f"LJ{number}.wav", tone(0.6), 22_050)
    (tmp_path / "metadata.csv").write_text("".join(f"LJ{n}|Dr. \"A\"|Doctor A\n" for n in range(10)), encoding="utf-8")
    made = splits(TEXTS, f"source: table; path: {tmp_path / 'metadata.csv'}; test: 0.2; validation: 0.2")
    assert facts_of(made.test).texts == ["doctor a"] * 2


def test_unreadable_recordings_stop_or_are_skipped(tmp_path):
    class_folders(tmp_path, {"go": 6, "stop": 6})
    (tmp_path / "go" / "a_0.wav").write_bytes(b"broken")
    (tmp_path / "stop" / "b_1.wav").write_bytes(b"")
    lines = f"source: folder; path: {tmp_path}; test: null; validation: 0"
    with pytest.raises(DataError, match=r"(a_0|b_1)\.wav: cannot be read: (not a readable sound file|the file is empty)"):
        splits(COMMANDS, lines)
    made = splits(COMMANDS, f"{lines}; on_bad_example: skip")
    assert len(made.train) == 10 and len(made.skipped) == 2 and "b_1.wav: the file is empty" in made.skipped[1]


def test_a_recording_whose_header_cannot_be_read_is_not_taken_for_a_short_one(tmp_path):
    path = manifest(tmp_path)
    (tmp_path / "clips" / "3.wav").write_bytes(b"broken")
    lines = f"source: table; path: {path}; split_key: split; test: test; validation: 0"
    with pytest.raises(DataError, match=r"3\.wav#t=0\.25,0\.75: cannot be read: not a readable sound file"):
        splits(TEXTS, lines)
    made = splits(TEXTS, f"{lines}; on_bad_example: skip")
    assert len(made.train) == 8 and "3.wav#t=0.25,0.75: not a readable sound file" in made.skipped[0]
    assert not any("too short" in note for note in made.notes)


def test_recordings_too_short_or_too_long_for_ctc_are_left_out(tmp_path):
    path = manifest(tmp_path, text="far too many words for half a second of sound, whoever says them")
    made = splits(TEXTS, f"source: table; path: {path}; test: 0.2; validation: 0")
    assert any("too short for their transcripts, such as" in note for note in made.notes) or "too many" in facts_of(made.test).texts[0]


@pytest.mark.parametrize(("lines", "message"), [
    ("source: tfds", "needs the data set's name"), ("source: synthetic; test_names: '['", "no regular expression"),
    ("source: synthetic; speaker_pattern: abc", "put the part that is asked for into brackets"),
    ("source: synthetic; test_names: a; test_last: 3", "set one of the two"),
])
def test_wrong_settings(lines, message):
    with pytest.raises(ConfigError, match=message):
        splits(COMMANDS, lines)


def prepared(folder, name: str, kind: str = "tfrecord"):
    """A data set in the form of speech_commands, or of librispeech."""
    import tensorflow_datasets as tfds

    if name == "speech_commands":
        features = {"audio": tfds.features.Audio(file_format="wav", sample_rate=16_000),
                    "label": tfds.features.ClassLabel(names=["down", "up", "_silence_", "_unknown_"])}
        parts = {"train": 16, "validation": 8, "test": 8}
    else:
        features = {"speech": tfds.features.Audio(file_format="flac", sample_rate=16_000, dtype=np.int16), "text": tfds.features.Text(),
                    "speaker_id": np.int64, "chapter_id": np.int64, "id": tfds.features.Text()}
        parts = {"train_clean100": 12, "dev_clean": 4, "test_clean": 4, "train_other500": 4}

    def example(number):
        kind = np.int64 if name == "speech_commands" else np.int16
        samples = np.rint(tone(1.0 + 0.05 * number, 16_000, seed=number) * 32_000).astype(kind)
        if name == "speech_commands":
            return {"audio": samples, "label": number % 4}
        return {"speech": samples, "text": "A MAN SAID" if number % 2 else "NO MAN", "speaker_id": number % 3, "chapter_id": 1,
                "id": f"{number}"}

    class Made(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, manager):
            return {part: self._generate_examples(count) for part, count in parts.items()}

        def _generate_examples(self, count):
            for number in range(count):
                yield number, example(number)

    Made.name = name
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        Made(data_dir=str(folder), file_format=kind).download_and_prepare()


@pytest.mark.parametrize("kind", ["tfrecord", "array_record"])
def test_tfds_in_the_form_of_librispeech(tmp_path, kind):
    prepared(tmp_path, "librispeech", kind)
    lines = f"source: tfds; name: librispeech; data_dir: {tmp_path}; train: train_clean100; validation: dev_clean; test: test_clean"
    made = splits(TEXTS, lines)
    assert [len(source) for source in (made.train, made.validation, made.test)] == [12, 4, 4]
    assert facts_of(made.test).texts.count("a man said") == 2 and made.facts["speakers"] == ["0", "1", "2"]
    assert {len(waveform(made.test, number)) for number in range(4)} == {8000, 8400, 8800, 9200}  # resampled
    assert made.train.lengths.tolist() == [len(waveform(made.train, number)) for number in range(12)]
    shorter = splits(TEXTS, f"{lines}; longest: 1.22")
    assert len(shorter.train) == 5 and any("train: 7 recordings of over 1.22 s are left out" in note for note in shorter.notes)
    assert len(shorter.test) == 4
    with pytest.raises(DataError, match=r"data\.train: .* has no split 'train_clean10'"):
        splits(TEXTS, lines.replace("train_clean100", "train_clean10"))


def test_tfds_in_the_form_of_speech_commands(tmp_path):
    prepared(tmp_path, "speech_commands")
    made = splits(COMMANDS, f"source: tfds; name: speech_commands; data_dir: {tmp_path}; validation: validation; test: test")
    assert sorted(made.facts["classes"]) == ["_silence_", "_unknown_", "down", "up"] and len(made.test) == 8


@pytest.mark.realdata
def test_spoken_digit_by_its_own_division():
    need("spoken_digit")
    made = splits(COMMANDS, r"source: tfds; name: spoken_digit; speaker_pattern: '^\d_([a-z]+)_'; test_names: '_[0-4]\.wav$'")
    assert len(made.test) == 250 and set(np.bincount(made.test.labels)) == {25}
    assert all(name.split("_")[-1] in ("0.wav", "1.wav", "2.wav", "3.wav", "4.wav") for name in facts_of(made.test).files)
    assert len(made.facts["speakers"]) == 5 and len(made.train) == 2025


@pytest.mark.realdata
def test_yes_no_first_and_last_by_name():
    need("yes_no")
    made = splits(TEXTS, "source: tfds; name: yes_no; text_key: label; words: ['no', 'yes']; test_last: 30; validation: 0.1")
    train = [*facts_of(made.train).files, *facts_of(made.validation).files]
    assert len(made.test) == 30 and max(train) < min(facts_of(made.test).files)
    names = facts_of(made.test)
    for file, text in zip(names.files, names.texts):
        assert text == " ".join({"0": "no", "1": "yes"}[sign] for sign in file.removesuffix(".wav").split("_"))


@pytest.mark.realdata
def test_connected_digits_share_no_recording_and_no_test_speaker():
    need("spoken_digit")
    from speech.data.connected_digits import open_connected

    lines = r"source: connected; name: spoken_digit; speaker_pattern: '^\d_([a-z]+)_'; test_speakers: [theo]; strings: 40; test_strings: 20"
    experiment = from_text(TEXTS + "".join(f"  {line}\n" for line in lines.split("; "))).experiment
    opened = open_connected(experiment.data)
    parts = {name: opened.load(name) for name in ("train", "validation", "test")}
    assert set(parts["test"].facts.speakers) == {"theo"} and "theo" not in parts["train"].facts.speakers
    for source in parts.values():
        assert all(3 <= len(text.split()) <= 7 for text in source.facts.texts)
        assert len(source.load(0)) == source.facts.lengths[0]
    again = open_connected(experiment.data).load("train")
    assert np.array_equal(again.load(5), parts["train"].load(5)) and again.fingerprint() == parts["train"].fingerprint()


def test_windows_alone_and_in_a_batch():
    from speech.tasks.windows import to_window

    long = np.zeros(9000, np.int16)
    long[5000:5500] = np.resize([900, -900], 500)
    rows = [long, np.resize([7, -7], 100).astype(np.int16), np.resize([3, -3], 4000).astype(np.int16)]
    batch = np.zeros([3, 9000], np.int16)
    for row, one in zip(batch, rows):
        row[:len(one)] = one
        row[len(one):] = 99  # not looked at
    together = to_window(tf.constant(batch), tf.constant([len(one) for one in rows]), 4000).numpy()
    for row, one in zip(together, rows):
        assert np.array_equal(row, to_window(tf.constant(one[None]), tf.constant([len(one)]), 4000).numpy()[0])
    assert (abs(together[0]) == 900).sum() == 500 and np.array_equal(together[1][1950:2050], rows[1]) and abs(together[1]).sum() == 700


def test_an_offset_of_the_sound_card_is_neither_a_click_nor_loudness():
    from speech.data.features import without_offset
    from speech.tasks.windows import to_window

    quiet = np.random.default_rng(0).integers(-50, 51, 6000)
    word = quiet + np.where(np.arange(6000) // 1000 == 4, np.resize([2000, -2000], 6000), 0)
    plain, shifted = (tf.constant((word - round(word.mean()) + offset)[None].astype(np.int16)) for offset in (0, -2700))
    for window in (1000, 8000):  # its loudest part, and all of it in the middle of silence
        assert np.array_equal(to_window(plain, tf.constant([6000]), window), to_window(shifted, tf.constant([6000]), window))
    edges = tf.constant([[32767] * 3 + [-32768] * 2 + [5] * 3], tf.int16)
    assert without_offset(edges, tf.constant([5])).numpy().tolist() == [[26214, 26214, 26214, -32768, -32768, 0, 0, 0]]
    assert without_offset(edges[:, :0], tf.constant([0])).shape == [1, 0]


def test_speakers_of_train_that_are_judged_are_a_warning(tmp_path):
    from pipelines.data.divide import Warned

    class_folders(tmp_path, {"go": 12, "stop": 15})
    where = f"source: folder; path: {tmp_path}; speaker_pattern: '/([a-c])_'; validation: 0; test: 0.4"
    warnings = [[note for note in splits(COMMANDS, where + more).notes if isinstance(note, Warned)] for more in ("", "; group_by: speaker")]
    (note,), nothing = warnings
    assert note.startswith("test: all 3 speakers are in train, too") and "data.group_by: speaker" in note and not nothing


def test_far_too_little_speech_is_a_warning():
    from speech.data.enough import too_little

    few = [f"a sentence with the word{number} and others{number}" for number in range(98)]
    said = too_little(few, 720.0)
    assert said is not None and said.startswith("98 clips, 12 min with 201 different words, are too few")
    assert too_little(few, 3600.0 * 12) is None and too_little(["yes no yes no"] * 60, 360.0) is None and too_little([], 0.0) is None

"""Using and judging a run: which recordings `predict` is given, how answers are cut, what a report shows and warns of."""

import io
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from pipelines.base.errors import ConfigError, DataError
from pipelines.config.load import from_text
from pipelines.reports.report import Reported, write_report
from pipelines.runs.launch import task_class
from pipelines.serving import predict
from pipelines.serving.output import WRITERS, Shown
from speech.data.manifests import BadRow, find_recordings
from speech.data.recordings import Facts, Recordings
from speech.tasks.transcript import BLANK
from tests.speech.synthetic_recordings import class_folders, tone, write

pytestmark = pytest.mark.slow

TEXTS = "task: speech.transcription\nmodel: {name: quartz, width: 8, kernels: [5]}\nfrontend: {mels: 16}\ntokens: {unit: words}\n"
FACTS = {"unit": "words", "tokens": ["one", "two"], "most_tokens": 3, "mean": [0.0] * 16, "std": [1.0] * 16, "speakers": []}


def transcription(data: str = "source: synthetic", facts: dict | None = None):
    experiment = from_text(f"{TEXTS}data: {{rate: 8000, {data}}}\n", check_paths=False).experiment
    return task_class(experiment.task)(experiment, FACTS if facts is None else facts)


# what predict is given

def found(task, *inputs) -> list[tuple[str, str | int]]:
    """(name, error or samples) of each."""
    read = task.input.requests.read([str(text) for text in inputs])
    return [(name, str(one) if isinstance(one, Exception) else one["length"]) for name, one in read]


def test_a_folder_names_what_cannot_be_read_too(tmp_path):
    write(tmp_path / "a.wav", tone())
    (tmp_path / "b.M4A").write_bytes(b"\0\0\0 ftypM4A " * 9)
    (tmp_path / "c.aac").write_bytes(b"\xff\xf1" * 9)
    (tmp_path / "notes.txt").write_text("no recording")
    assert found(transcription(), tmp_path) == [
        (str(tmp_path / "a.wav"), 4000), (str(tmp_path / "b.M4A"), "M4A is not read here; convert it to WAV or FLAC"),
        (str(tmp_path / "c.aac"), "AAC is not read here; convert it to WAV or FLAC")]


def test_a_manifest_is_read_by_the_run_s_columns_and_bad_rows_are_named(tmp_path):
    write(tmp_path / "a.wav", tone(1.0))
    path = tmp_path / "m.csv"
    path.write_text("path,clip,from,for\nx.wav,a.wav,0.25,0.5\nx.wav,a.wav,abc,\nx.wav,,0,\nx.wav,a.wav,,-1\n")
    task = transcription("source: table, path: m.csv, audio_key: clip, start_key: from, duration_key: for")
    assert found(task, path) == [
        (f"{tmp_path / 'a.wav'}#t=0.25,0.75", 4000), (f"{path}:3", "'abc' in column from (data.start_key) is not a number of seconds"),
        (f"{path}:4", "no file named in column clip (data.audio_key)"), (f"{path}:5", "-1 s in column for (data.duration_key)")]
    other = tmp_path / "other.csv"  # of the usual form, whatever the run was trained on
    other.write_text("path,start\na.wav,0.5\n")
    assert found(task, other) == [(f"{tmp_path / 'a.wav'}#t=0.5", 4000)]
    other.write_text("sound\na.wav\n")
    with pytest.raises(DataError, match=r"other\.csv has no column audio, speech, path"):
        found(task, other)


def test_ljspeech_s_table_names_its_recordings(tmp_path):
    write(tmp_path / "wavs" / "LJ1.wav", tone())
    (tmp_path / "metadata.csv").write_text("LJ1|One|one\nLJ2|Two|two\n")
    assert found(transcription(), tmp_path / "metadata.csv") == [
        (str(tmp_path / "wavs" / "LJ1.wav"), 4000), (str(tmp_path / "wavs" / "LJ2.wav"), "the file is not there")]


def test_commands_find_recordings_alike(tmp_path):
    (tmp_path / "m.jsonl").write_text('{"path": "a.wav", "start": -2.0}\n')
    data = from_text("task: speech.classification\nmodel: {name: ds_cnn}\ndata: {source: synthetic}\n").experiment.data
    part, = find_recordings([str(tmp_path / "m.jsonl")], data)
    assert isinstance(part, BadRow) and part.where == f"{tmp_path / 'm.jsonl'}:1" and "-2 s" in part.why


# what is answered

def counting(task):
    """The task answering a word for each tenth of a second, one and two in turn."""

    def answer(model, inputs):
        steps = tf.reduce_max(inputs["frames"])
        number = tf.range(steps)[None]
        tokens = tf.where(number < inputs["frames"][:, None] // 10, 1 + number % 2, 0)
        return {"tokens": tokens, "at": tf.where(tokens > 0, number, 0), "confidence": tf.ones_like(inputs["frames"], tf.float32)}

    task.output.answer = answer
    return run_of(task, None)


def run_of(task, model):
    """What a Predictor asks of a run."""
    machine, folder = SimpleNamespace(devices=("CPU:0",)), SimpleNamespace(path=Path("default"))
    return SimpleNamespace(task=task, model=model, name="speech/test", machine=machine, folder=folder)


def test_words_are_cut_to_each_recording_s_own_whatever_is_answered_beside_it(tmp_path, monkeypatch):
    monkeypatch.setattr(predict, "SIMILAR", 2)
    seconds = [0.3, 1.2, 0.05, 0.6, 0.31]
    paths = [str(write(tmp_path / f"{number}.wav", tone(length))) for number, length in enumerate(seconds)]
    predictor = predict.Predictor(counting(transcription()), batch=16)

    def lines(inputs):
        file = io.StringIO()
        shown = Shown.of(predictor.columns, None, details=predictor.run.task.output.answers.details)
        WRITERS["jsonl"](predictor.predict(inputs), shown, file)
        return [json.loads(line) for line in file.getvalue().splitlines()]

    together = lines(paths)
    assert together == [line for path in paths for line in lines([path])]
    for row, length in zip(together, seconds):
        count = int(length * 10)
        assert row["words"] == (["one", "two"] * 6)[:count] == row["text"].split()
        assert len(row["starts"]) == len(row["ends"]) == count and min(row["starts"], default=0) >= 0


def test_what_cannot_be_answered_is_said_in_the_answer(tmp_path):
    write(tmp_path / "a.wav", tone(0.5))
    write(tmp_path / "b.wav", np.full(4000, 0.1))  # nothing but the sound card's offset
    write(tmp_path / "c.wav", tone(2.0))
    write(tmp_path / "d.wav", tone(0.003))
    experiment = from_text("task: speech.classification\nmodel: {name: ds_cnn, width: 4, depth: 1}\nfrontend: {mels: 16}\n"
                           "data: {source: synthetic, rate: 8000, seconds: 0.6}\n").experiment
    commands = task_class(experiment.task)(experiment, {"classes": ["no", "yes"], "mean": [0.0] * 16, "std": [1.0] * 16})
    doubts = {}
    for name, run in (("commands", run_of(commands, commands.model())), ("text", counting(transcription()))):
        predictor = predict.Predictor(run)
        shown = Shown.of(predictor.columns, predictor.classes, details=run.task.output.answers.details)
        for kind in ("jsonl", "table", "csv"):
            for some in ("abcd", "a"):
                file = io.StringIO()
                WRITERS[kind](predictor.predict([str(tmp_path / f"{one}.wav") for one in some]), shown, file)
                doubts[name, kind, some] = file.getvalue()
    said = [json.loads(line).get("warning") for line in doubts["commands", "jsonl", "abcd"].splitlines()]
    assert said == [None, "silence: nothing is louder than -60 dB", "of 2.0 s only the loudest 0.6 s were heard",
                    "lasts only 3 ms, of which little can be said"]
    assert [json.loads(line).get("warning") for line in doubts["text", "jsonl", "abcd"].splitlines()][:3] == [None, said[1], None]
    assert all(("warning" in doubts[name, "table", some]) == (some == "abcd") for name in ("commands", "text") for some in ("abcd", "a"))
    assert all("warning" in doubts[name, "csv", some].splitlines()[0] for name in ("commands", "text") for some in ("abcd", "a"))


def test_the_readme_of_an_export_says_rate_channels_and_range():
    task = transcription()
    signature = task.input.signature
    assert "8,000 Hz, of one channel (mono), full scale -1 to 1" in signature.meanings["samples"]
    assert "8000" in signature.examples["samples"]


# what is judged and said

def sayings(texts: list[str]) -> Recordings:
    names = [f"clips/{number}.wav" for number in range(len(texts))]
    return Recordings(lambda number: np.zeros(8000, np.int16), Facts(names, names, None, texts), "made")


def judged(task, rows: list[list[int]], texts: list[str]):
    tokens = np.array([row + [0] * (4 - len(row)) for row in rows], np.int32)
    answers = {"tokens": tokens, "at": np.zeros_like(tokens), "confidence": np.full(len(rows), 0.5, np.float32)}
    return task.output.judge(answers, {"length": np.full(len(rows), 8000)}, sayings(texts))


def test_worst_utterances_stand_word_under_word_in_the_report(tmp_path):
    made = judged(transcription(), [[1, 2], [2, 2, 2]], ["one two", "one two"])
    (title, lines), = made.listings["worst_utterances"]
    assert lines == "*** ONE two\nTWO TWO two" and title == "clips/1.wav: 2 of 2 words wrong, confidence 50 %"
    assert made.tables["worst_utterances"][0]["said"] == "*** ONE two"
    write_report(tmp_path, Reported(task="speech.transcription", experiment="e", run="r", judgements={"test": made}, timing={}))
    assert f"<pre><code>{lines}</code></pre>" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"```text\n{lines}\n```" in (tmp_path / "report.md").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "report.json").read_text())["tables"]["test/worst_utterances"][0]["written"] == "TWO TWO two"
    assert not judged(transcription(), [[1]], ["one"]).listings


def test_nothing_but_blanks_is_said_with_its_usual_causes():
    task = transcription()
    frames = tf.constant([40, 50])
    blank = tf.one_hot(tf.fill([2, 25], 2), 3) * 9.0
    targets = {"frames": frames, "tokens": tf.constant([[0, 1], [1, 0]]), "token_count": tf.constant([2, 1])}
    share = task.output.scores(blank, targets)["written_share"].numpy()
    assert share.tolist() == [0.0, 0.0]
    assert task.output.remark({"validation/written_share": float(share.mean())}) == BLANK
    assert task.output.remark({"train/written_share": 0.0}) == BLANK
    one = tf.concat([tf.one_hot([[0]], 3) * 20.0, blank[:1, 1:]], 1)
    share = task.output.scores(tf.concat([one, blank[1:]], 0), targets)["written_share"].numpy()
    assert share.tolist() == [1.0, 0.0]
    assert task.output.remark({"validation/written_share": float(share.mean()), "train/written_share": 0.0}) is None
    assert any(note.startswith("The decoder writes nothing but blanks") for note in judged(task, [[], []], ["one", "two"]).notes)
    assert not any("blanks" in note for note in judged(task, [[], [1]], ["one", "two"]).notes)


def test_a_keyword_that_is_no_class_is_found_before_training(tmp_path):
    class_folders(tmp_path, {"go": 6, "stop": 6})
    text = ("task: speech.classification\nmodel: {name: ds_cnn}\nevaluate: {keyword: KEYWORD}\n"
            f"data: {{source: folder, path: {tmp_path}, rate: 8000, test: null, validation: 0}}\n")
    wrong, right = (from_text(text.replace("KEYWORD", word), check_paths=False).experiment for word in ("stopp", "stop"))
    task = task_class("speech.classification")
    with pytest.raises(ConfigError, match=r"evaluate\.keyword: the data have no class 'stopp'; there are go and stop; did you mean stop\?"):
        task(wrong).splits()
    facts = task(right).splits().facts
    with pytest.raises(ConfigError, match="no class 'stop'"):  # a finished run's classes count, not those of new data
        task(right, {**facts, "classes": ["go", "left"]}).splits()

"""Every shipped speech experiment is valid, opens with its command, fits a screen, and has a model that builds; what runs come to."""

import json
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pipelines.config.load import load
from speech.models import command_model, transcript_model
from tests import processes
from tests.speech.synthetic_recordings import tone, write
from tests.speech.test_data import prepared

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[2] / "configs" / "speech"
SHIPPED = sorted(path.stem for path in FOLDER.glob("*.yaml"))


def test_the_experiments_of_the_issue_are_there():
    assert set(SHIPPED) >= {"quickstart", "spoken_digit", "yes_no_ctc", "connected_digits_ctc", "speech_commands", "librispeech_conformer"}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_experiment(name, tmp_path):
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 50
    assert text.startswith("# ") and f"\n#   python -m speech.train speech/{name}" in text
    experiment = load(f"speech/{name}", [f"data.path={tmp_path}"] if name in ("labels", "numbers", "voices") else []).experiment
    if hasattr(experiment.model, "preset") or experiment.task in ("speech.regression", "speech.verification"):
        return  # built and trained in test_pretrained.py, or tests/test_contract.py
    if experiment.task == "speech.classification":
        model = command_model(experiment.model, frames=91, width=experiment.frontend.mels, classes=12, facts={}, describe=None)
        assert model.count_params() < 100_000
    else:
        small = experiment.model.model_copy(update={"depth": 1}) if experiment.model.name == "conformer" else experiment.model
        assert transcript_model(small, width=experiment.frontend.mels, tokens=30, facts={}).output_shape == (None, None, 31)


@pytest.mark.parametrize(("name", "overrides"), [
    ("speech_commands", ["model.width=8", "model.depth=[1, 1, 1, 1]", "train.batch_size=8"]),
    ("librispeech_conformer", ["model.width=16", "model.depth=1", "tokens.size=12", "train.batch_size=4", "train.micro_batch_size=null"]),
])
def test_those_for_larger_data_train_on_made_data_of_their_form(tmp_path, name, overrides):
    """From the prepared TFDS data through the first step."""
    from pipelines.runs.launch import task_class
    from pipelines.training.session import assemble

    data = name.partition("_conformer")[0]
    prepared(tmp_path, data)
    settings = [f"data.data_dir={tmp_path}", "train.epochs=1", "train.devices=cpu", "train.precision=float32", *overrides]
    experiment = load(f"speech/{name}", settings).experiment
    session = assemble(experiment, task_class(experiment.task))
    splits = session.splits
    counts = {"speech_commands": [16, 8, 8], "librispeech": [12, 4, 4]}[data]
    assert [len(split) for split in (splits.train, splits.validation, splits.test)] == counts
    _, carry = session.step(session.feed.iterator(0, session.steps), 0, 1, session.step.fresh())
    assert bool(carry.finite) and np.isfinite(float(carry.loss))


def test_the_header_of_speech_commands_holds_for_the_folder_of_the_original_archive(tmp_path):
    """The overrides as printed, on a folder in the archive's form."""
    from pipelines.runs.launch import task_class
    from speech.data.recordings import facts_of

    head = [line.removeprefix("#") for line in (FOLDER / "speech_commands.yaml").read_text(encoding="utf-8").splitlines()
            if line.startswith("#")]
    said = " ".join(head)
    words = shlex.split(said[said.index("data.source=folder"):])
    keywords = ["yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go"]
    for place, word in enumerate([*keywords, "bed", "cat"]):
        for number in range(10):
            write(tmp_path / word / f"{0xab0c + number:08x}_nohash_{place % 2}.wav", tone(0.4, 16_000, 300 + 40 * place), 16_000)
    write(tmp_path / "_background_noise_" / "white_noise.wav", np.random.default_rng(0).normal(0, 0.1, 16_000 * 20), 16_000)
    experiment = load("speech/speech_commands", [text.replace("PATH", str(tmp_path)) for text in words], check_paths=False).experiment
    made = task_class(experiment.task)(experiment).splits()
    assert set(made.facts["classes"]) == {*keywords, "_unknown_", "_silence_"}
    voices = [{name for name in facts_of(part).speakers if "noise" not in name} for part in (made.train, made.validation, made.test)]
    assert all(voices) and sum(map(len, voices)) == len(set().union(*voices)) == 10


def command(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return processes.run("-m", *arguments, cwd=folder)


def test_from_own_recordings_to_a_transcript_with_times(tmp_path):
    """Trains on a table of tones, then predicts files, a long one among them, and a broken one."""
    rng = np.random.default_rng(0)
    pitches = {"low": 400.0, "high": 1500.0}

    def said(words):
        return np.concatenate([np.concatenate([tone(0.25, 8000, pitches[word] * rng.uniform(0.95, 1.05)), np.zeros(600, np.float32)])
                               for word in words])

    with open(tmp_path / "all.jsonl", "w") as file:
        for number in range(60):
            words = list(rng.choice(list(pitches), rng.integers(2, 5)))
            write(tmp_path / f"{number}.wav", said(words))
            file.write(json.dumps({"path": f"{number}.wav", "text": " ".join(words)}) + "\n")
    (tmp_path / "own.yaml").write_text(
        "task: speech.transcription\ndata: {source: table, path: all.jsonl, rate: 8000, test: 0.2}\n"
        "model: {name: quartz, width: 32, kernels: [5, 7], stride: 4, dropout: 0.0}\ntokens: {unit: words}\nfrontend: {mels: 16}\n"
        "train: {epochs: 24, batch_size: 8, devices: cpu, precision: float32, learning_rate: {peak: 0.01}, validate_every: 4}\n"
        "evaluate: {piece: 3.0}\n")
    done = command("speech.train", "own.yaml", "--name", "a", "--quiet", folder=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads((tmp_path / "runs" / "speech" / "own" / "a" / "report" / "report.json").read_text())
    assert report["metrics"]["test/wer"]["value"] < 0.2 and report["metrics"]["test/real_time_factor"]["value"] > 0
    whole = ["low", "high", "high", "low", "low", "high", "low", "high", "low", "low", "high", "high", "low", "low"]
    write(tmp_path / "new" / "a.flac", said(["low", "high"]))
    write(tmp_path / "new" / "long.wav", said(whole))
    (tmp_path / "new" / "b.wav").write_bytes(b"nothing")
    run = str(tmp_path / "runs" / "speech" / "own" / "a")
    done = command("quartet", "predict", run, "new", "--format", "ctm", folder=tmp_path)
    assert "b.wav: cannot be read: not a readable sound file" in done.stderr and done.returncode == 0
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[4] for row in rows if row[0] == "new/a.flac"] == ["low", "high"]
    times = [float(row[2]) for row in rows if row[0] == "new/long.wav"]
    assert [row[4] for row in rows if row[0] == "new/long.wav"].count("low") >= 5 and times == sorted(times) and times[-1] > 3.5
    done = command("quartet", "predict", run, "new/a.flac", "--format", "jsonl", folder=tmp_path)
    answer = json.loads(done.stdout)
    assert answer["text"] == "low high" and answer["words"] == ["low", "high"] and 0.15 < answer["starts"][1] < 0.5

"""An encrypted run in every command: the same answers with its key, a refusal without, and no plain weights on the disk."""

import json
import shutil
import signal
import time

import keras
import numpy as np
import pytest

import quartet
from extensions.secure import encryption
from extensions.secure.encrypted_folders import decrypt_folder
from extensions.secure.encryption import MARKER, VARIABLE
from extensions.secure.options import require_signature
from extensions.secure.tests.age_keys import age_key, command, files_with, keyed, pieces
from extensions.secure.tests.keys import needs_trust, pair
from pipelines.base.files import write_whole
from tests import finished_run, processes
from tests.training import runs

pytestmark = [needs_trust, pytest.mark.slow(seconds=30)]


@pytest.fixture
def encrypted(tmp_path):
    """A finished run of one's own, encrypted through the command line."""
    folder = finished_run.copy(tmp_path)
    keyed("encrypt", folder)
    return folder


@pytest.fixture(scope="module")
def weights():
    """Of the finished run, as bytes to look for."""
    model = keras.models.load_model(finished_run.run() / "model" / "model.keras", compile=False)
    found = pieces(model.get_weights())
    assert len(found) >= 4 and files_with(finished_run.run(), found) == ["model/model.keras"]  # the search finds what is there
    return found


@pytest.fixture(scope="module")
def digits(judged, tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    for number, image in enumerate(judged[0][:20]):
        (folder / f"{number:02d}.png").write_bytes(image)
    return folder


def test_killed_and_resumed_it_ends_as_the_run_that_is_not_encrypted(tmp_path, monkeypatch):
    """Bit for bit, checkpoints and best weights too; none of them was ever plain in the run's folder."""
    runs.whole(tmp_path / "plain")
    monkeypatch.setenv(VARIABLE, str(age_key()))
    write_whole(tmp_path / "encrypted" / MARKER, encryption.marker(encryption.given_key()))
    runs.killed(tmp_path / "encrypted", [4, 9])
    arrays, _ = runs.checkpoint(tmp_path / "plain")
    wanted = pieces([*arrays.values(), *runs.model_weights(tmp_path / "plain")])
    assert "checkpoints/resume.npz" in files_with(tmp_path / "plain", wanted) and not files_with(tmp_path / "encrypted", wanted)
    decrypt_folder(tmp_path / "encrypted", tmp_path / "decrypted")
    runs.assert_same_outcome(tmp_path / "decrypted", tmp_path / "plain")


def test_trained_and_killed_through_the_command_line(tmp_path):
    """All that the process writes - runs, temporary files, caches, its home - lies below one folder, and is searched."""
    places = {name: tmp_path / folder for name, folder in (("TMPDIR", "tmp"), ("XDG_CACHE_HOME", "cache"), ("HOME", "home"))}
    for place in places.values():
        place.mkdir()
    env = {**processes.environment(), **{name: str(place) for name, place in places.items()}}
    call = ["-m", "quartet", "train", "vision/digits", *finished_run.SETTINGS, "train.checkpoint_seconds=1e-9", "train.keep_state=true",
            "evaluate.baseline=false", "--runs", tmp_path / "runs", "--name", "one", "--encrypt", "--age-key"]
    run = tmp_path / "runs" / "vision" / "digits" / "one"
    process = processes.start(*call, age_key(), env=env)
    limit = time.monotonic() + 600
    while not (run / "checkpoints" / "resume.npz").exists() and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.01)
    assert (run / "checkpoints" / "resume.npz").exists(), process.printed()
    process.send_signal(signal.SIGKILL)
    process.wait()
    listed = json.loads(command("runs", "--runs", tmp_path / "runs", "--json").stdout)
    assert [one["state"] for one in listed] == ["interrupted"]
    refused = command("train", "vision/digits", *call[4:-2])
    assert refused.exit_code == 2 and "is encrypted; give its key" in refused.output
    done = processes.run(*call, age_key(), env=env, check=True)
    assert "resuming at step" in done.stdout + done.stderr
    decrypt = tmp_path.with_name(f"{tmp_path.name}-decrypted")
    keyed("decrypt", run, "--output", decrypt)
    with np.load(decrypt / "checkpoints" / "resume.npz") as arrays:
        state = [arrays[name] for name in arrays if name != "about"]
    wanted = pieces([*state, *keras.models.load_model(decrypt / "model" / "model.keras", compile=False).get_weights()])
    assert len(wanted) > 10 and {"checkpoints/resume.npz", "model/model.keras"} <= set(files_with(decrypt, wanted))
    shutil.rmtree(decrypt)
    assert files_with(tmp_path, wanted) == []
    shown = {file.relative_to(run).parts[0] for file in run.rglob("*") if file.is_file() and not encryption.begins_encrypted(file)}
    assert shown == {MARKER, ".lock", "experiment.yaml", "environment.json", "metrics.jsonl", "tensorboard"}
    assert b"samples" not in b"".join(file.read_bytes() for file in (run / "tensorboard").rglob("events*"))


def test_every_command_refuses_without_the_key(encrypted, tmp_path, digits):
    report = encrypted / "report" / "report.json"
    for call in (["predict", encrypted, digits], ["evaluate", encrypted], ["embed", encrypted, digits, "-o", tmp_path / "x.npz"],
                 ["nearest", encrypted, digits], ["export", encrypted], ["export", encrypted, "--for", "mobile"],
                 ["serve", encrypted, "--port", "0"], ["report", encrypted], ["runs", "compare", encrypted, finished_run.run()],
                 ["train", "vision/digits", *finished_run.SETTINGS, "--runs", encrypted.parents[2], "--name", "small"],
                 ["decrypt", encrypted]):
        for key, said in (([], "give its key: --age-key FILE"), (["--age-key", age_key("other")], "is encrypted to")):
            done = command(*call, *key)
            assert done.exit_code == 2 and said in done.output and "Traceback" not in done.output, (call, done.output)
    listed, = json.loads(command("runs", "--runs", encrypted.parents[2], "--json").stdout)
    assert listed["state"] == "finished" and listed["progress"] == "encrypted" and report.is_file()
    done = command("encrypt", finished_run.copy(tmp_path / "more"))
    assert done.exit_code == 2 and "--age-key" in done.output


def test_the_answers_are_the_same(encrypted, tmp_path, digits, judged, weights, monkeypatch):
    for run, key in ((finished_run.copy(tmp_path / "plain"), ()), (encrypted, ("--age-key", age_key()))):
        for call in (["predict", run, digits, "--probabilities", "-o", tmp_path / f"{bool(key)}.jsonl"],
                     ["evaluate", run, "evaluate.bootstrap=100", "-o", tmp_path / f"{bool(key)}.csv"]):
            done = command(*call, *key)
            assert done.exit_code == 0, done.output
    for ending in ("jsonl", "csv"):
        assert (tmp_path / f"True.{ending}").read_bytes() == (tmp_path / f"False.{ending}").read_bytes()
    judged_again = [file for file in (encrypted / "report" / "test").rglob("*") if file.is_file()]
    assert files_with(encrypted, weights) == [] and judged_again and all(map(encryption.begins_encrypted, judged_again))
    assert "test accuracy" in keyed("report", encrypted).output
    monkeypatch.setenv(VARIABLE, str(age_key()))
    answers = quartet.load(encrypted).predict(judged[0][:20], probabilities=True)
    assert [one["label"] for one in answers] == [str(row.argmax()) for row in judged[2][:20]]
    assert "<iframe" in quartet.load(encrypted)._repr_html_()


@pytest.mark.parametrize("place", ["inside", "outside"])
def test_exports_are_encrypted_signed_and_served(encrypted, tmp_path, judged, weights, place, monkeypatch):
    """A SavedModel, whose files TensorFlow writes and reads by name: in memory alone."""
    from extensions.secure.encryption import Encrypted
    from pipelines.serving.exported import load_exported

    export = encrypted / "export" if place == "inside" else tmp_path / "elsewhere"
    keyed("export", encrypted, "-o", export)
    assert all(encryption.begins_encrypted(file) for file in export.rglob("*") if file.is_file())
    assert files_with(tmp_path, weights) == []
    with pytest.raises(Encrypted, match="give its key"):
        load_exported(export)
    assert command("sign", export, "--key", pair()[0]).exit_code == 0
    monkeypatch.setenv(VARIABLE, str(age_key()))
    with require_signature(require_signature=pair()[1]):
        served = load_exported(export)
    images, _, probabilities = judged
    for number in range(3):
        answer, = served.together([("a", served.take(images[number]))])
        assert np.allclose(answer.values["probabilities"], probabilities[number], atol=1e-5)
    assert command("decrypt", export, "-o", tmp_path / "opened").exit_code == 0
    assert files_with(tmp_path / "opened", weights)


def test_a_converted_model(encrypted, tmp_path, digits, weights):
    pytest.importorskip("ai_edge_litert") if not processes.environment().get("QUARTET_REQUIRE_EXTRAS") else None
    keyed("export", encrypted, "--for", "mobile")
    export = encrypted / "export-mobile"
    plain = {file.name for file in export.rglob("*") if file.is_file() and not encryption.begins_encrypted(file)}
    assert plain == {"experiment.yaml", "environment.json"}
    done = command("predict", export, digits)
    assert done.exit_code == 2 and "give its key" in done.output
    assert "20 of 20 answered" in keyed("predict", export, digits).output

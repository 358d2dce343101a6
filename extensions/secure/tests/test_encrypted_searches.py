"""An encrypted search: nothing plain of its trials and its best on the disk, resumed with its key alone, encrypted and decrypted whole."""

import contextlib
import io
import json
import os
import shutil
import signal
from pathlib import Path

import keras
import numpy as np
import pytest

import quartet
from extensions.secure import encryption, options
from extensions.secure.encryption import MARKER, VARIABLE, begins_encrypted, decrypted
from extensions.secure.tests.age_keys import age_key, command, files_with, keyed, pieces
from extensions.secure.tests.keys import needs_trust
from pipelines.base import storage
from pipelines.base.errors import ConfigError
from pipelines.config import guard
from pipelines.tuning.search_folder import Journal, SearchFolder
from tests import processes
from tests.waiting import until

pytestmark = [needs_trust, pytest.mark.slow(seconds=15)]

EXPERIMENT = """\
task: vision.classification
data: {source: digits, validation: 0.1, test: 0.2}
model: {name: cnn, widths: [4], hidden: 8}
train: {epochs: 2, batch_size: 128, precision: float32, devices: cpu, checkpoint_seconds: 1.0e-9, keep_state: true}
evaluate: {bootstrap: 100, baseline: false, worst: 0}
monitor: {samples: 0}
tune: {trials: 2, seeds: 2, cost: {measure: parameters}, space: {train.learning_rate.peak: {choice: [0.003, 0.01, 0.03]}}}
"""
PLAIN = {MARKER, ".lock", "search.yaml", "journal.jsonl", "best.yaml", "experiment.yaml", "environment.json", "metrics.jsonl"}


def shown(search: Path) -> set[str]:
    """Names of the files in a search that are not encrypted; of orders and results the ending, of TensorBoard's files the folder."""
    names = set()
    for file in search.rglob("*"):
        if file.is_file() and not begins_encrypted(file):
            order = file.name.endswith((".order.json", ".result.json"))
            names.add("order" if order else "tensorboard" if "tensorboard" in file.parts else file.name)
    return names


def taken(search: Path) -> bytes:
    """The checkpoint of a run of the search, as it lies there; empty where there is none now."""
    for place, _, names in os.walk(search):
        if "resume.npz" in names:
            with contextlib.suppress(FileNotFoundError):
                return (Path(place) / "resume.npz").read_bytes()
    return b""


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    """The arguments of the search. All that its processes write lies below one folder."""
    place = tmp_path_factory.mktemp("sealed")
    (place / "digits.yaml").write_text(EXPERIMENT)
    for name in ("tmp", "cache", "home"):
        (place / name).mkdir()
    return ["tune", place / "digits.yaml", "--runs", place / "runs"]


@pytest.fixture(scope="module")
def search(call):
    """It, killed once and resumed, with the weights looked for after both."""
    place = call[1].parent
    folder = place / "runs" / "vision" / "digits" / "search"
    env = {**processes.environment(), "TMPDIR": str(place / "tmp"), "XDG_CACHE_HOME": str(place / "cache"), "HOME": str(place / "home")}
    secret = age_key().read_text().splitlines()[-1]
    process = processes.start("-m", "quartet", *call, "--encrypt", env={**env, VARIABLE: secret})
    state = until(lambda: taken(folder) or (process.poll() is not None and b"none"), seconds=300)
    lines = of_processes("cmdline")
    process.send_signal(signal.SIGKILL)
    process.wait()
    until(lambda: str(place).encode() not in of_processes("environ"))  # its trials have ended with it, and write no more
    assert secret.encode() not in lines
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(age_key()))
        with decrypted(io.BytesIO(state), "resume.npz") as opened, np.load(opened) as arrays:
            wanted = pieces([arrays[name] for name in arrays if name != "about"])
    assert len(wanted) >= 2 and files_with(place, [*wanted, secret.encode()]) == [], process.printed()
    for key, said in (([], "is encrypted; give its key"), (["--age-key", age_key("other")], "is encrypted to")):
        refused = command(*call, *key)
        assert refused.exit_code == 2 and said in refused.output and "Traceback" not in refused.output
    done = processes.run("-m", "quartet", *call, "--age-key", age_key(), env=env, check=True)
    assert "best of 2 trials" in done.stdout and done.stdout.endswith("--encrypt\n")
    assert files_with(place, wanted) == []
    return folder


def of_processes(name: str) -> bytes:
    """What /proc has under that name of all processes."""
    found = []
    for number in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended, or is another person's
            found.append(Path("/proc", number, name).read_bytes())
    return b"".join(found)


def test_nothing_but_settings_and_scores_is_plain(search, call, tmp_path):
    assert shown(search) == PLAIN | {"order", "tensorboard"}
    assert all(begins_encrypted(file) for file in search.rglob("log.txt")) and len(list(search.glob("trials/*/log.txt"))) == 2
    keyed("decrypt", search, "--output", tmp_path / "plain")
    assert not list((tmp_path / "plain").rglob(MARKER)) and shown(search) == PLAIN | {"order", "tensorboard"}
    models = [tmp_path / "plain" / f"best-seed{seed}" / "model" / "model.keras" for seed in (0, 1)]
    wanted = pieces(weights for model in models for weights in keras.models.load_model(model, compile=False).get_weights())
    found = files_with(tmp_path / "plain", wanted)
    assert len(wanted) >= 4 and {"best-seed0/model/model.keras", "best-seed1/checkpoints/resume.npz"} <= set(found)
    assert files_with(call[1].parent, wanted) == []


def test_its_runs_and_its_report_are_read_with_the_key(search, call, monkeypatch):
    refused = command("report", search)
    assert refused.exit_code == 2 and "give its key" in refused.output
    assert "best of 2 trials" in keyed("report", search).output
    states = [one["state"] for one in json.loads(command("runs", "--runs", call[-1], "--json").stdout)]
    assert states and set(states) == {"finished"}
    assert "test accuracy" in keyed("report", search / "best-seed1").output
    assert (search / "best.yaml").read_text().splitlines()[1].endswith("--name digits-search --encrypt")
    with pytest.raises(quartet.QuartetError, match="give its key"):
        quartet.tune(call[1], runs=call[-1], encrypt=True)
    monkeypatch.setenv(VARIABLE, str(age_key()))
    again = quartet.tune(call[1], runs=call[-1], encrypt=True)
    assert len(again.trials) == 2 and "<iframe" in again._repr_html_()


def test_decrypted_and_encrypted_where_it_lies(search, call, tmp_path):
    runs = tmp_path / "runs"
    shutil.copytree(call[-1], runs)
    copy, same = runs / search.relative_to(call[-1]), [*call[:-1], runs]
    assert "files" in keyed("decrypt", copy).output
    assert not any(begins_encrypted(file) or file.name == MARKER for file in copy.rglob("*"))
    plain = command(*same)
    assert plain.exit_code == 0 and "best of 2 trials" in plain.output
    refused = command(*same, "--encrypt", "--age-key", age_key())
    assert refused.exit_code == 2 and "begun without --encrypt" in refused.output
    keyed("encrypt", copy)
    assert shown(copy) == PLAIN | {"order"}  # TensorBoard's files, too, which may show examples
    assert "best of 2 trials" in keyed(*same).output
    (next(copy.glob("trials/*")) / MARKER).unlink()
    refused = command(*same, "--age-key", age_key())
    assert refused.exit_code == 2 and "encrypt or decrypt was interrupted" in refused.output
    keyed("encrypt", copy)
    keyed(*same)
    (copy / MARKER).unlink()
    refused = command(*same, "--age-key", age_key())
    assert refused.exit_code == 2 and "Put it back" in refused.output


def test_wrong_calls_are_refused_before_any_work(call, tmp_path):
    anew = [*call[:-1], tmp_path]
    for further, said in ((["--encrypt"], "give its key: --age-key FILE"),
                          (["--encrypt", "--age-key", age_key(), "--ray", "auto"], "not with --ray"),
                          (["--encrypt", "--age-key", age_key(), "--runs", "s3://bucket/runs"], "or runs in a store")):
        done = command(*anew, *further)
        assert done.exit_code == 2 and said in done.output, done.output
    assert list(tmp_path.iterdir()) == []


def test_a_marked_search_is_not_for_ray(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(age_key()))
    folder = SearchFolder(tmp_path)
    with options.encrypt(encrypt=True):
        storage.begin(tmp_path, begun=False)
    storage.begin(tmp_path, begun=True)
    guard.check_place(tmp_path, workers="none", store=False)
    with pytest.raises(ConfigError, match="not with --ray"):
        guard.check_place(tmp_path, workers="here", store=False)
    journal = Journal(folder.journal)
    journal.add({"event": "begin"})
    journal.close()
    assert not begins_encrypted(folder.journal)
    (tmp_path / MARKER).unlink()
    with pytest.raises(ConfigError, match="begun without --encrypt"), options.encrypt(encrypt=True):
        storage.begin(tmp_path, begun=folder.started)


@pytest.mark.parametrize("marked", [True, False])
def test_what_a_trial_prints_is_added_to_its_log(tmp_path, marked, monkeypatch):
    from pipelines.base.stored import read_bytes
    from pipelines.tuning.trial_processes import close_log, open_log

    monkeypatch.setenv(VARIABLE, str(age_key()))
    if marked:
        (tmp_path / MARKER).write_text(encryption.marker(encryption.given_key()))
    log = tmp_path / "trials" / "1" / "log.txt"
    for line in (b"one\n", b"two\n"):
        file = open_log(str(log))
        file.write(line)
        file.flush()
        close_log(file, str(log))
    assert read_bytes(log) == b"one\ntwo\n" and begins_encrypted(log) == marked


def test_the_folder_in_memory_goes_with_a_process_that_ends_at_once():
    with encryption.memory_folder() as place:
        memory = place.parent
    encryption.leave_memory()
    assert not memory.exists()
    with encryption.memory_folder() as place:  # a new one, where it is needed again
        assert place.is_dir() and place.parent != memory

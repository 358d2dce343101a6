"""The search's folder and journal: what a kill leaves, who may write, what may change."""

import os

import pytest

from pipelines.errors import ConfigError
from pipelines.tuning.folder import Journal, SearchFolder, trial_name


def test_a_torn_line_is_cut_off_and_a_damaged_one_is_an_error(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    for number in range(3):
        journal.add({"event": "start", "trial": number})
    journal.close()
    whole = path.read_bytes()
    for cut in range(1, 12):
        path.write_bytes(whole[:-cut])
        journal = Journal(path)
        assert [event["trial"] for event in journal.events] == [0, 1]
        journal.add({"event": "start", "trial": 2})
        journal.close()
        assert path.read_bytes() == whole
    path.write_bytes(whole.replace(b'"trial": 1', b'"trial"; 1'))
    with pytest.raises(ConfigError, match="line 2: not an event of a search; begin anew with --fresh"):
        Journal(path)


def test_another_search_is_refused_and_more_trials_are_not(tmp_path):
    folder = SearchFolder(tmp_path)
    text = "tune: {trials: 3, seed: 0}\ntrain: {epochs: 2}\n"
    folder.claim(text)
    folder.claim(text.replace("epochs: 2", "epochs: 3"))  # nothing was done yet
    folder.claim(text)
    folder.journal.write_text("{}\n")
    folder.claim(text.replace("trials: 3", "trials: 5"))
    assert "trials: 5" in folder.search.read_text()
    with pytest.raises(ConfigError, match=r"train.epochs: 2 there, 4 now\nGive --name NEW"):
        folder.claim(text.replace("epochs: 2", "epochs: 4"))
    with pytest.raises(ConfigError, match=r"tune.seed: 0 there, 1 now"):
        folder.claim(text.replace("seed: 0", "seed: 1"))


def test_a_run_of_that_name_is_not_overwritten(tmp_path):
    (tmp_path / "experiment.yaml").write_text("task: x\n")
    with pytest.raises(ConfigError, match="there is a run of that name; give --name NEW"):
        SearchFolder(tmp_path).claim("tune: {}\n")


def test_two_searches_in_one_folder(tmp_path):
    folder = SearchFolder(tmp_path)
    said = rf"another process \(number {os.getpid()}\) is searching here; wait for it, or give --name NEW"
    with folder.locked(), pytest.raises(ConfigError, match=said), SearchFolder(tmp_path).locked():
        pass
    assert not folder.begun


def test_names_of_trials_say_what_is_tried():
    assert trial_name(7, {"train.learning_rate.peak": 0.0031415, "model.dropout": 0.2}) == "07-peak=0.00314,dropout=0.2"
    assert trial_name(12, {"model.widths": [32, 64], "model.name": "cnn"}) == "12-widths=32x64,name=cnn"
    assert "/" not in trial_name(1, {"data.path": "../../x"}) and len(trial_name(1, {"a": "b" * 300})) < 100

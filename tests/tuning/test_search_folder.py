"""The search's folder and journal: what a kill leaves, who may write, what may change."""

import os
import resource

import pytest

from pipelines.base.errors import ConfigError, QuartetError
from pipelines.base.files import WriteError
from pipelines.tuning.search_folder import Journal, SearchFolder, read_events, trial_name


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


def test_a_full_disk_leaves_the_journal_whole_and_is_said(tmp_path):
    """The system itself refuses to write more."""
    journal, before = Journal(tmp_path / "journal.jsonl"), resource.getrlimit(resource.RLIMIT_FSIZE)
    journal.add({"event": "start", "trial": 1})
    whole = journal.path.read_bytes()
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 10, before[1]))
    try:
        with pytest.raises(WriteError, match=r"journal\.jsonl: cannot be written: the disk is full; free some space") as caught:
            journal.add({"event": "start", "trial": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert isinstance(caught.value, QuartetError) and journal.path.read_bytes() == whole and len(journal.events) == 1
    journal.add({"event": "start", "trial": 2})
    assert [event["trial"] for event in read_events(journal.path)[0]] == [1, 2]


TEXT = "tune: {trials: 3, seed: 0}\ntrain: {epochs: 2}\n"


@pytest.fixture
def begun(tmp_path):
    """The folder of a search that has begun two trials and has a report."""
    folder = SearchFolder(tmp_path)
    folder.claim(TEXT)
    folder.claim(TEXT.replace("epochs: 2", "epochs: 3"))  # nothing was done yet
    folder.claim(TEXT)
    journal = Journal(folder.journal)
    for event in ({"event": "begin"}, {"event": "start", "trial": 1}, {"event": "end", "trial": 1}, {"event": "start", "trial": 2}):
        journal.add(event)
    journal.close()
    folder.report.mkdir()
    (folder.report / "search.json").write_text("{}")
    return folder


@pytest.mark.parametrize(("old", "new", "message"), [
    ("epochs: 2", "epochs: 4", r"train.epochs: 2 there, 4 now\nGive --name NEW"),
    ("seed: 0", "seed: 1", "tune.seed: 0 there, 1 now"),
    ("trials: 3", "trials: 1", "tune.trials: 1, and .* has begun 2 trials; set tune.trials: 2 or more, or give --name NEW"),
])
def test_what_cannot_go_on_is_refused_and_stays_as_it_was(begun, old, new, message):
    for ask in (begun.compared, begun.claim):
        with pytest.raises(ConfigError, match=message):
            ask(TEXT.replace(old, new))
    assert begun.finished and begun.search.read_text() == TEXT


def test_a_search_goes_on_with_more_trials_only_when_it_is_claimed(begun):
    assert begun.compared(TEXT) and begun.finished
    more = TEXT.replace("trials: 3", "trials: 5")
    assert not begun.compared(more) and begun.finished and begun.search.read_text() == TEXT
    begun.claim(more)
    assert begun.search.read_text() == more and not begun.finished and begun.compared(more)


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

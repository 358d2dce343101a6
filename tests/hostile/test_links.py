"""A stranger's run: nothing outside its folder is written, emptied or read through what lies in it."""

import os

import pytest

from pipelines.base.files import WriteError, open_to_append, whole_folder, write_whole
from pipelines.base.inside import Linked
from pipelines.monitoring.metrics_log import MetricsLog
from pipelines.runs.folder import RunFolder
from pipelines.runs.listing import find_run, read_entry
from pipelines.tuning.search_folder import Journal, SearchFolder

FILES = ["metrics.jsonl", "environment.json", "experiment.yaml", "model/model.keras", "model/.model.part.keras", "model/facts.json",
         "checkpoints/resume.npz", "report/report.json", "tensorboard/train/events.out.tfevents.1"]
FOLDERS = ["report", "model", "checkpoints", "tensorboard", "tensorboard/train", "report/figures"]


@pytest.fixture
def stranger(tmp_path):
    """(a run's folder, a file of the person's outside it)."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "experiment.yaml").write_text("task: toy\n")
    thesis = tmp_path / "mine" / "thesis.txt"
    thesis.parent.mkdir()
    thesis.write_text("years of work")
    return RunFolder(tmp_path / "run"), thesis


def plant(folder: RunFolder, name: str, target) -> None:
    path = folder.path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def untouched(thesis) -> bool:
    return thesis.read_text() == "years of work" and [path.name for path in thesis.parent.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("name", FILES + FOLDERS)
def test_a_link_is_refused_by_name_before_anything_is_written_or_read(stranger, name):
    folder, thesis = stranger
    plant(folder, name, thesis if name in FILES else thesis.parent)
    search = SearchFolder(folder.path)
    calls = [folder.locked().__enter__, lambda: folder.claim("task: toy\n"), folder.read_report, search.locked().__enter__,
             search.read_report, lambda: search.compared("tune: {}\n"), lambda: find_run(folder.path.parent, "run")]
    for call in calls:
        with pytest.raises(Linked, match=rf"{name}: is a link to .*Put what it leads to in its place, or remove it"):
            call()
    listed = read_entry(folder, "toy")
    assert listed.state == "failed" and f"{name}: is a link" in listed.progress
    assert untouched(thesis)


def test_a_model_is_not_read_through_a_link(stranger):
    from pipelines.serving.load import load_run

    folder, thesis = stranger
    plant(folder, "model", thesis.parent)
    with pytest.raises(Linked, match="model: is a link to"):
        load_run(folder)


def test_a_lock_that_is_a_link_is_not_emptied(stranger):
    folder, thesis = stranger
    plant(folder, ".lock", thesis)
    for call in (folder.locked().__enter__, folder.move_aside, folder.claimed("task: toy\n", fresh=True).__enter__):
        with pytest.raises(Linked, match=r"\.lock: is a link"):
            call()
    assert untouched(thesis)


@pytest.mark.parametrize("name", [".lock", "metrics.jsonl", "journal.jsonl"])
def test_a_second_name_of_a_file_elsewhere_is_not_written_to(stranger, name):
    folder, thesis = stranger
    os.link(thesis, folder.path / name)
    with pytest.raises(Linked, match=rf"{name}: has a second name elsewhere \(a hard link\)"), folder.locked():
        open_to_append(folder.path / name)
    assert untouched(thesis)


def test_a_fifo_is_not_waited_for(stranger):
    folder, _ = stranger
    os.mkfifo(folder.path / "metrics.jsonl")
    with pytest.raises(Linked, match=r"metrics\.jsonl: is neither a file nor a folder"), folder.locked():
        pass
    for name in ("metrics.jsonl", ".lock"):
        (folder.path / name).unlink()
    os.mkfifo(folder.path / ".lock")
    with pytest.raises(Linked, match="lock: is not a file"), folder.locked():
        pass


def test_a_link_that_is_put_there_meanwhile_is_not_followed(stranger):
    folder, thesis = stranger
    with folder.locked():
        plant(folder, "report", thesis.parent)
        plant(folder, "metrics.jsonl", thesis)
        plant(folder, "journal.jsonl", thesis)
        with pytest.raises(WriteError, match=r"report.json: cannot be written"):
            write_whole(folder.report / "report.json", "{}")
        with pytest.raises(WriteError), whole_folder(folder.report / "test"):
            pass
        with pytest.raises(Linked, match=r"journal\.jsonl: is a link, and is not written through"):
            Journal(folder.path / "journal.jsonl")
        log = MetricsLog(folder.metrics)  # a new log replaces the link
        log.append({"step": 1})
        log.close()
    assert untouched(thesis) and not folder.metrics.is_symlink()


def test_fresh_moves_a_run_with_links_aside_as_it_is(stranger):
    folder, thesis = stranger
    plant(folder, "report", thesis.parent)
    with folder.claimed("task: toy\n", fresh=True):
        assert sorted(path.name for path in folder.path.iterdir()) == [".lock", "experiment.yaml"]
    assert (folder.path.with_name("run~1") / "report").is_symlink() and untouched(thesis)


def test_the_run_itself_and_what_leads_to_it_may_be_links_of_ones_own(stranger):
    folder, _ = stranger
    (folder.path.parent / "runs").symlink_to(folder.path.parent, target_is_directory=True)
    (folder.path.parent / "mine" / "name").symlink_to(folder.path, target_is_directory=True)
    for path in (folder.path.parent / "runs" / "run", folder.path.parent / "mine" / "name"):
        with RunFolder(path).locked():
            write_whole(path / "report" / "report.json", '{"metrics": {}}')
        assert find_run(path.parent, str(path)).read_report()["metrics"] == {}

"""Finished runs keep no state of their training, and what older ones kept can be freed; nothing else goes."""

import pytest
from typer.testing import CliRunner

from pipelines.commands import main
from pipelines.runs.folder import RunFolder
from tests import finished_run
from tests.cli.test_runs import checkpoint, finish, make


def clean(runs, *arguments: str) -> str:
    done = CliRunner().invoke(main.app, ["runs", "clean", "--runs", str(runs), *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def three(runs):
    """A finished run with its state, an older one that --fresh moved aside, and one that was interrupted."""
    done, aside, cut = (make(runs, f"vision/digits/{name}") for name in ("done", "done~1", "cut"))
    for folder in (done, aside):
        checkpoint(folder, 20)
        finish(folder, 0.9)
    checkpoint(cut, 20)
    return done, aside, cut


def test_the_state_of_finished_runs_goes_and_that_of_others_stays(tmp_path):
    done, aside, cut = three(tmp_path)
    said = clean(tmp_path, "--dry-run")
    assert "would be free" in said and done.checkpoints.is_dir()
    said = clean(tmp_path)
    assert not done.checkpoints.exists() and not aside.checkpoints.exists() and done.finished
    assert (cut.checkpoints / "resume.npz").exists()
    assert "0 B are free: nothing to remove" in clean(tmp_path)


def test_runs_moved_aside_go_when_asked(tmp_path):
    done, aside, _ = three(tmp_path)
    clean(tmp_path, "--moved")
    assert not aside.path.exists() and done.finished


def test_a_run_in_use_or_that_leads_out_of_its_folder_is_left(tmp_path):
    done, aside, _ = three(tmp_path / "runs")
    (tmp_path / "thesis").mkdir()
    (aside.path / "tensorboard").symlink_to(tmp_path / "thesis")
    with done.locked():
        said = clean(tmp_path / "runs", "--moved")
    assert done.checkpoints.is_dir() and aside.path.is_dir() and (tmp_path / "thesis").is_dir()
    assert said.count("kept: ") == 2 and "a process works there" in said.replace("\n", " ")


@pytest.mark.slow
def test_a_run_ends_without_the_state_of_its_training():
    folder = RunFolder(finished_run.run())
    assert folder.finished and (folder.model / "model.keras").is_file() and not folder.checkpoints.exists()


def test_the_list_says_how_large_runs_are(tmp_path):
    finish(make(tmp_path, "vision/digits/best"), 0.95)
    said = CliRunner().invoke(main.app, ["runs", "--runs", str(tmp_path)]).output
    assert "size" in said and " B" in said

"""Data prepared by the workers of a Ray cluster: the files of one machine, byte for byte, also where a worker is lost; and its errors."""

import pytest

from pipelines.data import shard_writing
from pipelines.task.prepared import prepare
from tests.data.test_prepared import contents, images, task_of
from tests.processes import run
from tests.ray_cluster import extra

PREPARE = """
import os, sys
from pathlib import Path
from pipelines.commands.main import app
from pipelines.data import shard_writing
from pipelines.task import ray_prepare

class Dying(ray_prepare.Writer):
    "A worker that dies over its first piece, and one that finds a file of test gone."
    def write(self, piece):
        self._work = self._work or self._found()
        died = Path(FOLDER) / "died"
        if piece.split == "train" and not died.exists():
            died.touch()
            os._exit(1)
        if piece.split == "test" and (Path(FOLDER) / "remove").exists():
            Path(self._work.sources["test"].name(1)).unlink(missing_ok=True)
        return super().write(piece)

ray_prepare.Writer = Dying
shard_writing.EXAMPLES = 5
os.chdir(FOLDER)
app(["prepare", "photos.yaml", OUT, "--ray", "--workers", "2"])
"""


@extra
@pytest.mark.slow(seconds=45)
def test_workers_write_what_one_machine_writes_and_name_the_file_that_is_gone(tmp_path, monkeypatch):
    monkeypatch.setattr(shard_writing, "EXAMPLES", 5)
    config = images(tmp_path)
    prepare(task_of(config), tmp_path / "one")
    script = PREPARE.replace("FOLDER", repr(str(tmp_path)))
    done = run("-c", script.replace("OUT", "'two'"), anew=True)
    assert done.returncode == 0 and "prepared     two (train" in done.stdout, done.stderr
    assert "a worker is lost" in done.stderr and (tmp_path / "died").exists()
    assert len(list((tmp_path / "one").glob("train-*.arrow"))) > 2 and contents(tmp_path / "two") == contents(tmp_path / "one")

    (tmp_path / "remove").touch()
    gone = task_of(config).splits().test.name(1)
    failed = run("-c", script.replace("OUT", "'three'"), anew=True)
    assert failed.returncode == 1 and f"{gone}: cannot be read" in failed.stderr and "quartet check" in failed.stderr, failed.stderr
    assert not (tmp_path / "three" / "prepared.json").exists() and (tmp_path / "three" / "unfinished.json").exists()

"""Data prepared by the workers of a Ray cluster: the files of one machine, byte for byte, also where a worker is lost; and its errors."""

import pytest

from extensions.cluster.tests.ray_nodes import extra
from pipelines.data import shard_writing
from pipelines.task.prepared import prepare
from tests.data.test_prepared import contents, images, task_of
from tests.processes import run

PREPARE = """
import os
from pathlib import Path
from pipelines.commands.main import app
from pipelines.data import shard_writing
from extensions.cluster import ray_prepare
from tests.waiting import until

class Disturbed(ray_prepare.Writer):
    "The first worker dies over a piece. A file goes once both have found the data, before any writes."
    def write(self, piece):
        folder = Path(FOLDER)
        self._work = self._work or self._found()
        if not (folder / "died").exists():
            (folder / "died").touch()
            os._exit(1)
        if (folder / "remove").exists():
            (folder / f"found-{os.getpid()}").touch()
            if (piece.split, piece.first) == ("train", 0):
                until(lambda: len(list(folder.glob("found-*"))) == 2, seconds=300)
                Path(self._work.sources["test"].name(1)).unlink()
                (folder / "removed").touch()
            until((folder / "removed").exists, seconds=300)
        return super().write(piece)

ray_prepare.Writer = Disturbed
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

"""Predictions on a Ray cluster: those of one machine, in parts, of which none is written twice and none is lost with a worker."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from extensions.cluster.ray_predict import claim, content, parts
from extensions.cluster.tests.ray_nodes import extra
from pipelines.base.errors import ConfigError, DataError
from pipelines.serving.output import Prediction, Shown
from pipelines.stores.remote import OutputFolder
from tests.finished_run import finished, quartet
from tests.processes import run


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> Path:
    """1,100 digits, in two parts, and among them a file that is no image."""
    folder = tmp_path_factory.mktemp("images")
    for number, pixels in enumerate(load_digits().images[:1100]):
        Image.fromarray((pixels * 15).astype(np.uint8)).save(folder / f"{number:04d}.png")
    (folder / "0007.png").write_bytes(b"no image")
    return folder


def rows(*files: Path) -> list[dict]:
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@extra
@pytest.mark.slow(seconds=40)
def test_parts_hold_what_one_machine_answers_and_the_same_command_writes_what_is_missing(images, tmp_path):
    run_folder = str(finished()[0] / "vision" / "digits" / "small")
    assert quartet("predict", run_folder, str(images), "--output", str(tmp_path / "one.jsonl")).returncode == 0
    call = ("predict", run_folder, str(images), "--output", str(tmp_path / "out"), "--ray", "--workers")
    done = quartet(*call, "2", anew=True)
    assert done.returncode == 0 and "1,099 answered" in done.stderr and "1 could not be read: 2 parts" in done.stderr, done.stderr
    assert "0007.png: cannot be read" in done.stderr
    first, second = sorted((tmp_path / "out").glob("part-*.jsonl"))
    for ours, theirs in zip(rows(first, second), rows(tmp_path / "one.jsonl"), strict=True):
        assert ours.get("confidence") == pytest.approx(theirs.get("confidence"), abs=1e-5)
        assert {**ours, "confidence": 0} == {**theirs, "confidence": 0}
    before = second.read_bytes(), first.stat().st_mtime_ns
    second.unlink()
    again = quartet(*call, "1", anew=True)
    assert "76 answered" in again.stderr and "1 of them from before" in again.stderr, again.stderr
    assert (second.read_bytes(), first.stat().st_mtime_ns) == before


LOSING = """
import sys
from pathlib import Path
from extensions.cluster.ray_cluster import connected
from extensions.cluster import ray_predict
from pipelines.stores.remote import OutputFolder

class Dying:
    "An answerer whose first process dies over a part."
    def __init__(self, ask, processors):
        pass
    def there(self):
        pass
    def answer(self, read):
        import os
        from pathlib import Path
        from extensions.cluster.ray_predict import Answered
        died = Path(sys.argv[1]) / "died"
        if read[0][0] == "2" and not died.exists():
            died.touch()
            os._exit(1)
        return Answered(" ".join(one[0] for one in read).encode(), len(read), [])

ray_predict.Answerer = Dying
ray_predict.parts = lambda reads: iter([ray_predict.Part(n, [(str(n), {})]) for n in range(6)])
out = Path(sys.argv[1]) / "out"
out.mkdir()
with connected("local", workers=2):
    import ray
    assert [node["NodeManagerAddress"] for node in ray.nodes()] == ["127.0.0.1"]  # nobody else's to reach
    done = ray_predict.predict([], ray_predict.Ask("run", "jsonl", 0, False), OutputFolder(out), set(), workers=2, failed=print, say=print)
print(done, [file.read_text() for file in sorted(out.iterdir())])
"""


@extra
@pytest.mark.slow(seconds=15)
def test_a_lost_worker_loses_no_part(tmp_path):
    done = run("-c", LOSING.replace("sys.argv[1]", repr(str(tmp_path))), anew=True, check=True)
    assert "a worker is lost" in done.stdout and "answered=6" in done.stdout, done.stdout + done.stderr
    assert "['0', '1', '2', '3', '4', '5']" in done.stdout and "raylet" not in done.stdout


def test_parts_are_bounded_by_number_and_by_size_and_know_their_inputs():
    inputs = [(str(number), {"image": b"x" * 10}) for number in range(5)] + [("bad", OSError(2, "No such file"))]
    cut = list(parts(iter(inputs), most=2))
    assert [[one[0] for one in part.read] for part in cut] == [["0", "1"], ["2", "3"], ["4", "bad"]]
    assert isinstance(cut[2].read[1][1], DataError)
    assert [len(part.read) for part in parts(iter(inputs), size=30)] == [3, 3]
    assert [len(part.read) for part in parts(iter(inputs[:2]), size=5)] == [1, 1]  # one larger than a part is one by itself
    assert len({part.stem for part in cut}) == 3 and cut[0].stem == next(parts(iter(inputs), most=2)).stem


def test_a_folder_belongs_to_one_call(tmp_path):
    record = {"run": "/runs/a", "inputs": ["images"], "top": 0}
    folder = tmp_path / "out"
    assert claim(OutputFolder(folder), record, replace=False) == set()
    (folder / "part-000000-0123abcd.jsonl").write_text("{}\n")
    assert claim(OutputFolder(folder), record, replace=False) == {"part-000000-0123abcd"}
    with pytest.raises(ConfigError, match="another call"):
        claim(OutputFolder(folder), {**record, "top": 3}, replace=False)
    assert claim(OutputFolder(folder), {**record, "top": 3}, replace=True) == set() and not list(folder.glob("part-*"))
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").touch()
    with pytest.raises(ConfigError, match="other files"):
        claim(OutputFolder(other), record, replace=False)


def test_a_part_of_parquet_has_its_columns_whatever_came_of_its_inputs():
    import io

    import pyarrow.parquet as pq

    shown = Shown(["label", "confidence"])
    table = pq.read_table(io.BytesIO(content("parquet", [
        Prediction("a", error="broken"), Prediction("b", {"label": "7", "confidence": 0.5})], shown)))
    assert table.to_pylist() == [{"input": "a", "label": None, "confidence": None, "error": "broken"},
                                 {"input": "b", "label": "7", "confidence": 0.5, "error": None}]

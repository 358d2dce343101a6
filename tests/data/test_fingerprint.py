"""What a fingerprint sees of files, and what it does not."""

import os
import shutil
import time

import numpy as np

from pipelines.data import fingerprint
from pipelines.data.files import FileSource
from pipelines.data.fingerprint import of_files


def make(folder, count: int = 5):
    folder.mkdir()
    for number in range(count):
        (folder / f"{number}.bin").write_bytes(bytes([number % 256]) * 100)
    return sorted(folder.iterdir())


def test_a_copy_is_the_same_data_and_a_change_of_content_is_not(tmp_path):
    paths = make(tmp_path / "a")
    first = of_files(paths, tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    copied = sorted((tmp_path / "b").iterdir())
    for path in copied:
        os.utime(path, (1, 1))
    assert of_files(copied, tmp_path / "b") == first
    labels = np.arange(5)
    one, other = (FileSource(each, key="x", root=each[0].parent, labels=labels) for each in (paths, copied))
    assert one.fingerprint() == other.fingerprint() and one.stamp() != other.stamp()
    copied[3].write_bytes(bytes([9]) * 100)  # the size stays
    assert of_files(copied, tmp_path / "b") != first
    copied[3].rename(tmp_path / "b" / "9.bin")
    assert of_files(sorted((tmp_path / "b").iterdir()), tmp_path / "b") not in (first, of_files(copied, tmp_path / "b"))
    assert of_files(paths[:4], tmp_path / "a") != first and of_files([*paths[:4], tmp_path / "none"], tmp_path / "a") != first


def test_large_data_are_sampled(tmp_path, monkeypatch):
    monkeypatch.setattr(fingerprint, "WHOLE", 1000)
    monkeypatch.setattr(fingerprint, "CHUNK", 10)
    monkeypatch.setattr(fingerprint, "CHUNKS", 8)
    file = tmp_path / "large"
    content = bytearray(os.urandom(5000))
    file.write_bytes(content)
    first = of_files([file])
    for place, seen in ((0, True), (4999, True), (100, False)):
        changed = bytearray(content)
        changed[place] ^= 1
        file.write_bytes(changed)
        assert (of_files([file]) != first) is seen, place
        assert of_files([file], whole=True) != of_files([file])
    file.write_bytes(content + b"x")
    assert of_files([file]) != first
    paths = make(tmp_path / "many", 40)
    first = of_files(paths, tmp_path / "many")
    seen = 0
    for path in paths:
        kept = path.read_bytes()
        path.write_bytes(kept[:50] + b"\xff" + kept[51:])
        seen += of_files(paths, tmp_path / "many") != first
        path.write_bytes(kept)
    assert seen == 8 and of_files(paths, tmp_path / "many") == first
    paths[0].write_bytes(b"\0" * 101)
    assert of_files(paths, tmp_path / "many") != first


def test_many_files_cost_little(tmp_path):
    paths = make(tmp_path / "many", 2000)
    began = time.process_time()
    of_files(paths, tmp_path / "many")
    assert time.process_time() - began < 5

"""Files and folders are whole or not there: killed in the middle of a write, replaced under a reader, on file systems that lack things."""

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pipelines.base import files, staging
from pipelines.base.files import WriteError, append_whole, open_to_append, whole_folder, write_whole
from pipelines.base.inside import opened
from pipelines.runs.folder import RunFolder

ROOT = Path(__file__).parent.parent

KILLED = """
import os, signal, sys
from pathlib import Path
from pipelines.base.files import whole_folder, write_whole

def half(file):
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)

if sys.argv[2] == "file":
    write_whole(Path(sys.argv[1]), half)
else:
    with whole_folder(Path(sys.argv[1]), replace=True) as folder:
        (folder / "deep").mkdir()
        half(open(folder / "deep" / "weights", "wb"))
"""


def kill_while_writing(target: Path, what: str) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(target), what], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL


def parts(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.name.endswith((".part", ".old"))]


@pytest.fixture(params=["file", "folder"])
def killed(request, tmp_path):
    """A run in which a process was killed while it wrote `report/whole`, a file or a folder, where an old one stands."""
    target = tmp_path / "run" / "report" / "whole"
    write_old(target, request.param)
    kill_while_writing(target, request.param)
    assert len(parts(tmp_path)) == 1 and read(target, request.param) == "old"
    return target, request.param


def write_old(target: Path, what: str, content: str = "old") -> None:
    if what == "file":
        write_whole(target, content)
    else:
        with whole_folder(target, replace=True) as folder:
            (folder / "weights").write_text(content)


def read(target: Path, what: str) -> str:
    return (target if what == "file" else target / "weights").read_text()


def test_the_next_write_clears_away_what_a_kill_left(killed):
    target, what = killed
    write_old(target, what, "new")
    assert read(target, what) == "new" and not parts(target.parent)


def test_the_next_process_in_the_run_clears_away_what_a_kill_left(killed):
    target, what = killed
    with RunFolder(target.parent.parent).locked():
        assert not parts(target.parent) and read(target, what) == "old"


def test_what_somebody_writes_is_not_cleared_away(tmp_path):
    """Whatever host and process number the other has: its lock is what tells."""
    with whole_folder(tmp_path / "model") as folder:
        (folder / "weights").write_text("x")

        def content(file):
            file.write(b"y")
            staging.sweep_tree(tmp_path)
            assert len(parts(tmp_path)) == 2

        write_whole(tmp_path / "file", content)
        assert parts(tmp_path) == [folder.name]
    assert (tmp_path / "model" / "weights").read_text() == "x" and not parts(tmp_path)


def test_others_files_are_left_alone(tmp_path):
    """Only names of our own making go, and beside a person's own files only those of the same target."""
    names = [".notes.part", "x.12345678.part", ".other.12345678.part", ".file.1234.part"]
    for name in names:
        (tmp_path / name).write_text("mine")
    write_whole(tmp_path / "file", "x")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names, "file"])


def test_a_reader_finds_a_whole_model_at_any_moment(tmp_path):
    target, over, missed, seen = tmp_path / "export", threading.Event(), [], set()
    write_old(target, "folder", "0")

    def look():
        while not over.is_set():
            try:
                seen.add((target / "weights").read_text())
            except FileNotFoundError as error:
                missed.append(error)

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for number in range(1, 100):
            write_old(target, "folder", str(number))
    finally:
        over.set()
        reader.join()
    assert not missed and len(seen) > 5 and "" not in seen and not parts(tmp_path)


def test_where_names_cannot_be_exchanged_a_kill_in_the_moment_between_is_made_good(tmp_path, monkeypatch):
    monkeypatch.setattr(staging, "_exchange", lambda *_: False)
    target, rename = tmp_path / "export", os.rename
    write_old(target, "folder")
    write_old(target, "folder", "new")
    assert read(target, "folder") == "new" and not parts(tmp_path)

    def killed(source, name, **folders):
        if source.endswith(".part"):
            raise KeyboardInterrupt
        rename(source, name, **folders)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            write_old(target, "folder", "newer")
    assert not target.exists()
    with opened(tmp_path) as folder:
        staging.sweep(folder, "export")
    assert read(target, "folder") == "new" and not parts(tmp_path)


def test_what_stands_there_is_not_written_over_unasked(tmp_path):
    write_old(tmp_path / "x", "folder")
    with pytest.raises(WriteError, match="x: cannot be written: the target exists already"), whole_folder(tmp_path / "x"):
        pass
    assert read(tmp_path / "x", "folder") == "old" and not parts(tmp_path)


def test_an_error_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), whole_folder(tmp_path / "x") as folder:
        (folder / "weights").write_text("half")
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("what", ["file", "folder"])
def test_content_is_on_the_disk_before_the_name_and_the_name_before_the_next_thing(tmp_path, monkeypatch, what):
    """The order of what the system is asked for, which is all that a test can see of a power cut."""
    asked = []
    flush, replace, put = os.fsync, os.replace, os.rename

    def recorded(call, name):
        def record(*arguments, **folders):
            asked.append(name or os.path.relpath(os.readlink(f"/proc/self/fd/{arguments[0]}"), tmp_path))
            return call(*arguments, **folders)
        return record

    monkeypatch.setattr(os, "fsync", recorded(flush, None))
    monkeypatch.setattr(os, "replace", recorded(replace, "named"))
    monkeypatch.setattr(os, "rename", recorded(put, "named"))
    write_old(tmp_path / "made" / "x", what)
    kinds = ["content" if ".part" in name else name for name in asked]
    assert kinds[0] == "." and kinds[-2:] == ["named", "made"]  # the new folder's name, ..., the file's name
    assert kinds[1:-2] == ["content"] * len(kinds[1:-2]) and any(name.endswith("weights") or what == "file" for name in asked[1:-2])


def test_a_line_is_appended_whole_or_not_at_all(tmp_path, monkeypatch):
    with open_to_append(tmp_path / "log") as file:
        append_whole(file, b"one\n")

        class Full:
            def fileno(self):
                return file.fileno()

            def write(self, content):
                file.write(content[:2])
                raise OSError(errno.ENOSPC, "No space left on device")

        with pytest.raises(OSError, match="No space"):
            append_whole(Full(), b"two\n")
        append_whole(file, b"three\n")
    assert (tmp_path / "log").read_bytes() == b"one\nthree\n"


def test_files_have_the_rights_that_the_person_gives_new_files(tmp_path):
    before = os.umask(0o027)
    try:
        files.write_whole(tmp_path / "x", "y")
    finally:
        os.umask(before)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o640

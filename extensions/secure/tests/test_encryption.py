"""Encrypted folders: what is written there is encrypted, whoever writes; it is read with its key alone, and never plain on a disk."""

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest

from extensions.secure import encrypted_folders as runs
from extensions.secure import encryption, options
from extensions.secure.age_storage import AgeStorage
from extensions.secure.encryption import MAGIC, MARKER, VARIABLE, Encrypted
from extensions.secure.signing import sign, verify
from extensions.secure.tests.age_keys import age_key
from extensions.secure.tests.keys import needs_trust, pair
from pipelines.base import npz
from pipelines.base.errors import ConfigError, Untrusted
from pipelines.base.files import whole_folder, write_json, write_whole
from pipelines.base.storage import readable
from pipelines.base.stored import read_bytes
from quartet.testing import check_storage

pytestmark = needs_trust
SECRET = b"the weights of somebody " * 40


@pytest.fixture
def key(monkeypatch):
    monkeypatch.setenv(VARIABLE, str(age_key()))
    return encryption.given_key()


@pytest.fixture
def folder(tmp_path, key):
    """An empty encrypted folder."""
    write_whole(tmp_path / "run" / MARKER, encryption.marker(key))
    return tmp_path / "run"


def test_what_is_written_below_is_encrypted_and_read_again(folder):
    write_whole(folder / "a" / "b.bin", SECRET)
    write_whole(folder / "text.md", "text")
    write_whole(folder / "arrays.npz", lambda file: np.savez(file, x=np.arange(5)))
    with whole_folder(folder / "model") as place:
        assert encryption.in_memory(place) and not place.is_relative_to(folder)
        (place / "deep").mkdir()
        (place / "deep" / "weights").write_bytes(SECRET)
        write_json(place / "facts.json", {"a": 1})
        assert encryption.in_memory(Path(tempfile.gettempdir())) and os.environ["TMPDIR"] == tempfile.gettempdir()
    assert not place.exists() and not encryption.in_memory(Path(tempfile.gettempdir()))
    every = [file for file in folder.rglob("*") if file.is_file() and file.name != MARKER]
    assert len(every) == 5
    for file in every:
        assert file.read_bytes().startswith(MAGIC) and SECRET[:20] not in file.read_bytes()
    assert read_bytes(folder / "a" / "b.bin") == SECRET and read_bytes(folder / "model" / "deep" / "weights") == SECRET
    with npz.opened(folder / "arrays.npz") as arrays:
        assert arrays.read("x").tolist() == [0, 1, 2, 3, 4]
    with readable(folder / "model") as plain:
        assert (plain / "deep" / "weights").read_bytes() == SECRET and encryption.in_memory(plain)
    assert not plain.exists()


def test_the_contract_of_a_storage(folder):
    check_storage(AgeStorage, folder)


def test_what_says_nothing_of_weights_stays_plain(folder):
    for name in ("experiment.yaml", "environment.json", "tensorboard/events"):
        write_whole(folder / name, SECRET)
        assert (folder / name).read_bytes() == SECRET
    write_whole(folder / "export" / "environment.json", SECRET)  # only at the top
    assert (folder / "export" / "environment.json").read_bytes().startswith(MAGIC)


def test_without_the_key_nothing_is_read_or_written(folder, monkeypatch):
    write_whole(folder / "a", SECRET)
    before = sorted(folder.rglob("*"))
    other = age_key("other")
    for value, said in (("", f"is encrypted; give its key: --age-key FILE, or {VARIABLE}"), (str(other), "another key"),
                        (other.read_text().splitlines()[-1], "another key")):
        monkeypatch.setenv(VARIABLE, value)
        with pytest.raises(Encrypted, match=said):
            read_bytes(folder / "a")
        with pytest.raises(Encrypted, match="is encrypted"):
            write_whole(folder / "b", b"plain")
        with pytest.raises(Encrypted, match="is encrypted"), whole_folder(folder / "c"):
            raise AssertionError("it was handed out")
        assert sorted(folder.rglob("*")) == before


def test_a_file_replaced_by_a_plain_one_is_refused(folder):
    with whole_folder(folder / "export") as place:
        for name in ("weights", "environment.json"):
            (place / name).write_bytes(SECRET)
    write_whole(folder / "model" / "facts.json", "{}")
    write_whole(folder / "resume.npz", lambda file: np.savez(file, x=np.arange(5)))
    assert read_bytes(folder / "export" / "environment.json") == SECRET  # of an export, plain as that of its run
    for name in ("model/facts.json", "export/weights", "resume.npz"):
        (folder / name).write_bytes(b"{}")
        with pytest.raises(Encrypted, match=f"{name}: is not encrypted, and .*run is"):
            read_bytes(folder / name)
    with pytest.raises(Encrypted, match="is not encrypted"), npz.opened(folder / "resume.npz"):
        raise AssertionError("it was handed out")
    for path in (folder / "export", folder / "model", folder / "model" / "facts.json"):
        with pytest.raises(Encrypted, match="is not encrypted"), readable(path):
            raise AssertionError("it was handed out")
    with pytest.raises(Encrypted, match="is not encrypted"):
        runs.decrypt_folder(folder, folder.parent / "plain")
    assert runs.encrypt_folder(folder) and read_bytes(folder / "model" / "facts.json") == b"{}"  # where it was a kill


def test_a_changed_file_is_refused(folder):
    write_whole(folder / "a", SECRET * 2000)
    whole = (folder / "a").read_bytes()
    for changed in (whole[:-1], whole[:70_000], whole[:300] + bytes([whole[300] ^ 1]) + whole[301:], whole + b"x", MAGIC, MAGIC + b"->"):
        (folder / "a").write_bytes(changed)
        with pytest.raises(Encrypted, match="it was changed"):
            read_bytes(folder / "a")


def test_keys_that_are_none(tmp_path, monkeypatch):
    for content, said in (("", "0 keys"), ("AGE-SECRET-KEY-1AAAA", "AGE-SECRET-KEY-1"), (age_key().read_text() * 2, "2 keys"),
                          ("age1qqqq", "AGE-SECRET-KEY-1")):
        (tmp_path / "key").write_text(content)
        with pytest.raises(ConfigError, match=said), options.age_key(age_key=tmp_path / "key"):
            raise AssertionError("it was taken")
    with pytest.raises(ConfigError, match="cannot be read"), options.age_key(age_key=tmp_path / "none"):
        raise AssertionError("it was taken")
    with pytest.raises(ConfigError, match="is a folder"), options.age_key(age_key=tmp_path):
        raise AssertionError("it was taken")
    assert VARIABLE not in os.environ
    with options.age_key(age_key=age_key()):
        assert encryption.given_key() is not None
    monkeypatch.setenv(VARIABLE, age_key().read_text().splitlines()[-1])
    assert encryption.given_key().recipient in age_key().read_text()
    assert "SECRET" not in repr(encryption.given_key())


def test_where_no_memory_can_hold_files_it_is_refused(folder, monkeypatch):
    """The place is looked at anew in a process that has none yet."""
    monkeypatch.setattr(encryption, "MEMORY", folder.parent)
    monkeypatch.setattr(encryption._Memory, "_owner", 0)
    with pytest.raises(Encrypted, match="is no file system in memory"), whole_folder(folder / "model"):
        raise AssertionError("it was handed out")
    assert [file.name for file in folder.rglob("*")] == [MARKER]


def test_a_run_whose_mark_was_taken_is_not_continued_in_plain(folder, key):
    write_whole(folder / "checkpoints" / "resume.npz", SECRET)
    runs.check_begin(folder, begun=False, wanted=False)
    (folder / MARKER).write_text(encryption.marker(key).replace("age1", "age2"))
    with pytest.raises(Encrypted, match="is encrypted to age2"):
        runs.check_begin(folder, begun=False, wanted=False)
    (folder / MARKER).unlink()
    for encrypt in (False, True):
        with pytest.raises(Encrypted, match=r"encrypted\.json is missing"):
            runs.check_begin(folder, begun=False, wanted=encrypt)


def test_a_folder_that_is_there_and_its_signature(tmp_path, key, monkeypatch):
    files = {"experiment.yaml": b"task: toy\n", "model/model.keras": SECRET, "tensorboard/train/events": SECRET,
             "report/report.json": b"{}"}
    run, there = tmp_path / "run", tmp_path / "plain"
    for name, content in files.items():
        write_whole(run / name, content)
    assert runs.encrypt_folder(run) == 3 and runs.encrypt_folder(run) == 0
    assert {name for name in files if not (run / name).read_bytes().startswith(MAGIC)} == {"experiment.yaml"}
    monkeypatch.delenv(VARIABLE)
    private, public = pair()
    sign(run, private)  # over what lies there: without the key
    verify(run, public)
    with pytest.raises(Encrypted, match="give its key"):
        runs.decrypt_folder(run)
    monkeypatch.setenv(VARIABLE, str(age_key()))
    assert runs.decrypt_folder(run, there) == 3
    assert {name: (there / name).read_bytes() for name in files} == files and not (there / MARKER).exists()
    verify(run, public)
    assert runs.decrypt_folder(run) == 3
    assert {name: (run / name).read_bytes() for name in files} == files
    with pytest.raises(Untrusted):
        verify(run, public)
    with pytest.raises(ConfigError, match="nothing in it is encrypted"):
        runs.decrypt_folder(run)

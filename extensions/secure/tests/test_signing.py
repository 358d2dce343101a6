"""Signatures: what is not as it was signed is refused by name, and what was verified is what is read."""

import json
import os
import random
import shutil
from pathlib import Path

import pytest

from extensions.secure import signing
from extensions.secure.signing import sign, verified, verify
from extensions.secure.tests.keys import needs_trust, pair
from pipelines.base.errors import ConfigError, Untrusted
from pipelines.base.inside import Linked

pytestmark = needs_trust
FILES = {"experiment.yaml": b"task: toy\n", "model/facts.json": b"{}", "model/model.keras": bytes(range(256)), "report/report.json": b"[1]",
         "report/figures/a.png": b"\x89PNG", "empty": b"", ".hidden": b"x", ".gitignore": b"*\n"}


def folder_of(place: Path, name: str = "run", **more: bytes) -> Path:
    for file, content in {**FILES, **more}.items():
        (place / name / file).parent.mkdir(parents=True, exist_ok=True)
        (place / name / file).write_bytes(content)
    return place / name


def refused(folder: Path, key: Path) -> str:
    """The message, the same where it lies and where it would be read."""
    with pytest.raises(Untrusted) as first:
        verify(folder, key)
    with pytest.raises(Untrusted) as second, verified(folder, key):
        raise AssertionError("it was handed out")
    assert str(first.value) == str(second.value)
    return str(first.value)


def test_what_is_as_it_was_signed_is_accepted_here_and_by_others(tmp_path):
    """By the OpenSSF's own verifier too, which reads from the signature what was left out."""
    from model_signing import verifying

    folder = folder_of(tmp_path)
    (folder / ".lock").touch()
    (folder / ".gitignore").unlink()  # which theirs never looks at
    key, public = pair()
    assert sign(folder, key) == folder / "model.sig"
    verify(folder, public)
    with verified(folder, public) as copy:
        assert copy != folder and {str(one.relative_to(copy)) for one in copy.rglob("*") if one.is_file()} == {*FILES} - {".gitignore"}
        assert (copy / "model/model.keras").read_bytes() == FILES["model/model.keras"]
    assert not copy.exists()
    verifying.Config().use_elliptic_key_verifier(public_key=public).verify(folder, folder / "model.sig")


def test_a_hundred_changes_are_each_refused_by_name(tmp_path):
    key, public = pair()
    signed = folder_of(tmp_path, "signed")
    sign(signed, key)
    random_ = random.Random(17)
    for number in range(100):
        folder = tmp_path / f"changed{number}"
        shutil.copytree(signed, folder)
        name = random_.choice(sorted(FILES))
        kind = ("byte", "cut", "longer", "added", "removed", "renamed")[number % 6]
        content = bytearray(FILES[name])
        if kind in ("byte", "cut") and content:
            place = random_.randrange(len(content))
            rest = bytes([content[place] ^ 1 << random_.randrange(8)]) + content[place + 1:]
            content = content[:place] + (b"" if kind == "cut" else rest)
            (folder / name).write_bytes(content)
        elif kind in ("longer", "byte", "cut"):
            (folder / name).write_bytes(bytes(content) + b"\n")
        elif kind == "added":
            name = f"{Path(name).parent}/new{number}"
            (folder / name).write_bytes(b"")
        elif kind == "removed":
            (folder / name).unlink()
        else:
            (folder / name).rename(folder / f"{name}2")
        told = refused(folder, public)
        assert str(Path(name)) in told and str(folder) in told, told


def test_other_keys_and_other_signatures(tmp_path):
    key, public = pair()
    other_key, other_public = pair("other")
    folder, another = folder_of(tmp_path), folder_of(tmp_path, "another", **{"model/facts.json": b'{"other": 1}'})
    assert "is not signed" in refused(folder, public)
    sign(folder, key)
    sign(another, key)
    assert "was not made with the key" in refused(folder, other_public)
    shutil.copy(another / "model.sig", folder / "model.sig")
    assert "model/facts.json was changed" in refused(folder, public)
    sign(folder, other_key)
    assert "was not made with the key" in refused(folder, public)
    sign(folder, key)
    verify(folder, public)


def test_damaged_and_hostile_signatures(tmp_path):
    key, public = pair()
    folder = folder_of(tmp_path)
    whole = sign(folder, key).read_bytes()
    random_ = random.Random(0)
    for _ in range(30):
        place = random_.randrange(len(whole))
        part = whole[:place] + bytes([whole[place] ^ 1 << random_.randrange(7)]) + whole[place + 1:]
        (folder / "model.sig").write_bytes(part)
        try:
            verify(folder, public)
        except Untrusted:
            continue
        assert json.loads(part)["dsseEnvelope"] == json.loads(whole)["dsseEnvelope"]  # else it accepted another statement
    for content in (b"", b"{}", b"[" * 100_000, b'{"dsseEnvelope": {"payload": "e30="}}', b"\xff"):
        (folder / "model.sig").write_bytes(content)
        assert "model.sig" in refused(folder, public)


def test_a_signature_that_leaves_out_more_does_not_let_more_in(tmp_path):
    """The format lets a signer leave out files; what a trusted key has not signed is refused all the same."""
    from model_signing import hashing
    from model_signing import signing as theirs

    key, public = pair()
    folder = folder_of(tmp_path)
    loose = hashing.Config().set_ignored_paths(paths=["model", "model.sig"], ignore_git_paths=False)
    theirs.Config().use_elliptic_key_signer(private_key=key).set_hashing_config(loose).sign(folder, folder / "model.sig")
    assert "model/facts.json" in refused(folder, public)


def test_what_is_added_to_a_run_later_is_not_handed_out(tmp_path):
    key, public = pair()
    folder = folder_of(tmp_path)
    sign(folder, key)
    for name in (".lock", "export/saved_model.pb", "export-mobile/model.tflite", "report/test/report.json"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"later")
    with verified(folder, public) as copy:
        assert {str(one.relative_to(copy)) for one in copy.rglob("*") if one.is_file()} == set(FILES)


def test_a_change_after_the_check_is_not_read(tmp_path):
    key, public = pair()
    folder = folder_of(tmp_path)
    sign(folder, key)
    with verified(folder, public) as copy:
        (folder / "model/facts.json").write_bytes(b"changed")
        assert (copy / "model/facts.json").read_bytes() == FILES["model/facts.json"]
        place = next(one for one in copy.parents if one.name.startswith("quartet-verified-"))
        assert place.stat().st_mode & 0o077 == 0


def test_links_are_refused_also_where_they_appear_while_it_is_copied(tmp_path, monkeypatch):
    key, public = pair()
    folder = folder_of(tmp_path)
    sign(folder, key)
    (folder / "model/facts.json").unlink()
    (folder / "model/facts.json").symlink_to("/etc/passwd")
    with pytest.raises(Linked):
        verify(folder, public)
    monkeypatch.setattr(signing, "refuse_links", lambda path: None)  # the link comes after the scan
    with pytest.raises(Untrusted, match=r"facts\.json: cannot be read"), verified(folder, public):
        pass


def test_a_file_is_signed_beside_it(tmp_path):
    key, public = pair()
    table = tmp_path / "data.csv"
    table.write_text("text,label\n")
    assert sign(table, key) == tmp_path / "data.csv.sig"
    verify(table, public)
    table.write_text("text,label\nmore,1\n")
    with pytest.raises(Untrusted, match=r"data\.csv was changed"):
        verify(table, public)


def test_keys_that_are_none(tmp_path):
    key, public = pair()
    folder = folder_of(tmp_path)
    with pytest.raises(ConfigError, match="is no private key"):
        sign(folder, public)
    sign(folder, key)
    with pytest.raises(ConfigError, match="is no public key"):
        verify(folder, folder / "experiment.yaml")
    with pytest.raises(ConfigError, match=r"no\.pub"):
        verify(folder, tmp_path / "no.pub")
    assert not os.path.exists(tmp_path / "no.pub")


def test_an_encrypted_key_takes_its_password_from_the_environment(tmp_path, monkeypatch):
    from cryptography.hazmat.primitives import serialization as to

    key, public = pair()
    plain = to.load_pem_private_key(key.read_bytes(), None)
    locked = tmp_path / "locked.pem"
    locked.write_bytes(plain.private_bytes(to.Encoding.PEM, to.PrivateFormat.PKCS8, to.BestAvailableEncryption(b"word")))
    folder = folder_of(tmp_path)
    with pytest.raises(ConfigError, match="is no private key"):
        sign(folder, locked)
    monkeypatch.setenv(signing.PASSWORD, "word")
    sign(folder, locked)
    verify(folder, public)

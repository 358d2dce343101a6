"""Objects of a bucket: read, listed, written whole and under conditions; and what a person is told when a store refuses."""

import sys

import pytest

from extensions.remote.credentials import of_aws_file
from extensions.remote.objects import Changed, Missing, StoreError, objects_of
from extensions.remote.store import ObjectStore
from pipelines.base.errors import ConfigError, DataError
from pipelines.stores import remote
from pipelines.stores.remote import Address, OutputFolder, address_of, refuse_existing
from quartet.testing import check_remote

BOX = Address("s3", "box", "")


@pytest.mark.parametrize("given", ["s3://box/a/b", "s3:/box/a/b", "s3://box//a/b/"])
def test_an_address_is_one_also_after_it_went_through_a_path(given):
    assert address_of(given) == Address("s3", "box", "a/b")


@pytest.mark.parametrize("given", ["runs", "/data/x", "C:/data", "a:b", "file:///x", "some text: with // in it"])
def test_a_path_is_no_address(given):
    assert address_of(given) is None


def test_an_address_without_a_bucket_or_with_a_way_up_is_refused():
    with pytest.raises(ConfigError, match="names no bucket"):
        address_of("s3:///x")
    with pytest.raises(ConfigError, match=r"has \.\. in it"):
        address_of("s3://box/a/../b")


@pytest.mark.parametrize("protocol", ["s3", "gs"])
def test_objects_are_written_read_listed_copied_and_removed(store, tmp_path, protocol, monkeypatch):
    for name, value in store.google.items():
        monkeypatch.setenv(name, value)
    objects, large = objects_of(Address(protocol, "box", "")), tmp_path / "large"
    large.write_bytes(b"0123456789" * (4 << 20))  # 40 MB: in parts
    objects.put("a/x", b"one")
    objects.put("a/large", large)
    objects.put("ab", b"beside")
    assert {key: one.size for key, one in objects.entries("a").items()} == {"a/x": 3, "a/large": 40 << 20}
    assert list(objects.entries("a/x")) == ["a/x"] and objects.entries("none") == {}
    objects.fetch("a/large", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == large.read_bytes()
    objects.copy("a/x", "c/x")
    objects.delete(["a/x", "never/there"])
    assert objects.read("c/x")[0] == b"one"
    with pytest.raises(Missing, match=f"{protocol}://box/a/x: there is no such object"):
        objects.read("a/x")


def test_a_listing_has_all_objects_however_many(store):
    store.objects["box"] = {f"many/{number:05d}": b"" for number in range(2_345)}
    assert len(objects_of(BOX).entries("many")) == 2_345


@pytest.mark.parametrize("protocol", ["s3", "gs"])
def test_of_two_writers_one_is_refused(store, protocol, monkeypatch):
    for name, value in store.google.items():
        monkeypatch.setenv(name, value)
    objects = objects_of(Address(protocol, "box", ""))
    first = objects.put("x", b"one", over="")
    with pytest.raises(Changed):
        objects.put("x", b"two", over="")
    objects.put("x", b"two", over=first)
    with pytest.raises(Changed):
        objects.put("x", b"three", over=first)
    assert objects.read("x")[0] == b"two"
    listed = objects.entries("")["x"].version  # as a run has it that was fetched
    objects.put("x", b"three", over=listed)
    with pytest.raises(Changed):
        objects.put("x", b"four", over=listed)
    assert objects.read("x")[0] == b"three"


def test_a_version_is_the_same_however_a_store_writes_it(store):
    store.bare = True
    version = objects_of(BOX).put("x", b"one")
    assert objects_of(BOX).entries("")["x"].version == objects_of(BOX).read("x")[1] == version
    objects_of(BOX).put("x", b"two", over=version)


def test_a_bucket_that_is_not_there_is_named(store):
    with pytest.raises(StoreError, match="s3://none: there is no such bucket; make it"):
        objects_of(Address("s3", "none", "")).entries("x")


def test_a_store_that_does_not_answer_is_not_taken_for_missing_credentials(store):
    store.fault = lambda method, key: True
    with pytest.raises(StoreError, match="s3://box/metadata/x: the store does not answer"):
        objects_of(BOX).read("metadata/x")


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(ConfigError, match=r"pip install 'keras-quartet\[remote\]'"):
        objects_of(BOX)


def test_without_an_account_it_says_which_variable_to_set(monkeypatch):
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_USE_EMULATOR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match="set AZURE_STORAGE_ACCOUNT_NAME"):
        objects_of(Address("az", "box", ""))


def test_a_protocol_that_nobody_knows_is_refused():
    with pytest.raises(ConfigError, match="no protocol that fsspec knows"):
        objects_of(Address("nosuch", "box", ""))


def test_the_profile_of_the_aws_command_line_is_used(tmp_path):
    (tmp_path / "config").write_text("[profile work]\nregion = eu-central-1\n")
    (tmp_path / "credentials").write_text("[work]\naws_access_key_id = A\naws_secret_access_key = B\n")
    files = {"AWS_PROFILE": "work", "AWS_CONFIG_FILE": str(tmp_path / "config"),
             "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials")}
    assert of_aws_file(files) == {"region": "eu-central-1", "access_key_id": "A", "secret_access_key": "B"}
    assert of_aws_file({**files, "AWS_ACCESS_KEY_ID": "own"}) == {}


def test_a_copy_is_fetched_once_and_follows_the_store(store):
    box, reads = store.objects["box"], []
    store.fault = lambda method, key: reads.append(key) if method == "GET" and key else None
    box |= {"data/cat/1.jpg": b"one", "data/dog/2.jpg": b"two"}
    place = remote.local("s3://box/data")
    assert (place.name, (place / "cat" / "1.jpg").read_bytes()) == ("data", b"one")
    assert sorted(reads) == ["data/cat/1.jpg", "data/dog/2.jpg"]
    assert remote.named(f"{place}/cat/1.jpg: broken") == "s3://box/data/cat/1.jpg: broken"
    reads.clear()
    box["data/cat/1.jpg"], box["data/cat/3.jpg"] = b"new", b"three"
    del box["data/dog/2.jpg"]
    remote._copies.clear()  # as another process would
    assert remote.local("s3://box/data") == place
    assert sorted(reads) == ["data/cat/1.jpg", "data/cat/3.jpg"]
    assert sorted(file.name for file in place.rglob("*") if file.is_file()) == ["1.jpg", "3.jpg"]
    assert (place / "cat" / "1.jpg").read_bytes() == b"new"


def test_a_table_comes_with_the_files_beside_it_where_it_names_them(store):
    store.objects["box"] |= {"set/table.csv": b"file\n1.wav\n", "set/1.wav": b"wave"}
    assert (remote.local("s3://box/set/table.csv", folder=True).parent / "1.wav").read_bytes() == b"wave"


def test_names_that_lead_out_of_the_copy_are_refused(store):
    store.objects["box"]["data/../../out"] = b"x"
    with pytest.raises((DataError, StoreError)):
        remote.local("s3://box/data")


def test_nothing_at_an_address_is_said(store):
    with pytest.raises(DataError, match="s3://box/none: there is nothing at this address"):
        remote.local("s3://box/none")


def test_patterns_are_looked_for_below_the_folder_above_them(store):
    store.objects["box"] |= {"photos/1.jpg": b"", "photos/2.png": b""}
    (found,) = remote.inputs(["s3://box/photos/*.jpg"])
    assert found.endswith("photos/*.jpg") and list(remote.inputs(["a text: see http-ish", "photo.jpg"])) == [
        "a text: see http-ish", "photo.jpg"]


def test_any_protocol_of_fsspec_is_read(monkeypatch, tmp_path):
    import fsspec

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/bucket/data/x.csv", b"text,label\n")
    try:
        assert remote.local("memory://bucket/data/x.csv").read_bytes() == b"text,label\n"
        assert remote.local("memory://bucket/data").joinpath("x.csv").is_file()
        with pytest.raises(ConfigError, match="runs are kept in s3://, gs:// or az://"):
            objects_of(Address("memory", "bucket", "")).put("x", b"", over="")
    finally:
        memory.rm("/bucket", recursive=True)


def test_the_contract_of_a_remote_store(store):
    check_remote(ObjectStore, "s3://box/here")


def test_output_arrives_whole_and_only_where_nothing_is(store, tmp_path):
    from pathlib import Path

    store.objects["box"]["answers.csv"] = b"whole"
    with pytest.raises(ConfigError, match=r"s3://box/answers\.csv is there already"):
        refuse_existing(Path("s3://box/answers.csv"), False)
    with pytest.raises(ZeroDivisionError), OutputFolder(Path("s3://box/out")).filled() as folder:
        (folder / "half").write_text("x")
        raise ZeroDivisionError
    assert "out/half" not in store.objects["box"]
    with OutputFolder(Path("s3://box/out")).filled() as folder:
        for name in ("prepared.json", "z.arrow"):
            (folder / name).write_text(name)
    assert store.writes[-2:] == ["+out/z.arrow", "+out/prepared.json"]

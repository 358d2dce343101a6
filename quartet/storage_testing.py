"""Contracts of storages, of stores at addresses and of guards, for `quartet.testing`."""

from pathlib import Path

from pipelines.base.errors import QuartetError
from pipelines.base.files import whole_folder, write_whole
from pipelines.base.storage import Storage, holder, is_private, readable
from pipelines.base.stored import open_regular, read_bytes
from pipelines.config import guard as guards
from pipelines.config.doors import GUARDS, REMOTES, STORAGES, Door
from pipelines.config.guard import Guard
from pipelines.config.registry import import_extensions
from pipelines.runs.folder import RunFolder
from pipelines.serving.load import load_run
from pipelines.stores.remote import OutputFolder, Remote, address_of, file_for, local, named, remote_of


def check_storage(storage: type[Storage], folder: Path) -> None:
    """Writes and reads below a marked folder, as runs do.

    Args:
        storage: registered already.
        folder: holds the storage's marker, and nothing else.

    Raises:
        AssertionError: what is read is not what was written, a file of its form is not told from others, or an error leaves something.
    """
    ours = storage()
    assert _is_registered(STORAGES, storage) and (folder / ours.marker).is_file() and is_private(folder)
    content = bytes(range(256)) * 5000

    def taken(file: Path) -> bool:
        found = holder(file)
        return found is not None and isinstance(found, storage)

    write_whole(folder / "one.bin", content)
    write_whole(folder / "deep" / "two.bin", lambda file: file.writelines([content[:9], content[9:]]))
    with whole_folder(folder / "model") as place:
        (place / "inner").mkdir()
        (place / "inner" / "three.bin").write_bytes(content)
    for name in ("one.bin", "deep/two.bin", "model/inner/three.bin"):
        assert taken(folder / name), f"{name}: was not written in its form"
        assert read_bytes(folder / name) == content, f"{name}: another content is read"
    with open_regular(folder / "one.bin") as file:
        file.seek(1000)
        assert file.read(5) == content[1000:1005], "what is read cannot be read anywhere"
    with readable(folder / "model") as plain:
        assert (plain / "inner" / "three.bin").read_bytes() == content
    try:
        with whole_folder(folder / "model", replace=True) as place:
            (place / "new").write_bytes(content)
            raise KeyError
    except KeyError:
        assert not place.exists() and sorted(path.name for path in (folder / "model").rglob("*")) == ["inner", "three.bin"]
    with ours.scratch() as file:
        file.write(content)
        file.seek(0)
        assert file.read() == content
    write_whole(folder / "as it is", content, plain=True)
    assert not taken(folder / "as it is") and (folder / "as it is").read_bytes() == content


def check_guard(guard: type[Guard], accepted: Path, refused: Path) -> None:
    """Opens two finished runs, of which the guard takes one.

    Args:
        guard: registered already, and switched on.

    Raises:
        AssertionError: it refuses the one, hands out another content, or lets the other be opened.
    """
    assert _is_registered(GUARDS, guard)
    guards.check(accepted, "run")
    with guards.opened(accepted) as place:
        for name in ("experiment.yaml", "model/model.keras", "model/facts.json"):
            assert (place / name).read_bytes() == (accepted / name).read_bytes(), f"{name}: is another one"
    assert load_run(RunFolder(accepted), where="cpu").folder.path == accepted
    try:
        guards.check(refused, "run")
    except QuartetError:
        return
    try:
        with guards.opened(refused):
            raise AssertionError(f"{guard.__name__}: lets {refused} be opened")
    except QuartetError:
        raise AssertionError(f"{guard.__name__}: does not refuse {refused} where it lies, but when it is opened") from None


def check_remote(remote: type[Remote], address: str) -> None:
    """Writes below an address, lists, reads, copies and removes.

    Args:
        remote: registered already.
        address: nothing is there.

    Raises:
        AssertionError: something is not as it was written.
    """
    place = address_of(address)
    assert _is_registered(REMOTES, remote) and place is not None and isinstance(remote_of(place), remote)
    with file_for(Path(f"{address}/table.csv")) as file:
        file.write_bytes(b"a,b\n")
    folder = OutputFolder(Path(f"{address}/parts"))
    assert folder.names() == []
    with folder.filled() as filling:
        for name in ("1.bin", "prepared.json"):
            (filling / name).write_bytes(name.encode())
    folder.write("2.bin", b"two")
    assert folder.sizes() == {"1.bin": 5, "2.bin": 3, "prepared.json": 13} and folder.read("2.bin") == b"two"
    assert local(f"{address}/table.csv").read_bytes() == b"a,b\n"
    copy = local(f"{address}/parts")
    assert {one.name: one.read_bytes() for one in copy.iterdir() if one.is_file()} == {
        "1.bin": b"1.bin", "2.bin": b"two", "prepared.json": b"prepared.json"}
    assert named(f"{copy}/2.bin") == f"{address}/parts/2.bin"
    folder.remove(["1.bin", "2.bin", "3.bin"])
    assert folder.names() == ["prepared.json"]


def _is_registered(door: Door, entry: type) -> bool:
    import_extensions()
    return any(one.load() is entry for one in door.entries())

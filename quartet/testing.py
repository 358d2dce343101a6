"""Contract tests for what an extension brings, to be called from a test of its own.

    from quartet.testing import check_hook

    def test_my_hook(tmp_path):
        check_hook(MyHook, tmp_path)
"""

from pathlib import Path
from typing import Any

import numpy as np

from pipelines.base.errors import Interrupted, QuartetError
from pipelines.base.files import whole_folder, write_whole
from pipelines.base.storage import Storage, holder, is_private, readable
from pipelines.base.stored import open_regular, read_bytes
from pipelines.config import guard as guards
from pipelines.config.doors import GUARDS, HOOKS, REMOTES, STORAGES, Door
from pipelines.config.guard import Guard
from pipelines.config.load import from_dict
from pipelines.config.registry import import_extensions
from pipelines.runs.folder import RunFolder
from pipelines.runs.launch import task_class
from pipelines.runs.policy import Policy
from pipelines.runs.run import Call, train
from pipelines.runs.run_hook import RunHook
from pipelines.serving.load import load_run
from pipelines.stores.address import address_of
from pipelines.stores.copies import local, named
from pipelines.stores.output import OutputFolder, file_for
from pipelines.stores.remote import Remote, remote_of
from pipelines.training.loop import Hook, Loop

EXPERIMENT = {"task": "vision.classification", "data": {"source": "digits"}, "model": {"name": "cnn", "widths": [4]},
              "train": {"epochs": 2, "batch_size": 256, "precision": "float32", "devices": "cpu", "deterministic": True},
              "evaluate": {"bootstrap": 100, "baseline": False}}


def check_hook(hook: type[RunHook], folder: Path, settings: dict[str, Any] | None = None) -> None:
    """Trains a small network for two epochs without and with a hook, and once interrupted in between and resumed.

    Args:
        hook: registered already.
        folder: an empty folder for the three runs.
        settings: of `monitor`, such as those that switch the hook on.

    Raises:
        AssertionError: it changes what is trained, does not survive an interruption, is not told once for each process how the run
            ended, or writes over a file of the run.
    """
    entry = next((one for one in HOOKS.entries() if one.load() is hook), None)
    assert entry is not None, f"{hook.__name__} is not registered"
    plain = _train(folder / "plain", {}, without=entry.name)
    watched, ends = _train(folder / "watched", settings or {}), _Ends(hook)
    assert watched == plain, f"{hook.__name__} changes what is trained"
    with ends:
        try:
            _train(folder / "resumed", settings or {}, interrupt_after=3)
        except Interrupted:
            pass
        else:
            raise AssertionError("the run was not interrupted")
        resumed = _train(folder / "resumed", settings or {})
    assert resumed == plain, f"{hook.__name__}: a run that was interrupted and resumed is another one"
    assert ends.told == ["interrupted", "finished"], f"{hook.__name__}: was told {ends.told}"


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


class _Ends:
    """What `ended` of a hook is told while this is entered."""

    def __init__(self, hook: type[RunHook]):
        self.hook, self.told = hook, list[str]()

    def __enter__(self) -> None:
        self._ended = ended = self.hook.ended

        def told(hook: RunHook, status: Any, report: dict[str, Any]) -> None:
            self.told.append(status)
            ended(hook, status, report)

        self.hook.ended = told  # type: ignore[method-assign, assignment]

    def __exit__(self, *_: object) -> None:
        self.hook.ended = self._ended  # type: ignore[method-assign]


class _InterruptAfter(Hook):
    """Ends a training as Ctrl-C does, once its state is whole."""

    def __init__(self, steps: int):
        self.steps = steps

    def next_stop(self, loop: Loop) -> int | None:
        return self.steps if loop.step < self.steps else None

    def on_steps(self, loop: Loop) -> None:
        if loop.step >= self.steps:
            loop.interrupted = 2


def _train(place: Path, monitor: dict[str, Any], *, without: str = "", interrupt_after: int | None = None) -> list[bytes]:
    """The bytes of the model's weights."""
    experiment = from_dict({**EXPERIMENT, "monitor": {"tensorboard": False, "samples": 0, **monitor}})
    hooks = (_InterruptAfter(interrupt_after),) if interrupt_after else ()
    with HOOKS.without(without):
        train(experiment, RunFolder(place), Call("vision/check", task_class(experiment.task), quiet=True, policy=Policy(hooks=hooks)))
    return [np.asarray(weight).tobytes() for weight in load_run(RunFolder(place), where="cpu").model.get_weights()]

"""Runs and searches at addresses: trained in a folder of this machine that the store follows, and fetched to be used."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pipelines.base.errors import ConfigError
from pipelines.config.schema import Experiment
from pipelines.runs.folder import RunFolder, seed_name
from pipelines.stores import remote
from pipelines.stores.remote import Address, address_of, remote_of


def names_of(experiment: Experiment, name: str) -> list[str]:
    """The folders of a run: its own, and those of its seeds."""
    first = experiment.train.seed
    return [name, *(seed_name(name, first + number) for number in range(experiment.seeds) if experiment.seeds > 1)]


@contextlib.contextmanager
def here(runs: Path, experiment: Experiment, folder: RunFolder, *, fresh: bool, say: Callable[[str], None], writes: bool = True,
         ) -> Iterator[RunFolder]:
    """The folder of this machine in which a run is trained, as `folder_here` has it with the folders of its seeds."""
    with folder_here(runs, folder.path, names_of(experiment, folder.path.name), fresh=fresh, say=say, writes=writes) as path:
        yield RunFolder(path)


@contextlib.contextmanager
def folder_here(runs: Path, folder: Path, names: Sequence[str], *, fresh: bool, say: Callable[[str], None], writes: bool = True,
                ) -> Iterator[Path]:
    """The folder of this machine in which a run or a search works: below `runs` on a disk `folder` itself; below an address as
    `Remote.work_folder` has it.

    Args:
        folder: as `run_folder` names it.
    """
    address = address_of(runs)
    if address is None:
        yield folder
        return
    for part in folder.parts[-3:]:
        address = address / part
    with remote_of(address).work_folder(address, names, fresh=fresh, say=say, writes=writes) as path:
        remote.called(path.parent, address.parent)
        yield path


def moved_aside(runs: Path, experiment: Experiment, folder: RunFolder, say: Callable[[str], None]) -> None:
    """Moves a run in a store aside, as `here` does, and does nothing else."""
    with here(runs, experiment, folder, fresh=True, say=say):
        pass


def fetched(runs: Path, given: str) -> Path | None:
    """The copy of a run that is named by its address, or by its name below an address; None where it is not in a store.

    Raises:
        ConfigError: there is no such run, or several.
    """
    address = address_of(given) if "://" in given else None
    below = address_of(runs)
    if address is None and below is not None:
        address = _found(below, given)
    if address is None:
        return None
    if address.name == "experiment.yaml":
        address = address.parent
    target = remote_of(address).run(address)
    if not (target / "experiment.yaml").is_file():
        raise ConfigError(f"{address}: is no run: it has no experiment.yaml")
    remote.called(target, address)
    return target


def _found(below: Address, given: str) -> Address:
    names, wanted = sorted(remote_of(below).runs(below)), given.strip("/")
    matches = [name for name in names if name == wanted] or [name for name in names if f"/{name}".endswith(f"/{wanted}")] \
        or [name for name in names if name.startswith(f"{wanted}/")]
    if len(matches) != 1:
        raise ConfigError(f"{given}: names {len(matches) or 'no'} runs in {below}; "
                          + (f"give one of {', '.join(matches[:8])}" if matches else f"there are {', '.join(names[:8]) or 'none'}"))
    return below / matches[0]


def listing(runs: Path) -> tuple[Path, dict[str, int], set[str]] | None:
    """Of runs in a store, what a listing of them reads: (folder, run -> bytes of all its objects, those that are being trained).

    None where they are on a disk.
    """
    address = address_of(runs)
    if address is None:
        return None
    store = remote_of(address)
    folder, held = store.listing(address)
    remote.called(folder, address)
    return folder, store.runs(address), held


def put_back(folder: RunFolder) -> None:
    """Sends what a command wrote into the copy of a run (a report on other data, an export) to the store; nothing where it is on a disk."""
    address = remote.origin(folder.path)
    if address is not None:
        remote_of(address).put_back(folder.path, address)

"""Run directories: where a run's files stand, who may write them, and which experiment they belong to. Imports no TensorFlow."""

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.base import storage, stored
from pipelines.base.errors import ConfigError, DataError
from pipelines.base.files import write_whole, writing
from pipelines.base.inside import flush, held, open_own, refuse_links
from pipelines.base.staging import sweep_tree
from pipelines.config.load import load
from pipelines.config.messages import differences, shown_changes
from pipelines.config.yaml_text import parse, read, resolved_yaml

PLACES = {"devices", "parallel"}  # settings of train that say where a run is computed


class Locked(ConfigError):
    """Another process works in a folder."""


@dataclass(frozen=True)
class RunFolder:
    """The files of one run: runs/<domain>/<experiment>/<name>/."""

    path: Path

    @property
    def experiment(self) -> Path:
        return self.path / "experiment.yaml"

    @property
    def environment(self) -> Path:
        return self.path / "environment.json"

    @property
    def croissant(self) -> Path:
        """The description of its data."""
        return self.path / "croissant.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def model(self) -> Path:
        return self.path / "model"

    @property
    def facts(self) -> Path:
        return self.model / "facts.json"

    @property
    def manifest(self) -> Path:
        """Of a model that was converted from a run; its folder holds of the run what it takes to decode inputs and word answers."""
        return self.path / "manifest.json"

    @property
    def report(self) -> Path:
        return self.path / "report"

    @property
    def experiment_name(self) -> str:
        """`vision/digits` of runs/vision/digits/default."""
        return "/".join(self.path.absolute().parts[-3:-1])

    @property
    def finished(self) -> bool:
        """The report is written: training and judging are over."""
        return (self.report / "report.json").exists()

    @property
    def begun(self) -> bool:
        return self.experiment.exists()

    @property
    def trained(self) -> bool:
        """Whether it holds parts of a training, which another experiment could not resume."""
        return self.finished or self.metrics.exists() or (self.checkpoints / "resume.npz").exists()

    def read_report(self) -> dict[str, Any]:
        """report.json; ConfigError where the run has none, or one that is not what a run writes."""
        refuse_links(self.path)
        if not self.finished:
            raise ConfigError(f"{self.path}: the run is not finished (it has no report); the command that began it resumes it")
        return stored.read(self.report / "report.json", stored.Report).model_dump()

    def read_settings(self) -> dict[str, Any]:
        """experiment.yaml as plain values; ConfigError where it cannot be read."""
        return read(self.experiment, str(self.experiment)).values

    def read_environment(self) -> dict[str, Any]:
        """environment.json; ConfigError where it is not there or not what a run writes."""
        return stored.read(self.environment, stored.Environment).model_dump()

    @contextlib.contextmanager
    def claimed(self, resolved: str, *, fresh: bool) -> Iterator[None]:
        """Locks the folder for one experiment, as `locked` and `claim` do.

        Args:
            resolved: the experiment, resolved whole, as YAML.
            fresh: begin anew; what is there is moved aside to <name>~1, <name>~2, ...
        """
        if fresh:
            self.move_aside()
        with self.locked():  # of a new folder: the lock taken to move the old one has moved with it
            self.claim(resolved)
            try:
                yield
            except (ConfigError, DataError):
                self._leave_refused()
                raise

    def _leave_refused(self) -> None:
        """Removes a folder in which nothing was begun, as what it was claimed for was refused: no run is there that could go on."""
        own = (".lock", self.experiment.name, *storage.markers())
        if all(path.name in own for path in self.path.iterdir()):
            with contextlib.suppress(OSError):
                for name in own:
                    (self.path / name).unlink(missing_ok=True)
                self.path.rmdir()

    def claim(self, resolved: str) -> None:
        """Writes the experiment into a new folder, or checks that a begun run is the same experiment.

        A run that was refused before its first step, for a wrong setting say, is begun with the experiment as it is now. One that is not
        finished may go on on other devices.

        Raises:
            ConfigError: another experiment is there.
        """
        refuse_links(self.path)
        if not self.begun or not self.trained:
            write_whole(self.experiment, resolved)
            return
        differing, why = changes(self.experiment, resolved)
        if differing and not self.finished and all(_is_place(name) for name, *_ in differing):
            write_whole(self.experiment, resolved)
        elif differing:
            raise ConfigError(f"{self.path}: this run was begun with another experiment:\n{shown_changes(differing)}\n"
                              f"Give --name NEW for a new run, or --fresh to begin this one anew (the old one is moved aside).{why}")

    def move_aside(self) -> None:
        """Renames the folder, if there is anything in it, to <name>~1, <name>~2, ...; what that is is not looked at.

        Raises:
            Locked: another process works in it.
        """
        if not self.path.is_dir() or all(path.name == ".lock" for path in self.path.iterdir()):
            return
        with self._lock_file(), writing(self.path):
            number = 1
            while os.path.lexists(self.path.with_name(f"{self.path.name}~{number}")):
                number += 1
            self.path.rename(self.path.with_name(f"{self.path.name}~{number}"))
            flush(self.path.parent)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps a second process out of the folder; the system lets go of the lock when this one ends, however it ends.

        What is in the folder is looked through before, and staging files of a process that was killed are removed.

        Raises:
            Locked: another process is training here.
            Linked: something in the folder leads out of it.
            WriteError: the folder cannot be created or written to.
        """
        with self._lock_file(), held(self.path):
            sweep_tree(self.path)
            yield

    @contextlib.contextmanager
    def _lock_file(self) -> Iterator[None]:
        lock = self.path / ".lock"
        with contextlib.ExitStack() as closing:
            while True:
                with writing(lock):
                    file = closing.enter_context(os.fdopen(open_own(lock, os.O_RDWR), "r+", encoding="ascii", errors="replace"))
                if not _lock(file):
                    raise Locked(f"{self.path}: another process (number {file.read(20).strip() or 'unknown'}) is training here; "
                                 "wait for it, or give --name NEW")
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(file.fileno()), os.stat(lock)):
                        break  # else the folder was moved aside between the opening and the lock
            with writing(lock):  # past the buffer, which would be written once more on closing
                os.ftruncate(file.fileno(), 0)
                os.write(file.fileno(), str(os.getpid()).encode())
            yield


def _lock(file: Any) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def run_folder(runs: Path | str, experiment: str, name: str | None, overrides: Sequence[str] = ()) -> RunFolder:
    """The folder of a run.

    Args:
        runs: the folder of all runs.
        experiment: `vision/cifar10_cnn`.
        name: as the person chose; None makes it from the overrides, so that the same command finds the same run.
        overrides: `train.epochs=3` and the like.
    """
    if name is not None and (not name or name != Path(name).name or name.startswith(".")):
        raise ConfigError(f"--name: {name!r} is not a plain folder name")
    return RunFolder(Path(runs) / experiment / (name or name_of(overrides)))


def seed_name(name: str, seed: int) -> str:
    """The folder of one seed of a run over several."""
    return f"{name}-seed{seed}"


def unfinished(config: Path | str | None) -> RunFolder | None:
    """The run whose experiment.yaml this is, where it is begun and not finished: training that file resumes the run."""
    path = Path(config or "")
    folder = RunFolder(path.parent)
    own = path.name == "experiment.yaml" and folder.trained and not folder.finished and not any(path.parent.glob("*.order.json"))
    return folder if own else None


def name_of(overrides: Sequence[str]) -> str:
    """A readable name that tells apart what was overridden: `default`, or `epochs=3,width=64`."""
    if not overrides:
        return "default"
    parts = []
    for override in overrides:
        key, _, value = override.partition("=")
        plain = re.sub(r"[^A-Za-z0-9=._-]+", "-", value.strip().strip("{}[]()\"' ")).strip("-.") if re.search("[^\\w.+-]", value) else value
        parts.append(f"{key.strip().rpartition('.')[2]}={plain.strip()}")
    text = re.sub(r"[^A-Za-z0-9=,._-]+", "-", ",".join(parts)).strip("-.")
    # two settings may end in the same word, values may be lists or mappings, and long names are cut: the hash keeps such runs apart
    several = any(mark in override for override in overrides for mark in "{}[]")
    clash = len({part.partition("=")[0] for part in parts}) < len(parts) or len(text) > 60 or several
    return f"{text[:60]}-{hashlib.sha256(' '.join(overrides).encode()).hexdigest()[:6]}" if clash else text


def _is_place(setting: str) -> bool:
    section, _, rest = setting.partition(".")
    return section == "train" and rest.partition(".")[0] in PLACES


def changes(file: Path, resolved: str) -> tuple[list[tuple[str, Any, Any]], str]:
    """What differs between the experiment in a file and one resolved whole, and why the file is no experiment of this version, if so.

    The file may be of an earlier version: a setting that it lacks has its default. Of one that this version does not take, the
    settings are compared as they stand.
    """
    here, there = parse(resolved, "the experiment").values, read(file, str(file)).values
    changed = differences(there, here)
    if not changed:
        return [], ""
    try:
        whole = resolved_yaml(load(file, check_paths=False).experiment)
    except ConfigError as error:
        return changed, f"\nThis version does not accept that experiment as it is:\n{error}"
    return differences(parse(whole, str(file)).values, here), ""

"""Signatures and the sandbox as a guard: what a command opens, and what it may write."""

import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from extensions.secure import encryption, options
from pipelines.base.errors import ConfigError
from pipelines.config.guard import Guard, Kind

if TYPE_CHECKING:
    from pipelines.config.schema import Experiment


class Signatures(Guard):
    """Refuses what is not signed with the key of --require-signature."""

    def __init__(self) -> None:
        self.key = options.required_key()

    def active(self) -> bool:
        return self.key is not None

    def check(self, what: Path | str, kind: Kind) -> None:
        if self.key is None:
            return
        from extensions.secure import beginnings, signing

        if kind == "experiment":
            beginnings.require_experiment(Path(what), self.key)
        elif kind == "preset":
            beginnings.require_preset(str(what), self.key)
        else:
            signing.verify(Path(what), self.key)

    def opened(self, path: Path) -> AbstractContextManager[Path]:
        if self.key is None:
            return nullcontext(path)
        from extensions.secure.signing import verified

        return verified(path, self.key)

    def check_training(self, experiment: "Experiment", folder: Path, *, search: bool, fresh: bool) -> None:
        if self.key is None:
            return
        from extensions.secure.beginnings import require_begun, require_named

        if search and not fresh:
            require_begun(folder, self.key)
        beside = folder / "trials" / "0" if search else folder  # where a trial looks for the name of a run
        require_named(experiment, beside, self.key, trials=search)
        if not search and not fresh:
            require_begun(folder, self.key)

    def check_place(self, folder: Path, *, workers: Literal["none", "here", "elsewhere"], store: bool) -> None:
        if self.key is not None and (workers == "elsewhere" or (workers == "here" and store)):
            raise ConfigError("--require-signature: not with a cluster of other machines or runs in a store that its workers hold: what "
                              "they read is not what is verified here; train on this machine, or on named hosts (docs/cluster.md)")

    def environment(self) -> dict[str, str]:
        return {options.SIGNATURE: str(self.key.absolute())} if self.key is not None else {}


class KeyStaysHere(Guard):
    """Refuses to train what is encrypted where other machines would need the key."""

    def active(self) -> bool:
        return False

    def check_place(self, folder: Path, *, workers: Literal["none", "here", "elsewhere"], store: bool) -> None:
        if (workers != "none" or store) and (options.encrypting() or (folder / encryption.MARKER).is_file()):
            raise ConfigError("--encrypt: not with --ray or runs in a store, where other machines would need the key; train on this "
                              "machine, with --runs on its disk")


class Confinement(Guard):
    """With --sandbox, what a command has found is worked on in a process that cannot write elsewhere, nor open a connection."""

    def active(self) -> bool:
        return False

    def confine(self, writable: list[Path] | None) -> None:
        if not options.sandboxed():
            return
        if writable is None:
            raise ConfigError("--sandbox: not with --ray, whose nodes talk over the network")
        from extensions.secure import sandbox

        sandbox.enter([*writable, *([encryption.MEMORY] if os.environ.get(encryption.VARIABLE) else [])])

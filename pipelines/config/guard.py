"""What a person names is looked at before any file of it is opened, by the guards that extensions bring (the door `guard`).

Whatever opens a run, a model, a preset or an experiment asks here: `check` looks at it where it lies, `opened` says what to read in its
place. Imports no TensorFlow.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pipelines.config.doors import GUARDS
from pipelines.config.registry import import_extensions

if TYPE_CHECKING:
    from pipelines.config.schema import Experiment

Kind = Literal["run", "preset", "experiment"]


class Guard:
    """Looks at what a person named; this one lets everything pass. One is made for each question, so that it keeps no state.

    Raises:
        QuartetError: from any method, for what is not to be opened or done.
    """

    def active(self) -> bool:
        """Whether it looks at anything now; then nothing is read that it was not asked about, such as a cache."""
        return True

    def check(self, what: Path | str, kind: Kind) -> None:
        """Looks at something where it lies.

        Args:
            what: of a run, a search or an exported model its folder; of an experiment its file; of a preset its folder, name or handle,
                as the person gave it.
            kind: "run" for what has a folder.
        """

    def opened(self, path: Path) -> AbstractContextManager[Path]:
        """The folder of a run or a model to read in place of `path`, while this is entered."""
        return nullcontext(path)

    def check_training(self, experiment: "Experiment", folder: Path, *, search: bool, fresh: bool) -> None:
        """Looks at what a training or a search begins from: runs, presets and files that the settings name, and what is in its folder.

        Args:
            search: it is a search, whose space names such things, too, and whose trials read them in processes of their own.
            fresh: what is in the folder is moved aside, unread.
        """

    def check_place(self, folder: Path, *, workers: Literal["none", "here", "elsewhere"], store: bool) -> None:
        """Other processes are about to train, on this machine or elsewhere, or the run is kept in a store."""

    def confine(self, writable: list[Path] | None) -> None:
        """The command has found what it reads: from here on it writes below these places alone; None: it needs the network."""

    def environment(self) -> dict[str, str]:
        """Variables by which a guard in another process looks as this one does."""
        return {}


def active() -> bool:
    """Whether any guard looks at what is opened now."""
    return any(guard.active() for guard in _guards())


def check(what: Path | str, kind: Kind) -> None:
    """As `Guard.check`, by every guard."""
    _each(lambda guard: guard.check(what, kind))


@contextmanager
def opened(path: Path) -> Iterator[Path]:
    """As `Guard.opened`, by every guard: each is given what the one before it has opened."""
    with ExitStack() as entered:
        for guard in _guards():
            path = entered.enter_context(guard.opened(path))
        yield path


def check_training(experiment: "Experiment", folder: Path, *, search: bool = False, fresh: bool = False) -> None:
    """As `Guard.check_training`, by every guard."""
    _each(lambda guard: guard.check_training(experiment, folder, search=search, fresh=fresh))


def check_place(folder: Path, *, workers: Literal["none", "here", "elsewhere"], store: bool) -> None:
    """As `Guard.check_place`, by every guard."""
    _each(lambda guard: guard.check_place(folder, workers=workers, store=store))


def confine(*folders: Path | None, file: Path | None = None) -> None:
    """As `Guard.confine`, by every guard: results are written into these folders, and beside that file; None stands for none."""
    writable = [place for place in (*folders, file.absolute().parent if file else None) if place is not None]
    _each(lambda guard: guard.confine(writable))


def confine_none() -> None:
    """The command needs the network."""
    _each(lambda guard: guard.confine(None))


def environment() -> Mapping[str, str]:
    """Variables by which the guards of another process look as those of this one do."""
    return {name: value for guard in _guards() for name, value in guard.environment().items()}


def _each(ask: Callable[[Guard], None]) -> None:
    for guard in _guards():
        ask(guard)


def _guards() -> list[Guard]:
    import_extensions()
    return [entry.load()() for entry in GUARDS.entries()]

"""What all commands share: how expected failures end, the options, and how installed tools are called from here. Imports no TensorFlow."""

import functools
import inspect
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from pipelines.base.errors import QuartetError, expected
from pipelines.base.terminal import lines, printable
from pipelines.config.doors import OPTIONS
from pipelines.runs.folder import RunFolder
from pipelines.stores import remote

if TYPE_CHECKING:
    from pipelines.config.load import Loaded


RUNS = Path("runs")
Runs = Annotated[Path, typer.Option("--runs", metavar="DIR", help="Folder of all runs; also s3://, gs:// or az://BUCKET/PATH.")]
Run = Annotated[str, typer.Argument(
    metavar="RUN", show_default=False, help="A run: its folder, or its name below --runs, such as vision/digits/default.")]
Settings = Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE", show_default=False, help="Settings to change.")]
Reading = Annotated[list[str] | None, typer.Option(
    "--set", metavar="KEY=VALUE", show_default=False,
    help="How tables are read, where otherwise than in training: data.text_key=body, data.delimiter=\";\"; and how texts are written: "
    "writing.beam=1.")]
Batch = Annotated[int | None, typer.Option(min=1, metavar="N", show_default="the task's", help="Inputs answered at a time.")]
Call = Annotated[list[str] | None, typer.Argument(
    metavar="CONFIG|KEY=VALUE", show_default=False,
    help="A YAML file or a shipped experiment such as vision/digits, then settings to change, such as train.epochs=3.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only warnings and the result.")]
Replace = Annotated[bool, typer.Option("--replace", help="Overwrite what is there.")]
Use = Annotated[list[str] | None, typer.Option(
    "--use", metavar="FILE", show_default=False,
    help="A Python file (or installed module) with models, sources or tasks of your own; several times for several.")]

_MODULES = {"quartet": "quartet", "tensorboard": "tensorboard.main"}
Command = TypeVar("Command", bound=Callable[..., None])


def reported(command: Command) -> Command:
    """A command whose expected failures are printed plainly on stderr and end the process with their exit status."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except (QuartetError, OSError) as error:
            failure = expected(error)
            if failure is None:
                raise
            fail(remote.named(str(failure)))
            raise typer.Exit(failure.exit_status) from None
        except KeyboardInterrupt:
            fail("interrupted")
            raise typer.Exit(130) from None

    return run  # type: ignore[return-value]


_USED: list[str] = []  # what --use named in this process


def extensible(*, devices: bool = True) -> Callable[[Command], Command]:
    """A command with the option --use: the files or modules named there are imported before it begins.

    Args:
        devices: as `start_tensorflow` takes it; most such files import Keras, so that TensorFlow is started first.
    """

    def wrap(command: Command) -> Command:
        @functools.wraps(command)
        def run(*args: Any, use: list[str] | None = None, **kwargs: Any) -> None:
            _USED[:] = use or []
            if use:
                from pipelines.config import extensions
                from pipelines.machine.startup import start_tensorflow

                start_tensorflow(devices=devices)
                extensions.use(use)
            command(*args, **kwargs)

        own = inspect.signature(command)
        option = inspect.Parameter("use", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Use)
        run.__signature__ = own.replace(parameters=[*own.parameters.values(), option])  # type: ignore[attr-defined]
        run.__annotations__ = {**command.__annotations__, "use": Use}
        return run  # type: ignore[return-value]

    return wrap


def fail(message: str) -> None:
    """A message in red on stderr; without colour where that is no terminal."""
    typer.secho(lines(message), fg=typer.colors.RED, err=True)


def echo(text: str, *, end: bool = True) -> None:
    """A result on stdout; control characters in it as escapes. `end`: with a line's end."""
    typer.echo(lines(text), nl=end)


def say(message: str) -> None:
    """A line on stderr, where it does not mix with results."""
    typer.echo(printable(message), err=True)


def tool(name: str) -> str:
    """How to call an installed command here: by name where the shell finds it, else by its path beside this Python, else as a module."""
    if shutil.which(name):
        return name
    beside = Path(sys.executable).with_name(name)
    return quoted(beside) if beside.exists() else f"{quoted(Path(sys.executable))} -m {_MODULES[name]}"


def to_copy(words: str) -> str:
    """`quartet WORDS` to be copied, with the --use of this command."""
    return " ".join([tool("quartet"), words, *(f"--use {shlex.quote(name)}" for name in _USED)])


def shown(path: Path) -> str:
    """A path as short as it can be from here; of the copy of something in a store, its address."""
    address = remote.named(str(path))
    if address != str(path):
        return address
    try:
        relative = os.path.relpath(path)
    except ValueError:  # another drive
        return str(path)
    return str(path) if relative.startswith("..") else relative


def quoted(path: Path) -> str:
    """`shown`, for a shell."""
    return shlex.quote(shown(path))


def named(loaded: "Loaded") -> str:
    """The experiment's name with its domain: vision/digits."""
    return loaded.name if "/" in loaded.name else f"{loaded.experiment.task.partition('.')[0]}/{loaded.name}"


def divided(arguments: Sequence[str] | None) -> tuple[str | None, list[str]]:
    """The experiment, or None where only settings are given, and the settings."""
    given = list(arguments or ())
    if given and ("=" not in given[0] or Path(given[0]).is_file()):
        return given[0], given[1:]
    return None, given


def finished(runs: Path, name: str) -> RunFolder:
    """The run that a person names, once it is known to have a model; guards look at it before anything of it is read."""
    from pipelines.config import guard
    from pipelines.runs.listing import find_run, require_model

    folder = find_run(runs, name)
    guard.check(folder.path, "run")
    require_model(folder)
    return folder


@contextmanager
def guarded(folders: Sequence[RunFolder]) -> Iterator[list[RunFolder]]:
    """What to read of runs, as the guards have it: the runs themselves, or private copies of what was verified."""
    from pipelines.config import guard

    with ExitStack() as kept:
        copies: dict[Path, RunFolder] = {}
        for one in folders:
            if one.path.resolve() not in copies:
                copies[one.path.resolve()] = RunFolder(kept.enter_context(guard.opened(one.path)))
        yield [copies[one.path.resolve()] for one in folders]


def add_command(app: typer.Typer, function: Callable[..., None], name: str | None = None, *, group: str = "") -> None:
    """Adds a function to an app as a command.

    Args:
        name: default: the function's.
        group: the app's own name within `quartet`, such as "runs".
    """
    called = name or function.__name__
    full = f"{group} {called}".strip()

    class Command(TyperCommand):
        """A command line whose words extensions may rewrite, such as an option that may stand without a value."""

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            for entry in OPTIONS.of(full):
                args = entry.rewrite(args) if entry.rewrite else args
            parsed: list[str] = super().parse_args(ctx, args)
            return parsed

    app.command(called, cls=Command)(surrounded(function, full))


def surrounded(function: Callable[..., None], command: str) -> Callable[..., None]:
    """The function as a command of that name, with the options that extensions add to it."""
    own = inspect.signature(function)
    added = {one.name: one for entry in OPTIONS.of(command) for one in entry.parameters}

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> None:
        given = {name: kwargs.pop(name) for name in added if name in kwargs}
        with OPTIONS.surround(command, given):
            function(*args, **kwargs)

    options = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in added.values()]
    run.__signature__ = own.replace(parameters=[*own.parameters.values(), *options])  # type: ignore[attr-defined]
    run.__annotations__ = {**function.__annotations__, **{one.name: one.annotation for one in options}}
    return reported(run)

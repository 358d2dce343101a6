"""The commands that train: train and tune, and `prepare`, which writes the data for them."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

import typer

from pipelines.base import storage
from pipelines.base.errors import QuartetError
from pipelines.commands.shell import (
    RUNS,
    Call,
    Quiet,
    Runs,
    Settings,
    divided,
    echo,
    extensible,
    named,
    say,
    to_copy,
)
from pipelines.config import guard
from pipelines.runs.launcher import Launcher, TrainCall, chosen
from pipelines.stores.remote import OutputFolder, address_of

Name = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        show_default=False,
        help="Name of the run or search; default: formed from the settings that are changed.",
    ),
]
Fresh = Annotated[
    bool,
    typer.Option("--fresh/--resume", show_default="resume", help="Begin anew (an existing run is moved aside), or resume."),
]


def _check_place(folder: Path, launcher: Launcher, runs: Path) -> None:
    workers: Literal["none", "here", "elsewhere"] = (
        "none" if not launcher.elsewhere else "elsewhere" if launcher.other_machines else "here")
    guard.check_place(folder, workers=workers, store=address_of(runs) is not None)


@extensible()
def train(
    context: typer.Context,
    arguments: Call = None,
    runs: Runs = RUNS,
    name: Name = None,
    fresh: Fresh = False,
    quiet: Quiet = False,
) -> None:
    """Train, judge and report an experiment; the same command resumes an interrupted run."""
    from pipelines.commands.run_summary import closing
    from pipelines.config.load import load, resolved_yaml
    from pipelines.runs.folder import run_folder, unfinished

    config, overrides = divided(arguments)
    loaded = load(config, overrides, domain=context.obj)
    begun = None if overrides or name or fresh else unfinished(config)
    experiment = begun.experiment_name if begun else named(loaded)
    folder = begun or run_folder(runs, experiment, name, overrides)
    launcher = chosen("train")
    _check_place(folder.path, launcher, runs)
    same = [config or experiment, *overrides, "--runs", str(address_of(runs) or runs), *(["--name", name] if name else ()),
            *(["--quiet"] if quiet else ())]
    call = TrainCall(loaded.experiment, folder, tuple(same), runs, fresh)
    if launcher.elsewhere and address_of(runs):  # which the workers hold
        return _train_elsewhere(launcher, call)
    from pipelines.runs.in_store import here

    with here(runs, loaded.experiment, folder, fresh=fresh, say=say, writes=launcher.chief) as folder:
        guard.check_training(loaded.experiment, folder.path, fresh=fresh)
        if folder.trained and not fresh and not launcher.several:
            # what needs no TensorFlow is checked without it: another experiment of that name, and the result of a finished run
            folder.claim(resolved_yaml(loaded.experiment))
            if folder.finished:
                echo(closing(folder, folder.read_report()))
                return
        if launcher.elsewhere:
            return _train_elsewhere(launcher, call)
        from pipelines.machine.startup import start_tensorflow

        start_tensorflow()
        from pipelines.runs.launch import launch

        try:
            report = launch(loaded.experiment, folder, experiment, fresh=fresh, quiet=quiet)
        except QuartetError as error:
            if fresh and error.exit_status > 128:
                error.args = (f"{error}, without --fresh",)  # "the same command resumes from here" would begin anew with it
            raise
    if report:  # of several hosts, the chief's
        echo(closing(folder, report))


def _train_elsewhere(launcher: Launcher, call: TrainCall) -> None:
    if status := launcher.train(call):
        raise typer.Exit(status)


@extensible(devices=False)
def tune(
    context: typer.Context,
    arguments: Call = None,
    runs: Runs = RUNS,
    name: Name = None,
    workers: Annotated[int, typer.Option(min=1, metavar="N", help="Trials at a time; where there are GPUs, each has its own.")] = 1,
    fresh: Fresh = False,
    quiet: Quiet = False,
) -> None:
    """Search the settings in the experiment's tune section; the same command resumes an interrupted search."""
    from pipelines.config.load import load, resolved_yaml
    from pipelines.runs.folder import name_of, run_folder
    from pipelines.tuning.search_folder import SearchFolder

    config, overrides = divided(arguments)
    launcher = chosen("tune")
    loaded = load(config, overrides, domain=context.obj)
    experiment = named(loaded)
    kept = [one for one in overrides if not one.startswith(("tune.trials=", "tune.minutes=", "tune.seeds=", "tune.compare="))]
    path = run_folder(runs, experiment, name or (f"search-{name_of(kept)}" if kept else "search")).path
    _check_place(path, launcher, runs)
    # what needs no TensorFlow is checked without it: a space that does not suit, another search of that name, the result of a finished one
    from pipelines.commands.search_summary import closing
    from pipelines.runs.in_store import folder_here
    from pipelines.tuning.search import prepared, search

    prepared(loaded.experiment)
    with folder_here(runs, path, [path.name], fresh=fresh, say=say) as path:
        folder = SearchFolder(path)
        guard.check_training(loaded.experiment, path, search=True, fresh=fresh)
        if not fresh:
            storage.check_begin(path, begun=folder.started)
        if not fresh and folder.compared(resolved_yaml(loaded.experiment)) and folder.finished:
            echo(closing(folder, folder.read_report()), end=False)
            return
        from pipelines.machine.startup import start_tensorflow

        start_tensorflow(devices=False)
        with launcher.trials(loaded.experiment, workers, say) as processes:
            report = search(loaded.experiment, folder, experiment, workers=workers, fresh=fresh, quiet=quiet, processes=processes)
    echo(closing(folder, report), end=False)


@extensible()
def prepare(
    config: Annotated[str, typer.Argument(metavar="CONFIG", show_default=False,
                                          help="A YAML file or a shipped experiment such as vision/cifar10_cnn.")],
    output: Annotated[Path, typer.Argument(metavar="OUT", show_default=False, help="The folder to write, or its address.")],
    settings: Settings = None,
    decoded: Annotated[bool, typer.Option("--decoded", help="Images as pixels of data.image_size: larger, and training decodes nothing.")
                       ] = False,
    quiet: Quiet = False,
) -> None:
    """Read an experiment's data once and write them ready to train from: quartet train CONFIG data.prepared=OUT. Interrupted, the same
    command resumes."""
    from pipelines.config.load import load
    from pipelines.machine.startup import start_tensorflow

    experiment = load(config, settings or []).experiment
    start_tensorflow()
    from rich.console import Console
    from rich.progress import Progress

    from pipelines.runs.launch import task_class
    from pipelines.runs.launcher import Launcher, chosen
    from pipelines.task import prepared

    task, launcher = task_class(experiment.task)(experiment), chosen("prepare")
    if launcher.elsewhere and task.input.prepared_form.own_writer is not None:
        say("written here and not on the cluster: of a log, all is read at once in any case")
        launcher = Launcher()
    with ExitStack() as stack:
        write = stack.enter_context(launcher.writers(say)) or prepared.here
        bar = stack.enter_context(Progress(console=Console(file=sys.stderr), transient=True, disable=quiet or not sys.stderr.isatty()))
        writing = bar.add_task("writing", total=None)
        index = prepared.prepare(task, output, lambda done, of: bar.update(writing, completed=done, total=of), decoded=decoded,
                                 say=(lambda text: None) if quiet else say, write=write)
    counts = ", ".join(f"{name} {sum(shard.examples for shard in stored.shards):,}" for name, stored in (index.splits or {}).items())
    size, place = sum(OutputFolder(output).sizes().values()), address_of(output) or output
    echo(f"prepared     {place} ({counts + ', ' if counts else ''}{size / 1e6:,.1f} MB)")
    echo(f"train        {to_copy(f'train {config} data.prepared={place}')}")

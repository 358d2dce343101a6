"""`quartet prepare`: an experiment's data written once."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from pipelines.commands.shell import Quiet, Settings, echo, extensible, say, to_copy
from pipelines.stores.address import address_of
from pipelines.stores.output import OutputFolder


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

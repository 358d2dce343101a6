"""`quartet prune`. Imports no TensorFlow until it needs it."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from pipelines.base.errors import ConfigError
from pipelines.commands.shell import RUNS, Replace, Run, Runs, echo, extensible, finished, quoted, to_copy


@extensible()
def prune(
    run: Run, runs: Runs = RUNS,
    operations: Annotated[float, typer.Option(min=0.01, max=0.99, metavar="SHARE", help="Of the operations that may be left.")] = 0.5,
    epochs: Annotated[int | None, typer.Option(min=1, metavar="N", show_default="the run's", help="Of the further training.")] = None,
    teacher: Annotated[bool, typer.Option("--teacher/--no-teacher", help="The run teaches the smaller network.")] = True,
    output: Annotated[Path | None, typer.Option(
        "--output", "-o", metavar="DIR", show_default="RUN/pruned-SHARE", help="Where experiment and weights are written.")] = None,
    replace: Replace = False,
) -> None:
    """Take filters, units and heads out of a trained network, and write an experiment that trains it further."""
    folder = finished(runs, run)
    if folder.manifest.is_file():
        raise ConfigError(f"{folder.path}: is an exported model; prune the run that it was made from")
    target = (output or folder.path / f"pruned-{operations:g}").absolute()
    from pipelines.machine.startup import start_tensorflow

    start_tensorflow()
    from extensions.convert.pruning.prune import prune as take_out
    from pipelines.serving.export import free
    from pipelines.serving.load import load_run

    free(target, replace)
    whole = load_run(folder, where="cpu", precision="float32")
    done = take_out(whole, target, share=operations, epochs=epochs, teacher=teacher, replace=replace, say=echo)
    for what, (after, before) in {"operations": done.operations, "weights": done.weights}.items():
        echo(f"{what:<12} {after:,.0f} of {before:,.0f} ({after / before:.1%})" + (" an example" if what == "operations" else ""))
    called, written = f"{folder.path.name}-pruned", target / "experiment.yaml"
    echo(f"train it     {to_copy(f'train {quoted(written)} --name {shlex.quote(called)}')}")

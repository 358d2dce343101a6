"""The commands that put a finished run on record elsewhere: register and push. Import no TensorFlow until they need it."""

from enum import Enum
from typing import Annotated

import typer

from pipelines.base.formatting import size
from pipelines.commands.shell import RUNS, Run, Runs, echo, finished


class Registry(str, Enum):
    """Where models are registered."""

    mlflow = "mlflow"


def register(
    run: Run,
    to: Annotated[Registry, typer.Option("--to", help="The registry.")],
    runs: Runs = RUNS,
    name: Annotated[str | None, typer.Option(
        metavar="NAME", show_default="vision-digits of vision/digits", help="The registered model, made where it is missing.")] = None,
    alias: Annotated[list[str] | None, typer.Option(
        metavar="ALIAS", show_default=False, help="That then points to this version, such as champion; several times for several.")] = None,
    server: Annotated[str | None, typer.Option(
        metavar="URI", show_default="MLFLOW_TRACKING_URI", help="Such as https://mlflow.example.org or sqlite:///mlflow.db.")] = None,
) -> None:
    """Register a run's export as a version of a model, with its signature (inputs and outputs). Needs the extra `mlflow`."""
    from extensions.tracking.beside import require_extra

    folder = finished(runs, run)
    require_extra(to.value)
    from pipelines.machine.startup import start_tensorflow

    start_tensorflow()
    from extensions.tracking.register import default_name, require_export
    from extensions.tracking.register import register as put

    export = require_export(folder)
    done = put(folder, export, server=server, name=name or default_name(folder), aliases=tuple(alias or ()))
    echo(f"registered   {done.name}, version {done.version}" + (f", as {', '.join(alias)}" if alias else ""))
    echo(f"tracked in   {done.place}")


def push(
    run: Run,
    to: Annotated[str, typer.Argument(metavar="hf://OWNER/NAME", show_default=False, help="A model repository.")],
    runs: Runs = RUNS,
    private: Annotated[bool, typer.Option("--private", help="Only its owners see it; a repository that is public is refused.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be sent; send nothing.")] = False,
    encrypted: Annotated[bool, typer.Option("--encrypted", help="Send encrypted files, too, as they are.")] = False,
) -> None:
    """Send card, settings, model and export of a run to a hub of models. No data are sent. Needs the extra `hub`, and HF_TOKEN."""
    from extensions.tracking.push import plan
    from extensions.tracking.push import push as send

    folder = finished(runs, run)
    what = plan(folder, to, encrypted=encrypted)
    for name, file in what.files.items():
        echo(f"{size(file.stat().st_size):>10}  {name}")
    total = f"{len(what.files)} files, {size(what.bytes)}"
    if dry_run:
        echo(f"would send   {total} to {to}")
        return
    address = send(what, private=private, message=f"{folder.experiment_name}/{folder.path.name}")
    echo(f"sent         {total} to {address}")

"""The commands that ship finished runs: serve and export. Imports no TensorFlow until a command needs it."""

import os
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from pipelines.base.errors import ConfigError
from pipelines.commands.shell import (
    RUNS,
    Batch,
    Replace,
    Run,
    Runs,
    echo,
    extensible,
    finished,
    say,
    shown,
)
from pipelines.config import guard
from pipelines.runs.folder import RunFolder
from pipelines.stores.remote import address_of


class Precision(str, Enum):
    """In what an exported model computes."""

    judged = "judged"
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


@extensible()
def serve(
    models: Annotated[list[str], typer.Argument(
        metavar="[NAME=]RUN|EXPORT|FOLDER...", show_default=False,
        help="Runs, exported models, or folders with versions of them (1, 2, ...), which are watched for new ones.")],
    runs: Runs = RUNS,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen; 0.0.0.0: everywhere, to everybody.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="Where to listen; 0: a free one.")] = 8000,
    batch: Batch = None,
    limit: Annotated[int, typer.Option(min=1, metavar="MIB", help="Largest request.")] = 64,
    deadline: Annotated[float, typer.Option(min=0.1, metavar="S", help="How long an input may wait; then the request is refused.")] = 30.0,
    everybody: Annotated[bool, typer.Option("--open", help="Answer everybody, also on other than this machine's own address.")] = False,
) -> None:
    """Answer requests over HTTP as the runs were judged, until Ctrl-C. Needs the extra `serve`."""
    from pipelines.serving import apart
    from pipelines.serving.options import MEBI, Options
    from pipelines.serving.protocol import prepared
    from pipelines.serving.server import require_extra, source

    def find(name: str) -> Path:
        return finished(runs, name).path

    require_extra()
    inside = apart.VARIABLE in os.environ  # this process answers large inputs of another one, which says what it loads
    options = Options(host, port, limit * MEBI, deadline, everybody)
    sources = [] if inside else [source(one, find) for one in models]
    options, protocols = (options, []) if inside else prepared(options)
    from pipelines.machine.startup import start_tensorflow

    start_tensorflow()
    from pipelines.serving.exported import ExportedModel, load_exported
    from pipelines.serving.forms import open_run, predictor
    from pipelines.serving.predict import Predictor
    from pipelines.serving.server import serve as answer

    def load(folder: Path) -> ExportedModel | Predictor:
        if (folder / "saved_model.pb").is_file():
            return load_exported(folder, batch=batch)
        run = open_run(RunFolder(folder), where=1)
        if inside:  # where nothing is gained by a form that is quick with small inputs
            return Predictor(run, batch=batch)
        return predictor(run, batch=batch, say=say)

    answer(sources, load, options, protocols, say=say)


@extensible()
def export(
    run: Run, runs: Runs = RUNS,
    output: Annotated[Path | None, typer.Option(
        "--output", "-o", metavar="DIR", show_default="RUN/export", help="Where the model is written.")] = None,
    precision: Annotated[Precision, typer.Option(help="What it computes in; judged: as the run's report.")] = Precision.judged,
    replace: Replace = False,
) -> None:
    """Write a SavedModel that takes raw input and needs TensorFlow alone."""
    from pipelines.serving.forms import default_folder, wanted

    folder = finished(runs, run)
    if folder.manifest.is_file():
        raise ConfigError(f"{folder.path}: is an exported model, which has no other form; export the run that it was made from")
    if output is not None and address_of(output):
        raise ConfigError("--output: is written to a disk; without --output the export of a run in a store goes beside it")
    form = wanted()
    target = (output or default_folder(folder.path, form)).absolute()
    guard.confine(file=target)
    from pipelines.machine.startup import start_tensorflow

    start_tensorflow()
    from pipelines.runs.in_store import put_back
    from pipelines.serving.export import export_run

    computing = None if precision is Precision.judged else precision.value
    loaded = export_run(folder, target, form, precision=computing, replace=replace, say=echo)  # type: ignore[arg-type]
    put_back(folder)
    used, judged = loaded.machine.precision, loaded.judged_precision
    about = "" if form else f", computing in {used}" + ("" if used == judged else f" (judged in {judged})")
    echo(f"model        {shown(target)}{about}")
    echo(f"how to use   {shown(target / 'README.txt')}")

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
    RequireSignature,
    Run,
    Runs,
    Sandbox,
    echo,
    extensible,
    finished,
    keyed,
    sandboxed,
    say,
    shown,
)
from pipelines.runs.folder import RunFolder
from pipelines.stores.address import address_of


class Precision(str, Enum):
    """In what an exported model computes."""

    judged = "judged"
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


@keyed
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
    connections: Annotated[int, typer.Option(min=1, metavar="N", help="Connections open at the same time.")] = 1024,
    delay: Annotated[float, typer.Option(min=0, metavar="MS", help="How long a batch that is not full waits for more inputs.")] = 0.0,
    deadline: Annotated[float, typer.Option(min=0.1, metavar="S", help="How long an input may wait; then the request is refused.")] = 30.0,
    per_client: Annotated[int | None, typer.Option(
        min=1, metavar="N", show_default="as many as of all", help="Inputs of one client that may wait for a model.")] = None,
    long: Annotated[float, typer.Option(
        min=0.1, metavar="S", help="How long an input that is large by its header may take; then it is ended.")] = 10.0,
    drain: Annotated[float, typer.Option(min=1, metavar="S", help="Time from SIGTERM to the end, at most.")] = 30.0,
    log: Annotated[bool, typer.Option("--log", help="A line of JSON on standard output for each request.")] = False,
    versions: Annotated[int, typer.Option(min=1, metavar="N", help="Newest versions of a model that answer.")] = 1,
    grpc: Annotated[int | None, typer.Option(min=0, max=65535, metavar="PORT", help="Where gRPC listens, too; 0: a free one.")] = None,
    workers: Annotated[int, typer.Option(min=1, metavar="N", help="Processes that answer, each with the models in its own memory.")] = 1,
    tokens: Annotated[Path | None, typer.Option(
        metavar="FILE", show_default=False, help="Lines `NAME sha256:HASH`: only who shows such a token is answered.")] = None,
    everybody: Annotated[bool, typer.Option("--open", help="Answer everybody, also on other than this machine's own address.")] = False,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", show_default=False, help="The server's certificate, PEM: TLS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", show_default=False, help="The key of that certificate, PEM.")] = None,
    client_ca: Annotated[Path | None, typer.Option(
        metavar="FILE", show_default=False, help="Authorities, PEM: only clients with a certificate of theirs are answered.")] = None,
    rate: Annotated[float | None, typer.Option(
        min=0.001, metavar="N", show_default=False, help="Requests a second that one client may send, for long.")] = None,
    cors: Annotated[list[str] | None, typer.Option(
        metavar="ORIGIN", show_default=False, help="Whose web pages may read answers; several times for several.")] = None,
    audit: Annotated[Path | None, typer.Option(
        metavar="FILE", show_default=False, help="A file that gets a line for each request: who, when, which model; no payload.")] = None,
    require_signature: RequireSignature = None,
) -> None:
    """Answer requests over HTTP as the runs were judged, until Ctrl-C. Needs the extra `serve`."""
    from pipelines.serving import apart
    from pipelines.serving.guards import Guards
    from pipelines.serving.server import MEBI, Options, require_extra, serve_by, source
    from pipelines.serving.workers import VARIABLE

    def find(name: str) -> Path:
        return finished(runs, name, require_signature).path

    guards = Guards(tokens, rate, tuple(cors or ()), audit, tls_cert, tls_key, client_ca, everybody)
    guards.check(host)
    require_extra(grpc is not None)
    inside = apart.VARIABLE in os.environ  # this process answers large inputs of another one, which says what it loads
    sources = [] if inside else [source(one, find) for one in models]
    options = Options(host, port, limit * MEBI, connections, delay / 1000, deadline, per_client, long, drain, log, versions, grpc, guards)
    if workers > 1 and VARIABLE not in os.environ and not inside:
        raise typer.Exit(serve_by(workers, options, say=say))
    from pipelines.machine.startup import start_tensorflow

    start_tensorflow()
    from pipelines.serving.exported import ExportedModel, load_exported
    from pipelines.serving.forms import open_run, predictor
    from pipelines.serving.predict import Predictor
    from pipelines.serving.server import serve as answer

    def load(folder: Path) -> ExportedModel | Predictor:
        if (folder / "saved_model.pb").is_file():
            return load_exported(folder, batch=batch, require_signature=require_signature)
        run = open_run(RunFolder(folder), where=1, require_signature=require_signature)
        if inside:  # where nothing is gained by a form that is quick with small inputs
            return Predictor(run, batch=batch)
        return predictor(run, batch=batch, keep=require_signature is None, say=say)

    answer(sources, load, options, say=say)


@keyed
@extensible()
def export(
    run: Run, runs: Runs = RUNS,
    output: Annotated[Path | None, typer.Option(
        "--output", "-o", metavar="DIR", show_default="RUN/export", help="Where the model is written.")] = None,
    precision: Annotated[Precision, typer.Option(help="What it computes in; judged: as the run's report.")] = Precision.judged,
    replace: Replace = False,
    require_signature: RequireSignature = None,
    sandbox: Sandbox = False,
) -> None:
    """Write a SavedModel that takes raw input and needs TensorFlow alone."""
    from pipelines.serving.forms import default_folder, wanted

    folder = finished(runs, run, require_signature)
    if folder.manifest.is_file():
        raise ConfigError(f"{folder.path}: is an exported model, which has no other form; export the run that it was made from")
    if output is not None and address_of(output):
        raise ConfigError("--output: is written to a disk; without --output the export of a run in a store goes beside it")
    form = wanted()
    target = (output or default_folder(folder.path, form)).absolute()
    sandboxed(sandbox, None, target)
    from pipelines.machine.startup import start_tensorflow

    start_tensorflow()
    from pipelines.runs.in_store import put_back
    from pipelines.serving.export import export_run

    computing = None if precision is Precision.judged else precision.value
    loaded = export_run(folder, target, form, precision=computing, replace=replace,  # type: ignore[arg-type]
                        require_signature=require_signature, say=echo)
    put_back(folder)
    used, judged = loaded.machine.precision, loaded.judged_precision
    about = "" if form else f", computing in {used}" + ("" if used == judged else f" (judged in {judged})")
    echo(f"model        {shown(target)}{about}")
    echo(f"how to use   {shown(target / 'README.txt')}")

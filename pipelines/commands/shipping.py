"""The commands that ship finished runs: serve, export and prune. Imports no TensorFlow until a command needs it."""

import os
import shlex
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
    quoted,
    say,
    shown,
    to_copy,
)
from pipelines.config import guard
from pipelines.runs.folder import RunFolder
from pipelines.stores.address import address_of


class Target(str, Enum):
    """What an exported model is for."""

    server = "server"
    mobile = "mobile"
    cpu = "cpu"
    onnx = "onnx"
    openvino = "openvino"


class Form(str, Enum):
    """What computes a single input of a run."""

    auto = "auto"
    tensorflow = "tensorflow"
    litert = "litert"
    onnx = "onnx"
    openvino = "openvino"


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
    form: Annotated[Form, typer.Option(
        help="What computes a single input of a run; auto: the fastest that keeps the answers to 1e-5, measured at start.")] = Form.auto,
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
) -> None:
    """Answer requests over HTTP as the runs were judged, until Ctrl-C. Needs the extra `serve`."""
    from pipelines.serving import apart
    from pipelines.serving.guards import Guards
    from pipelines.serving.server import MEBI, Options, require_extra, serve_by, source
    from pipelines.serving.workers import VARIABLE

    def find(name: str) -> Path:
        return finished(runs, name).path

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
    from pipelines.serving.converted.fastest import choices, predictor
    from pipelines.serving.converted.loading import open_run
    from pipelines.serving.exported import ExportedModel, load_exported
    from pipelines.serving.predict import Predictor
    from pipelines.serving.server import serve as answer

    def load(folder: Path) -> ExportedModel | Predictor:
        if (folder / "saved_model.pb").is_file():
            return load_exported(folder, batch=batch)
        run = open_run(RunFolder(folder), where=1)
        if inside and form is Form.auto and not RunFolder(folder).manifest.is_file():
            return Predictor(run, batch=batch)
        return predictor(run, wanted=form.value, batch=batch, kept=None if guard.active() else choices(), say=say)

    answer(sources, load, options, say=say)


@extensible()
def export(
    run: Run, runs: Runs = RUNS,
    output: Annotated[Path | None, typer.Option(
        "--output", "-o", metavar="DIR", show_default="RUN/export, RUN/export-mobile, ...", help="Where the model is written.")] = None,
    precision: Annotated[Precision, typer.Option(help="What it computes in; judged: as the run's report.")] = Precision.judged,
    made_for: Annotated[Target, typer.Option(
        "--for", help="server: a SavedModel; mobile: LiteRT with weights of 8 bits; cpu: the fastest form on this processor that keeps the "
        "answers; onnx, openvino.")] = Target.server,
    loss: Annotated[float, typer.Option(
        min=0, metavar="POINTS", help="Points of the validation score, of 100, that another form than server may lose.")] = 0.5,
    replace: Replace = False,
) -> None:
    """Write a SavedModel that takes raw input and needs TensorFlow alone, or a small and fast form judged beside the run (--for)."""
    folder = finished(runs, run)
    if folder.manifest.is_file():
        raise ConfigError(f"{folder.path}: is an exported model, which has no other form; export the run that it was made from")
    if output is not None and address_of(output):
        raise ConfigError("--output: is written to a disk; without --output the export of a run in a store goes beside it")
    if made_for is not Target.server and precision not in (Precision.judged, Precision.float32):
        raise ConfigError("--precision: is for --for server; other forms are made from float32")
    target = (output or folder.path / ("export" if made_for is Target.server else f"export-{made_for.value}")).absolute()
    guard.confine(file=target)
    from pipelines.machine.startup import start_tensorflow

    start_tensorflow()
    from pipelines.runs.in_store import put_back
    from pipelines.serving.export import export as save
    from pipelines.serving.export import free
    from pipelines.serving.load import load_run

    free(target, replace)
    if made_for is not Target.server:
        from pipelines.serving.converted.export import export_converted

        run_in_float = load_run(folder, where="cpu", precision="float32")
        export_converted(run_in_float, target, made_for=made_for.value, loss=loss, replace=replace, say=echo)
        put_back(folder)
        echo(f"model        {shown(target)}")
        echo(f"how to use   {shown(target / 'README.txt')}")
        return
    wanted = None if precision is Precision.judged else precision.value
    loaded = load_run(folder, where="cpu", precision=wanted)  # type: ignore[arg-type]
    save(loaded, target, replace=replace)
    put_back(folder)
    echo(f"model        {shown(target)}, computing in {loaded.machine.precision}"
               + ("" if loaded.machine.precision == loaded.judged_precision else f" (judged in {loaded.judged_precision})"))
    echo(f"how to use   {shown(target / 'README.txt')}")


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
    from pipelines.serving.export import free
    from pipelines.serving.load import load_run
    from pipelines.serving.pruning.prune import prune as take_out

    free(target, replace)
    whole = load_run(folder, where="cpu", precision="float32")
    done = take_out(whole, target, share=operations, epochs=epochs, teacher=teacher, replace=replace, say=echo)
    for what, (after, before) in {"operations": done.operations, "weights": done.weights}.items():
        echo(f"{what:<12} {after:,.0f} of {before:,.0f} ({after / before:.1%})" + (" an example" if what == "operations" else ""))
    called, written = f"{folder.path.name}-pruned", target / "experiment.yaml"
    echo(f"train it     {to_copy(f'train {quoted(written)} --name {shlex.quote(called)}')}")

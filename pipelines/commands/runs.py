"""The commands that use runs: evaluate, predict, export, report and runs. Imports no TensorFlow until a command needs it."""

import json
import os
import sys
import time
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Annotated, get_args

import typer

from pipelines.base import stored
from pipelines.base.errors import ConfigError, DataError
from pipelines.base.terminal import Shielded, json_text
from pipelines.commands.cluster import Ray, predict_on_ray
from pipelines.commands.shell import (
    RUNS,
    RequireSignature,
    Run,
    Runs,
    Settings,
    echo,
    extensible,
    fail,
    quoted,
    reported,
    say,
    shown,
    tool,
)
from pipelines.runs.folder import RunFolder
from pipelines.tuning.search_folder import SearchFolder

Batch = Annotated[int | None, typer.Option(min=1, metavar="N", show_default="the task's", help="Inputs answered at a time.")]
Replace = Annotated[bool, typer.Option("--replace", help="Overwrite what is there.")]


class Format(str, Enum):
    """How answers are written."""

    table = "table"
    csv = "csv"
    jsonl = "jsonl"
    text = "text"
    ctm = "ctm"
    parquet = "parquet"


class Target(str, Enum):
    """What an exported model is for."""

    server = "server"
    mobile = "mobile"
    cpu = "cpu"
    onnx = "onnx"
    openvino = "openvino"


class Order(str, Enum):
    """What a list of runs is ordered by."""

    date = "date"
    name = "name"
    metric = "metric"
    duration = "duration"


class Precision(str, Enum):
    """In what an exported model computes."""

    judged = "judged"
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


def _finished(runs: Path, name: str, require_signature: Path | None) -> RunFolder:
    """The run that a person names, once it is known to have a model; a signature is checked before anything of it is read."""
    from pipelines.runs.listing import find_run, require_model

    folder = find_run(runs, name)
    if require_signature is not None:
        from pipelines.trust.signing import verify

        verify(folder.path, require_signature)
    require_model(folder)
    return folder


@reported
@extensible()
def evaluate(
    run: Run, settings: Settings = None, runs: Runs = RUNS,
    split: Annotated[str | None, typer.Option(
        metavar="SPLIT", show_default="test", help="validation, test or train; with --data one of its own splits, if it has any.")] = None,
    data: Annotated[Path | None, typer.Option(
        metavar="PATH", show_default=False,
        help="Other labelled data with the same classes: a folder of class folders, a table, or an .npz.")] = None,
    output: Annotated[Path | None, typer.Option(
        "--output", "-o", metavar="FILE", show_default=False,
        help="Also the answer to each example, as .parquet, .csv or .jsonl; the report has them as predictions.parquet.")] = None,
    replace: Replace = False,
    require_signature: RequireSignature = None,
) -> None:
    """Judge a finished run on one of its splits or on other data. KEY=VALUE: evaluate.flip=true; with --data also data.label_key=class."""
    folder = _finished(runs, run, require_signature)
    from pipelines.reports import predictions

    if output is not None:
        predictions.writable(output)
        if output.exists() and not replace:
            raise ConfigError(f"--output: {output} is there already; --replace writes over it")
    from pipelines.machine.startup import start_tensorflow

    start_tensorflow()
    from pipelines.serving.converted import open_run
    from pipelines.serving.evaluate import evaluate as judge

    evaluated = judge(open_run(folder, require_signature=require_signature), split=split, data=data, overrides=settings or ())
    from pipelines.base import formatting
    from pipelines.base.terminal import print_table

    counts = [metric.n for metric in evaluated.judgement.metrics.values() if metric.n]
    rows = [[formatting.title(name), formatting.number(metric.value, name), formatting.bounds(metric.low, metric.high, name)]
            for name, metric in evaluated.judgement.metrics.items()]
    units = next((metric.drawn_by() for metric in evaluated.judgement.metrics.values() if metric.low is not None), "examples")
    interval = "95 % interval" + ("" if units == "examples" else f", drawn by {units}")
    heading = f"{evaluated.split}, {formatting.counted(counts[0], 'example')}" if counts else evaluated.split
    print_table([heading, "", interval], rows, right=(1,))
    for note in evaluated.notes:
        echo(note)
    echo(f"report       {shown(evaluated.folder / 'report.html')}")
    if output is not None:
        predictions.write(output, evaluated.judgement.predictions)
        echo(f"predictions  {shown(output)}")


@reported
@extensible()
def predict(
    run: Run, inputs: Annotated[list[str], typer.Argument(
        metavar="INPUT...", show_default=False,
        help="Files, folders or patterns; for texts also the text itself, or - for standard input.")],
    runs: Runs = RUNS,
    kind: Annotated[Format | None, typer.Option(
        "--format", show_default="by --output, else table", help="How answers are written.")] = None,
    output: Annotated[Path | None, typer.Option(
        "--output", "-o", metavar="FILE", show_default=False,
        help="A file, written whole; default: standard output. With --ray a folder, for parts as jsonl or parquet.")] = None,
    top: Annotated[int, typer.Option(
        "--top", min=0, metavar="N", show_default=False,
        help="Also the N best classes with their probabilities; of recommended items, the first N alone.")] = 0,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Also the probability of every class.")] = False,
    replace: Replace = False,
    batch: Batch = None,
    require_signature: RequireSignature = None,
    ray: Ray = None,
    workers: Annotated[int | None, typer.Option(
        min=1, metavar="N", show_default="one for each GPU, or else for each node", help="With --ray: how many answer.")] = None,
) -> None:
    """Answer new inputs. Those that cannot be read are named on stderr and have an error in the output; the rest is answered."""
    folder = _finished(runs, run, require_signature)
    if ray is not None:
        return predict_on_ray(ray, folder, inputs, output, kind.value if kind else None, top=top, probabilities=probabilities, batch=batch,
                              workers=workers, replace=replace, require_signature=require_signature)
    if workers is not None or kind is Format.parquet:
        raise ConfigError(f"{'--workers' if workers is not None else '--format: parquet'} needs --ray, and --output a folder")
    if output is not None and output.exists() and not replace:
        raise ConfigError(f"--output: {output} is there already; --replace writes over it")
    ending = output.suffix.lower().removeprefix(".") if output else ""
    follow = "-" in inputs  # then a line is answered when it comes, not when a page is full
    by_ending = {"csv": "csv", "jsonl": "jsonl", "ctm": "ctm", "txt": "text"}
    form = (kind or Format(by_ending.get(ending, "csv" if follow else "table"))).value
    from pipelines.machine.startup import start_tensorflow

    start_tensorflow()
    from pipelines.base.files import write_whole
    from pipelines.serving.converted import open_run
    from pipelines.serving.output import WRITERS, Shown, counted, to_binary
    from pipelines.serving.predict import Predictor

    predictor = Predictor(open_run(folder, where=1, require_signature=require_signature), batch=batch)
    visible = Shown.of(predictor.columns, predictor.classes, top=top, every=probabilities, details=predictor.run.task.details,
                        ranked=predictor.run.task.ranked)
    counts, began = {"answered": 0, "failed": 0}, time.perf_counter()
    answered = predictor.follow(inputs) if follow else predictor.predict(inputs)
    answers = counted(answered, counts, lambda one: fail(f"{one.name}: cannot be read: {one.error}"))
    if output is not None:
        try:
            write_whole(output, lambda file: to_binary(form, answers, visible, file))
        except OSError as error:
            raise DataError(f"--output: {output} cannot be written: {error.strerror or error}") from error
    else:
        if hasattr(sys.stdout, "reconfigure"):  # a pipe may have another encoding than these formats
            sys.stdout.reconfigure(encoding="utf-8", errors="replace")
        WRITERS[form](answers, visible, Shielded(sys.stdout) if sys.stdout.isatty() else sys.stdout)  # type: ignore[arg-type]
    seconds, total = time.perf_counter() - began, sum(counts.values())
    for note in predictor.run.task.read_notes:
        say(note)
    if not total:
        raise DataError(f"{' '.join(inputs)}: no input is there")
    missed = f"; {counts['failed']:,} could not be read" if counts["failed"] else ""
    say(f"{counts['answered']:,} of {total:,} answered in {seconds:.1f} s, {total / seconds:,.0f} a second{missed}"
        + (f": {shown(output)}" if output else ""))
    if not counts["answered"]:
        raise typer.Exit(1)


@reported
@extensible()
def embed(
    run: Annotated[str, typer.Argument(
        metavar="RUN|PRESET", show_default=False,
        help="A run of a pretrained encoder; for texts also the folder, name or handle of a preset.")],
    inputs: Annotated[list[str], typer.Argument(
        metavar="INPUT...", show_default=False, help="Files, folders or patterns; for texts also the text itself.")],
    output: Annotated[Path, typer.Option(
        "--output", "-o", metavar="FILE", show_default=False, help="A file, written whole: .npz, .parquet, .csv or .jsonl.")],
    runs: Runs = RUNS,
    replace: Replace = False,
    batch: Batch = None,
    require_signature: RequireSignature = None,
) -> None:
    """Write the vector that a pretrained encoder makes of each input."""
    from pipelines.runs.listing import find_run

    if output.exists() and not replace:
        raise ConfigError(f"--output: {output} is there already; --replace writes over it")
    folder, unknown = None, ""
    try:
        folder = find_run(runs, run)
    except ConfigError as error:
        if require_signature is not None:
            raise
        unknown = str(error)
    if folder is not None:
        folder = _finished(runs, run, require_signature)
    from pipelines.machine.startup import start_tensorflow

    start_tensorflow()
    from pipelines.serving import embed as embedding
    from pipelines.serving.load import load_run
    from pipelines.serving.output import counted
    from pipelines.serving.predict import Predictor

    embedding.writable(output)
    try:
        loaded = load_run(folder, where=1, require_signature=require_signature) if folder is not None else embedding.of_preset(run)
    except ConfigError as error:
        raise ConfigError(f"{unknown}\n{error}" if unknown else str(error)) from error
    embedding.require_encoder(loaded)
    counts = {"answered": 0, "failed": 0}
    answers = Predictor(loaded, batch=batch, answer=embedding.vectors).predict(inputs)
    embedding.write(output, counted(answers, counts, lambda one: fail(f"{one.name}: cannot be read: {one.error}")))
    say(f"{counts['answered']:,} of {sum(counts.values()):,} vectors: {shown(output)}")


@reported
@extensible()
def nearest(
    run: Run, inputs: Annotated[list[str], typer.Argument(
        metavar="INPUT...", show_default=False, help="Files, folders or patterns; for texts also the text itself.")],
    runs: Runs = RUNS,
    count: Annotated[int, typer.Option("--count", min=1, metavar="N", help="Training examples shown of each input.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines, for programs.")] = False,
    batch: Batch = None,
) -> None:
    """Show the training examples that are most like each input to a run's pretrained encoder, beside its answer."""
    from pipelines.runs.listing import find_run, require_model

    folder = find_run(runs, run)
    require_model(folder)
    from pipelines.machine.startup import start_tensorflow

    start_tensorflow()
    from dataclasses import asdict

    from pipelines.serving.load import load_run
    from pipelines.serving.nearest import Nearest, answered
    from pipelines.serving.predict import Predictor

    loaded = load_run(folder, where=1)
    near = Nearest(loaded, say)
    for one in Predictor(loaded, batch=batch, answer=answered).predict(inputs):
        if one.error is not None:
            fail(f"{one.name}: cannot be read: {one.error}")
            continue
        found, label = near.of(one.values["vector"], count), one.values.get("label")
        if as_json:
            echo(json.dumps({"input": one.name, "label": label, "nearest": [asdict(each) for each in found]}))
            continue
        echo(one.name + (f": {label}" if label is not None else ""))
        for each in found:
            what = f"{each.text} ({each.name})" if each.text is not None else each.name
            echo(f"  {each.similarity:5.2f}  {f'{each.label}: ' if each.label is not None else ''}{what}")


@reported
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
    from pipelines.serving.guards import Guards
    from pipelines.serving.server import MEBI, Options, require_extra, serve_by, source
    from pipelines.serving.workers import VARIABLE

    def find(name: str) -> Path:
        return _finished(runs, name, require_signature).path

    guards = Guards(tokens, rate, tuple(cors or ()), audit, tls_cert, tls_key, client_ca, everybody)
    guards.check(host)
    require_extra(grpc is not None)
    sources = [source(one, find) for one in models]
    options = Options(host, port, limit * MEBI, connections, delay / 1000, deadline, drain, log, versions, grpc, guards)
    if workers > 1 and VARIABLE not in os.environ:
        raise typer.Exit(serve_by(workers, options, say=say))
    from pipelines.machine.startup import start_tensorflow

    start_tensorflow()
    from pipelines.serving.converted import open_run
    from pipelines.serving.exported import ExportedModel, load_exported
    from pipelines.serving.predict import Predictor
    from pipelines.serving.quick import predictor
    from pipelines.serving.server import serve as answer

    def load(folder: Path) -> ExportedModel | Predictor:
        if (folder / "saved_model.pb").is_file():
            return load_exported(folder, batch=batch, require_signature=require_signature)
        return predictor(open_run(RunFolder(folder), where=1, require_signature=require_signature), batch=batch)

    answer(sources, load, options, say=say)


@reported
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
    require_signature: RequireSignature = None,
) -> None:
    """Write a SavedModel that takes raw input and needs TensorFlow alone, or a small and fast form judged beside the run (--for)."""
    folder = _finished(runs, run, require_signature)
    if folder.manifest.is_file():
        raise ConfigError(f"{folder.path}: is an exported model, which has no other form; export the run that it was made from")
    if made_for is not Target.server and precision not in (Precision.judged, Precision.float32):
        raise ConfigError("--precision: is for --for server; other forms are made from float32")
    target = (output or folder.path / ("export" if made_for is Target.server else f"export-{made_for.value}")).absolute()
    from pipelines.machine.startup import start_tensorflow

    start_tensorflow()
    from pipelines.serving.export import export as save
    from pipelines.serving.export import free
    from pipelines.serving.load import load_run

    free(target, replace)
    if made_for is not Target.server:
        from pipelines.serving.export_converted import export_converted

        run_in_float = load_run(folder, where="cpu", precision="float32", require_signature=require_signature)
        export_converted(run_in_float, target, made_for=made_for.value, loss=loss, replace=replace, say=echo)
        echo(f"model        {shown(target)}")
        echo(f"how to use   {shown(target / 'README.txt')}")
        return
    wanted = None if precision is Precision.judged else precision.value
    loaded = load_run(folder, where="cpu", precision=wanted, require_signature=require_signature)  # type: ignore[arg-type]
    save(loaded, target, replace=replace)
    echo(f"model        {shown(target)}, computing in {loaded.machine.precision}"
               + ("" if loaded.machine.precision == loaded.judged_precision else f" (judged in {loaded.judged_precision})"))
    echo(f"how to use   {shown(target / 'README.txt')}")


@reported
def report(
    names: Annotated[list[str], typer.Argument(
        metavar="RUN...", show_default=False, help="A run or a search: its folder, or its name below --runs; several runs are compared.")],
    runs: Runs = RUNS,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    output: Annotated[Path | None, typer.Option(
        "--output", "-o", metavar="FILE", show_default="compared.html in --runs", help="Several runs: the page.")] = None,
    replace: Replace = False,
) -> None:
    """Say what a run or a search came to and where its report is; of several runs, write one page that compares them."""
    from pipelines.runs.listing import find_run, headline

    if len(names) > 1:
        from pipelines.runs.comparison_page import write_comparison

        target = output or runs / "compared.html"
        if target.exists() and not replace:
            raise ConfigError(f"--output: {target} is there already; give another name, or --replace to write over it")
        write_comparison([find_run(runs, name) for name in names], target)
        echo(f"compared     {shown(target)}")
        return _opened(target, open_it)
    if output is not None:
        raise ConfigError("--output: is for several runs; the report of one is in its folder")
    search = next((one for one in (SearchFolder(Path(names[0])), SearchFolder(runs / names[0])) if one.begun), None)
    if search is not None:
        if not search.finished:
            raise ConfigError(f"{search.path}: the search is not finished; the command that began it resumes it")
        from pipelines.commands.search_summary import closing

        echo(closing(search, search.read_report()), end=False)
        return _opened(search.report / "report.html", open_it)
    folder = find_run(runs, names[0])
    content = folder.read_report()
    page = folder.report / "report.html"
    echo(headline(content))
    for other in sorted(folder.report.glob("*/report.json")):
        judged = stored.read(other, stored.Report).model_dump()
        echo(f"{other.parent.name}: {headline(judged)}")
    echo(f"report       {shown(page)}")
    if folder.tensorboard.is_dir():
        echo(f"TensorBoard  {tool('tensorboard')} --logdir {quoted(folder.tensorboard)}")
    return _opened(page, open_it)


def _opened(page: Path, wanted: bool) -> None:
    if wanted and typer.launch(page.resolve().as_uri()) != 0:
        raise DataError(f"no browser could be opened; the report is {page}")


runs_commands = typer.Typer(help="List and compare runs.", rich_markup_mode=None)


@runs_commands.callback(invoke_without_command=True)
@reported
def list_all(
    context: typer.Context, runs: Runs = RUNS,
    match: Annotated[str | None, typer.Option(
        metavar="TEXT", show_default=False, help="Only runs whose name holds this, or matches it with * and ?.")] = None,
    state: Annotated[str | None, typer.Option(
        metavar="STATE", show_default=False,
        help="Only finished, running, interrupted or damaged runs, or paused or failed trials.")] = None,
    sort: Annotated[Order, typer.Option(help="Newest, best and longest first.")] = Order.date,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """List the runs: state, leading metric with its interval, seconds of training, date."""
    if context.invoked_subcommand is not None:
        context.obj = runs
        return
    from pipelines.base import formatting
    from pipelines.base.terminal import print_table
    from pipelines.config.messages import listed
    from pipelines.runs.listing import State, list_runs
    from pipelines.runs.listing import ordered as in_order

    if state not in (None, *get_args(State)):
        raise ConfigError(f"--state: {state!r} is not one of {listed(get_args(State), 'and')}")
    listing = in_order([one for one in list_runs(runs, match=match) if state in (None, one.state)], sort.value)
    if as_json:
        echo(json_text([one.as_json() for one in listing]))
        return
    if not listing:
        echo(f"no such runs in {runs}")
        return
    rows = []
    for one in listing:
        state_text = one.state if one.state == "finished" else f"damaged: {one.progress}" if one.state == "damaged" else (
            f"{one.state} at {one.progress}" if one.progress.startswith("step") else f"{one.state}, {one.progress}")
        rows.append([f"{one.experiment}/{one.name}" if one.experiment else one.name, state_text,
                     f"{one.metric[0]} {one.metric[1].text(one.metric[0])}" if one.metric else "–",
                     formatting.duration(one.seconds) if one.seconds is not None else "–",
                     datetime.fromtimestamp(one.date).strftime("%Y-%m-%d %H:%M") if one.date else "–", formatting.size(one.size)])
    print_table(["run", "state", "metric", "training", "date", "size"], rows, right=(3, 5))


@runs_commands.command()
@reported
def clean(
    context: typer.Context,
    runs: Annotated[Path | None, typer.Option("--runs", metavar="DIR", help="Folder of all runs.", show_default="runs")] = None,
    moved: Annotated[bool, typer.Option("--moved", help="Also whole runs that --fresh moved aside (NAME~1, NAME~2, ...).")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go; remove nothing.")] = False,
) -> None:
    """Free the disk of what finished runs no longer need: the state of their training. Models, reports and logs stay."""
    from pipelines.base import formatting
    from pipelines.base.terminal import print_table
    from pipelines.runs import cleaning

    where = runs or context.obj or RUNS
    if not where.is_dir():
        raise ConfigError(f"{where}: there is no such folder; --runs DIR says where the runs are")
    leftovers = list(cleaning.find(where, moved=moved))
    refused = {one.path: reason for one in leftovers if (reason := None if dry_run else cleaning.remove(one))}
    gone = [one for one in leftovers if one.path not in refused]
    if gone:
        print_table(["", "what", "size"], [[str(one.path), one.why, formatting.size(one.size)] for one in gone], right=(2,))
    echo(f"{formatting.size(sum(one.size for one in gone))} {'would be' if dry_run else 'are'} free{'' if gone else ': nothing to remove'}")
    for reason in refused.values():
        echo(f"kept: {reason}")


@runs_commands.command()
@reported
def compare(
    context: typer.Context, names: Annotated[list[str], typer.Argument(metavar="RUN RUN...", show_default=False, help="Two or more runs.")],
    runs: Annotated[Path | None, typer.Option("--runs", metavar="DIR", help="Folder of all runs.", show_default="runs")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Settings that differ, metrics side by side, and whether the differences from the first run are more than chance."""
    from pipelines.base.terminal import print_table
    from pipelines.runs import comparing as comparing
    from pipelines.runs.listing import find_run

    comparison = comparing.compare([find_run(runs or context.obj or RUNS, name) for name in names])
    if as_json:
        from pipelines.base.files import finite

        echo(json_text(finite(comparing.as_json(comparison))))
        return
    columns, rows = comparing.settings_table(comparison)
    if rows:
        print_table(columns, rows)
    else:
        echo("No setting differs.")
    echo("")
    columns, rows = comparing.metrics_table(comparison)
    print_table(columns, rows)
    for note in comparison.notes:
        echo(f"\n{note}")

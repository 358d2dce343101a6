"""The commands that answer with finished runs: evaluate, predict, embed, nearest. Imports no TensorFlow until a command needs it."""

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.base.errors import ConfigError, DataError
from pipelines.base.terminal import Shielded
from pipelines.commands.shell import (
    RUNS,
    Batch,
    Reading,
    Replace,
    Run,
    Runs,
    Settings,
    echo,
    extensible,
    fail,
    finished,
    say,
    shown,
)
from pipelines.config import guard
from pipelines.runs.launcher import PredictCall, chosen
from pipelines.stores.remote import OutputFolder, file_for, local, named, refuse_existing, write_output
from pipelines.stores.remote import inputs as local_inputs

if TYPE_CHECKING:
    from pipelines.serving.load import LoadedRun

FORMATS = ("table", "csv", "jsonl", "text", "ctm", "parquet")


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
) -> None:
    """Judge a finished run on one of its splits or on other data. KEY=VALUE: evaluate.flip=true; with --data also data.label_key=class."""
    folder = finished(runs, run)
    from pipelines.reports import predictions

    if output is not None:
        predictions.writable(output)
        refuse_existing(output, replace)
    guard.confine(folder.report, file=output)
    from pipelines.machine.startup import start_tensorflow

    start_tensorflow()
    from pipelines.runs.in_store import put_back
    from pipelines.serving.evaluate import evaluate as judge
    from pipelines.serving.forms import open_run

    data = None if data is None else local(data, folder=True)
    evaluated = judge(open_run(folder), split=split, data=data, overrides=settings or (), say=say)
    put_back(folder)
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
        with file_for(output) as file:
            predictions.write(file, evaluated.judgement.predictions)
        echo(f"predictions  {shown(output)}")


@extensible()
def predict(
    run: Run, inputs: Annotated[list[str], typer.Argument(
        metavar="INPUT...", show_default=False,
        help="Files, folders or patterns; for texts also the text itself, or - for standard input.")],
    runs: Runs = RUNS,
    kind: Annotated[str | None, typer.Option(
        "--format", metavar="FORMAT", show_default="by --output, else table",
        help=f"How answers are written: {', '.join(FORMATS)}; of boxes also coco and yolo, of masks png, with --output.")] = None,
    output: Annotated[Path | None, typer.Option(
        "--output", "-o", metavar="FILE", show_default=False,
        help="A file, written whole; default: standard output. With --ray a folder, for parts as jsonl or parquet.")] = None,
    top: Annotated[int, typer.Option(
        "--top", min=0, metavar="N", show_default=False,
        help="Also the N best classes with their probabilities; of recommended items, the first N alone.")] = 0,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Also the probability of every class.")] = False,
    settings: Reading = None,
    files: Annotated[Path | None, typer.Option(
        metavar="DIR", show_default=False,
        help="A folder for answers that are bytes, such as pictures, as files; default: beside a CSV in NAME-files, else in JSON "
             "{\"b64\": ...}.")] = None,
    draw: Annotated[Path | None, typer.Option(
        metavar="DIR", show_default=False, help="A folder for the inputs with the answers drawn in them: boxes, masks.")] = None,
    replace: Replace = False,
    batch: Batch = None,
) -> None:
    """Answer new inputs. Those that cannot be read are named on stderr and have an error in the output; the rest is answered."""
    folder = finished(runs, run)
    launcher = chosen("predict")
    if launcher.elsewhere:
        guard.confine_none()
        refused = tuple(name for name, given in (("--files", files), ("--set", settings), ("--draw", draw)) if given)
        status = launcher.predict(PredictCall(folder, tuple(inputs), output, kind, top, probabilities, batch,
                                              replace, refused))
        if status:
            raise typer.Exit(status)
        return
    if kind == "parquet":
        raise ConfigError("--format: parquet needs --ray, and --output a folder")
    refuse_existing(output, replace)
    inputs = local_inputs(inputs)
    ending = output.suffix.lower().removeprefix(".") if output else ""
    follow = "-" in inputs  # then a line is answered when it comes, not when a page is full
    by_ending = {"csv": "csv", "jsonl": "jsonl", "ctm": "ctm", "txt": "text"}
    form = kind or by_ending.get(ending, "csv" if follow else "table")
    filed = _empty(files, "--files", replace) if files is not None else None
    pictured = _empty(draw, "--draw", replace) if draw is not None else None
    guard.confine(*(folder for folder in (files, draw) if folder is not None), file=output)
    from pipelines.machine.startup import start_tensorflow

    start_tensorflow()
    from pipelines.base.progress import followed
    from pipelines.serving.answer_files import drawn, to_files, write_format
    from pipelines.serving.forms import open_run
    from pipelines.serving.load import reading_as
    from pipelines.serving.output import WRITERS, Shown, by_address, counted, to_binary
    from pipelines.serving.predict import Predictor
    from pipelines.task.form import ending as ending_of

    predictor = Predictor(reading_as(open_run(folder, where=1), settings or ()), batch=batch)
    own = predictor.run.task.output.answers
    if form not in (*WRITERS, *own.formats):
        raise ConfigError(f"--format: {form!r} is none of {', '.join((*WRITERS, *own.formats))}")
    if form in own.formats and output is None:
        raise ConfigError(f"--format: {form} needs --output, a {'file' if own.formats[form].alone else 'folder'}")
    if draw is not None and own.draw is None:
        raise ConfigError(f"--draw: answers of {predictor.task} cannot be drawn in their inputs; leave it out")
    visible = Shown.of(predictor.columns, predictor.classes, top=top, every=probabilities, details=predictor.details,
                        ranked=predictor.ranked)
    if filed is None and output is not None and form == "csv" and any(map(ending_of, predictor.kinds.values())):
        filed = _empty(output.with_name(f"{output.stem}-files"), "--files", replace)  # a cell of base64 is of no use to anybody
    counts, began = {"answered": 0, "failed": 0}, time.perf_counter()
    answers = predictor.follow(inputs) if follow else predictor.predict(inputs)
    if pictured is not None and own.draw is not None:
        answers = drawn(answers, pictured, own.draw)
    if not follow and form not in own.formats:  # those look at the inputs again, or at their copies
        answers = by_address(answers, named)
    answers = counted(answers, counts, lambda one: fail(named(f"{one.name}: cannot be read: {one.error}")))
    if output is not None:
        answers = followed(answers, say, "answering")
    if filed is not None:
        answers = to_files(answers, filed, predictor.kinds)
    if output is not None:
        try:
            if form in own.formats:
                write_format(answers, own.formats[form], output)
            else:
                write_output(output, lambda file: to_binary(form, answers, visible, file))
        except OSError as error:
            raise DataError(f"--output: {output} cannot be written: {error.strerror or error}") from error
    else:
        if hasattr(sys.stdout, "reconfigure"):  # a pipe may have another encoding than these formats
            sys.stdout.reconfigure(encoding="utf-8", errors="replace")
        WRITERS[form](answers, visible, Shielded(sys.stdout) if sys.stdout.isatty() else sys.stdout)  # type: ignore[arg-type]
    seconds, total = time.perf_counter() - began, sum(counts.values())
    for note in predictor.run.task.input.requests.notes:
        say(note)
    if not total:
        raise DataError(f"{' '.join(inputs)}: no input is there")
    missed = f"; {counts['failed']:,} could not be read" if counts["failed"] else ""
    say(f"{counts['answered']:,} of {total:,} answered in {seconds:.1f} s, {total / seconds:,.0f} a second{missed}"
        + (f": {shown(output)}" if output else ""))
    if not counts["answered"]:
        raise typer.Exit(1)


def _empty(folder: Path, option: str, replace: bool) -> OutputFolder:
    """A folder for files of answers. Raises ConfigError where it has files that may not be replaced."""
    filed = OutputFolder(folder)
    if filed.names() and not replace:
        raise ConfigError(f"{option}: {filed} has files already; --replace writes over them")
    return filed


def open_encoder(runs: Path, what: str) -> tuple["LoadedRun", str]:
    """(the encoder of a run, or a preset by itself, on one device; the run's folder, or the preset as it was named). Starts TensorFlow.

    Raises:
        ConfigError: there is neither, or it has no pretrained encoder that makes one vector of an input.
    """
    from pipelines.runs.listing import find_run

    folder, unknown = None, ""
    try:
        folder = find_run(runs, what)
    except ConfigError as error:
        unknown = str(error)
        guard.check(what, "preset")
    if folder is not None:
        folder = finished(runs, what)
    from pipelines.machine.startup import start_tensorflow

    start_tensorflow()
    from pipelines.serving import embed as embedding
    from pipelines.serving.load import load_run

    try:
        loaded = embedding.one_by_one(load_run(folder, where=1)) if folder is not None else embedding.of_preset(what)
    except ConfigError as error:
        raise ConfigError(f"{unknown}\n{error}" if unknown else str(error)) from error
    embedding.require_encoder(loaded)
    return loaded, what if folder is None else str(folder.path.absolute())


@extensible()
def embed(
    run: Annotated[str, typer.Argument(
        metavar="RUN|PRESET", show_default=False,
        help="A run of a pretrained encoder; or the folder, name or handle of a preset.")],
    inputs: Annotated[list[str], typer.Argument(
        metavar="INPUT...", show_default=False, help="Files, folders or patterns; for texts also the text itself.")],
    output: Annotated[Path, typer.Option(
        "--output", "-o", metavar="FILE", show_default=False, help="A file, written whole: .npz, .parquet, .csv or .jsonl.")],
    runs: Runs = RUNS,
    settings: Reading = None,
    replace: Replace = False,
    batch: Batch = None,
) -> None:
    """Write the vector that a pretrained encoder makes of each input."""
    if output.exists() and not replace:
        raise ConfigError(f"--output: {output} is there already; --replace writes over it")
    from pipelines.machine.startup import start_tensorflow

    start_tensorflow()
    from pipelines.reports import predictions
    from pipelines.serving import embed as embedding

    predictions.writable(output, embedding.ENDINGS)
    loaded, name = open_encoder(runs, run)
    from pipelines.base.progress import followed
    from pipelines.serving.load import reading_as
    from pipelines.serving.output import counted
    from pipelines.serving.predict import Predictor

    counts = {"answered": 0, "failed": 0}
    answers = Predictor(reading_as(loaded, settings or ()), batch=batch, answer=embedding.vectors).predict(inputs)
    say(f"embedding    with {loaded.name if name != run else run}")
    vectors = counted(answers, counts, lambda one: fail(f"{one.name}: cannot be read: {one.error}"))
    embedding.write(output, followed(vectors, say, "embedding"))
    say(f"{counts['answered']:,} of {sum(counts.values()):,} vectors: {shown(output)}")


@extensible()
def nearest(
    run: Run, inputs: Annotated[list[str], typer.Argument(
        metavar="INPUT...", show_default=False, help="Files, folders or patterns; for texts also the text itself.")],
    runs: Runs = RUNS,
    count: Annotated[int, typer.Option("--count", min=1, metavar="N", help="Training examples shown of each input.")] = 3,
    settings: Reading = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines, for programs.")] = False,
    batch: Batch = None,
) -> None:
    """Show the training examples that are most like each input to a run's pretrained encoder, beside its answer."""
    folder = finished(runs, run)
    from pipelines.machine.startup import start_tensorflow

    start_tensorflow()
    from dataclasses import asdict

    from pipelines.serving.embed import Nearest, answered
    from pipelines.serving.load import load_run, reading_as
    from pipelines.serving.predict import Predictor

    loaded = load_run(folder, where=1)
    near = Nearest(loaded, say)
    for one in Predictor(reading_as(loaded, settings or ()), batch=batch, answer=answered).predict(inputs):
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

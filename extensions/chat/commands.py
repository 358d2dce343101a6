"""The command chat. Imports no TensorFlow until it needs it."""

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.base.errors import ConfigError, DataError
from pipelines.base.terminal import lines
from pipelines.commands.shell import RUNS, Reading, Runs, fail, finished, say

if TYPE_CHECKING:
    from pipelines.outputs.streams import Ended, Streams
    from pipelines.serving.load import LoadedRun

NEW = "/new"


def chat(
    model: Annotated[str, typer.Argument(
        metavar="RUN|PRESET", show_default=False, help="A run of nlp.dialogue; or the folder, name or handle of a preset for dialogues.")],
    system: Annotated[str | None, typer.Option(
        metavar="TEXT", show_default=False, help="A first message of the system; the same as --set writing.system=TEXT.")] = None,
    settings: Reading = None,
    runs: Runs = RUNS,
) -> None:
    """Talk with a language model: a message a line, answers as they are written. /new begins another dialogue, Ctrl-D ends."""
    from pipelines.outputs.streams import Streams

    run = opened(model, runs, [*(settings or ()), *([f"writing.system={system}"] if system else [])])
    writer = run.task.writer(run.model)
    if writer is None or not writer.dialogues:
        raise ConfigError(f"{model}: {run.task.experiment.task} does not talk; a run of nlp.dialogue does, and a preset that was "
                          "trained for dialogues")
    asked = sys.stdin.isatty()
    if asked:
        say(f"A message a line; {NEW} begins another dialogue, Ctrl-D ends.")
    streams = Streams(writer, rows=1)
    try:
        messages: list[dict[str, str]] = []
        while (line := _line(asked)) is not None:
            if line == NEW:
                messages = []
            elif line:
                messages += [{"role": "user", "content": line}]
                answer = _answered(streams, messages)
                messages = messages[:-1] if answer is None else [*messages, {"role": "assistant", "content": answer}]
    finally:
        streams.close()


def opened(model: str, runs: Path, settings: list[str]) -> "LoadedRun":
    """A run, or a preset as one that was never trained. Raises ConfigError."""
    from pipelines.runs.folder import RunFolder
    from pipelines.serving.forms import open_run
    from pipelines.serving.load import reading_as
    from pipelines.serving.presets import of_preset

    known = RunFolder(Path(model).expanduser()).begun or RunFolder(runs / model).begun
    run = open_run(finished(runs, model)) if known else of_preset(model, "talk", what="language model")
    return reading_as(run, settings)


def _line(asked: bool) -> str | None:
    if asked:
        typer.echo("> ", nl=False, err=True)
    line = sys.stdin.readline()
    if not line and asked:
        typer.echo("", err=True)
    return line.strip() if line else None


def _answered(streams: "Streams", messages: list[Any]) -> str | None:
    """The answer, printed as it comes; None where there is none."""
    done, pieces, errors = threading.Event(), list[str](), list[Exception]()

    def told(text: str, ended: "Ended | None") -> None:
        pieces.append(text)
        typer.echo(lines(text), nl=False)
        if ended:
            done.set()

    def failed(error: Exception) -> None:
        errors.append(error)
        done.set()

    try:
        stream = streams.write(streams.writer.prompt(messages), streams.writer.way, told, failed)
    except DataError as error:
        fail(str(error))
        return None
    try:
        done.wait()
    finally:
        stream.left = True
    typer.echo("")
    if errors:
        raise errors[0]
    return "".join(pieces)

"""The command line: `quartet` and, for one domain, `python -m vision.train` and `vision.tune`. No TensorFlow until a command needs it.

Exit status: 0 done, 1 failed, 2 wrong call or experiment, 75 another host is lost (start all again), 128 + n ended by signal n (resumable).
Expected failures are one message on stderr; anything else is a defect and keeps its traceback.
"""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from pipelines.base.terminal import json_text
from pipelines.commands import answering, drafting, runs, shipping, training
from pipelines.commands.shell import RUNS, Runs, add_command, echo
from pipelines.config import doors, registry
from pipelines.machine.startup import current_folder_last


def encoders(
    domain: Annotated[
        str | None, typer.Argument(metavar="[DOMAIN]", show_default=False, help="vision, nlp or speech; default: all.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """List pretrained encoders: those on this machine, and those that KerasHub can download."""
    from pipelines.machine.startup import start_tensorflow

    start_tensorflow(devices=False)
    from pipelines.commands.encoders import show
    from pipelines.encoders.listing import listed

    found = listed(domain)
    if as_json:
        echo(json_text([vars(one) for one in found]))
    else:
        show(found)


def doctor(
    runs: Runs = RUNS,
    card: Annotated[str | None, typer.Option(metavar="NAME", help="What a card that is not here will meet: H100, T4, 8.9.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Report what this machine can do, and what to fix. Exit status 1 only where something is broken."""
    from pipelines.commands import doctor as diagnosing

    findings = diagnosing.examine(runs, card)
    echo(json_text([vars(one) for one in findings]) if as_json else diagnosing.text(findings))
    if any(one.state == "broken" for one in findings):
        raise typer.Exit(1)


app = typer.Typer(
    name="quartet",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Train, judge and use models for images, speech, text and recommendation. CONFIG is a YAML file or a shipped experiment.",
)
registry.import_extensions()
for _function in (
    training.train, training.tune, answering.evaluate, answering.predict, answering.embed, answering.nearest,
    shipping.export, shipping.serve, drafting.check, training.prepare, drafting.new, drafting.race, encoders,
    runs.report, runs.lineage, doctor, drafting.schema,
):
    add_command(app, _function)
app.add_typer(runs.runs_commands(), name="runs")
for _entry in doors.COMMANDS.entries():
    add_command(app, _entry.load(), _entry.name)


def main(arguments: Sequence[str] | None = None) -> None:
    """`quartet`. Ends the process."""
    app(arguments)


def train_main(domain: str, arguments: Sequence[str] | None = None) -> None:
    """`python -m DOMAIN.train`: `quartet train` for experiments of that domain; without CONFIG its quick start. Ends the process."""
    current_folder_last()
    only = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    add_command(only, training.train)
    only(sys.argv[1:] if arguments is None else list(arguments), obj=domain, prog_name=f"python -m {domain}.train")


def tune_main(domain: str, arguments: Sequence[str] | None = None) -> None:
    """`python -m DOMAIN.tune`: `quartet tune` for experiments of that domain. Ends the process."""
    current_folder_last()
    only = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    add_command(only, training.tune)
    only(sys.argv[1:] if arguments is None else list(arguments), obj=domain, prog_name=f"python -m {domain}.tune")

"""The commands before training: check, new and schema."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.base.errors import ConfigError, QuartetError, TrainingError
from pipelines.base.terminal import json_text
from pipelines.commands.shell import (
    RUNS,
    Call,
    Runs,
    divided,
    echo,
    extensible,
    named,
    quoted,
    say,
    shown,
    to_copy,
)
from pipelines.config import guard
from pipelines.stores.remote import address_of

if TYPE_CHECKING:
    from pipelines.config.draft import Drafted
    from pipelines.tuning.race import Outcome

Minutes = Annotated[float, typer.Option(
    min=0.0, metavar="N", envvar="QUARTET_MINUTES", help="Time for trying ways to learn on folds of train; 0: none is tried.")]
Blend = Annotated[bool, typer.Option("--blend", help=(
    "Of images and recordings of classes: try also the weighted mean of a kernel machine and a frozen encoder, weights by folds; nothing "
    "else can be averaged."))]
Column = Annotated[str | None, typer.Option(metavar="COLUMN", show_default="guessed", help="The column of a table that holds it.")]


@extensible()
def check(
    arguments: Call = None,
    runs: Runs = RUNS,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", show_default="check.json among the experiment's runs", help="The findings, for programs."
        ),
    ] = None,
    encoder: Annotated[str | None, typer.Option(
        metavar="PRESET|none", show_default="the experiment's own, on a sample", help="The encoder that compares examples.")] = None,
) -> None:
    """Check an experiment, then read all its data once; trains nothing. Exit status 1 where training would stop."""
    from pipelines.config.load import load
    from pipelines.encoders.settings import PretrainedModel

    if output is None and address_of(runs):
        raise ConfigError("--runs: is in a store; give --output FILE for the findings")
    config, overrides = divided(arguments)
    loaded = load(config, overrides)
    target = output or runs / named(loaded) / "check.json"
    if guard.active() and encoder is None and not isinstance(getattr(loaded.experiment, "model", None), PretrainedModel):
        encoder = "none"  # not one that is at hand and that nobody has named
    guard.check_training(loaded.experiment, target, fresh=True)
    if encoder not in (None, "none"):
        guard.check(encoder, "preset")
    guard.confine(file=target)
    from pipelines.machine.startup import start_tensorflow

    start_tensorflow()
    from pipelines.base.files import write_json, write_whole
    from pipelines.base.terminal import console
    from pipelines.commands.check import check as read_all

    result = read_all(loaded.experiment, encoder, name=named(loaded))
    result.render(console())
    write_json(target, result.to_json())
    echo(f"findings     {shown(target)}")
    for file, description in result.descriptions.items():
        described = target.with_name(file if output is None else f"{output.stem}.{file}")
        write_json(described, description)
        echo(f"description  {shown(described)}")
    for file, content in result.pictures.items():
        drawn = target.with_name(file if output is None else f"{output.stem}.{file}")
        write_whole(drawn, content)
        echo(f"examples     {shown(drawn)}")
    if result.failed:
        raise typer.Exit(1)


@extensible()
def new(
    domain: Annotated[str, typer.Argument(metavar="DOMAIN", show_default=False, help="vision, speech, nlp or recsys.")],
    data: Annotated[Path, typer.Option(metavar="PATH", show_default=False, help="Your data: a folder or a file.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The experiment to write.")] = Path("experiment.yaml"),
    task: Annotated[str | None, typer.Option(metavar="TASK", show_default="by the data", help="Such as ranking or transcription.")] = None,
    user: Column = None,
    item: Column = None,
    rating: Column = None,
    time: Column = None,
    text: Column = None,
    label: Annotated[str | None, typer.Option("--label", "--target", metavar="COLUMN", show_default="by the data",
                                              help="What is learned: classes, labels or numbers.")] = None,
    split: Column = None,
    group: Column = None,
    file: Column = None,
    files: Annotated[str | None, typer.Option(metavar="PATTERN", show_default="looked for", help=(
        "Where the files lie that a table names, from its folder on, with {} for the column's value: 'images/{}.jpg'."))] = None,
    encoder: Annotated[str | None, typer.Option(
        metavar="PRESET|none", show_default="one at hand, where it gains", help="The pretrained encoder to begin from, or none.")] = None,
    minutes: Minutes = 3.0,
    blend: Blend = False,
    no_estimate: Annotated[bool, typer.Option("--no-estimate", help="Do not run a few steps to see how long training will take.")] = False,
) -> None:
    """Look at data, try what fits on parts of them, and write an experiment. Columns of a table that no option names are guessed; `none`:
    there is no such column."""
    from pipelines.base.files import write_whole
    from pipelines.config.draft import look

    if output.exists():
        raise ConfigError(f"--output: {output} is there already; give another name, or remove it")
    if blend and not minutes:
        raise ConfigError("--blend: whether a mean is better is tried within --minutes, which are 0")
    named = {"user": user, "item": item, "rating": rating, "time": time, "text": text, "label": label, "split": split, "group": group,
             "file": file, "files": files}
    columns = {role: column for role, column in named.items() if column is not None}
    drafted = look(domain, str(data), file=str(output), columns=columns, task=task, encoder=encoder, blend=blend)
    write_whole(output, _raced(drafted, minutes) if minutes and drafted.draft.ways is not tuple else drafted.text())
    echo(f"written      {shown(output)}")
    for what in ("check", "train"):
        echo(f"{what} it     {to_copy(f'{what} {quoted(output)}')}")
    if not no_estimate:
        _say_estimate(output)


def _raced(drafted: "Drafted", minutes: float) -> str:
    """The text of the experiment that wins, told line by line."""
    from pipelines.machine.startup import start_tensorflow

    start_tensorflow()
    from pipelines.tuning.proposing import propose

    echo(f"trying       ways to learn from these data, {minutes:g} minutes at most, on folds of train (--minutes 0 leaves it out)")
    proposal = propose(drafted, minutes, _said)
    _show(proposal.outcome)
    return proposal.text


def _said(line: str) -> None:
    say(f"             {line}")


def _show(outcome: "Outcome | None") -> None:
    for line in [*outcome.table(), *outcome.notes] if outcome else ():
        echo(f"             {line}")


@extensible()
def race(
    experiments: Annotated[list[str], typer.Argument(
        metavar="EXPERIMENT...", help="YAML files; a single one is compared with what `quartet new` would try on its data.")],
    minutes: Minutes = 3.0,
    blend: Blend = False,
    output: Annotated[Path | None, typer.Option(
        "--output", "-o", metavar="FILE", show_default="only the table", help="Where to write the winner.")] = None,
) -> None:
    """Compare experiments on the same folds of train: which learns best within some minutes? The test split is not read."""
    from pipelines.config.load import load

    if output is not None and output.exists():
        raise ConfigError(f"--output: {output} is there already; give another name, or remove it")
    if not minutes:
        raise ConfigError("--minutes: 0 leaves no time to try anything")
    loaded = [load(name) for name in experiments]
    if guard.active() and len(loaded) == 1:
        raise ConfigError("name two experiments or more: what `quartet new` would try reads encoders that nobody has named")
    for one in loaded:
        guard.check_training(one.experiment, Path(named(one)), fresh=True)
    from pipelines.machine.startup import start_tensorflow

    start_tensorflow()
    from pipelines.base.files import write_whole
    from pipelines.config.yaml_text import resolved_yaml
    from pipelines.tuning.proposing import others, run
    from pipelines.tuning.race import Entrant

    entrants = [Entrant(name, one.experiment) for name, one in zip(experiments, loaded)]
    if len(entrants) == 1:
        entrants = others(loaded[0], blend=blend) + entrants
    elif blend:
        raise ConfigError("--blend: takes one experiment, with which what `quartet new` would try is compared")
    outcome = run(entrants, minutes, _said)
    for line in [*outcome.table(), *outcome.notes]:
        echo(line)
    if outcome.winner is None:
        raise TrainingError("none of them could be tried; --minutes gives more time")
    if output is not None:
        write_whole(output, resolved_yaml(entrants[outcome.winner].experiment))
        echo(f"written      {shown(output)}")


def _say_estimate(path: Path) -> None:
    """What the experiment will take here; where that cannot be estimated, the reason, which training would give, too."""
    from pipelines.commands.estimate import estimate
    from pipelines.config.load import load
    from pipelines.machine.startup import start_tensorflow

    echo("measuring    a few steps, to say what training will take (--no-estimate leaves that out)")
    start_tensorflow()
    try:
        for what, text in estimate(load(str(path)).experiment, say):
            echo(f"{what:<12} {text}")
    except QuartetError as error:
        typer.echo(f"{'estimate':<12} not possible: {error}", err=True)


@extensible()
def schema(
    task: Annotated[
        str | None, typer.Argument(metavar="[TASK]", show_default=False, help="Such as vision.classification; default: all.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", show_default="standard output", help="A file.")] = None,
) -> None:
    """Write the JSON Schema of experiments, by which editors complete and check them."""
    from pipelines.base.files import write_whole
    from pipelines.config.reference import json_schema

    text = json_text(json_schema(task)) + "\n"
    if output is None:
        echo(text, end=False)
        return
    write_whole(output, text)
    echo(f"written      {shown(output)}; on top of an experiment: # yaml-language-server: $schema={output}")

"""The command line: `quartet` and, for one domain, `python -m vision.train` and `vision.tune`. No TensorFlow until a command needs it.

Exit status: 0 done, 1 failed, 2 wrong call or experiment, 75 another host is lost (start all again), 128 + n ended by signal n (resumable).
Expected failures are one message on stderr; anything else is a defect and keeps its traceback.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.base.errors import ConfigError, QuartetError
from pipelines.base.terminal import json_text
from pipelines.commands import answering, records, runs, shipping, trust
from pipelines.commands.cluster import OnRay, Ray, train_on_ray
from pipelines.commands.shell import (
    RUNS,
    RequireSignature,
    Runs,
    Sandbox,
    echo,
    extensible,
    keyed,
    quoted,
    reported,
    sandboxed,
    say,
    shown,
    tool,
)
from pipelines.machine.startup import current_folder_last
from pipelines.stores.address import address_of

if TYPE_CHECKING:
    from pipelines.config.load import Loaded

Call = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="CONFIG|KEY=VALUE",
        show_default=False,
        help="A YAML file or a shipped experiment such as vision/digits, then settings to change, such as train.epochs=3.",
    ),
]
Name = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        show_default=False,
        help="Name of the run or search; default: formed from the settings that are changed.",
    ),
]
Fresh = Annotated[
    bool,
    typer.Option("--fresh/--resume", show_default="resume", help="Begin anew (an existing run is moved aside), or resume."),
]
Column = Annotated[str | None, typer.Option(metavar="COLUMN", show_default="guessed", help="The column of a table that holds it.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only warnings and the result.")]


@reported
@keyed
@extensible()
def train(
    context: typer.Context,
    arguments: Call = None,
    runs: Runs = RUNS,
    name: Name = None,
    fresh: Fresh = False,
    quiet: Quiet = False,
    encrypt: Annotated[bool, typer.Option(
        "--encrypt", help="Encrypt a new run with the key of --age-key: weights, checkpoints, report, exports. Needs `trust`.")] = False,
    require_signature: RequireSignature = None,
    ray: Ray = None,
    workers: Annotated[int | None, typer.Option(
        min=1, metavar="N", show_default="1", help="With --ray: hosts that train together.")] = None,
    restarts: Annotated[int, typer.Option(
        min=0, metavar="N", help="With --ray: times that all are started again from the last checkpoint where one is lost.")] = 3,
) -> None:
    """Train, judge and report an experiment; the same command resumes an interrupted run."""
    from pipelines.base.encryption import require_key
    from pipelines.commands.run_summary import closing
    from pipelines.config.load import load, resolved_yaml
    from pipelines.runs.folder import run_folder, unfinished
    from pipelines.runs.signed import require_begun, require_named, require_signed

    def same(where: str) -> list[str]:
        """This call, for the workers of a cluster."""
        return [config or experiment, *overrides, "--runs", where, *(["--name", name] if name else ()), *(["--quiet"] if quiet else ())]

    config, overrides = divided(arguments)
    if encrypt:
        require_key("--encrypt: the new run")
    require_signed(config, require_signature)
    loaded = load(config, overrides, domain=context.obj)
    begun = None if overrides or name or fresh else unfinished(config)
    experiment = begun.experiment_name if begun else named(loaded)
    folder = begun or run_folder(runs, experiment, name, overrides)
    if encrypt and (ray is not None or address_of(runs)):
        raise ConfigError("--encrypt: not with --ray or runs in a store, where other machines would need the key")
    require_named(loaded.experiment.model_dump(mode="python"), folder.path, require_signature)
    if workers is not None and ray is None:
        raise ConfigError("--workers: needs --ray; other launchers start the command on each host (docs/cluster.md)")
    from pipelines.machine.hosts import named as hosts
    from pipelines.runs.in_store import here

    store, among = address_of(runs), hosts()
    if store and ray is not None:  # the workers hold it
        return train_on_ray(ray, loaded.experiment, folder, same(str(store)), workers=workers or 1, restarts=restarts, fresh=fresh,
                            runs=runs)
    with here(runs, loaded.experiment, folder, fresh=fresh, say=say, writes=among is None or among.number == 0) as folder:
        if not fresh:
            require_begun(folder, require_signature)
        if folder.trained and not fresh and among is None:
            # what needs no TensorFlow is checked without it: another experiment of that name, and the result of a finished run
            folder.claim(resolved_yaml(loaded.experiment))
            if folder.finished:
                echo(closing(folder, folder.read_report()))
                return
        if ray is not None:
            return train_on_ray(ray, loaded.experiment, folder, same(str(runs)), workers=workers or 1, restarts=restarts, fresh=fresh,
                                runs=runs)
        from pipelines.machine.startup import start_tensorflow

        start_tensorflow()
        from pipelines.runs.launch import launch

        try:
            report = launch(loaded.experiment, folder, experiment, fresh=fresh, quiet=quiet, encrypt=encrypt)
        except QuartetError as error:
            if fresh and error.exit_status > 128:
                error.args = (f"{error}, without --fresh",)  # "the same command resumes from here" would begin anew with it
            raise
    if report:  # of several hosts, the chief's
        echo(closing(folder, report))


@reported
@keyed
@extensible(devices=False)
def tune(
    context: typer.Context,
    arguments: Call = None,
    runs: Runs = RUNS,
    name: Name = None,
    workers: Annotated[int, typer.Option(min=1, metavar="N", help="Trials at a time; where there are GPUs, each has its own.")] = 1,
    fresh: Fresh = False,
    quiet: Quiet = False,
    encrypt: Annotated[bool, typer.Option(
        "--encrypt", help="Encrypt a new search and its runs with the key of --age-key. Needs `trust`.")] = False,
    require_signature: RequireSignature = None,
    ray: Ray = None,
) -> None:
    """Search the settings in the experiment's tune section; the same command resumes an interrupted search."""
    from pipelines.base.encryption import require_key
    from pipelines.config.load import load, resolved_yaml
    from pipelines.runs.folder import name_of, run_folder
    from pipelines.tuning import encrypted
    from pipelines.tuning.search_folder import SearchFolder
    from pipelines.tuning.signed import require_search

    config, overrides = divided(arguments)
    if encrypt:
        require_key("--encrypt: the new search")
    loaded = load(config, overrides, domain=context.obj)
    experiment = named(loaded)
    kept = [one for one in overrides if not one.startswith(("tune.trials=", "tune.minutes=", "tune.seeds=", "tune.compare="))]
    path = run_folder(runs, experiment, name or (f"search-{name_of(kept)}" if kept else "search")).path
    # what needs no TensorFlow is checked without it: a space that does not suit, another search of that name, the result of a finished one
    from pipelines.commands.search_summary import closing
    from pipelines.runs.in_store import folder_here
    from pipelines.tuning.search import prepared, search

    prepared(loaded.experiment)
    elsewhere = ray is not None or address_of(runs) is not None
    encrypted.refuse_elsewhere(encrypt and elsewhere)
    with folder_here(runs, path, [path.name], fresh=fresh, say=say) as path:
        folder = SearchFolder(path)
        require_search(folder, loaded.experiment.model_dump(mode="python"), require_signature, fresh=fresh)
        if not fresh:
            encrypted.check(folder, encrypt, elsewhere=elsewhere)
        if not fresh and folder.compared(resolved_yaml(loaded.experiment)) and folder.finished:
            echo(closing(folder, folder.read_report()), end=False)
            return
        from pipelines.machine.startup import start_tensorflow

        start_tensorflow(devices=False)
        if ray is None:
            report = search(loaded.experiment, folder, experiment, workers=workers, fresh=fresh, quiet=quiet, encrypt=encrypt)
        else:
            from pipelines.machine.ray_cluster import connected
            from pipelines.tuning.ray_trials import RayTrials

            with connected(ray, workers=workers):
                report = search(loaded.experiment, folder, experiment, workers=workers, fresh=fresh, quiet=quiet,
                                cluster=RayTrials(loaded.experiment, workers, say))
    echo(closing(folder, report), end=False)


@reported
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
        metavar="PRESET|none", show_default="one at hand, on a sample", help="The pretrained encoder that compares examples.")] = None,
    require_signature: RequireSignature = None,
    sandbox: Sandbox = False,
) -> None:
    """Check an experiment, then read all its data once; trains nothing. Exit status 1 where training would stop."""
    from pipelines.config.load import load
    from pipelines.runs.signed import require_named, require_signed

    if output is None and address_of(runs):
        raise ConfigError("--runs: is in a store; give --output FILE for the findings")
    config, overrides = divided(arguments)
    require_signed(config, require_signature)
    loaded = load(config, overrides)
    target = output or runs / named(loaded) / "check.json"
    asked = loaded.experiment.model_dump(mode="python")
    if require_signature is not None and encoder is None and not (asked.get("model") or {}).get("preset"):
        encoder = "none"  # not one that is at hand and that nobody has named
    require_named({**asked, **({"encoder": encoder} if encoder != "none" else {})}, target, require_signature)
    sandboxed(sandbox, None, target)
    from pipelines.machine.startup import start_tensorflow

    start_tensorflow()
    from pipelines.base.files import write_json
    from pipelines.base.terminal import console
    from pipelines.commands.check import check as read_all
    from pipelines.data.croissant import FILE as CROISSANT

    result = read_all(loaded.experiment, encoder, name=named(loaded))
    result.render(console())
    write_json(target, result.to_json())
    echo(f"findings     {shown(target)}")
    if result.description is not None:
        described = target.with_name(CROISSANT if output is None else f"{output.stem}.{CROISSANT}")
        write_json(described, result.description)
        echo(f"description  {shown(described)}: the data as Croissant describes them")
    if result.failed:
        raise typer.Exit(1)


@reported
@extensible()
def prepare(
    config: Annotated[str, typer.Argument(metavar="CONFIG", show_default=False,
                                          help="A YAML file or a shipped experiment such as vision/cifar10_cnn.")],
    output: Annotated[Path, typer.Argument(metavar="OUT", show_default=False, help="The folder to write.")],
    settings: Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE", show_default=False, help="Settings to change.")] = None,
    decoded: Annotated[bool, typer.Option("--decoded", help="Images as pixels of data.image_size: larger, and training decodes nothing.")
                       ] = False,
    quiet: Quiet = False,
) -> None:
    """Read an experiment's data once and write them ready to train from: quartet train CONFIG data.prepared=OUT."""
    from pipelines.config.load import load
    from pipelines.stores.output import folder_for

    loaded = load(config, settings or [])
    with folder_for(output) as target:
        from pipelines.machine.startup import start_tensorflow

        start_tensorflow()
        from pipelines.commands.prepare import prepared

        text = prepared(loaded.experiment, target, config, decoded=decoded, quiet=quiet, say=(lambda text: None) if quiet else say)
    echo(text.replace(str(target), str(address_of(output) or output)))


@reported
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
    label: Column = None,
    split: Column = None,
    group: Column = None,
    file: Column = None,
    encoder: Annotated[str | None, typer.Option(
        metavar="PRESET|none", show_default="one at hand, where it gains", help="The pretrained encoder to begin from, or none.")] = None,
    no_estimate: Annotated[bool, typer.Option("--no-estimate", help="Do not run a few steps to see how long training will take.")] = False,
) -> None:
    """Look at data and write an experiment for it. Columns of a table that no option names are guessed; `none`: there is no such column."""
    from pipelines.base.files import write_whole
    from pipelines.config.draft import new as draft

    if output.exists():
        raise ConfigError(f"--output: {output} is there already; give another name, or remove it")
    named = {"user": user, "item": item, "rating": rating, "time": time, "text": text, "label": label, "split": split, "group": group,
             "file": file}
    columns = {role: column for role, column in named.items() if column is not None}
    write_whole(output, draft(domain, str(data), file=str(output), columns=columns, task=task, encoder=encoder))
    echo(f"written      {shown(output)}")
    for what in ("check", "train"):
        echo(f"{what} it     {tool('quartet')} {what} {quoted(output)}")
    if not no_estimate:
        _say_estimate(output)


def _say_estimate(path: Path) -> None:
    """What the experiment will take here; where that cannot be estimated, the reason, which training would give, too."""
    from pipelines.commands.estimate import estimate
    from pipelines.config.load import load
    from pipelines.machine.startup import start_tensorflow

    echo("measuring    a few steps, to say what training will take (--no-estimate leaves that out)")
    start_tensorflow()
    try:
        for what, text in estimate(load(str(path)).experiment):
            echo(f"{what:<12} {text}")
    except QuartetError as error:
        typer.echo(f"{'estimate':<12} not possible: {error}", err=True)


@reported
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


@reported
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


@reported
def doctor(
    runs: Runs = RUNS,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Report what this machine can do, and what to fix. Exit status 1 only where something is broken."""
    from pipelines.commands import doctor as diagnosing

    findings = diagnosing.examine(runs)
    echo(json_text([vars(one) for one in findings]) if as_json else diagnosing.text(findings))
    if any(one.state == "broken" for one in findings):
        raise typer.Exit(1)


def named(loaded: "Loaded") -> str:
    """The experiment's name with its domain: vision/digits."""
    return loaded.name if "/" in loaded.name else f"{loaded.experiment.task.partition('.')[0]}/{loaded.name}"


def divided(arguments: Sequence[str] | None) -> tuple[str | None, list[str]]:
    """The experiment, or None where only settings are given, and the settings."""
    given = list(arguments or ())
    if given and ("=" not in given[0] or Path(given[0]).is_file()):
        return given[0], given[1:]
    return None, given


app = typer.Typer(
    name="quartet",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Train, judge and use models for images, speech, text and recommendation. CONFIG is a YAML file or a shipped experiment.",
)
app.command(cls=OnRay)(train)
app.command(cls=OnRay)(tune)
app.command()(answering.evaluate)
app.command(cls=OnRay)(answering.predict)
app.command()(answering.embed)
app.command()(answering.nearest)
app.command()(shipping.export)
app.command()(shipping.serve)
app.command()(shipping.prune)
app.command()(check)
app.command()(prepare)
app.command()(new)
app.command()(encoders)
app.add_typer(runs.runs_commands, name="runs")
app.command()(runs.report)
app.command()(records.register)
app.command()(records.push)
app.command()(trust.sign)
app.command()(trust.verify)
app.command()(trust.lineage)
app.command()(trust.encrypt)
app.command()(trust.decrypt)
app.command()(doctor)
app.command()(schema)


def main(arguments: Sequence[str] | None = None) -> None:
    """`quartet`. Ends the process."""
    app(arguments)


def train_main(domain: str, arguments: Sequence[str] | None = None) -> None:
    """`python -m DOMAIN.train`: `quartet train` for experiments of that domain; without CONFIG its quick start. Ends the process."""
    current_folder_last()
    only = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    only.command(cls=OnRay)(train)
    only(sys.argv[1:] if arguments is None else list(arguments), obj=domain, prog_name=f"python -m {domain}.train")


def tune_main(domain: str, arguments: Sequence[str] | None = None) -> None:
    """`python -m DOMAIN.tune`: `quartet tune` for experiments of that domain. Ends the process."""
    current_folder_last()
    only = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    only.command(cls=OnRay)(tune)
    only(sys.argv[1:] if arguments is None else list(arguments), obj=domain, prog_name=f"python -m {domain}.tune")

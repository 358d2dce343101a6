"""The commands about runs and searches that are there: report, and runs, runs clean, runs compare. Imports no TensorFlow."""

from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Annotated, get_args

import typer

from pipelines.base import stored
from pipelines.base.errors import ConfigError, DataError
from pipelines.base.terminal import json_text
from pipelines.commands.shell import RUNS, Replace, Run, Runs, add_command, echo, guarded, quoted, shown, surrounded, tool
from pipelines.config import guard
from pipelines.stores.remote import address_of
from pipelines.tuning.search_folder import SearchFolder


class Order(str, Enum):
    """What a list of runs is ordered by."""

    date = "date"
    name = "name"
    metric = "metric"
    duration = "duration"


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
        from pipelines.runs.comparing import write_comparison

        if output is None and address_of(runs):
            raise ConfigError("--runs: is in a store; give --output FILE for the page")
        target = output or runs / "compared.html"
        if target.exists() and not replace:
            raise ConfigError(f"--output: {target} is there already; give another name, or --replace to write over it")
        with guarded([find_run(runs, name) for name in names]) as folders:
            write_comparison(folders, target)
        echo(f"compared     {shown(target)}")
        return _opened(target, open_it)
    if output is not None:
        raise ConfigError("--output: is for several runs; the report of one is in its folder")
    search = next((one for one in (SearchFolder(Path(names[0])), SearchFolder(runs / names[0])) if one.begun), None)
    if search is not None:
        guard.check(search.path, "run")
        if not search.finished:
            raise ConfigError(f"{search.path}: the search is not finished; the command that began it resumes it")
        from pipelines.commands.search_summary import closing

        echo(closing(search, search.read_report()), end=False)
        return _opened(search.report / "report.html", open_it)
    folder = find_run(runs, names[0])
    page = folder.report / "report.html"
    with guarded([folder]) as (signed,):
        echo(headline(signed.read_report()))
        for other in sorted(signed.report.glob("*/report.json")):
            judged = stored.read(other, stored.Report).model_dump()
            echo(f"{other.parent.name}: {headline(judged)}")
    echo(f"report       {shown(page)}")
    if folder.tensorboard.is_dir():
        echo(f"TensorBoard  {tool('tensorboard')} --logdir {quoted(folder.tensorboard)}")
    return _opened(page, open_it)


def _opened(page: Path, wanted: bool) -> None:
    if wanted and typer.launch(page.resolve().as_uri()) != 0:
        raise DataError(f"no browser could be opened; the report is {page}")


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
    if address_of(where):
        raise ConfigError("--runs: is in a store; a finished run keeps no state of its training there unless train.keep_state says so")
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


def compare(
    context: typer.Context, names: Annotated[list[str], typer.Argument(metavar="RUN RUN...", show_default=False, help="Two or more runs.")],
    runs: Annotated[Path | None, typer.Option("--runs", metavar="DIR", help="Folder of all runs.", show_default="runs")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Settings that differ, metrics side by side, and whether the differences from the first run are more than chance."""
    from pipelines.base.terminal import print_table
    from pipelines.runs import comparing as comparing
    from pipelines.runs.listing import find_run

    with guarded([find_run(runs or context.obj or RUNS, name) for name in names]) as folders:
        comparison = comparing.compare(folders)
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


def lineage(
    run: Run, runs: Runs = RUNS,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show where a run comes from: data, code, settings, encoder, the runs that it was made from, signatures."""
    from pipelines.runs import lineage as tracing
    from pipelines.runs.listing import find_run

    found = tracing.lineage(find_run(runs, run))
    echo(json_text(found) if as_json else tracing.text(found))


def runs_commands() -> typer.Typer:
    """`quartet runs` and its commands."""
    app = typer.Typer(help="List and compare runs.", rich_markup_mode=None)
    app.callback(invoke_without_command=True)(surrounded(list_all, "runs"))
    add_command(app, clean, group="runs")
    add_command(app, compare, group="runs")
    return app

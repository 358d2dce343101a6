"""The commands that train: train and tune."""

from pathlib import Path
from typing import Annotated

import typer

from pipelines.base.errors import ConfigError, QuartetError
from pipelines.commands.cluster import Ray, train_on_ray
from pipelines.commands.shell import (
    RUNS,
    Call,
    Quiet,
    RequireSignature,
    Runs,
    divided,
    echo,
    extensible,
    keyed,
    named,
    say,
)
from pipelines.machine.ray_cluster import LOCAL
from pipelines.stores.address import address_of

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


def _require_here(key: Path | None, ray: str | None, runs: Path) -> None:
    """Raises ConfigError where other machines would read what only this one has verified."""
    if key is not None and ray is not None and (ray != LOCAL or address_of(runs)):
        raise ConfigError("--require-signature: not with a cluster of other machines or runs in a store that its workers hold: what they "
                          "read is not what is verified here; train on this machine, or on named hosts (docs/cluster.md)")


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
    require_signed(config, context.obj, require_signature)
    loaded = load(config, overrides, domain=context.obj)
    begun = None if overrides or name or fresh else unfinished(config)
    experiment = begun.experiment_name if begun else named(loaded)
    folder = begun or run_folder(runs, experiment, name, overrides)
    if encrypt and (ray is not None or address_of(runs)):
        raise ConfigError("--encrypt: not with --ray or runs in a store, where other machines would need the key")
    _require_here(require_signature, ray, runs)
    if workers is not None and ray is None:
        raise ConfigError("--workers: needs --ray; other launchers start the command on each host (docs/cluster.md)")
    from pipelines.machine.hosts import named as hosts
    from pipelines.runs.in_store import here

    store, among = address_of(runs), hosts()
    if store and ray is not None:  # the workers hold it
        return train_on_ray(ray, loaded.experiment, folder, same(str(store)), workers=workers or 1, restarts=restarts, fresh=fresh,
                            runs=runs)
    with here(runs, loaded.experiment, folder, fresh=fresh, say=say, writes=among is None or among.number == 0) as folder:
        require_named(loaded.experiment, folder.path, require_signature)
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
    from pipelines.runs.signed import require_signed
    from pipelines.tuning import encrypted
    from pipelines.tuning.search_folder import SearchFolder
    from pipelines.tuning.signed import require_search

    config, overrides = divided(arguments)
    if encrypt:
        require_key("--encrypt: the new search")
    _require_here(require_signature, ray, runs)
    require_signed(config, context.obj, require_signature)
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
        require_search(folder, loaded.experiment, require_signature, fresh=fresh)
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

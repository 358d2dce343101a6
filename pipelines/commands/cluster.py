"""The commands on a Ray cluster: the option that they share, `--ray` with or without an address, and `train` and `predict` there."""

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from pipelines.base.errors import ConfigError, DataError
from pipelines.commands.shell import fail, say, shown
from pipelines.config import extensions
from pipelines.config.doors import OPTIONS
from pipelines.config.schema import Experiment
from pipelines.machine.hosts import named as hosts
from pipelines.machine.ray_cluster import LOCAL, connected, is_address
from pipelines.runs.folder import RunFolder
from pipelines.stores.address import address_of
from pipelines.stores.copies import inputs as local_inputs
from pipelines.stores.copies import named
from pipelines.stores.output import OutputFolder

Ray = Annotated[str | None, typer.Option(
    "--ray", metavar="[ADDRESS]", show_default=False,
    help="Work on a Ray cluster: auto (this machine is a node of it), HOST:PORT of its head, or alone for a Ray of this machine.")]


@contextmanager
def _on_ray() -> Iterator[None]:
    yield


def with_address(arguments: Sequence[str]) -> list[str]:
    """`--ray` that no address follows becomes `--ray local`."""
    given = list(arguments)
    end = given.index("--") if "--" in given else len(given)
    for place in reversed(range(end)):
        if given[place] == "--ray" and not (place + 1 < end and is_address(given[place + 1])):
            given.insert(place + 1, LOCAL)
    return given


OPTIONS.add("ray", _on_ray, commands=("train", "tune", "predict", "prepare"), rewrite=with_address)


def train_on_ray(address: str, experiment: Experiment, folder: RunFolder, arguments: Sequence[str], *, workers: int, restarts: int,
                 fresh: bool, runs: Path) -> None:
    """`quartet train` with these arguments on the workers of a cluster. Ends the process where it fails, with its status."""
    from pipelines.runs.ray_training import RayTraining

    if hosts() is not None:
        raise ConfigError("--ray: TF_CONFIG or Slurm has named this training's hosts already; give the command once, without them")
    uses = extensions.environment(experiment).get(extensions.VARIABLE, "").split(os.pathsep)
    own = ["train", *arguments, *(part for name in uses if name for part in ("--use", name))]
    with connected(address, workers=workers):
        if fresh:  # here, once: the workers resume, however often they are started
            _move_aside(experiment, folder, runs)
        status = RayTraining(experiment.train, own, folder=os.getcwd(), workers=workers, restarts=restarts, say=say).run()
    if status:
        raise typer.Exit(status)


def _move_aside(experiment: Experiment, folder: RunFolder, runs: Path) -> None:
    if address_of(runs):
        from pipelines.runs.in_store import moved_aside

        return moved_aside(runs, experiment, folder, say)
    folder.move_aside()
    if experiment.seeds > 1:
        from pipelines.runs.seeds import one_seed, seed_folder

        for number in range(experiment.seeds):
            seed_folder(folder, one_seed(experiment, number).train.seed).move_aside()


def predict_on_ray(address: str, run: RunFolder, inputs: list[str], output: Path | None, kind: str | None, *, top: int, probabilities: bool,
                   batch: int | None, workers: int | None, replace: bool, require_signature: Path | None) -> None:
    """`quartet predict` on the workers of a cluster, into a folder of parts."""
    from pipelines.serving import ray_predict

    form = kind or "jsonl"
    if output is None or form not in ray_predict.FORMATS:
        raise ConfigError("--ray: answers are written in parts: give --output FOLDER, and --format jsonl or parquet")
    folder = OutputFolder(output)
    if "-" in inputs:
        raise ConfigError("--ray: standard input cannot be read again to go on; name files")
    here = local_inputs(inputs)
    from pipelines.machine.startup import start_tensorflow

    start_tensorflow(devices=False)
    from pipelines.serving.load import load_run

    task = load_run(run, where="cpu", require_signature=require_signature).task
    uses = tuple(name for name in extensions.environment(task.experiment).get(extensions.VARIABLE, "").split(os.pathsep) if name)
    key = str(require_signature.absolute()) if require_signature else None
    ask = ray_predict.Ask(named(str(run.path.absolute())), form, top, probabilities, batch, uses, key)
    model = hashlib.sha256()
    for file in sorted(run.model.rglob("*")):
        if file.is_file():
            model.update(file.read_bytes())
    record = {"run": ask.run, "model": model.hexdigest(), "inputs": inputs, "format": form, "top": top, "probabilities": probabilities}
    there, began = ray_predict.claim(folder, record, replace=replace), time.perf_counter()
    with connected(address, workers=workers or 1):
        reads = ((named(one[0]), *one[1:]) for one in task.read(here))
        done = ray_predict.predict(reads, ask, folder, there, workers=workers, say=say,
                                   failed=lambda name, why: fail(f"{name}: cannot be read: {why}"))
    for note in task.read_notes:
        say(note)
    if not done.parts:
        raise DataError(f"{' '.join(inputs)}: no input is there")
    seconds = time.perf_counter() - began
    missed = f"; {done.failed:,} could not be read" if done.failed else ""
    say(f"{done.answered:,} answered in {seconds:.1f} s{missed}: {done.parts:,} parts in {folder if address_of(output) else shown(output)}"
        + (f", {done.there:,} of them from before" if done.there else ""))
    if not done.answered and not done.there:
        raise typer.Exit(1)

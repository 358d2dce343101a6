"""The launcher of work on a Ray cluster, which the option --ray asks for."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from extensions.cluster.hosts import named
from extensions.cluster.options import Asked, asked
from extensions.cluster.ray_cluster import LOCAL, connected, uses
from pipelines.base.errors import ConfigError
from pipelines.base.progress import Say
from pipelines.commands.shell import say
from pipelines.config.schema import Experiment
from pipelines.runs.folder import RunFolder
from pipelines.runs.in_store import moved_aside, names_of
from pipelines.runs.launcher import Launcher, PredictCall, Processes, TrainCall
from pipelines.stores.remote import address_of


class OnRay(Launcher):
    """The workers of a cluster. All of them know the current folder and the folder of runs by the same names."""

    elsewhere = True

    def __init__(self, cluster: Asked):
        self.cluster, self.other_machines = cluster, cluster.address != LOCAL

    def train(self, call: TrainCall) -> int:
        from extensions.cluster.ray_training import RayTraining

        arguments = ["train", *call.arguments, *(part for name in uses(call.experiment) for part in ("--use", name))]
        workers = self.cluster.workers or 1
        with connected(self.cluster.address, workers=workers):
            if call.fresh:  # here, once: the workers resume, however often they are started
                _move_aside(call)
            return RayTraining(call.experiment.train, arguments, folder=os.getcwd(), workers=workers, restarts=self.cluster.restarts,
                               say=say).run()

    def predict(self, call: PredictCall) -> int:
        from extensions.cluster.ray_predict import answer_call

        return answer_call(call, self.cluster, say)

    @contextlib.contextmanager
    def trials(self, experiment: Experiment, workers: int, say: Say) -> Iterator[Processes]:
        from extensions.cluster.ray_trials import RayTrials

        with connected(self.cluster.address, workers=workers), RayTrials(experiment, workers, say) as trials:
            yield trials

    @contextlib.contextmanager
    def writers(self, say: Say) -> Iterator[Any]:
        from extensions.cluster.ray_prepare import RayWriters

        with connected(self.cluster.address, workers=self.cluster.workers or 1):
            yield RayWriters(self.cluster.workers, say).write


def on_ray(command: str) -> OnRay | None:
    """Where --ray is given. Raises ConfigError where hosts are named, too."""
    cluster = asked()
    if cluster is not None and command == "train" and named() is not None:
        raise ConfigError("--ray: TF_CONFIG or Slurm has named this training's hosts already; give the command once, without them")
    return OnRay(cluster) if cluster else None


def _move_aside(call: TrainCall) -> None:
    if address_of(call.runs):
        return moved_aside(call.runs, call.experiment, call.folder, say)
    for name in names_of(call.experiment, call.folder.path.name):
        RunFolder(call.folder.path.with_name(name)).move_aside()

"""A Ray cluster: connecting to it, and what a worker has of its nodes. Needs the extra `cluster`; imports Ray only when asked to."""

import contextlib
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.base.errors import ConfigError, HostLost
from pipelines.config import extensions
from pipelines.config.schema import Experiment
from pipelines.config.train_settings import Train, device_count
from pipelines.machine.memory import WORKERS

LOCAL = "local"
LATE = 30.0  # s that a network's file system may take to show what another machine wrote
_ADDRESS = re.compile(r"local|auto|[^\s:/=]+:\d{1,5}|\[[0-9A-Fa-f:.]+\]:\d{1,5}")
_OBJECTS = 128 << 20  # bytes of a local Ray's object store: next to nothing goes through it


@dataclass(frozen=True)
class Share:
    """What each worker has of a node."""

    cpus: int
    gpus: int

    def places(self, nodes: Sequence[Mapping[str, float]]) -> int:
        """Workers that the nodes have room for."""
        return sum(self.on(node) for node in nodes)

    def on(self, node: Mapping[str, float]) -> int:
        """Workers that a node has room for, by its processors ("CPU") and GPUs ("GPU")."""
        by_cpu = int(node.get("CPU", 0)) // self.cpus
        return min(by_cpu, int(node.get("GPU", 0)) // self.gpus) if self.gpus else by_cpu

    def environment(self, nodes: Sequence[Mapping[str, float]], workers: int) -> dict[str, str]:
        """Variables of the process of each of so many workers: its threads, and how many of them share a machine's memory."""
        sharing = max((min(self.on(node), workers) for node in nodes), default=1)
        return {"TF_NUM_INTRAOP_THREADS": str(self.cpus), WORKERS: str(max(1, sharing))}

    @property
    def resources(self) -> dict[str, float]:
        return {"CPU": self.cpus, **({"GPU": self.gpus} if self.gpus else {})}


def share(nodes: Sequence[Mapping[str, float]], workers: int, gpus: int | None = None) -> Share:
    """The largest share, first of GPUs and then of processors, of which the nodes hold so many workers; with too few processors for that,
    one processor.

    Args:
        gpus: of each worker; None: as many as there are for it.
    """
    most_gpus, most_cpus = (max((int(node.get(kind, 0)) for node in nodes), default=0) for kind in ("GPU", "CPU"))
    each = gpus if gpus is not None else next((n for n in range(most_gpus, 0, -1) if Share(1, n).places(nodes) >= workers),
                                              min(most_gpus, 1))
    return next((one for cpus in range(most_cpus, 0, -1) if (one := Share(cpus, each)).places(nodes) >= workers), Share(1, each))


def gpus_wanted(train: Train, nodes: Sequence[Mapping[str, float]]) -> int | None:
    """GPUs of each worker of a training; None: as many as there are for it."""
    if train.devices == "cpu" or not any(node.get("GPU") for node in nodes):
        return 0
    return device_count(train)


def is_address(text: str) -> bool:
    """Whether it is `local`, `auto` or HOST:PORT."""
    return _ADDRESS.fullmatch(text) is not None


@contextlib.contextmanager
def connected(address: str, *, workers: int) -> Iterator[None]:
    """Within, this process is connected to the cluster at `address`.

    Args:
        address: `auto`: the cluster that this machine is a node of; HOST:PORT of its head, from one of its nodes; `local`: one of this
            machine alone, started here and stopped afterwards, with room for so many workers.

    Raises:
        ConfigError: Ray is not installed, cannot start, or there is no such cluster.
    """
    try:
        import ray
    except ImportError as error:
        raise ConfigError(f"--ray needs the extra: pip install 'keras-quartet[cluster]' ({error})") from error
    if not is_address(address):
        raise ConfigError(f"--ray: {address!r} is no address; write auto (on a node of the cluster), HOST:PORT of its head, or --ray alone "
                          "for a Ray of this machine")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray warns otherwise that it will be so
    own: dict[str, Any] = {}
    with contextlib.ExitStack() as closing:
        if address == LOCAL:
            own = {"num_cpus": max(workers, os.cpu_count() or 1), "include_dashboard": False, "object_store_memory": _OBJECTS}
            closing.enter_context(_on_loopback())
        try:
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **own)
            _without_messages_on_stdout()
        except Exception as error:  # where a process of its own does not start, Ray raises no kind of its own
            what = "Ray does not start on this machine" if address == LOCAL else f"no Ray cluster answers at {address}"
            raise ConfigError(f"--ray: {what}: {next(iter(str(error).strip().splitlines()), repr(error))[:300]}") from None
        closing.callback(ray.shutdown)
        yield


@contextlib.contextmanager
def _on_loopback() -> Iterator[None]:
    """Within, a Ray that is started listens on 127.0.0.1 alone, as it does by itself where it has no clusters; else it would on every
    address of this machine, for whoever comes."""
    from ray._private import ray_constants as constants

    name, before = constants.ENABLE_RAY_CLUSTERS_ENV_VAR, constants.ENABLE_RAY_CLUSTER
    os.environ[name], constants.ENABLE_RAY_CLUSTER = "0", False  # for its processes, and for this one
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before
        del os.environ[name]


def _without_messages_on_stdout() -> None:
    """Ray prints the end of a worker on stdout, among answers, whatever log_to_driver says; each command reports it itself. Ray has
    no setting for that; a version without this switch prints as before."""
    import ray._private.worker

    ray._private.worker._worker_logs_enabled = False


def nodes() -> list[dict[str, float]]:
    """What each node of the cluster has that is there now: processors ("CPU"), GPUs ("GPU") and more.

    Raises:
        HostLost: the cluster's head is gone.
    """
    import ray

    try:
        return [dict(node["Resources"]) for node in ray.nodes() if node["Alive"]]
    except (ray.exceptions.RayError, ConnectionError, RuntimeError) as error:
        raise HostLost(f"Ray's head does not answer ({error}); the same command resumes from the last checkpoint") from None


def uses(experiment: Experiment) -> tuple[str, ...]:
    """Files and modules of the person's own that are in use here, as --use names them.

    Raises:
        ConfigError: something is defined in the program itself, which workers cannot import.
    """
    return tuple(name for name in extensions.environment(experiment).get(extensions.VARIABLE, "").split(os.pathsep) if name)

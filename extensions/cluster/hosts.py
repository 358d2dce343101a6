"""The hosts that train together, as a launcher names them: by TF_CONFIG (Kubernetes and others) or by Slurm's variables of a step.

Only the environment is read: nothing is asked of the network. Imports no TensorFlow.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.base.errors import ConfigError
from pipelines.base.json_text import parse_json

_STEP = ("SLURM_STEP_NODELIST", "SLURM_PROCID", "SLURM_JOB_ID")
PORTS = range(12_000, 28_000)  # chosen here, not by a launcher: below those that the system gives to outgoing connections


@dataclass(frozen=True)
class Hosts:
    """All hosts of one training.

    Attributes:
        addresses: host:port of each; the first is the chief's, which writes the run.
        number: this host's place among them.
    """

    addresses: tuple[str, ...]
    number: int


def named(environment: Mapping[str, str] = os.environ) -> Hosts | None:
    """The hosts that the environment names; None where this one trains alone.

    Raises:
        ConfigError: variables that are incomplete or contradict each other.
    """
    if environment.get("TF_CONFIG", "").strip():
        return _of_tf_config(environment["TF_CONFIG"])
    tasks = environment.get("SLURM_STEP_NUM_TASKS", "1")
    return _of_slurm(environment, tasks) if tasks != "1" else None


def _of_tf_config(text: str) -> Hosts | None:
    try:
        config = parse_json(text)
        cluster, task = config.get("cluster") or {}, config.get("task") or {}
        groups = {kind: list(cluster[kind]) for kind in cluster}
    except (ValueError, AttributeError, TypeError):
        raise ConfigError(f"TF_CONFIG: not JSON of a cluster and a task: {text[:200]}") from None
    if not groups:
        return None
    other = sorted(set(groups) - {"chief", "worker"})
    if other:
        raise ConfigError(f"TF_CONFIG: cluster.{other[0]}: only chief and worker train here; leave it out")
    kind, index = task.get("type"), task.get("index")
    if kind not in groups or type(index) is not int or not 0 <= index < len(groups[kind]):
        raise ConfigError(f"TF_CONFIG: task {json.dumps(task)} is none of its cluster ("
                          f"{', '.join(f'{len(each)} {name}' for name, each in groups.items())})")
    if len(groups.get("chief", [])) > 1:
        raise ConfigError(f"TF_CONFIG: cluster.chief: {len(groups['chief'])} chiefs; name one, and the others as workers")
    addresses = [*groups.get("chief", []), *groups.get("worker", [])]
    first = len(groups.get("chief", [])) if kind == "worker" else 0
    return _checked(addresses, first + index, "TF_CONFIG")


def _checked(addresses: list[Any], number: int, source: str) -> Hosts | None:
    for address in addresses:
        if not isinstance(address, str) or not re.fullmatch(r"\[[0-9A-Fa-f:.]+\]:\d{1,5}|[^\s:\[\]]+:\d{1,5}", address):
            raise ConfigError(f"{source}: {address!r} is no address; write host:port")
    if len(set(addresses)) < len(addresses):
        raise ConfigError(f"{source}: an address stands there twice: {', '.join(addresses)}")
    return Hosts(tuple(addresses), number) if len(addresses) > 1 else None


def _of_slurm(environment: Mapping[str, str], tasks: str) -> Hosts | None:
    """Hosts of a step of `srun`, one task each; all use one port, which the job's number gives."""
    missing = [name for name in _STEP if not environment.get(name)]
    if missing:
        raise ConfigError(f"SLURM_STEP_NUM_TASKS is {tasks}, and {missing[0]} is not set: start the command by srun")
    nodes = expanded(environment["SLURM_STEP_NODELIST"])
    if tasks != str(len(nodes)):
        raise ConfigError(f"Slurm started {tasks} tasks on {len(nodes)} node{'s' * (len(nodes) != 1)}: give srun --ntasks-per-node=1 "
                          "(one task trains on all GPUs of its node)")
    try:
        number, job, step = (int(environment.get(name, "0")) for name in ("SLURM_PROCID", "SLURM_JOB_ID", "SLURM_STEP_ID"))
    except ValueError as error:
        raise ConfigError(f"SLURM_PROCID, SLURM_JOB_ID, SLURM_STEP_ID: {error}") from None
    if not 0 <= number < len(nodes):
        raise ConfigError(f"SLURM_PROCID: {number} is none of {tasks} tasks")
    port = PORTS[(job * 16 + step) % len(PORTS)]
    return _checked([f"{node}:{port}" for node in nodes], number, "SLURM_STEP_NODELIST")


def expanded(nodes: str) -> list[str]:
    """Names of nodes as Slurm abbreviates them: `a[01-03,7],b` -> a01, a02, a03, a7, b.

    Raises:
        ConfigError: no such list.
    """
    names: list[str] = []
    for part in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", nodes):
        combined = [""]
        for text, numbers in re.findall(r"([^\[\]]+)|\[([^\]]*)\]", part):
            combined = [head + each for head in combined for each in ([text] if text else _numbers(numbers, nodes))]
        names += combined
    if not names or nodes.count("[") != nodes.count("]"):
        raise ConfigError(f"SLURM_STEP_NODELIST: {nodes!r} is no list of nodes")
    return names


def _numbers(text: str, nodes: str) -> list[str]:
    values: list[str] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            raise ConfigError(f"SLURM_STEP_NODELIST: {nodes!r} is no list of nodes")
        values += [f"{number:0{len(first)}d}" for number in range(int(first), int(last or first) + 1)]
    return values

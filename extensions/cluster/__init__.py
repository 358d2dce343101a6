"""Trainings on several hosts, and all work on a Ray cluster: train, tune, predict, prepare. docs/cluster.md shows each.

Hosts are those that the environment names (TF_CONFIG, Slurm); the option --ray names a cluster. Imports neither TensorFlow nor Ray.
"""

from extensions.cluster.options import with_address
from pipelines.config.doors import LAUNCHERS, OPTIONS

LAUNCHERS.add("hosts", "extensions.cluster.hosts_launcher:on_hosts")
LAUNCHERS.add("ray", "extensions.cluster.ray_launcher:on_ray")
for _command in ("train", "tune", "predict", "prepare"):
    OPTIONS.add(f"ray of {_command}", f"extensions.cluster.options:{_command}", commands=(_command,), rewrite=with_address)

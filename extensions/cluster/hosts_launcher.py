"""The launcher of a training on the hosts that the environment names: each was started with the same command."""

import contextlib
from collections.abc import Mapping

from extensions.cluster.hosts import Hosts, named
from pipelines.machine import startup
from pipelines.machine.group import Group
from pipelines.runs.launcher import Launcher


class OnHosts(Launcher):
    """This host among the others."""

    several = True

    def __init__(self, hosts: Hosts):
        self.hosts, self.chief = hosts, hosts.number == 0
        startup.quiet_level = startup.SILENT  # TensorFlow says of a lost host in many lines what the group says in one

    def group(self, facts: Mapping[str, str]) -> contextlib.AbstractContextManager[Group]:
        from extensions.cluster.host_group import joined

        return joined(self.hosts, facts)


def on_hosts(command: str) -> OnHosts | None:
    """For a training, where the environment names several hosts. Raises ConfigError for variables that are wrong."""
    hosts = named() if command == "train" else None
    return OnHosts(hosts) if hosts else None

"""A Ray cluster of several nodes on this machine, in processes of its own, for tests: nodes come and are killed.

Run as a program it starts one with a node of 1 CPU for each worker, and takes `add` and `kill` (of the newest node) on stdin.
"""

import contextlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests import processes

extra = pytest.mark.skipif(not importlib.util.find_spec("ray") and not os.environ.get("QUARTET_REQUIRE_EXTRAS"),
                           reason="the extra `cluster` is not installed")


class Nodes:
    """The cluster, from outside."""

    def __init__(self, process: subprocess.Popen):
        self._process = process
        self.address = self._said()

    def add(self) -> None:
        self._ask("add")

    def kill(self) -> None:
        """The newest node, as if its machine had lost its power."""
        self._ask("kill")

    def _ask(self, what: str) -> None:
        assert self._process.stdin
        print(what, file=self._process.stdin, flush=True)
        assert self._said() == what

    def _said(self) -> str:
        assert self._process.stdout and self._process.stderr
        said = self._process.stdout.readline().strip()
        assert said, f"the cluster has ended: {self._process.stderr.read()[-3000:]}"
        return said


@contextlib.contextmanager
def cluster(nodes: int) -> Iterator[Nodes]:
    """A cluster of so many nodes of 1 CPU, beside a head that has none."""
    environment = {**processes.environment(), "RAY_USAGE_STATS_ENABLED": "0"}
    process = subprocess.Popen([sys.executable, "-m", "extensions.cluster.tests.ray_nodes", str(nodes)], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=processes.ROOT, env=environment)
    try:
        yield Nodes(process)
    finally:
        assert process.stdin
        process.stdin.close()
        process.wait(60)


def serve(count: int) -> None:
    from ray.cluster_utils import Cluster

    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Ray prints is no reply
    small = {"object_store_memory": 100 << 20, "include_dashboard": False}
    there = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **small})
    nodes = [there.add_node(num_cpus=1, **small) for _ in range(count)]
    print(there.address, file=replies, flush=True)
    for line in sys.stdin:
        if line.strip() == "add":
            nodes.append(there.add_node(num_cpus=1, **small))
        else:
            there.remove_node(nodes.pop(), allow_graceful=False)
        print(line.strip(), file=replies, flush=True)
    there.shutdown()


if __name__ == "__main__":
    serve(int(sys.argv[1]))

"""Hosts as launchers name them, and their group without TensorFlow: they meet or say who is missing, agree, and notice a loss."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import psutil
import pytest
import yaml
from ml_dtypes import bfloat16

from extensions.cluster import hosts_launcher
from extensions.cluster.arrays import packed, unpacked
from extensions.cluster.heartbeats import SILENCE
from extensions.cluster.host_group import HostGroup
from extensions.cluster.hosts import Hosts, expanded, named
from extensions.cluster.rendezvous import meet
from pipelines.base.errors import ConfigError, HostLost
from pipelines.machine import startup
from pipelines.training import still
from tests import processes
from tests.waiting import until

A, B, C = "a:1", "b:1", "c:1"


def tf_config(cluster, kind, index) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})}


def slurm(**changes: str) -> dict[str, str]:
    return {"SLURM_STEP_NODELIST": "node[08-10]", "SLURM_STEP_NUM_TASKS": "3", "SLURM_PROCID": "2", "SLURM_JOB_ID": "77",
            "SLURM_STEP_ID": "0", **changes}


def test_hosts_are_those_of_tf_config():
    assert named({}) is None and named({"TF_CONFIG": "{}"}) is None
    assert named(tf_config({"worker": [A]}, "worker", 0)) is None
    assert named(tf_config({"worker": [A, B]}, "worker", 1)) == Hosts((A, B), 1)
    assert named(tf_config({"chief": [C], "worker": [A, B]}, "worker", 1)) == Hosts((C, A, B), 2)
    assert named(tf_config({"chief": [C], "worker": [A, B]}, "chief", 0)) == Hosts((C, A, B), 0)


@pytest.mark.parametrize(("environment", "message"), [
    ({"TF_CONFIG": "worker"}, "not JSON"),
    ({"TF_CONFIG": "[" * 100_000}, "not JSON"),
    ({"TF_CONFIG": "[]"}, "not JSON"),
    (tf_config({"worker": [A, B]}, "worker", 2), "none of its cluster (2 worker)"),
    (tf_config({"worker": [A, B], "ps": [C]}, "worker", 0), "cluster.ps"),
    (tf_config({"worker": [A, "b"]}, "worker", 0), "'b' is no address"),
    (tf_config({"worker": [A, A]}, "worker", 0), "stands there twice"),
    (slurm(SLURM_STEP_NUM_TASKS="6"), "6 tasks on 3 nodes: give srun --ntasks-per-node=1"),
    (slurm(SLURM_PROCID=""), "SLURM_PROCID is not set"),
    (slurm(SLURM_PROCID="3"), "none of 3 tasks"),
    (slurm(SLURM_STEP_NODELIST="node[8"), "no list of nodes"),
])
def test_variables_that_name_no_hosts_are_one_error(environment, message):
    with pytest.raises(ConfigError) as error:
        named(environment)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_hosts_are_those_of_a_slurm_step():
    assert expanded("a[01-03,7],b,c[1-2]-x[0-1]") == ["a01", "a02", "a03", "a7", "b", "c1-x0", "c1-x1", "c2-x0", "c2-x1"]
    assert named(slurm(SLURM_STEP_NUM_TASKS="1")) is None
    found = named(slurm())
    port = found.addresses[0].partition(":")[2]
    assert found == Hosts(tuple(f"node{number}:{port}" for number in ("08", "09", "10")), 2)
    assert named(slurm(SLURM_JOB_ID="78")).addresses != found.addresses


def free(count: int) -> tuple[str, ...]:
    with contextlib.ExitStack() as open_:
        taken = [open_.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return tuple(f"127.0.0.1:{each.getsockname()[1]}" for each in taken)


def each(count: int, work) -> list:
    """What `work(number)` returns or raises in a thread for each host."""
    found: list = [None] * count

    def run(number: int) -> None:
        try:
            found[number] = work(number)
        except Exception as error:
            found[number] = error

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return found


def test_hosts_that_met_exchange_values_and_arrays():
    addresses = free(3)

    def work(number: int) -> list:
        if number == 3:
            return stranger(addresses[0])
        hosts = Hosts(addresses, number)
        made = HostGroup(hosts, meet(hosts, {"the experiment": "same"}, deadline=20.0))
        try:
            arrays = made.to_chief({"ids": np.full(100_000, number)})
            result = [made.of_all(number), made.of_chief({"chief": number}), arrays, made.of_chief(b"of %d" % number)]
            made.of_all(None)
            return result
        finally:  # whatever became of it: the others would take it for lost, and end this process
            made.leave(None)

    for number, (every, chief, arrays, content) in enumerate(each(4, work)[:3]):
        assert every == [0, 1, 2] and chief == {"chief": 0} and content == b"of 0"
        assert [set(one["ids"].tolist()) for one in arrays] == ([{0}, {1}, {2}] if number == 0 else [])


def test_a_checkpoint_goes_to_the_other_hosts_with_the_file_that_it_names(tmp_path):
    part = still.Part(file="still-1.npz", sums={}).model_dump_json().encode()
    np.savez(tmp_path / "resume.npz", **{still.ENTRY: np.frombuffer(part, np.uint8)})
    np.savez(tmp_path / "still-1.npz", frozen=np.arange(5))
    addresses = free(2)

    def work(number: int) -> list:
        hosts = Hosts(addresses, number)
        made = HostGroup(hosts, meet(hosts, {"the experiment": "same"}, deadline=20.0))
        with still.of_chief(made, tmp_path / "resume.npz" if number == 0 else tmp_path / "elsewhere" / "resume.npz") as path:
            with np.load(path.parent / "still-1.npz") as stored:
                values = stored["frozen"].tolist()
            place = path.parent
        made.of_all(None)
        made.leave(None)
        return [values, place, place.exists()]

    (one, here, _), (other, there, left) = each(2, work)
    assert one == other == [0, 1, 2, 3, 4] and here == tmp_path != there and not left


def stranger(address: str) -> None:
    """Asks the chief for a web page."""
    def asked() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(connectable(address)) as connection:
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return True
        return False

    until(asked)


def connectable(address: str) -> tuple[str, int]:
    host, _, port = address.partition(":")
    return host, int(port)


def test_another_experiment_is_an_error_on_all_hosts_that_names_host_and_line():
    addresses = free(3)
    texts = ["train:\n  epochs: 3\n  seed: 0", "train:\n  epochs: 3\n  seed: 0", "train:\n  epochs: 5\n  seed: 0"]
    found = each(3, lambda number: meet(Hosts(addresses, number), {"the experiment": texts[number]}, deadline=20.0))
    for error in found:
        assert isinstance(error, ConfigError)
        assert f"host 2 ({addresses[2]}) differs in the experiment: epochs: 5 there, epochs: 3 on host 0" in str(error)


def test_a_follower_that_never_comes_is_named_on_all_hosts():
    addresses = free(3)
    found = each(2, lambda number: meet(Hosts(addresses, number), {}, deadline=1.5))
    for error in found:
        assert isinstance(error, HostLost) and error.exit_status == 75
        assert f"host 2 ({addresses[2]}) did not come within 2 s" in str(error)


def test_a_chief_that_never_comes_is_named():
    addresses = free(2)
    with pytest.raises(HostLost, match=rf"host 0 \({addresses[0]}\), where the hosts meet, did not come within 1 s"):
        meet(Hosts(addresses, 1), {}, deadline=1.0)


def test_a_port_in_use_is_an_error_at_once():
    addresses = free(2)
    with socket.create_server(connectable(addresses[1])), pytest.raises(ConfigError, match="does another training run here"):
        meet(Hosts(addresses, 1), {}, deadline=5.0)


def test_arrays_travel_as_they_are():
    given = {"probabilities": np.arange(6, dtype=np.float32).reshape(2, 3).T, "names": np.array([b"a\0", b"", b"\xff"], object),
             "half": np.array([1.5, -2.0], bfloat16), "none": np.zeros((0, 4), np.int64), "texts": np.array(["ä", "bc"]),
             "one": np.array(True)}
    for name, array in unpacked(packed(given)).items():
        assert array.dtype == given[name].dtype and array.shape == given[name].shape
        assert array.tolist() == given[name].tolist()


HOST = """
import sys, time
from extensions.cluster.host_group import joined
from extensions.cluster.hosts import named
from pipelines.base.errors import QuartetError
with joined(named(), {}, deadline=20.0) as hosts:
    hosts.of_all(None)
    print("met", flush=True)
    WORK
"""


def start(work: str, count: int, addresses: tuple[str, ...], *, inside: tuple[list[str], ...] = (), met: bool = True,
          ) -> list[subprocess.Popen]:
    """A process for each host that does the work once they have met; `inside` are commands that begin each in its network.

    With `met`, returns when all have met; a host may fail before another knows that they have.
    """
    started = []
    for number in range(count):
        environment = {**os.environ, **tf_config({"worker": list(addresses)}, "worker", number)}
        started.append(subprocess.Popen([*(inside[number] if inside else []), sys.executable, "-c", HOST.replace("WORK", work)], text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment))
    for process in started if met else ():
        assert process.stdout.readline() == "met\n", process.communicate()
    return started


def test_an_error_on_one_host_ends_all_with_its_status_and_line():
    started = start("if hosts.number == 1: raise QuartetError('no room')\n    hosts.of_all(None)", 3, free(3), met=False)
    ends = [(process.communicate(timeout=30)[1], process.returncode) for process in started]
    assert [status for _, status in ends] == [1, 1, 1]
    for number in (0, 2):
        assert "host 1 (127.0.0.1:" in ends[number][0] and ends[number][0].strip().endswith("no room")


@pytest.mark.slow
def test_a_stopped_host_is_lost_within_15_seconds():
    started = start("time.sleep(60)", 3, free(3))
    try:
        started[1].send_signal(signal.SIGSTOP)
        began = time.monotonic()
        for number in (0, 2):
            _, errors = started[number].communicate(timeout=30)
            assert time.monotonic() - began <= 15.0
            assert started[number].returncode == 75
            assert len(errors.splitlines()) == 1 and "host 1 (127.0.0.1:" in errors and "no sign of life" in errors
        started[1].send_signal(signal.SIGCONT)
        assert started[1].wait(timeout=30) == 75
    finally:
        for process in started:
            process.kill()


@pytest.mark.slow
def test_a_host_is_alive_while_a_library_keeps_its_python_busy():
    longer = f"hosts.number and ctypes.PyDLL(None).sleep({SILENCE + 4:.0f})"  # without letting go of Python's lock
    for process in start(f"import ctypes; {longer}; hosts.of_all(None)", 2, free(2)):
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors


def test_the_process_that_shows_that_a_host_lives_ends_with_it_and_it_with_that():
    started = start("time.sleep(60)", 3, free(3))
    beside = [psutil.Process(process.pid).children() for process in started]
    assert [len(each) for each in beside] == [1, 1, 1]
    try:
        beside[1][0].kill()
        ends = [(process.communicate(timeout=30)[1], process.returncode) for process in started]
    finally:
        for process in started:
            process.kill()
    assert [status for _, status in ends] == [75, 75, 75]
    assert "the process that shows the other hosts that this one lives has ended" in ends[1][0]
    until(lambda: all(over(each) for (each,) in beside))


def over(process: psutil.Process) -> bool:
    """Whether it has ended, even if nobody has asked how."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def networks():
    """Two network namespaces, joined by a bridge in a third, without a way out; names and addresses."""
    if os.geteuid() or not shutil.which("ip"):
        pytest.skip("network namespaces need root and the command ip")
    mark = f"q{os.getpid()}"
    hub, ends = f"{mark}b", [f"{mark}h{number}" for number in range(2)]

    def ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True)

    try:
        for name in (hub, *ends):
            ip("netns", "add", name)
        ip("-n", hub, "link", "add", "bridge", "type", "bridge")
        ip("-n", hub, "link", "set", "bridge", "up")
        for number, name in enumerate(ends):
            ip("-n", hub, "link", "add", f"port{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("-n", hub, "link", "set", f"port{number}", "master", "bridge", "up")
            ip("-n", name, "address", "add", f"10.77.0.{number + 1}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield hub, ends, [f"10.77.0.{number + 1}" for number in range(2)]
    finally:
        for name in (hub, *ends):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


@pytest.mark.slow
@pytest.mark.skipif("CI" in os.environ, reason="network namespaces are made outside of CI only")
def test_a_cut_link_ends_both_hosts_within_15_seconds(networks):
    hub, ends, addresses = networks
    inside = tuple(["ip", "netns", "exec", name] for name in ends)
    started = start("time.sleep(60)", 2, tuple(f"{address}:2222" for address in addresses), inside=inside)
    try:
        subprocess.run(["ip", "-n", hub, "link", "set", "port1", "down"], check=True)
        began = time.monotonic()
        for number, process in enumerate(started):
            _, errors = process.communicate(timeout=30)
            assert time.monotonic() - began <= 15.0
            assert process.returncode == 75
            assert f"host {1 - number} ({addresses[1 - number]}:2222) is lost" in errors
    finally:
        for process in started:
            process.kill()


def test_the_pods_of_the_example_for_kubernetes_name_their_hosts():
    text = (processes.ROOT / "deploy" / "jobset.yaml").read_text(encoding="utf-8")
    jobset = yaml.safe_load(text)
    job = jobset["spec"]["replicatedJobs"][0]
    spec = job["template"]["spec"]
    container = spec["template"]["spec"]["containers"][0]
    environment = {each["name"]: each["value"] for each in container["env"]}
    assert int(environment["HOSTS"]) == spec["parallelism"] == spec["completions"]
    script, _, command = container["args"][0].partition("exec ")
    assert command.startswith("quartet train")
    for number in range(spec["completions"]):
        shown = subprocess.run([*container["command"], f'{script} printf %s "$TF_CONFIG"'], capture_output=True, text=True, check=True,
                               env={**os.environ, **environment, "JOB_COMPLETION_INDEX": str(number)}).stdout
        name = f"{jobset['metadata']['name']}-{job['name']}-0"
        port = container["ports"][0]["containerPort"]
        expected = tuple(f"{name}-{each}.{jobset['metadata']['name']}:{port}" for each in range(spec["completions"]))
        assert named({"TF_CONFIG": shown}) == Hosts(expected, number)


ENDING = """
import os, threading
from extensions.cluster.host_group import HostGroup
host = object.__new__(HostGroup)
host.number, host._over, host._ending = 1, threading.Event(), threading.Lock()
host._tell = lambda status, text: os.write(2, b"E0000 coordination_service_agent.cc: UNAVAILABLE: Socket closed\\n")
host.end(75, "host 0 (10.0.0.1:12000) is lost: its process ended")
"""


def test_a_lost_host_is_one_line_whatever_tensorflow_says_meanwhile(monkeypatch):
    monkeypatch.setattr(startup, "quiet_level", startup.ERRORS)
    done = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, check=False, env=processes.environment())
    assert done.returncode == 75 and done.stderr.splitlines() == [
        "host 1: host 0 (10.0.0.1:12000) is lost: its process ended; start the same command again on all hosts, it resumes from the last "
        "checkpoint"]
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert hosts_launcher.on_hosts("train") is None and startup.quiet_level == "2"
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}))
    assert hosts_launcher.on_hosts("tune") is None and startup.quiet_level == "2"
    launcher = hosts_launcher.on_hosts("train")
    assert launcher.several and not launcher.chief and startup.quiet_level == "3"

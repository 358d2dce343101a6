"""A run's folder and its objects: at every moment the store holds what can be resumed, and a dead writer keeps nobody out."""

import json
import shutil
import subprocess
import sys
import threading

import pytest

from extensions.remote.lease import Lease, Leased
from extensions.remote.mirror import Mirror
from extensions.remote.objects import StoreError, objects_of
from pipelines.base.errors import HostLost
from pipelines.stores.remote import Address

RUNS = Address("s3", "box", "runs/vision/digits")
PREFIX = "runs/vision/digits/run"


class Held:
    """A lease that nobody contests."""

    holds = True


def mirror(folder, lease=None, names=("run",)):
    return Mirror(objects_of(RUNS), RUNS, folder, names, lease or Held())


def advance(run, step):
    """What a training leaves after a checkpoint: one that names its best weights, which the next one replaces; and a longer log."""
    checkpoints = run / "checkpoints"
    checkpoints.mkdir(parents=True, exist_ok=True)
    (run / "experiment.yaml").write_text("task: toy\n")
    (checkpoints / f"best-{step}.npz").write_bytes(b"weights of %d" % step)
    (checkpoints / "new").write_text(json.dumps({"step": step, "best": f"best-{step}.npz"}))
    (checkpoints / "new").replace(checkpoints / "resume.npz")
    for old in checkpoints.glob("best-*.npz"):
        if old.name != f"best-{step}.npz":
            old.unlink()
    with open(run / "metrics.jsonl", "a") as log:
        log.write(f"{step}\n")


def finish(run):
    shutil.rmtree(run / "checkpoints")
    (run / "model").mkdir()
    (run / "model" / "model.keras").write_bytes(b"model")
    (run / "report").mkdir()
    for name in ("report.html", "report.json"):
        (run / "report" / name).write_text(name)


def resumable(box):
    """The step from which the store's run would be resumed; fails where it could not be."""
    names = {key.removeprefix(f"{PREFIX}/"): content for key, content in box.items() if key.startswith(PREFIX)}
    if "report/report.json" in names:
        assert "model/model.keras" in names and "report/report.html" in names
        return "finished"
    if "checkpoints/resume.npz" not in names:
        return None
    about = json.loads(names["checkpoints/resume.npz"])
    assert f"checkpoints/{about['best']}" in names
    assert names["metrics.jsonl"].decode().splitlines()[-1] >= str(about["step"])
    return about["step"]


def test_the_store_can_be_resumed_from_after_every_single_write(store, tmp_path):
    run, states = tmp_path / "here" / "run", []
    store.fault = lambda method, key: states.append(resumable(store.objects["box"])) if method in ("PUT", "POST") else None
    sent = mirror(tmp_path / "here")
    for step in (1, 2, 3):
        advance(run, step)
        sent.send()
    finish(run)
    sent.send()
    states.append(resumable(store.objects["box"]))
    assert list(dict.fromkeys(states)) == [None, 1, 2, 3, "finished"]
    assert not [key for key in store.objects["box"] if "checkpoints" in key]


@pytest.mark.parametrize("cut", range(9))
def test_a_torn_upload_leaves_what_can_be_resumed_and_the_next_round_goes_on(store, tmp_path, cut):
    """The store is out of reach from the write number `cut` on."""
    objects = objects_of(RUNS)
    objects._store = type(objects._store)("box", endpoint=store.environment["AWS_ENDPOINT_URL"], client_options={"allow_http": True},
                                          retry_config={"max_retries": 0})
    sent, writes = Mirror(objects, RUNS, tmp_path / "here", ("run",), Held()), []

    def count(method, key):
        writes.append(key) if method in ("PUT", "POST") else None
        return method in ("PUT", "POST") and len(writes) > cut

    advance(tmp_path / "here" / "run", 1)
    store.fault = count
    failed = 0
    for step in (2, 3):
        try:
            sent.send()
        except StoreError as error:
            failed += 1
            assert "the store does not answer" in str(error)
        resumable(store.objects["box"])
        advance(tmp_path / "here" / "run", step)
    assert failed or cut == 8
    store.fault = lambda method, key: False
    sent.send()
    assert resumable(store.objects["box"]) == 3
    other = mirror(tmp_path / "there")
    other.fetch()
    assert (tmp_path / "there" / "run" / "checkpoints" / "best-3.npz").read_bytes() == b"weights of 3"
    assert (tmp_path / "there" / "run" / "metrics.jsonl").read_text() == "1\n2\n3\n"


def test_a_machine_that_went_on_elsewhere_takes_what_the_store_holds(store, tmp_path):
    here, there = mirror(tmp_path / "here"), mirror(tmp_path / "there")
    advance(tmp_path / "here" / "run", 1)
    here.send()
    there.fetch()
    advance(tmp_path / "there" / "run", 2)
    there.send()
    advance(tmp_path / "here" / "run", 5)  # never sent: this process was killed
    again = mirror(tmp_path / "here")
    again.fetch()
    assert json.loads((tmp_path / "here" / "run" / "checkpoints" / "resume.npz").read_text())["step"] == 2
    gets = []
    store.fault = lambda method, key: gets.append(key) if method == "GET" and key else None
    advance(tmp_path / "here" / "run", 3)  # on top of what the store holds: nothing has to be fetched
    mirror(tmp_path / "here").fetch()
    assert not gets and json.loads((tmp_path / "here" / "run" / "checkpoints" / "resume.npz").read_text())["step"] == 3


def test_who_was_paused_while_another_took_over_overwrites_no_checkpoint(store, tmp_path):
    here, there = mirror(tmp_path / "here"), mirror(tmp_path / "there")
    advance(tmp_path / "here" / "run", 1)
    here.send()
    there.fetch()
    advance(tmp_path / "there" / "run", 2)
    there.send()
    advance(tmp_path / "here" / "run", 3)
    with pytest.raises(HostLost, match="another process has taken this run over"):
        here.send()
    assert json.loads(store.objects["box"][f"{PREFIX}/checkpoints/resume.npz"])["step"] == 2


def test_who_lost_the_lease_writes_nothing(store, tmp_path):
    lost = Held()
    lost.holds = False
    advance(tmp_path / "run", 1)
    with pytest.raises(HostLost):
        mirror(tmp_path, lost).send()
    assert not store.objects["box"]


def test_a_run_begun_anew_is_moved_aside_with_those_of_its_seeds(store, tmp_path):
    for name in ("run", "run-seed0"):
        advance(tmp_path / "here" / name, 1)
    both = mirror(tmp_path / "here", names=("run", "run-seed0"))
    both.send()
    both.move_aside()
    both.fetch()
    assert not (tmp_path / "here" / "run").exists()
    tops = {key.removeprefix(f"{RUNS.key}/").partition("/")[0] for key in store.objects["box"]}
    assert tops == {"run~1", "run-seed0~1"}


def test_a_living_writer_keeps_others_out_and_lets_go_at_its_end(store):
    objects = objects_of(RUNS)
    first, second = Lease(objects, "run/.lease", seconds=12), Lease(objects, "run/.lease", seconds=12)
    first.take()
    with pytest.raises(Leased, match=r"s3://box/run: another process \(number \d+ on .*is training here"):
        second.take()
    first.release()
    second.take()
    assert second.holds and not first._thread.is_alive()
    second.release()


def test_a_killed_writer_of_this_machine_keeps_nobody_out(store):
    code = ("import os, signal\nfrom pipelines.stores.remote import Address\nfrom extensions.remote.lease import Lease\n"
            "from extensions.remote.objects import objects_of\n"
            "Lease(objects_of(Address('s3', 'box', '')), 'run/.lease').take()\nos.kill(os.getpid(), signal.SIGKILL)")
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    lease, said = Lease(objects_of(RUNS), "run/.lease"), []
    lease.take(said.append)
    lease.release()
    assert not said


def test_a_dead_writer_of_another_machine_keeps_it_as_long_as_a_lease_lasts(store):
    store.objects["box"]["run/.lease"] = json.dumps(
        {"who": "elsewhere", "host": "far", "process": 7, "seconds": 1, "number": 1, "held": True}).encode()
    lease, said = Lease(objects_of(RUNS), "run/.lease", seconds=1), []
    lease.take(said.append)
    lease.release()
    assert len(said) == 1 and "leased to process 7 on far" in said[0]


def test_a_writer_whose_lease_was_taken_is_told(store):
    told = threading.Event()
    lease = Lease(objects_of(RUNS), "run/.lease", seconds=1.5, lost=told.set)
    lease.take()
    with store.lock:
        store.objects["box"]["run/.lease"] = b'{"who": "another", "held": true, "seconds": 30}'
    assert told.wait(60) and not lease.holds
    lease.release()
    assert b"another" in store.objects["box"]["run/.lease"]

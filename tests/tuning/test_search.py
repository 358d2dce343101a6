"""Searches through the command line: trials, kills, workers, failures, wrong calls."""

import contextlib
import csv
import io
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from pipelines.commands.main import train_main, tune_main
from tests import processes
from tests.waiting import until, until_or_over

pytestmark = [pytest.mark.slow(seconds=67), pytest.mark.usefixtures("forked_trials")]

EXPERIMENT = """\
# A search for tests.
task: vision.classification
data: {source: digits, validation: 0.1, test: 0.2}
model: {name: cnn, widths: [4], hidden: 8}
train: {epochs: 2, batch_size: 128, precision: float32, devices: cpu, deterministic: true, checkpoint_seconds: 0.2}
evaluate: {bootstrap: 100, baseline: false, worst: 0}
monitor: {samples: 0, tensorboard: false}
tune:
  trials: 5
  seeds: 0
  cost: {measure: operations}
  space:
    train.learning_rate.peak: {float: [1.0e-3, 3.0e-2], scale: log}
    model.hidden: {choice: [8, 16]}
"""


def given(folder: Path, *arguments: str) -> list[str]:
    """The arguments of a search."""
    return [str(folder / "digits.yaml"), *arguments, "--runs", str(folder)]


def start(folder: Path, *arguments: str) -> processes.Process:
    """A search in a process of its own."""
    return processes.start("-m", "vision.tune", *given(folder, *arguments))


def tune(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A search; the trials are processes of their own."""
    return here(tune_main, *given(folder, *arguments))


def here(main: Callable[[str, list[str]], None], *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command in this process, which has TensorFlow imported."""
    out, errors, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            main("vision", list(arguments))
        except SystemExit as ended:
            status = int(ended.code or 0)
    return subprocess.CompletedProcess([main.__name__, *arguments], status, out.getvalue(), errors.getvalue())


def events(search: Path) -> list[dict]:
    path = search / "journal.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def outcome(search: Path) -> list[tuple]:
    """What must not depend on kills and workers: each trial's number, setting and metrics; and that none is lost and none twice."""
    starts = [event["trial"] for event in events(search) if event["event"] == "start"]
    ends = [event["trial"] for event in events(search) if event["event"] == "end"]
    assert sorted(starts) == sorted(ends) == list(range(1, len(starts) + 1))
    assert len(list((search / "trials").iterdir())) == len(starts)
    content = json.loads((search / "report" / "search.json").read_text())
    return [(trial["trial"], trial["values"], trial["value"], trial["metrics"]) for trial in content["trials"]] + [content["best"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("tune")
    (place / "digits.yaml").write_text(EXPERIMENT)
    return place


@pytest.fixture(scope="module")
def whole(folder) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A search that was never killed, with the best trained anew over two seeds and compared with the start."""
    done = tune(folder, "tune.seeds=2", "tune.compare=true")
    assert done.returncode == 0, done.stderr
    return folder / "vision" / "digits" / "search", done


def test_a_search_says_its_trials_its_best_and_what_several_seeds_make_of_it(whole, folder):
    search, done = whole
    content = json.loads((search / "report" / "search.json").read_text())
    assert len(content["trials"]) == 5 and all(trial["status"] == "completed" for trial in content["trials"])
    assert content["best"]["value"] == max(trial["value"] for trial in content["trials"])
    assert all(name.startswith("validation/") for trial in content["trials"] for name in trial["metrics"])
    assert "best of 5 trials: trial" in done.stdout and "trained anew over 2 seeds" in done.stdout
    assert "Against the experiment as it was, test/accuracy" in done.stdout and "5 of 5 trials done, best accuracy" in done.stderr
    assert len(list(csv.DictReader((search / "report" / "trials.csv").read_text().splitlines()))) == 5
    costs = {trial["values"]["model.hidden"]: trial["cost"] for trial in content["trials"]}
    assert all(trial["cost"] == costs[trial["values"]["model.hidden"]] for trial in content["trials"])
    assert [costs[hidden] for hidden in sorted(costs)] == sorted(set(costs.values()))
    on_front = [content["trials"][number - 1] for number in content["front"]]
    assert on_front[0]["cost"] == min(costs.values()) and on_front[-1]["value"] == content["best"]["value"]
    assert len({one["cost"] for one in on_front}) == len(on_front)
    assert f"Trial {content['front'][0]}: accuracy" in done.stdout and "on the front" in (search / "report" / "report.md").read_text()
    page = (search / "report" / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 2 and "Against the experiment as it was" in page
    again = tune(folder, "tune.seeds=2", "tune.compare=true")
    assert again.returncode == 0 and again.stdout == done.stdout and again.stderr == ""


def test_best_yaml_is_taken_by_train_as_it_is(whole):
    search, said = whole
    assert "best.yaml --name digits-search\n" in said.stdout and "best.yaml --name digits-search\n" in (search / "best.yaml").read_text()
    best = yaml.safe_load((search / "best.yaml").read_text())
    content = json.loads((search / "report" / "search.json").read_text())
    assert best["train"]["learning_rate"]["peak"] == content["best"]["values"]["train.learning_rate.peak"]
    assert best["model"]["hidden"] == content["best"]["values"]["model.hidden"] and "tune" not in best
    done = here(train_main, str(search / "best.yaml"), "--runs", str(search.parent / "again"), "--quiet")
    assert done.returncode == 0, done.stderr
    report = json.loads(next((search.parent / "again").rglob("report.json")).read_text())
    assert report["metrics"]["validation/accuracy"]["value"] == content["best"]["value"]  # deterministic


def test_ended_at_random_moments_with_one_and_two_workers_it_has_the_same_trials_and_the_same_best(whole, folder):
    draw, search = random.Random(1), folder / "vision" / "digits" / "killed"
    for workers, number in (("1", signal.SIGKILL), ("2", signal.SIGKILL), ("2", signal.SIGTERM)):
        before = len(events(search))
        process = start(folder, "--name", "killed", "--workers", workers)
        until_or_over(lambda before=before: len(events(search)) > before, process)
        time.sleep(draw.uniform(0.0, 0.4))  # to any moment of a trial, which takes longer
        assert process.poll() is None, process.printed()
        below = descendants(process.pid)
        process.send_signal(number)
        _, errors = process.communicate(timeout=90)
        assert below, "the process that starts trials was not seen"
        until(lambda below=below: all(state(pid) in ("", "Z") for pid in below))
    assert process.returncode == 143 and "the same command resumes from here" in errors and "Traceback" not in errors
    done = tune(folder, "--name", "killed", "--workers", "2")
    assert done.returncode == 0 and "resuming:" in done.stderr, done.stderr
    assert outcome(search) == outcome(whole[0])


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    above = {}
    for other in filter(str.isdigit, os.listdir("/proc")):
        fields = stat(int(other))
        if fields:
            above[int(other)] = int(fields[1])
    found = [pid]
    for one in found:
        found += [other for other, parent in above.items() if parent == one]
    return found[1:]


def state(pid: int) -> str:
    """Of a process, as the system gives it: R, S, T, Z, ...; empty where it is gone."""
    fields = stat(pid)
    return fields[0] if fields else ""


def stat(pid: int) -> list[str]:
    """What stands after the name in /proc/PID/stat: state, parent, ..."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def test_a_trial_that_fails_fails_alone_and_a_search_goes_on_to_a_new_best_and_to_more_seeds_until_its_minutes_are_over(folder):
    space = "tune.space={train.learning_rate.peak: {choice: [1.0e-7, 1.0e+30, 0.01]}, model.hidden: {choice: [8, 1000000000]}}"
    call = ("--name", "failing", space, "tune.algorithm=grid", "train.clip.value=1000", "train.epochs=1")
    search = folder / "vision" / "digits" / "failing"
    done = tune(folder, *call, "tune.trials=4", "tune.seeds=1")
    assert done.returncode == 0, done.stderr
    content = json.loads((search / "report" / "search.json").read_text())
    by_values = {tuple(trial["values"].values()): trial for trial in content["trials"]}
    assert len(by_values) == 4 and content["best"]["values"] == {"train.learning_rate.peak": 1.0e-7, "model.hidden": 8}
    assert "not finite" in by_values[1.0e30, 8]["reason"]
    assert all(by_values[rate, 1000000000]["status"] == "failed" for rate in (1.0e-7, 1.0e30))
    assert "3 failed" in done.stderr and "failed" in done.stdout

    further = tune(folder, *call, "tune.trials=5", "tune.seeds=2")
    assert further.returncode == 0, further.stderr
    assert json.loads((search / "report" / "search.json").read_text())["best"]["values"]["train.learning_rate.peak"] == 0.01
    rates = {name: yaml.safe_load((search / name / "experiment.yaml").read_text())["train"]["learning_rate"]["peak"]
             for name in ("best", "best-seed0", "best-seed1", "best~1")}
    assert rates == {"best": 0.01, "best-seed0": 0.01, "best-seed1": 0.01, "best~1": 1.0e-7}
    trained = (search / "best-seed0" / "report" / "report.json").stat().st_mtime_ns
    more = tune(folder, *call, "tune.trials=6", "tune.minutes=0.01", "tune.seeds=3")
    assert more.returncode == 0 and "trained anew over 3 seeds" in more.stdout, more.stderr
    assert "0.01 minutes are over" in more.stderr and "best of 5 trials" in more.stdout
    assert (search / "best-seed0" / "report" / "report.json").stat().st_mtime_ns == trained and (search / "best-seed2" / "model").is_dir()

    few = tune(folder, *call, "tune.trials=2", "tune.seeds=3")
    assert few.returncode == 2 and "has begun 5 trials; set tune.trials: 5 or more" in few.stderr
    assert (search / "report" / "search.json").exists()  # nothing was changed


def test_hyperband_goes_on_in_rounds_and_fresh_begins_anew(folder):
    call, search = ("--name", "rounds", "train.epochs=3"), folder / "vision" / "digits" / "rounds"
    done = tune(folder, *call, "tune.algorithm=hyperband", "tune.trials=4")
    assert done.returncode == 0, done.stderr
    trials = json.loads((search / "report" / "search.json").read_text())["trials"]
    assert [trial["to_epoch"] for trial in trials] == [1, 1, 1, 3] and trials[3]["setting"] in (1, 2, 3)
    assert trials[3]["value"] is not None and trials[3]["epochs"] == 3 and trials[3]["run"] == trials[trials[3]["setting"] - 1]["run"]
    fresh = tune(folder, *call, "--fresh", "tune.algorithm=bayesian", "tune.trials=4", "train.epochs=1")
    assert fresh.returncode == 0, fresh.stderr
    content = json.loads((search / "report" / "search.json").read_text())
    assert content["algorithm"] == "bayesian" and len({str(trial["values"]) for trial in content["trials"]}) == 4
    assert json.loads((search.with_name("rounds~1") / "report" / "search.json").read_text())["algorithm"] == "hyperband"


def test_wrong_calls_do_nothing(whole, folder):
    wrong = tune(folder, "--name", "wrong", "tune.objective=acuracy")
    assert wrong.returncode == 2
    assert "tune.objective: 'acuracy' is no metric of this task; did you mean accuracy? (there are: accuracy," in wrong.stderr
    assert not (folder / "vision" / "digits" / "wrong" / "trials").exists()
    few = tune(folder, "--name", "few", "tune.space={model.hidden: {choice: [8, 16]}}")
    assert few.returncode == 2 and "5 trials, and the space holds only 2 different settings" in few.stderr
    none = tune(folder, "tune=null")
    assert none.returncode == 2 and "there is nothing to search" in none.stderr
    before = (whole[0] / "search.yaml").read_text()
    other = tune(folder, "--name", "search", "train.epochs=3")
    assert other.returncode == 2 and "train.epochs: 2 there, 3 now" in other.stderr and (whole[0] / "search.yaml").read_text() == before

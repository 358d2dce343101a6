"""Listing and finding runs, from files alone."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from pipelines.base.errors import ConfigError, DataError, Interrupted
from pipelines.base.files import write_json, write_whole
from pipelines.commands import main
from pipelines.config.load import load, resolved_yaml
from pipelines.runs.folder import RunFolder
from pipelines.runs.listing import find_run, list_runs, ordered, require_model


def make(runs: Path, name: str, *, epochs: int = 4, seeds: int = 1) -> RunFolder:
    folder = RunFolder(runs / name)
    write_whole(folder.experiment, f"task: vision.classification\nseeds: {seeds}\ntrain:\n  epochs: {epochs}\n")
    return folder


def finish(folder: RunFolder, value: float, *, seconds: float = 10.0, name: str = "test/accuracy") -> None:
    metric = {"value": value, "low": value - 0.02, "high": value + 0.02, "n": 400}
    metrics = {"validation/accuracy": metric, name: metric}
    write_json(folder.report / "report.json", {"metrics": metrics, "timing": {"train_seconds": seconds}})


def checkpoint(folder: RunFolder, step: int) -> None:
    about = np.frombuffer(json.dumps({"step": step, "seconds": 7.5}).encode(), np.uint8)
    folder.checkpoints.mkdir(parents=True, exist_ok=True)
    np.savez(folder.checkpoints / "resume.npz", about=about)
    rows = [{"step": 10, "epoch": 0.5, "train/loss": 1.0}, {"step": 20, "epoch": 1, "validation/loss": 0.7, "validation/accuracy": 0.75}]
    write_whole(folder.metrics, "".join(json.dumps(row) + "\n" for row in rows) + '{"step": 3')


@pytest.fixture
def runs(tmp_path):
    finish(make(tmp_path, "vision/digits/best"), 0.95, seconds=20)
    finish(make(tmp_path, "vision/digits/worse"), 0.90, seconds=30)
    checkpoint(make(tmp_path, "vision/digits/cut"), 20)
    make(tmp_path, "vision/other/begun")
    (tmp_path / "vision/digits/.hidden").mkdir()
    for age, name in enumerate(("vision/digits/best", "vision/digits/worse")):
        os.utime(tmp_path / name / "report/report.json", (1e9 - age, 1e9 - age))
    return tmp_path


def states(runs: Path) -> dict[str, tuple[str, str]]:
    return {one.name: (one.state, one.progress) for one in list_runs(runs)}


def test_states_and_progress(runs):
    assert states(runs) == {
        "best": ("finished", ""), "worse": ("finished", ""), "cut": ("interrupted", "step 20 of 80"),
        "begun": ("interrupted", "before the first checkpoint")}
    cut = next(one for one in list_runs(runs) if one.name == "cut")
    assert cut.metric is not None and cut.metric[0] == "validation/accuracy" and cut.metric[1].value == 0.75
    assert cut.seconds == 7.5 and cut.experiment == "vision/digits"


def test_a_run_is_running_while_its_process_holds_the_lock(runs):
    folder = RunFolder(runs / "vision/digits/cut")
    with folder.locked():
        assert states(runs)["cut"] == ("running", "step 20 of 80")
        with pytest.raises(ConfigError, match="is still training"):
            require_model(folder)
    assert states(runs)["cut"][0] == "interrupted"


def test_a_lock_whose_process_is_gone_means_nothing(runs):
    (runs / "vision/digits/cut/.lock").write_text("4194304999")
    assert states(runs)["cut"][0] == "interrupted"


def test_damaged_files_do_not_stop_the_list(runs):
    (runs / "vision/digits/best/report/report.json").write_text("{")
    (runs / "vision/digits/cut/checkpoints/resume.npz").write_bytes(b"PK")
    (runs / "vision/other/begun/experiment.yaml").write_text("a: [")
    assert [states(runs)[name][0] for name in ("best", "worse", "cut", "begun")] == ["damaged", "finished", "damaged", "damaged"]
    with pytest.raises(ConfigError, match=r"is damaged: checkpoints/resume.npz: not a readable checkpoint"):
        require_model(RunFolder(runs / "vision/digits/cut"))


def test_a_joint_run_says_how_many_seeds_are_done(runs):
    folder = make(runs, "vision/digits/five", seeds=5)
    finish(make(runs, "vision/digits/five-seed0"), 0.9)
    make(runs, "vision/digits/five-seed1")
    assert states(runs)["five"] == ("interrupted", "1 of 5 seeds done")
    (runs / "vision/digits/five-seed0/model").mkdir()
    with pytest.raises(ConfigError, match="several seeds; their models are in five-seed0"):
        require_model(folder)


def test_trials_of_a_search_are_paused_or_have_failed(runs):
    ended, failed = {"status": "completed", "value": 0.7}, {"status": "failed", "reason": "out of memory\nat once"}
    for name, results in (("01-a", [ended]), ("02-b", [failed]), ("03-c", [ended, None])):
        folder = make(runs, f"vision/digits/search/trials/{name}")
        checkpoint(folder, 20)
        for number, result in enumerate(results, 9):  # the tenth is the later one, though not by the letter
            write_json(folder.path / f"{number}.order.json", {})
            if result:
                write_json(folder.path / f"{number}.result.json", result)
    found = states(runs)
    assert found["01-a"] == ("paused", "step 20 of 80") and found["02-b"] == ("failed", "out of memory")
    assert found["03-c"] == ("interrupted", "step 20 of 80")  # its second round has not ended
    done = CliRunner().invoke(main.app, ["runs", "--runs", str(runs), "--state", "failed"])
    assert done.exit_code == 0 and "failed, out of memory" in done.stdout and "paused" not in done.stdout
    with pytest.raises(ConfigError, match=r"a trial of a search, which keeps no model; train the search's best.yaml"):
        require_model(RunFolder(runs / "vision/digits/search/trials/01-a"))


def test_order_and_filters(runs):
    found = list_runs(runs)
    assert [one.name for one in ordered(found, "metric")] == ["best", "worse", "cut", "begun"]
    assert [one.name for one in ordered(found, "name")] == ["best", "cut", "worse", "begun"]
    assert [one.name for one in ordered(found, "duration")][:2] == ["worse", "best"]
    assert [one.name for one in ordered(found, "date")][2:] == ["best", "worse"]
    assert [one.name for one in list_runs(runs, match="other")] == ["begun"]
    assert [one.name for one in list_runs(runs, match="vision/digits/*e*")] == ["best", "worse"]


def test_a_loss_is_best_when_smallest(runs):
    for name, value in (("low", 0.2), ("high", 0.7)):
        finish(make(runs, f"nlp/x/{name}"), value, name="test/log_loss")
    assert [one.name for one in ordered(list_runs(runs, match="nlp"), "metric")] == ["low", "high"]


def test_the_command_lists_and_filters(runs):
    done = CliRunner().invoke(main.app, ["runs", "--runs", str(runs), "--sort", "metric"])
    lines = done.stdout.splitlines()
    assert done.exit_code == 0
    names = [line.split()[0] for line in lines[2:]]
    assert names == ["vision/digits/best", "vision/digits/worse", "vision/digits/cut", "vision/other/begun"]
    assert "test/accuracy 95.0 % [93.0, 97.0]" in lines[2] and "interrupted at step 20 of 80" in lines[4]
    done = CliRunner().invoke(main.app, ["runs", "--runs", str(runs), "--state", "finished", "--json"])
    assert {one["name"] for one in json.loads(done.stdout)} == {"best", "worse"}
    assert CliRunner().invoke(main.app, ["runs", "--runs", str(runs), "--state", "dead"]).exit_code == 2


def test_runs_are_found_by_folder_by_name_and_by_what_only_they_have(runs, monkeypatch):
    best = runs / "vision/digits/best"
    for given in (str(best), str(best / "report"), "vision/digits/best", "best", "digits/best"):
        assert find_run(runs, given).path.resolve() == best.resolve()
    assert find_run(runs, "vision/other").path.name == "begun"
    monkeypatch.chdir(best)
    assert find_run(Path("runs"), ".").path.resolve() == best.resolve()


@pytest.mark.parametrize(("given", "message"), [
    ("bets", r"did you mean best\?"), ("vision/digits", "names 3 runs; give one of them: vision/digits/best"),
    ("nothing-alike", "the newest in"),
])
def test_what_is_no_run_is_said_with_what_there_is(runs, given, message):
    with pytest.raises(ConfigError, match=message):
        find_run(runs, given)


def test_a_foreign_folder_is_no_run(runs, tmp_path_factory):
    foreign = tmp_path_factory.mktemp("foreign")
    with pytest.raises(ConfigError, match=r"is no run: it has no experiment.yaml"):
        find_run(runs, str(foreign))


def test_a_run_of_an_earlier_version_goes_on(tmp_path):
    """A setting that it had not is at its default; one that is no more is named."""
    resolved = resolved_yaml(load("vision/digits", ["train.epochs=3"]).experiment)
    folder = RunFolder(tmp_path / "run")
    without = "".join(line for line in resolved.splitlines(keepends=True) if not line.startswith("  checkpoint_seconds: 60.0"))
    assert without != resolved
    write_whole(folder.experiment, without)
    write_whole(folder.metrics, '{"step": 1}\n')
    folder.claim(resolved)
    with pytest.raises(ConfigError, match=r"\n  train.checkpoint_seconds: 60.0 there, 5.0 now\nGive --name"):
        folder.claim(resolved.replace("checkpoint_seconds: 60.0", "checkpoint_seconds: 5.0"))
    write_whole(folder.experiment, without.replace("train:\n", "train:\n  turbo: 3\n"))
    with pytest.raises(ConfigError, match=r"train.turbo: 3 there, null now(.|\n)*does not accept(.|\n)*train.turbo: no such setting"):
        folder.claim(resolved)


def test_names_of_runs_hold_no_braces_and_commas_of_values():
    from pipelines.runs.folder import name_of

    assert name_of(["train.epochs=3", "model.width=64"]) == "epochs=3,width=64" and name_of(["x.y=-1"]) == "y=-1"
    one, other = (name_of([f"train.learning_rate={{peak: {peak}, schedule: cosine}}"]) for peak in ("0.1", "0.2"))
    assert one.startswith("learning_rate=peak-0.1-schedule-cosine") and one != other and "," not in one
    assert name_of(["model.widths=[1, 2]"]) != name_of(["model.widths=[1-2]"])


@pytest.mark.parametrize("failure, there, left", [
    (ConfigError("model.preset: there is no preset"), [], False), (DataError("no such file"), [], False),
    (Interrupted(15, "SIGTERM"), [], True), (ConfigError("loss"), ["metrics.jsonl"], True), (ConfigError("x"), ["0.order.json"], True)])
def test_what_was_refused_before_anything_was_begun_leaves_no_run(failure, there, left, tmp_path):
    folder = RunFolder(tmp_path / "vision" / "digits" / "wrong")
    with pytest.raises(type(failure)), folder.claimed("task: vision.classification\n", fresh=False):
        for name in there:
            (folder.path / name).touch()
        raise failure
    assert folder.begun == left and [one.name for one in list_runs(tmp_path)] == ["wrong"] * left
    assert folder.path.exists() == left
    with folder.claimed("task: vision.classification\n", fresh=False):  # what is there can be begun, or go on
        assert folder.begun

"""Comparing runs: what differs, and when a difference is more than chance."""

import json
import zipfile

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from pipelines.base.errors import ConfigError
from pipelines.base.files import write_json, write_whole
from pipelines.commands import main
from pipelines.reports.predictions import read_resamples, write_resamples
from pipelines.runs.comparing import as_json, compare, difference, metrics_table
from pipelines.runs.folder import RunFolder
from pipelines.task import intervals
from pipelines.task.results import Metric


def make(runs, name, metrics, *, settings="epochs: 4", spread=None, environment=None, data="source: digits"):
    folder = RunFolder(runs / "vision/digits" / name)
    write_whole(folder.experiment, f"task: vision.classification\ndata: {{{data}}}\ntrain: {{{settings}}}\n")
    report = {"task": "vision.classification", "metrics": {key: {"value": value, "low": low, "high": high, "n": 1000}
                                                          for key, (value, low, high) in metrics.items()}, "spread": spread or {}}
    write_json(folder.report / "report.json", report)
    write_json(folder.environment, {"precision": "float32", **(environment or {})})
    return folder


def test_the_normal_test_is_that_of_two_shares():
    rng = np.random.default_rng(0)
    n, shares = 5000, (0.90, 0.92)
    metrics = []
    for share in shares:
        hits = rng.random(n) < share
        error = hits.std() / np.sqrt(n)
        metrics.append(Metric(hits.mean(), hits.mean() - 1.96 * error, hits.mean() + 1.96 * error, n))
    found = difference(*metrics)
    values = [metric.value for metric in metrics]
    z = (values[1] - values[0]) / np.sqrt(sum(value * (1 - value) / n for value in values))
    assert found.test == "normal"
    assert found.p == pytest.approx(2 * stats.norm.sf(abs(z)), rel=1e-3)
    assert found.more_than_chance is (found.p < 0.05)


def test_chance_alone_is_called_more_in_about_one_of_twenty():
    rng = np.random.default_rng(1)
    n, alarms = 1000, 0
    for _ in range(2000):
        pair = []
        for _ in range(2):
            share = rng.binomial(n, 0.8) / n
            error = np.sqrt(share * (1 - share) / n)
            pair.append(Metric(share, share - 1.96 * error, share + 1.96 * error, n))
        alarms += bool(difference(*pair).more_than_chance)
    assert 0.035 < alarms / 2000 < 0.065


def test_seeds_are_compared_by_welch():
    first, other = {"mean": 0.90, "std": 0.004, "n": 5}, {"mean": 0.91, "std": 0.008, "n": 4}
    found = difference(Metric(0.90), Metric(0.91), first, other)
    expected = stats.ttest_ind_from_stats(0.91, 0.008, 4, 0.90, 0.004, 5, equal_var=False)
    assert found.test == "welch"
    assert found.p == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval()) if hasattr(expected, "confidence_interval") else (
        found.low, found.high))


def test_without_intervals_nothing_is_claimed():
    assert difference(Metric(0.9), Metric(0.8, 0.7, 0.9)).more_than_chance is None
    same = Metric(1.0, 1.0, 1.0)
    assert difference(same, same).more_than_chance is False


def test_settings_machines_and_notes(tmp_path):
    low, high = {"test/accuracy": (0.80, 0.78, 0.82)}, {"test/accuracy": (0.90, 0.88, 0.92), "test/loss": (0.4, 0.3, 0.5)}
    other = {"settings": "epochs: 8", "environment": {"precision": "bfloat16"}, "data": "source: npz"}
    runs = [make(tmp_path, "a", low), make(tmp_path, "b", high, **other)]
    found = compare(runs)
    assert found.names == ["a", "b"]
    assert found.settings == [("data.source", ["digits", "npz"]), ("train.epochs", [4, 8])]
    assert found.facts == [("precision", ["float32", "bfloat16"])]
    assert found.metrics["test/loss"][0] is None and found.differences["test/loss"] == [None]
    assert found.differences["test/accuracy"][0].more_than_chance is None and "different data" in found.notes[0]


def judged(runs, name, share, *, seed, fingerprint, drawn_by=400):
    """A finished run with resamples: answers of a hard half and an easy half, as the seed has them."""
    who = np.random.default_rng(seed).random(drawn_by) < np.where(np.arange(drawn_by) % 2, share, 0.98)
    metric = intervals.share(who)
    folder = make(runs, name, {"test/accuracy": (metric.value, metric.low, metric.high)})
    report = folder.read_report()
    report["metrics"]["test/accuracy"] = metric.as_json()
    write_json(folder.report / "report.json", {**report, "judged": {"test": {"fingerprint": fingerprint}}})
    write_resamples(folder.report, {"test/accuracy": metric})
    return folder, who


def test_the_same_examples_are_compared_in_pairs(tmp_path):
    (first, one), (second, two) = (judged(tmp_path, name, share, seed=0, fingerprint="x") for name, share in (("a", 0.60), ("b", 0.66)))
    found = compare([first, second])
    paired = found.differences["test/accuracy"][0]
    alone = difference(*found.metrics["test/accuracy"])
    assert paired.test == "paired" and paired.value == pytest.approx(two.mean() - one.mean()) and "paired bootstrap" in found.notes[0]
    rng = np.random.default_rng(9)
    gaps = (two * 1.0 - one)[rng.integers(0, 400, (4000, 400))].mean(axis=1)
    assert (paired.low, paired.high) == pytest.approx(np.quantile(gaps, [0.025, 0.975]), abs=0.006)
    assert paired.more_than_chance is True and paired.p < 0.05 < alone.p  # the examples' own difficulty cancels out
    assert json.loads(json.dumps(as_json(found)))["differences"]["test/accuracy"][0]["test"] == "paired"


def test_different_examples_are_said_first_and_not_tested(tmp_path):
    runs = [judged(tmp_path, name, share, seed=0, fingerprint=name)[0] for name, share in (("a", 0.5), ("b", 0.9))]
    found = compare(runs)
    one = found.differences["test/accuracy"][0]
    assert one.value > 0.1 and one.p is None and one.low is None and one.more_than_chance is None
    assert "judged on different data (test)" in found.notes[0]
    assert metrics_table(found)[1][0][-1] == "not tested: different data"


def test_resamples_that_cannot_be_read_are_none(tmp_path):
    (first, _), (second, _) = (judged(tmp_path, name, 0.6, seed=0, fingerprint="x") for name in "ab")
    (second.report / "resamples.npz").write_bytes(b"PK no archive")
    assert compare([first, second]).differences["test/accuracy"][0].test == "normal"
    np.savez(second.report / "resamples.npz", **{"test/accuracy": np.zeros((1 << 23, 4), np.float32)})
    assert read_resamples(second.report) == {}
    with zipfile.ZipFile(second.report / "resamples.npz", "w") as packed, packed.open("test/accuracy.npy", "w") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (1 << 45,)})
    assert read_resamples(second.report) == {}


def test_changed_data_are_noted(tmp_path):
    metric = {"test/accuracy": (0.80, 0.78, 0.82)}
    runs = [make(tmp_path, name, metric, environment={"data": {"train": name}}) for name in "ab"]
    assert any("have changed between the runs (the fingerprints of train differ)" in note for note in compare(runs).notes)


def test_other_examples_by_a_setting_are_no_change_of_the_data(tmp_path):
    runs = [make(tmp_path, name, {"test/accuracy": (0.80, 0.78, 0.82)}, data=f"validation: {share}, workers: {number}",
                 environment={"data": {"train": name, "validation": name, "test": "same"}, "fingerprints": 2})
            for name, share, number in (("one", 0.1, 1), ("two", 0.2, 2))]
    notes = compare(runs).notes
    assert "The runs had other examples in train and validation, by their settings: data.validation." in notes
    assert not any("have changed" in note for note in notes)


def test_fingerprints_of_different_versions_are_not_compared(tmp_path):
    metric = {"test/accuracy": (0.80, 0.78, 0.82)}
    runs = [make(tmp_path, name, metric, environment={"data": {"train": name, "test": name}, "fingerprints": version})
            for version, name in enumerate("ab", 1)]
    found = compare(runs)
    assert found.differences["test/accuracy"][0].test == "normal" and not any("fingerprints" in note for note in found.notes)


def test_the_command_says_better_or_worse(tmp_path):
    make(tmp_path, "a", {"test/accuracy": (0.80, 0.78, 0.82), "test/log_loss": (0.5, 0.45, 0.55)})
    make(tmp_path, "b", {"test/accuracy": (0.90, 0.88, 0.92), "test/log_loss": (0.8, 0.75, 0.85)})
    make(tmp_path, "c", {"test/accuracy": (0.81, 0.79, 0.83), "test/log_loss": (0.5, 0.45, 0.55)})
    done = CliRunner().invoke(main.app, ["runs", "compare", "a", "b", "--runs", str(tmp_path)])
    assert done.exit_code == 0
    assert "No setting differs." in done.stdout and "+10.0 points [7.2, 12.8]" in done.stdout
    assert "yes, better" in done.stdout and "yes, worse" in done.stdout
    done = CliRunner().invoke(main.app, ["runs", "--runs", str(tmp_path), "compare", "a", "b", "c", "--json"])
    found = json.loads(done.stdout)
    assert [one["more_than_chance"] for one in found["differences"]["test/accuracy"]] == [True, False]


def test_the_page_of_a_comparison_is_not_written_over_unasked(tmp_path):
    for name in "ab":
        make(tmp_path, name, {"test/accuracy": (0.80, 0.78, 0.82)})
    call = ["report", "a", "b", "--runs", str(tmp_path)]
    for target, more in ((tmp_path / "compared.html", []), (tmp_path / "other.html", ["-o", str(tmp_path / "other.html")])):
        assert CliRunner().invoke(main.app, [*call, *more]).exit_code == 0
        target.write_text("kept")
        again = CliRunner().invoke(main.app, [*call, *more])
        assert again.exit_code == 2 and "is there already; give another name, or --replace" in again.output and target.read_text() == "kept"
        assert CliRunner().invoke(main.app, [*call, *more, "--replace"]).exit_code == 0 and target.read_text() != "kept"


def test_one_run_and_unfinished_runs_are_refused(tmp_path):
    run = make(tmp_path, "a", {"test/accuracy": (0.80, 0.78, 0.82)})
    with pytest.raises(ConfigError, match="two or more different runs"):
        compare([run, run])
    begun = RunFolder(tmp_path / "vision/digits/b")
    write_whole(begun.experiment, "task: vision.classification\n")
    with pytest.raises(ConfigError, match="not finished"):
        compare([run, begun])

"""What a search runs besides trials: what stands there of another best goes aside, and a signal is passed on once."""

import json
import signal
from pathlib import Path

import pytest
import yaml

from pipelines.tuning.extra_runs import alone, set_aside
from pipelines.tuning.trials import Stopped


def experiment(rate: float, seeds: int, seed: int = 0) -> dict:
    return {"task": "vision.classification", "train": {"seed": seed, "rate": rate}, "seeds": seeds}


def begin(folder: Path, name: str, content: dict) -> None:
    (folder / name).mkdir()
    (folder / name / "experiment.yaml").write_text(yaml.safe_dump(content))


def trained(folder: Path, rate: float, seeds: int) -> None:
    begin(folder, "best", experiment(rate, seeds))
    for seed in range(seeds):
        begin(folder, f"best-seed{seed}", experiment(rate, 1, seed))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_same_again_moves_nothing(tmp_path):
    trained(tmp_path, 0.1, 2)
    set_aside(tmp_path, "best", experiment(0.1, 2))
    assert names(tmp_path) == {"best", "best-seed0", "best-seed1"}


def test_another_best_moves_all_of_the_old_aside(tmp_path):
    trained(tmp_path, 0.1, 2)
    begin(tmp_path, "start", experiment(0.3, 2))
    set_aside(tmp_path, "best", experiment(0.2, 2))
    assert names(tmp_path) == {"best~1", "best~1-seed0", "best~1-seed1", "start"}
    trained(tmp_path, 0.2, 3)
    set_aside(tmp_path, "best", experiment(0.3, 1))
    assert names(tmp_path) >= {"best~1", "best~1-seed0", "best~1-seed1", "best~2", "best~2-seed0", "best~2-seed1", "best~2-seed2", "start"}


def test_more_seeds_keep_those_that_are_trained(tmp_path):
    trained(tmp_path, 0.1, 2)
    set_aside(tmp_path, "best", experiment(0.1, 3))
    assert names(tmp_path) == {"best~1", "best-seed0", "best-seed1"}


class Process:
    """Stands for the nursery: one process that ends after some looks at it."""

    def __init__(self, looks: int):
        self.looks, self.signals = looks, []

    def start(self, key, arguments, *, log, environment):
        self.order = Path(arguments[0])

    def signal(self, number):
        self.signals.append(number)

    def ended(self, seconds):
        self.looks -= 1
        return [] if self.looks else [("x", 0)]


def test_a_signal_is_passed_on_once(tmp_path):
    process = Process(5)
    with pytest.raises(Stopped):
        alone(process, tmp_path / "best.order.json", environment={}, signalled=lambda: signal.SIGINT)
    assert process.signals == [signal.SIGTERM]  # a second would break off the saving of the state


def test_what_it_left_is_read_and_its_files_go(tmp_path):
    class Leaves(Process):
        def ended(self, seconds):
            (tmp_path / "best.result.json").write_text(json.dumps({"status": "completed", "metrics": {}}))
            return super().ended(seconds)

    order = tmp_path / "best.order.json"
    order.write_text("{}")
    assert alone(Leaves(2), order, environment={}, signalled=lambda: None) == {"status": "completed", "metrics": {}}
    assert not names(tmp_path)

"""Runs of seconds, which contract tests train: interrupted, resumed, on several devices."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pipelines.base.errors import Interrupted
from pipelines.config import extensions
from pipelines.config.load import from_text
from pipelines.config.schema import Experiment
from pipelines.config.yaml_text import resolved_yaml
from pipelines.runs.folder import RunFolder
from pipelines.runs.launch import task_class
from pipelines.runs.run import Call, train
from pipelines.serving.load import load_run
from pipelines.training.loop import Hook, Loop

SMOOTH = ["train.optimizer={name: sgd}", "train.learning_rate={peak: 0.01, schedule: constant}"]  # rounding stays rounding


class InterruptAfter(Hook):
    """Ends a training as Ctrl-C does, once its state is whole."""

    def __init__(self, steps: int):
        self.steps = steps

    def next_stop(self, loop: Loop) -> int | None:
        return self.steps if loop.step < self.steps else None

    def on_steps(self, loop: Loop) -> None:
        if loop.step >= self.steps:
            loop.interrupted = 2


def interrupted_and_resumed(train: Callable[..., list[np.ndarray]], steps: int) -> list[np.ndarray]:
    """The weights of a training that is interrupted after some steps and resumed; `train` takes further hooks of the loop."""
    try:
        train((InterruptAfter(steps),))
    except Interrupted:
        return train()
    raise AssertionError("the run was not interrupted")


def train_on_devices(experiment: Experiment, folder: Path, devices: int) -> list[np.ndarray]:
    """The weights that are trained smoothly on so many parts of the processor: on one here, on several in a process of its own."""
    if devices == 1:
        smooth = from_text(resolved_yaml(experiment), [*SMOOTH, "train.devices=cpu"]).experiment
        train(smooth, RunFolder(folder / "device"), Call("check/device", task_class(smooth.task), quiet=True))
        return weights_of(folder / "device")
    file = folder / f"devices{devices}.yaml"
    file.write_text(resolved_yaml(experiment), encoding="utf-8")
    used = extensions.environment(experiment).get(extensions.VARIABLE, "")
    command = [sys.executable, "-m", "quartet", "train", str(file), *SMOOTH, f"train.devices={devices}", "--runs", str(folder / "runs"),
               "--name", "checked", "--quiet", *(part for name in used.split(os.pathsep) if name for part in ("--use", name))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return weights_of(next((folder / "runs").glob(f"**/devices{devices}/checked")))


def weights_of(run: Path) -> list[np.ndarray]:
    """The weights of a finished run."""
    return [np.asarray(weight) for weight in load_run(RunFolder(run), where="cpu").model.get_weights()]


def same(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    """Whether weights are equal to the last bit."""
    return [weight.tobytes() for weight in one] == [weight.tobytes() for weight in other]

"""The contract test of a task: `quartet.testing.check_task`, and its parts, which our own tasks' tests call one by one."""

import atexit
import functools
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.base.errors import Interrupted
from pipelines.config import extensions
from pipelines.config.load import from_dict, from_text
from pipelines.config.schema import Experiment
from pipelines.config.yaml_text import resolved_yaml
from pipelines.data.divide import Splits
from pipelines.data.source import Source
from pipelines.runs.folder import RunFolder
from pipelines.runs.launch import task_class
from pipelines.runs.run import Call, train
from pipelines.runs.work import Policy
from pipelines.serving.answers import respond, stacked
from pipelines.serving.export import export
from pipelines.serving.exported import refuse_reaching
from pipelines.serving.load import load_run
from pipelines.serving.predict import Predictor
from pipelines.task.form import FIELD_KINDS
from pipelines.training.evaluation import Evaluator
from pipelines.training.loop import Hook, Loop

PROGRAM = """
import contextlib
import importlib.machinery
import io
import json
import os
import sys
import traceback

FORBIDDEN = {"keras", "quartet", "pipelines", "vision", "speech", "nlp", "recsys", "keras_hub", "keras_rs", "tf_keras"} - set(sys.argv[1:])

class Forbidden:  # TensorFlow looks where keras lies, which it may; importing it fails
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in FORBIDDEN:
            return importlib.machinery.ModuleSpec(name, self, origin=f"/nowhere/{name}/__init__.py")

    def create_module(self, spec):
        raise ImportError(f"{spec.name} is forbidden here")

    def exec_module(self, module):
        pass

sys.meta_path.insert(0, Forbidden())
replies = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what libraries print themselves is no reply
for line in sys.stdin:
    asked, printed, failed = json.loads(line), io.StringIO(), None
    os.chdir(asked["folder"])
    sys.argv = ["alone.py", *asked["arguments"]]
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(asked["program"], "alone.py", "exec"), {"__name__": "__main__"})
    except BaseException:
        failed = traceback.format_exc()
    print(json.dumps([printed.getvalue(), failed]), file=replies, flush=True)
"""


@functools.cache
def process(*allowed: str) -> subprocess.Popen:
    """The process of this process; it ends with it. `allowed` are modules that it may import, where a library needs them."""
    started = subprocess.Popen([sys.executable, "-I", "-c", PROGRAM, *allowed], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True,
                               env={"PATH": "/usr/bin:/bin", "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"})
    atexit.register(started.kill)
    return started


def run_bare(program: str, *arguments: str | Path, folder: Path, needs: tuple[str, ...] = ()) -> str:
    """What the program prints; it runs in `folder` with the arguments in sys.argv, once the modules that it needs are imported."""
    there = process(*(["keras"] if "tensorflow_text" in needs else []))  # its layers derive from tf.keras'
    program = "".join(f"import {name}\n" for name in needs) + program
    assert there.stdin and there.stdout
    asked = {"program": program, "arguments": [str(one) for one in arguments], "folder": str(folder)}
    print(json.dumps(asked), file=there.stdin, flush=True)
    reply = there.stdout.readline()
    assert reply, f"the process ended with status {there.wait(10)}"
    printed, failed = json.loads(reply)
    assert failed is None, failed
    return printed


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


QUICK: dict[str, dict[str, Any]] = {
    "train": {"epochs": 2, "precision": "float32", "devices": "cpu", "deterministic": True},
    "evaluate": {"bootstrap": 100, "worst": 2}, "monitor": {"tensorboard": False, "samples": 0}}

ANSWER = """
import sys
import numpy as np
import tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
with np.load(sys.argv[2]) as given:
    answer = model.signatures["serving_default"](**{name: tf.constant(given[name]) for name in given.files})
np.savez(sys.argv[3], **{name: value.numpy().astype("S") if value.dtype == tf.string else value.numpy() for name, value in answer.items()})
"""


def check_task(experiment: Mapping[str, Any], folder: Path, inputs: Sequence[Any] = ()) -> None:
    """Trains a small experiment and holds its task to the whole contract: what is judged, saved, exported and served is one answer, a run
    that is interrupted and resumed is the same to the last bit, and two devices train what one does.

    Args:
        experiment: as YAML has it, of a registered task, on data that are there; two epochs should take seconds. A model with batch
            statistics needs train.micro_batch_size for the part on two devices.
        folder: an empty folder for the runs.
        inputs: what a client sends, JSON values or bytes; by default an input that the task calls typical.

    Raises:
        AssertionError: the part of the contract that does not hold.
    """
    known = quick(experiment)
    place = RunFolder(folder / "run")
    report = train(known, place, _call(known))
    run = load_run(place, where="cpu")
    splits = task_class(known.task)(known).splits()
    check_report(run, report, splits)
    check_facts(run, splits)
    check_batches(run, splits.test or splits.validation or splits.train)
    rows = [run.task.input.requests.take(one) for one in inputs] or list(run.task.input.requests.typical())
    check_export(run, rows, folder)
    check_page(run)
    check_server(run, rows, inputs)
    if report["timing"]["steps"]:
        def again(hooks: tuple = ()) -> list[np.ndarray]:
            train(known, RunFolder(folder / "resumed"), _call(known, hooks))
            return weights_of(folder / "resumed")

        assert same(interrupted_and_resumed(again, report["timing"]["steps"] // 2), weights_of(folder / "run")), (
            "a run that was interrupted and resumed is another one")
        one, two = (train_on_devices(known, folder, devices) for devices in (1, 2))
        apart = max(float(np.abs(first - second).max()) for first, second in zip(one, two, strict=True))
        assert apart <= 1e-5, f"two devices train weights that are {apart:.1e} from those of one"


def quick(experiment: Mapping[str, Any]) -> Experiment:
    """The experiment; QUICK says what it leaves open."""
    given = {name: value for name, value in experiment.items() if name not in QUICK}
    return from_dict({**given, **{section: {**values, **experiment.get(section, {})} for section, values in QUICK.items()}})


def _call(experiment: Experiment, hooks: tuple = ()) -> Call:
    return Call("check/task", task_class(experiment.task), quiet=True, policy=Policy(hooks=hooks))


def check_report(run: Any, report: Mapping[str, Any], splits: Splits) -> None:
    """The watched metric stands in the report with its interval, all are finite, and every example was judged."""
    watch, direction = run.task.output.watch
    assert direction in ("max", "min")
    for name, metric in report["metrics"].items():
        assert metric["value"] is None or np.isfinite(metric["value"]), name
    there = {name: source for name in ("train", "validation", "test") if (source := getattr(splits, name)) is not None}
    for split in there.keys() - {"train"}:
        assert f"{split}/{watch}" in report["metrics"], f"the report has no {split}/{watch}"
        main = report["metrics"][f"{split}/{watch}"]
        assert main["n"] > 0 and (main["low"] is None) == (main["high"] is None)
        # groups may have no spread: the two speakers of a small split may be answered equally well
        assert (main["low"] is None and run.experiment.data.group_by) or main["low"] <= main["value"] <= main["high"]
    assert {name: len(source) for name, source in there.items()} == {name: report["data"]["examples"][name] for name in there}


def check_facts(run: Any, splits: Splits) -> None:
    """What was learned of train is plain, and the same when it is learned again."""
    facts = run.task.facts
    assert json.loads(json.dumps(facts)) == facts, "facts are no JSON values"
    assert {name: facts[name] for name in splits.facts} == splits.facts, "the same data give other facts"


def check_batches(run: Any, source: Source, count: int = 12) -> None:
    """An answer alone is that in a batch: what pads it changes nothing."""
    some = source.subset(np.random.default_rng(0).permutation(len(source))[:count])

    def answers(batch: int) -> dict[str, np.ndarray]:
        found, targets = Evaluator(run.task, run.model, some, machine=run.machine, batch=batch).answers()
        assert all(len(value) == len(some) for value in (*found.values(), *targets.values()))
        return found

    one, whole = answers(1), answers(len(some))
    assert set(one) == set(whole)
    for name, value in whole.items():
        if value.dtype.kind == "f":
            np.testing.assert_allclose(one[name], value, atol=1e-4, rtol=1e-4, err_msg=name)
        else:
            assert (one[name] == value).mean() > 0.99, name


def check_export(run: Any, rows: Sequence[dict[str, Any]], folder: Path) -> Path:
    """The saved model answers raw examples as the run does, in a process that has TensorFlow alone, and its README explains every name.

    Returns:
        Its folder.
    """
    raw = stacked(run.task, rows)
    expected = respond(run, run.task.input.receive(raw))
    check_kinds(run, expected)
    target = export(run, folder / "exported")
    refuse_reaching(target)  # what a server accepts of strangers includes every export of ours
    np.savez(folder / "raw.npz", **{name: _plain(value) for name, value in raw.items()})  # type: ignore[arg-type]
    needs = run.task.input.signature.needs
    run_bare(ANSWER, target, "raw.npz", "answer.npz", folder=folder, needs=needs)
    with np.load(folder / "answer.npz") as given:
        assert set(given.files) == set(expected)
        for name, value in expected.items():
            if value.dtype == tf.string:
                assert np.array_equal(given[name], _plain(value)), name
            else:
                np.testing.assert_allclose(given[name], value.numpy(), atol=1e-5, rtol=1e-6, err_msg=name)
    if "image" in raw:  # the README's example reads one
        (folder / "example").write_bytes(raw["image"][0].numpy())
    readme = (target / "README.txt").read_text(encoding="utf-8")
    run_bare("\n".join(line[4:] for line in readme.splitlines() if line.startswith("    ")), folder=folder, needs=needs)
    missing = set(run.task.input.raw_spec()) - {*run.task.input.signature.meanings}
    assert not missing or not run.task.input.signature.meanings, f"Input.signature has no meaning of {missing}"
    return target


def _plain(value: tf.Tensor) -> np.ndarray:
    array: np.ndarray = value.numpy()
    return array.astype("S") if value.dtype == tf.string else array


def check_kinds(run: Any, answers: Mapping[str, Any]) -> None:
    """What the output says of its answers is said of outputs that are there, of their type; their lists are counted."""
    said, count = run.task.output.answers, answers.get("count")
    for name, kind in said.kinds.items():
        assert name in answers, f"Output.answers speaks of {name}, which is no output"
        value = answers[name]
        right = value.shape.rank == 3 and value.shape[-1] == 4 if kind == "boxes" else value.dtype == tf.string
        assert right, f"Output.answers calls {name} {kind}, and it is {value.dtype.name} of shape {value.shape}"
    counts = count is not None and count.dtype.is_integer
    assert counts or not said.ranked, f"{said.ranked} end after an output `count`, which is not there"


def check_page(run: Any) -> None:
    """A person can enter every input on the page."""
    form = run.task.input.requests.form()
    names = [field.name for field in form]
    assert form and len(set(names)) == len(names) and {field.kind for field in form} <= set(FIELD_KINDS), f"the page's form is {form}"


def check_server(run: Any, rows: Sequence[dict[str, Any]], inputs: Sequence[Any]) -> None:
    """A batch is answered as each of its examples alone, and, where the extra `serve` is there, over HTTP as here."""
    predictor = Predictor(run)
    named = [(str(number), row) for number, row in enumerate(rows)]
    together = predictor.together(named)
    assert all(one.error is None and one.values for one in together), [one.error for one in together]
    if not inputs or any(isinstance(one, bytes) for one in inputs) or importlib.util.find_spec("starlette") is None:
        return
    from quartet.protocol_testing import ask, serving

    with serving(predictor) as port:
        status, body = ask(port, "POST", "/predict", json.dumps({"inputs": list(inputs)}).encode())
        assert status == 200, body
        assert len(json.loads(body)["answers"]) == len(inputs), body
        assert ask(port, "GET", "/", b"")[0] == 200, "the page does not come"

"""Contract tests for what an extension brings, to be called from a test of its own.

    from quartet.testing import check_hook

    def test_my_hook(tmp_path):
        check_hook(MyHook, tmp_path)
"""

from pathlib import Path
from typing import Any

import numpy as np

from pipelines.base.errors import ConfigError
from pipelines.base.progress import silent
from pipelines.config.doors import HOOKS, TRANSFORMS
from pipelines.config.load import from_dict
from pipelines.config.schema import Experiment
from pipelines.config.yaml_text import resolved_yaml
from pipelines.runs.folder import RunFolder
from pipelines.runs.launch import task_class
from pipelines.runs.launcher import Launcher, TrainCall
from pipelines.runs.run import Call, train
from pipelines.runs.run_hook import RunHook
from pipelines.runs.work import Policy
from pipelines.serving.export import export_run
from pipelines.serving.forms import difference, forms, open_run
from pipelines.serving.predict import Predictor
from pipelines.training.loop import Hook
from pipelines.training.transform import Transform
from quartet.protocol_testing import check_protocol as check_protocol
from quartet.storage_testing import check_guard as check_guard
from quartet.storage_testing import check_remote as check_remote
from quartet.storage_testing import check_storage as check_storage
from quartet.task_testing import check_task as check_task
from quartet.task_testing import interrupted_and_resumed, same, train_on_devices, weights_of

EXPERIMENT: dict[str, Any] = {"task": "vision.classification", "data": {"source": "digits"}, "model": {"name": "cnn", "widths": [4]},
              "train": {"epochs": 2, "batch_size": 256, "precision": "float32", "devices": "cpu", "deterministic": True},
              "evaluate": {"bootstrap": 100, "baseline": False}}


def check_hook(hook: type[RunHook], folder: Path, settings: dict[str, Any] | None = None) -> None:
    """Trains a small network for two epochs without and with a hook, and once interrupted in between and resumed.

    Args:
        hook: registered already.
        folder: an empty folder for the three runs.
        settings: of `monitor`, such as those that switch the hook on.

    Raises:
        AssertionError: it changes what is trained, does not survive an interruption, is not told once for each process how the run
            ended, or writes over a file of the run.
    """
    entry = next((one for one in HOOKS.entries() if one.load() is hook), None)
    assert entry is not None, f"{hook.__name__} is not registered"
    monitor = {"monitor": settings or {}}
    with HOOKS.without(entry.name):
        plain = _train(folder / "plain")
    watched, ends = _train(folder / "watched", monitor), _Ends(hook)
    assert same(watched, plain), f"{hook.__name__} changes what is trained"
    with ends:
        resumed = _resumed(folder / "resumed", monitor)
    assert same(resumed, plain), f"{hook.__name__}: a run that was interrupted and resumed is another one"
    assert ends.told == ["interrupted", "finished"], f"{hook.__name__}: was told {ends.told}"


def check_form(name: str, folder: Path, *, within: float = 1e-5) -> None:
    """Trains a small network, exports it in a form, opens that again and asks both.

    Args:
        name: by which the form is registered.
        folder: an empty folder for the run and its export.
        within: largest difference of a number of the answers.

    Raises:
        AssertionError: what it writes says not how to use it, is not read again, answers otherwise than the run, stands in the run's own
            files, or replaces unasked what is there.
    """
    form = next((one for one in forms() if one.name == name), None)
    assert form is not None, f"{name} is not registered"
    _train(folder / "run")
    before, target = files_of(folder / "run"), folder / "exported"
    run = export_run(RunFolder(folder / "run"), target, form)
    assert files_of(folder / "run") == before, f"{name}: changes the run"
    assert (target / "README.txt").is_file(), f"{name}: no README.txt says how to use it"
    opened = open_run(RunFolder(target))
    offered = [form.predictor(one, batch=None, say=silent) for one in (run, opened)]
    rows = [("typical", row) for row in run.task.input.requests.typical()]
    expected = Predictor(run).together(rows)
    for predictor in (Predictor(opened), *(one for one in offered if one is not None)):
        for found, right in zip(predictor.together(rows), expected):
            assert difference(found, right) <= within, f"{name}: answers {found}, and the run {right}"
    try:
        export_run(RunFolder(folder / "run"), target, form)
    except ConfigError:
        return
    raise AssertionError(f"{name}: replaces what is there")


def files_of(folder: Path) -> dict[str, bytes]:
    """Name -> content of the files below a folder."""
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def check_transform(transform: type[Transform], folder: Path, settings: dict[str, Any]) -> None:
    """Trains a small network without a transform, and with it: at once, interrupted and resumed, and on two devices.

    Args:
        transform: registered already, in a file or package that another process can import.
        folder: an empty folder for the runs.
        settings: of `train`, which switch it on.

    Raises:
        AssertionError: it changes a training that does not ask for it or none that does, does not survive an interruption, or trains
            another network on two devices than on one.
    """
    entry = next((one for one in TRANSFORMS.entries() if one.load() is transform), None)
    assert entry is not None, f"{transform.__name__} is not registered"
    with TRANSFORMS.without(entry.name):
        plain = _train(folder / "plain")
    assert same(_train(folder / "off"), plain), f"{transform.__name__}: changes what is trained without being asked to"
    changed = _train(folder / "on", {"train": settings})
    assert not same(changed, plain), f"{transform.__name__}: changes nothing where its settings are {settings}"
    resumed = _resumed(folder / "resumed", {"train": settings})
    assert same(resumed, changed), f"{transform.__name__}: a run that was interrupted and resumed is another one"
    smooth = from_dict({**EXPERIMENT, "model": {"name": "gradients"}, "monitor": {"tensorboard": False},
                        "train": {**EXPERIMENT["train"], **settings}})
    one, two = (train_on_devices(smooth, folder, devices) for devices in (1, 2))
    apart = max(float(np.abs(first - second).max()) for first, second in zip(one, two, strict=True))
    assert apart <= 1e-5, f"{transform.__name__}: two devices train weights that are {apart:.1e} from those of one"


def _resumed(place: Path, settings: dict[str, dict[str, Any]]) -> list[np.ndarray]:
    return interrupted_and_resumed(lambda hooks=(): _train(place, settings, hooks), 3)


def check_launcher(launcher: Launcher, folder: Path) -> None:
    """Trains a small network for two epochs here and through a launcher, and has its group pass values round.

    Args:
        launcher: as its function returns it; where it is of several hosts, this is called on each of them.
        folder: an empty folder for the two runs.

    Raises:
        AssertionError: what it trains is not what this process trains, to 1e-5, or a value that its group passes round is another one.
    """
    name, place = type(launcher).__name__, folder / "launched" / "vision" / "experiment" / "checked"
    here = _train(folder / "here")
    experiment = _experiment()
    if launcher.elsewhere:
        file = folder / "experiment.yaml"
        file.write_text(resolved_yaml(experiment), encoding="utf-8")
        arguments = (str(file), "--runs", str(folder / "launched"), "--name", "checked", "--quiet")
        status = launcher.train(TrainCall(experiment, RunFolder(place), arguments, folder / "launched", fresh=False))
        assert status == 0, f"{name}: the training elsewhere ended with {status}"
    else:
        with launcher.group({"the experiment": resolved_yaml(experiment)}) as group:
            for value in (None, {"a": [1, 0.5, "ä"]}, b"\0bytes"):
                assert group.of_chief(value) == value, f"{name}: of_chief changes {value!r}"
                assert group.of_all(value) == [value] * group.size, f"{name}: of_all changes {value!r}"
                assert group.to_chief(value) == [value] * group.size * group.chief, f"{name}: to_chief changes {value!r}"
            train(experiment, RunFolder(place), Call("vision/check", task_class(experiment.task), quiet=True))
    if launcher.chief:
        worst = max(float(np.abs(one - other).max()) for one, other in zip(here, weights_of(place), strict=True))
        assert worst <= 1e-5, f"{name}: trains other weights than this process, by {worst:.1e}"


class _Ends:
    """What `ended` of a hook is told while this is entered."""

    def __init__(self, hook: type[RunHook]):
        self.hook, self.told = hook, list[str]()

    def __enter__(self) -> None:
        self._ended = ended = self.hook.ended

        def told(hook: RunHook, status: Any, report: dict[str, Any]) -> None:
            self.told.append(status)
            ended(hook, status, report)

        self.hook.ended = told  # type: ignore[method-assign, assignment]

    def __exit__(self, *_: object) -> None:
        self.hook.ended = self._ended  # type: ignore[method-assign]


def _experiment(settings: dict[str, dict[str, Any]] | None = None) -> Experiment:
    """`settings` of a section go before those of EXPERIMENT."""
    own, changed = {**EXPERIMENT, "monitor": {"tensorboard": False, "samples": 0}}, settings or {}
    return from_dict(own | {section: {**own.get(section, {}), **values} for section, values in changed.items()})


def _train(place: Path, settings: dict[str, dict[str, Any]] | None = None, hooks: tuple[Hook, ...] = ()) -> list[np.ndarray]:
    """The model's weights."""
    experiment = _experiment(settings)
    train(experiment, RunFolder(place), Call("vision/check", task_class(experiment.task), quiet=True, policy=Policy(hooks=hooks)))
    return weights_of(place)

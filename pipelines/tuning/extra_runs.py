"""What a search runs besides its trials, one process at a time: the survey before them, and the best setting over several seeds after."""

import re
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pipelines.base.errors import TrainingError
from pipelines.base.files import write_json, write_whole, writing
from pipelines.base.inside import flush
from pipelines.config.load import from_text
from pipelines.config.yaml_text import to_yaml
from pipelines.runs.folder import RunFolder, changes
from pipelines.runs.launcher import Processes
from pipelines.tuning.trials import Stopped, read_result

REPEATED = {"best": "the best setting", "start": "the experiment as it was"}
WAIT_SECONDS = 0.5  # between looks at signals and at the clock


def alone(processes: Processes, order: Path, *, environment: Mapping[str, str], signalled: Callable[[], int | None],
          ) -> dict[str, Any]:
    """Runs the process of one order, and waits for it. Returns what it left.

    Args:
        signalled: the signal that asks this search to stop, None where there is none.

    Raises:
        Stopped: by that signal; the process has saved its state.
    """
    result, log = order.with_name(order.name.replace("order", "result")), order.with_suffix(".log")
    result.unlink(missing_ok=True)
    processes.start(order.name, [str(order)], log=str(log), environment=environment)
    announced = False
    while True:
        if signalled() is not None and not announced:  # once: a second signal would break off the saving of the state
            processes.signal(signal.SIGTERM)
            announced = True
        for _, status in processes.ended(WAIT_SECONDS):
            if (number := signalled()) is not None:
                raise Stopped(number)
            stored = read_result(result, status, log)
            for file in (order, result, log) if stored["status"] == "completed" or "exit_status" in stored else (order,):
                file.unlink(missing_ok=True)
            return stored


def repeat(folder: Path, key: str, text: str, name: str, run: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """Trains an experiment over its seeds into `folder/key`; what is there of the same experiment is not trained again.

    Args:
        key: one of REPEATED.
        text: the experiment, as YAML.
        name: the experiment's, such as vision/cifar10_cnn.
        run: runs the process of an order.

    Raises:
        TrainingError: training failed.
    """
    file = folder / f"{key}.order.yaml"
    set_aside(folder, key, from_text(text, file=str(file)).experiment.model_dump(mode="python"))
    write_whole(file, text)
    order = folder / f"{key}.order.json"
    write_json(order, {"kind": "train", "experiment": file.name, "folder": key, "name": name})
    result = run(order)
    file.unlink(missing_ok=True)
    if result["status"] != "completed":
        raise TrainingError(f"training {REPEATED[key]} anew failed: {result['reason']}")
    return result


def set_aside(folder: Path, key: str, wanted: Mapping[str, Any]) -> None:
    """Renames what is stored under `key` of another experiment (the best was another trial, or there were other seeds): `best` becomes
    `best~1`, `best-seed0` becomes `best~1-seed0`. Seeds of the same experiment stay, and are not trained again.

    Args:
        wanted: the experiment over all its seeds, resolved whole.
    """
    there = {path: re.fullmatch(rf"{key}(-seed(\d+))?", path.name) for path in sorted(folder.iterdir())}
    old = []
    for path, content in there.items():
        if content is None or not RunFolder(path).begun:
            continue
        expected = dict(wanted)
        if content[1]:
            expected |= {"seeds": 1, "train": {**wanted["train"], "seed": int(content[2])}}
        if changes(RunFolder(path).experiment, to_yaml(expected))[0]:
            old.append((path, content[1] or ""))
    number = 1
    while any(path.name == f"{key}~{number}" or path.name.startswith(f"{key}~{number}-seed") for path in there):
        number += 1
    with writing(folder):
        for path, ending in old:
            path.rename(folder / f"{key}~{number}{ending}")
        flush(folder)

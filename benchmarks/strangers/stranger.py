"""What a set of the suite is, and one set run: laid out, `quartet new`, `check`, `train`, then its baselines on the same split."""

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pipelines.base.formatting import better

FILES = Path(os.environ.get("QUARTET_FILES", "~/quartet-files")).expanduser()  # data sets as their owners publish them
HELD_OUT = 0.25  # share of train for validation while defaults are chosen, where the data bring no validation split


class Missing(Exception):
    """A set that is not on this machine; says which."""


@dataclass(frozen=True)
class Baseline:
    """A peer's score on the examples that the run was judged on, and the seconds that fitting and answering took."""

    name: str
    score: float
    seconds: float


@dataclass
class Judged:
    """A finished run, for its baselines.

    Attributes:
        yaml: the experiment that `quartet new` wrote.
        settings: overrides that it was trained with.
        split: "validation" or "test": what both are judged on.
        metric: as report.json calls it, without the split.
        report: report.json.
    """

    yaml: Path
    settings: list[str]
    split: str
    metric: str
    report: dict[str, Any]

    @cached_property
    def task(self) -> Any:
        """The task with the run's own splits read; imports TensorFlow."""
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        from pipelines.config.load import load
        from pipelines.machine.startup import start_tensorflow
        from pipelines.runs.launch import task_class

        start_tensorflow()
        experiment = load(str(self.yaml), self.settings).experiment
        return task_class(experiment.task)(experiment)

    @cached_property
    def splits(self) -> Any:
        """pipelines.task.contract.Splits of the run."""
        made = self.task.splits()
        self.task.facts = made.facts
        return made

    @property
    def known(self) -> list[Any]:
        """Sources that a baseline may learn from: train, and where test is judged validation, too, for it chooses nothing by it."""
        return [one for one in (self.splits.train, self.splits.validation if self.split == "test" else None) if one is not None]

    @property
    def unknown(self) -> Any:
        """The source that is judged."""
        return getattr(self.splits, self.split)


@dataclass(frozen=True)
class Stranger:
    """One data set as a stranger would have it.

    Attributes:
        name: for --only.
        domain: vision, speech, nlp or recsys.
        lay_out: (an empty folder, whether defaults are being chosen) -> what `quartet new --data` is given. Raises Missing.
        baselines: of a finished run.
        metrics: of the report, the first that it has; none: the first of all.
        expert: the baselines that an expert would try first; the first of them that there is.
        options: further ones of `quartet new`, such as the column that is asked about.
        own_choice: while defaults are chosen, lay_out makes the "test" split of other training examples, so that it may be judged.
    """

    name: str
    domain: str
    lay_out: Callable[[Path, bool], Path]
    baselines: Callable[[Judged], Iterable[Baseline]]
    metrics: tuple[str, ...] = ()
    expert: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    own_choice: bool = False


@dataclass
class Result:
    """One set measured; `seconds` and `cpu_seconds` are those of the training command, `new_cpu_seconds` those of `quartet new`;
    `lower`: a lower score is better."""

    name: str
    split: str
    metric: str = ""
    score: float = float("nan")
    low: float | None = None
    high: float | None = None
    lower: bool = False
    examples: int | None = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    new_cpu_seconds: float = 0.0
    megabytes: float = 0.0
    baselines: list[dict[str, Any]] = field(default_factory=list)
    settings: list[str] = field(default_factory=list)
    problem: str = ""
    body: str = ""  # of the experiment, without its header

    @property
    def beaten_by(self) -> list[str]:
        """Baselines that are better by more than chance: beyond the interval of the score."""
        bound = self.low if self.lower else self.high
        if bound is None:
            return []
        return [one["name"] for one in self.baselines if (one["score"] < bound if self.lower else one["score"] > bound)]


def run(one: Stranger, work: Path, *, choosing: bool, settings: Sequence[str] = (), new: Sequence[str] = (),
        baselines: bool = True, known_as: Result | None = None, say: Callable[[str], None] = print) -> Result:
    """Lays a set out, lets `quartet` do everything else, and measures baselines beside it.

    Args:
        work: data are kept in it from run to run, and the run until the set is run again.
        choosing: judge on validation, for choosing defaults; the test split is not looked at.
        settings: overrides of what `quartet new` wrote, to try others.
        new: further options of `quartet new`.
        known_as: what came of an earlier proposal; where this one is the same, it is not trained again.
    """
    result = Result(one.name, "test" if not choosing or one.own_choice else "validation", settings=list(settings))
    folder = work / ("choosing" if choosing and one.own_choice else "data") / one.name
    try:
        data = _laid_out(one, folder, choosing)
    except Missing as error:
        result.problem = f"not on this machine: {error}"
        return result
    yaml, runs = work / "experiments" / f"{one.name}.yaml", work / "runs" / one.name
    yaml.parent.mkdir(parents=True, exist_ok=True)
    yaml.unlink(missing_ok=True)
    shutil.rmtree(runs, ignore_errors=True)
    known = list(settings)
    try:
        used = _processor_seconds()
        _quartet("new", one.domain, "--data", str(data), "-o", str(yaml), *one.options, *new)
        result.new_cpu_seconds = _processor_seconds() - used
        if choosing and result.split == "validation" and not _own_validation(yaml):
            known.append(f"data.validation={HELD_OUT}")
        text = yaml.read_text(encoding="utf-8")
        say(text)
        result.body = text[text.index("\ntask:"):]
        if known_as is not None and known_as.body == result.body:
            return replace(known_as, new_cpu_seconds=result.new_cpu_seconds)
        say(_quartet("check", str(yaml), "--runs", str(runs)).strip())
        used, began = _processor_seconds(), time.perf_counter()
        _quartet("train", str(yaml), *known, "--runs", str(runs), "--quiet")
    except subprocess.CalledProcessError as error:
        result.problem = f"quartet {error.cmd[3]} ended with {error.returncode}: {(error.stderr or error.stdout).strip()[-2000:]}"
        return result
    result.seconds = time.perf_counter() - began
    result.cpu_seconds = _processor_seconds() - used
    result.megabytes = sum(file.stat().st_size for file in runs.rglob("*") if file.is_file()) / 1e6
    report = json.loads(next(runs.glob("**/report/report.json")).read_text(encoding="utf-8"))
    there = {name.partition("/")[2]: metric for name, metric in report["metrics"].items() if name.startswith(f"{result.split}/")}
    result.metric = next((name for name in one.metrics if name in there), next(iter(there)))
    result.lower, metric = better(result.metric) == "min", there[result.metric]
    result.score, result.low, result.high, result.examples = (metric.get(key) for key in ("value", "low", "high", "n"))
    say(f"{one.name}: {result.split} {result.metric} {result.score:.4f} [{result.low}, {result.high}], {result.seconds:.0f} s "
        f"({result.cpu_seconds:.0f} s of processor time), run of {result.megabytes:.1f} MB")
    if baselines:
        for peer in one.baselines(Judged(yaml, known, result.split, result.metric, report)):
            result.baselines.append(vars(peer))
            say(f"  {peer.name}: {peer.score:.4f} in {peer.seconds:.1f} s")
    return result


def _laid_out(one: Stranger, folder: Path, choosing: bool) -> Path:
    """Lays a set out once; what was interrupted is laid out anew."""
    done = folder / ".data"
    if done.exists():
        return Path(done.read_text(encoding="utf-8"))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        data = one.lay_out(folder, choosing)
    except Missing:
        shutil.rmtree(folder)
        raise
    done.write_text(str(data), encoding="utf-8")
    return data


def _own_validation(yaml: Path) -> bool:
    from pipelines.config.load import load

    return isinstance(load(str(yaml), []).experiment.data.validation, str)


def _processor_seconds() -> float:
    """What the commands that have ended took, user and system together."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _quartet(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "quartet", *arguments], capture_output=True, text=True, check=True,
                          env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"})
    return done.stdout


def published(name: str) -> Path:
    """A folder of ~/quartet-files. Raises Missing."""
    folder = FILES / name
    if not folder.is_dir():
        raise Missing(str(folder))
    return folder


def prepared(name: str, split: str) -> dict[str, Any]:
    """A split of a TFDS data set as arrays, never downloaded. Raises Missing."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow_datasets as tfds

    try:
        return tfds.as_numpy(tfds.load(name, split=split, batch_size=-1, download=False))
    except (AssertionError, tfds.core.registered.DatasetNotFoundError) as error:
        raise Missing(f"{name} as TFDS prepares it ({str(error).splitlines()[0]})") from None

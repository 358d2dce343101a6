"""The form in which `quartet serve` answers one input of a run: the fastest that keeps the answers, chosen by measuring at start.

A form is one of the runtimes that are installed, or TensorFlow as the run was trained. Each answers a few inputs beside TensorFlow: one
that differs by more than 1e-5, or is no faster, is left. The choice is kept in the user's cache folder, by the checksum of the model.
Batches are TensorFlow's: it computes them on all processors.
"""

import hashlib
import os
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from shutil import copyfile
from typing import Any

import numpy as np
import tensorflow as tf

from extensions.convert import runtimes
from extensions.convert.compare import latencies
from extensions.convert.conversion import LITERT, ONNX, OPENVINO, Format, convert
from extensions.convert.core import Core, core_of
from extensions.convert.loading import Tensor, checksum
from extensions.convert.quick import QuickPredictor
from pipelines.base import stored
from pipelines.base.errors import ConfigError, QuartetError
from pipelines.base.files import whole_folder
from pipelines.base.progress import Say, silent
from pipelines.data.reasons import reason
from pipelines.machine.hardware import processor_name
from pipelines.machine.startup import silenced
from pipelines.serving.forms import difference
from pipelines.serving.load import LoadedRun
from pipelines.serving.predict import Predictor

FORMATS = [LITERT, ONNX, OPENVINO]
SECONDS = 20.0  # after which no further form is tried
KEEPS = 1e-5  # largest difference of an answer
FASTER = 0.8  # times TensorFlow's milliseconds that another form may take to be chosen
CHOICE = "choice.json"


class Choice(stored.Record):
    """choice.json.

    Attributes:
        form: a key of runtimes.RUNTIMES, or tensorflow.
        by_numpy: whether inputs are decoded by numpy, too.
        file: of the core, and its checksum; empty for TensorFlow. answers: of the core.
    """

    form: stored.Name
    by_numpy: bool = False
    file: str = ""
    checksum: str = ""
    answers: list[Tensor] = []
    why: stored.Text


@dataclass(frozen=True)
class _Candidate:
    """A form that answers as TensorFlow does; its files lie in `folder`."""

    form: Format
    choice: Choice
    predictor: QuickPredictor
    folder: Path


def predictor(run: LoadedRun, *, wanted: str = "auto", batch: int | None = None, kept: Path | None = None,
              say: Say = silent) -> Predictor:
    """What answers for a run.

    Args:
        wanted: a form, or the fastest.
        kept: folder of choices; None: each start chooses anew.
        say: gets the form, and why.

    Raises:
        ConfigError: the form that is wanted is not installed, cannot be made of this model, or answers otherwise.
    """
    if wanted == "tensorflow":
        return Predictor(run, batch=batch)
    place = None if kept is None else kept / _key(run, wanted)
    choice, answering = (_kept(run, place, batch) if place else None) or _choose(run, wanted, batch, place)
    if wanted != "auto" and choice.form != wanted:
        raise ConfigError(f"--form {wanted}: {choice.why}")
    say(f"form         {run.name}: {choice.form}: {choice.why}")
    return answering


def choices() -> Path:
    """Where the choices of this user are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "quartet" / "forms"


def _key(run: LoadedRun, wanted: str) -> str:
    """A name for the choice: of the model, what computes it, and where."""
    def there(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return ""

    folder = run.folder
    parts = [checksum(file) for file in (folder.model / "model.keras", folder.facts, folder.experiment)]
    parts += [wanted, run.machine.precision, processor_name(), version("tensorflow"), *map(there, runtimes.PACKAGES.values())]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _kept(run: LoadedRun, place: Path, batch: int | None) -> tuple[Choice, Predictor] | None:
    """A choice of before; None where there is none, or it cannot be used."""
    try:
        choice = stored.read(place / CHOICE, Choice)
        if choice.form == "tensorflow":
            return choice, Predictor(run, batch=batch)
        if Path(choice.file).name != choice.file or checksum(place / choice.file) != choice.checksum:
            return None
        with silenced():
            compute = runtimes.load(choice.form, place / choice.file, [])
        outputs = {one.name: one.spec for one in choice.answers}
        return choice, QuickPredictor(run, compute, outputs, by_numpy=choice.by_numpy, batch=batch)
    except (QuartetError, OSError, ImportError, KeyError, ValueError, RuntimeError):
        return None


def _choose(run: LoadedRun, wanted: str, batch: int | None, place: Path | None) -> tuple[Choice, Predictor]:
    """The form that is wanted, or the fastest; kept at the place."""
    usual = Predictor(run, batch=batch)
    candidates: list[_Candidate] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            refused = _try_all(run, wanted, usual, Path(folder), candidates)
        except ConfigError as error:  # no form can be made of it
            refused = [str(error)]
        whole, *times = _milliseconds([usual, *(one.predictor for one in candidates)], run)
        why = "; ".join([*(f"{one.form.name} {each:.2f} ms" for one, each in zip(candidates, times)),
                         f"TensorFlow {whole:.2f} ms an input", *refused])
        best = min(range(len(candidates)), key=times.__getitem__, default=None)
        if best is None or (wanted == "auto" and times[best] > FASTER * whole):
            choice, answering, files = Choice(form="tensorflow", why=why), usual, []
        else:
            one = candidates[best]
            choice, answering, files = one.choice.model_copy(update={"why": why}), one.predictor, sorted(one.folder.iterdir())
        if place is not None:
            _keep(place, choice, files)
    return choice, answering


def _try_all(run: LoadedRun, wanted: str, usual: Predictor, folder: Path, candidates: list[_Candidate]) -> list[str]:
    """Fills the candidates; the reasons why others are none. Raises ConfigError where there can be no other form."""
    if any("GPU" in device for device in run.machine.devices):
        raise ConfigError("other forms compute on the processor, and there is a GPU")
    forms = [form for form in FORMATS if wanted in ("auto", form.runtime) and form.installed]
    if not forms:
        raise ConfigError("no other form is installed (extras mobile, onnx, openvino)")
    began, refused = time.monotonic(), []
    core = core_of(run)
    if _computes_in_halves(core):
        raise ConfigError(f"judged in {run.machine.precision}, in which no other form answers alike")
    for form in forms:
        if time.monotonic() - began > SECONDS:
            refused.append(f"{form.name} not tried after {SECONDS:g} s")
            continue
        (place := folder / form.runtime).mkdir()
        try:
            candidates.append(_try(run, form, core, usual, place))
        except ConfigError as error:
            refused.append(str(error))
        except Exception as error:  # whatever a runtime fails with
            refused.append(f"{form.name}: {reason(error)}")
    return refused


def _try(run: LoadedRun, form: Format, core: Core, usual: Predictor, place: Path) -> _Candidate:
    """Raises ConfigError where it cannot be made or answers otherwise, and whatever a runtime fails with."""
    file = convert(core, form, np.zeros(0), place)
    with silenced():
        compute = runtimes.load(form.runtime, file, [])
    answers = [Tensor.of(name, spec) for name, spec in core.answers.items()]
    samples = [("sample", row) for row in run.task.input.requests.typical()]
    for by_numpy in (True, False):
        quick = QuickPredictor(run, compute, core.answers, by_numpy=by_numpy, batch=usual.batch)
        off = max(difference(quick.together([one])[0], usual.together([one])[0]) for one in samples)
        if off <= KEEPS:
            choice = Choice(form=form.runtime, by_numpy=by_numpy, file=file.name, checksum=checksum(file), answers=answers, why="")
            return _Candidate(form, choice, quick, place)
    raise ConfigError(f"{form.name} differs by {off:.1g}")


def _computes_in_halves(core: Core) -> bool:
    """Whether any of it is in 16 bits: some networks are in float32 whatever the run's precision."""
    graph, halves = core.function.graph.as_graph_def(), {tf.bfloat16.as_datatype_enum, tf.float16.as_datatype_enum}
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    return any(value.type in halves for node in nodes for value in node.attr.values())


def _milliseconds(predictors: list[Predictor], run: LoadedRun) -> list[float]:
    """Medians of answering one input alone, by turns."""
    samples = run.task.input.requests.typical()

    def call(predictor: Predictor, _: np.ndarray) -> list[Any]:
        return [predictor.together([("sample", row)]) for row in samples]

    times = latencies({str(place): partial(call, one) for place, one in enumerate(predictors)}, np.zeros(0))
    return [one.value / len(samples) for one in times.values()]


def _keep(place: Path, choice: Choice, files: list[Path]) -> None:
    """Writes a choice and the files of its core; a full or foreign disk costs the next start its time, no more."""
    with suppress(OSError, QuartetError):
        os.makedirs(place.parent, mode=0o700, exist_ok=True)
        with whole_folder(place, replace=True) as staging:
            for file in files:
                copyfile(file, staging / file.name)
            (staging / CHOICE).write_text(choice.model_dump_json(), encoding="utf-8")

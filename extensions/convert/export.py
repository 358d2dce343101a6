"""`quartet export --for mobile|cpu|onnx|openvino`: the numeric core of a run in another form, judged before it is written.

Each form that is tried is loaded again and answers validation beside the model; one that loses more than it may is refused, with the
reason. The folder is written whole or not at all; docs/serving.md says what is in it.
"""

from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile
from typing import Any

from extensions.convert import runtimes
from extensions.convert.compare import BATCH, Compared, Comparison, Compute, latencies
from extensions.convert.conversion import DYNAMIC, INT8, LITERT, ONNX, OPENVINO, OPENVINO_INT8, Format, convert
from extensions.convert.core import Core, core_of
from extensions.convert.decoding import Decoder, decoder_of
from extensions.convert.loading import Manifest, Measured, Tensor, checksum
from extensions.convert.options import LOSS
from pipelines.base.errors import ConfigError
from pipelines.base.formatting import number
from pipelines.base.progress import Say, silent
from pipelines.base.storage import workplace
from pipelines.config.messages import listed
from pipelines.data.reasons import reason
from pipelines.machine.startup import silenced
from pipelines.runs.folder import RunFolder
from pipelines.serving.answers import class_names
from pipelines.serving.export import writing
from pipelines.serving.forms import describe
from pipelines.serving.load import LoadedRun
from pipelines.task.results import Metric

KEEPS, SAME = 1e-5, 1e-4  # largest difference of an answer: of the fastest form, and of any in float32
FORMATS: dict[str, list[Format]] = {
    "mobile": [DYNAMIC, INT8], "onnx": [ONNX], "openvino": [OPENVINO, OPENVINO_INT8],
    "cpu": [LITERT, ONNX, OPENVINO, DYNAMIC, INT8, OPENVINO_INT8]}
EXTRAS = {"litert": "mobile", "onnx": "onnx", "openvino": "openvino"}
UNTIMED = Metric(float("nan"))
SMALLER = 1.05  # times the bytes of dynamic range that int8 may have to be preferred to it


@dataclass
class Passed:
    """A form that answers as the model does, within what may be lost.

    Attributes:
        folder: of its files alone.
        time: of one input; `together`: of a batch, where that decides.
    """

    form: Format
    folder: Path
    compute: Compute
    compared: Compared
    time: Metric = UNTIMED
    together: Metric = UNTIMED

    @property
    def nbytes(self) -> int:
        return sum(file.stat().st_size for file in self.folder.iterdir())


def export_converted(run: LoadedRun, target: Path, *, made_for: str, loss: float = LOSS, replace: bool = False,
                     say: Say = silent) -> Manifest:
    """Converts, judges and writes. Returns the manifest.

    Args:
        run: in float32, on the CPU.
        made_for: a key of FORMATS.
        loss: points of the score, of 100, that may be lost on validation.
        say: is told each form's result.

    Raises:
        ConfigError: the extra is not installed, the model has no core that can be converted, or every form is refused.
        TrainingError: it cannot be written.
    """
    forms = _installed(made_for)
    core = core_of(run)
    comparison = Comparison(run, core)
    with workplace(run.folder.path) as place:
        passed, refused = [], []
        for form in forms:
            try:
                passed.append(_try(form, core, comparison, place / form.name, loss))
            except ConfigError as error:
                refused.append(f"{form.name}: {error}")
                say(f"{form.name}: refused: {error}")
        if not passed:
            raise ConfigError(f"{run.folder.path}: not exported. " + "; ".join(refused))
        times = latencies({"model": core, **{one.form.name: one.compute for one in passed}}, comparison.one)
        batches = latencies({one.form.name: one.compute for one in passed}, comparison.batch) if made_for == "openvino" else {}
        for one in passed:
            one.time, one.together = times[one.form.name], batches.get(one.form.name, UNTIMED)
            say(_line(one, comparison))
        chosen = chosen_of(passed, made_for)
        decoder = decoder_of(run.task)
        manifest = _manifest(run, core, comparison, chosen, times["model"], made_for, decoder)
        _write(run, target, chosen, manifest, decoder, replace=replace)
    return manifest


def _installed(made_for: str) -> list[Format]:
    """The forms whose packages are there. Raises ConfigError where there is none."""
    forms = [form for form in FORMATS[made_for] if form.installed]
    if not forms:
        extras = sorted({EXTRAS[form.runtime] for form in FORMATS[made_for]})
        raise ConfigError(f"--for {made_for} needs the extra {listed(extras)}: pip install 'keras-quartet[{extras[0]}]'")
    return forms


def _try(form: Format, core: Core, comparison: Comparison, folder: Path, loss: float) -> Passed:
    """Converts, loads and judges a form. Raises ConfigError with the reason why it is refused."""
    folder.mkdir()
    file = convert(core, form, comparison.calibration, folder)
    try:
        with silenced():
            compute = runtimes.load(form.runtime, file, [] if form.exact else comparison.shares)
    except Exception as error:  # whatever a runtime fails with
        raise ConfigError(f"its file cannot be loaded again: {reason(error)}") from error
    compared = comparison.compare(compute)
    _check(form, compared, comparison, loss)
    return Passed(form, folder, compute, compared)


def _check(form: Format, compared: Compared, comparison: Comparison, loss: float) -> None:
    """Raises ConfigError for a form that loses too much."""
    if form.exact and compared.largest > SAME:
        raise ConfigError(f"it is in float32, and an answer differs by {compared.largest:.2g}, over {SAME:g}: the conversion is wrong")
    if form.exact and compared.largest <= KEEPS:
        return
    if compared.lost is None:
        raise ConfigError(f"an answer differs by {compared.largest:.2g}, over {KEEPS:g}, and the task scores no single example to judge "
                          "that by")
    if compared.lost.value > loss:
        raise ConfigError(f"it loses {compared.lost.value:.2f} points {bounds(compared.lost)} of {comparison.metric} on "
                          f"{comparison.split} ({len(comparison.inputs):,} examples); --loss allows {loss:g}")


def chosen_of(passed: list[Passed], made_for: str) -> Passed:
    """For a mobile, dynamic range, unless int8 is faster beyond chance and no larger; for OpenVINO, float32, unless int8 is faster beyond
    chance with a batch; else the fastest."""
    if made_for == "cpu" or len(passed) < 2:
        return min(passed, key=lambda one: one.time.value)
    usual, int8 = passed
    if made_for == "openvino":
        return int8 if _faster(int8.together, usual.together) else usual
    return int8 if _faster(int8.time, usual.time) and int8.nbytes <= SMALLER * usual.nbytes else usual


def _faster(one: Metric, other: Metric) -> bool:
    """Beyond chance."""
    return (one.high or 0.0) < (other.low or 0.0)


def _line(one: Passed, comparison: Comparison) -> str:
    score = one.compared.score.text(comparison.metric) if one.compared.score else "no score"
    return f"{one.form.name}: {one.nbytes / 1e6:.2f} MB, {comparison.metric} {score}, {_time(one.time)} an input" + (
        "" if one.together is UNTIMED else f", {_time(one.together)} a batch of {BATCH}")


def _time(metric: Metric) -> str:
    return f"{metric.value:.3f} ms {bounds(metric, 3)}"


def bounds(metric: Metric, digits: int = 2) -> str:
    """`[0.10, 0.30]`, or nothing."""
    return "" if metric.low is None or metric.high is None else f"[{metric.low:.{digits}f}, {metric.high:.{digits}f}]"


def _manifest(run: LoadedRun, core: Core, comparison: Comparison, one: Passed, model: Metric, made_for: str,
              decoder: Decoder) -> Manifest:
    task, compared = run.task, one.compared
    trained_on = "There is no validation split: it was judged on examples that the model was trained on."
    notes = [trained_on] if comparison.split == "train" else []
    vector = next((spec for spec in core.answers.values() if spec.shape.rank == 2 and spec.shape[1]), None)
    return Manifest(
        title=f"{run.name}/{run.folder.path.name}", task=task.experiment.task, made_for=made_for, form=one.form.name,
        runtime=one.form.runtime, core=one.form.file, files={file.name: checksum(file) for file in sorted(one.folder.iterdir())},
        nbytes=one.nbytes, weights=core.nbytes, input=Tensor.of("input", core.input),
        answers=[Tensor.of(name, spec) for name, spec in core.answers.items()],
        shares=[] if one.form.exact else comparison.shares, split=comparison.split, examples=len(comparison.inputs),
        metric=comparison.metric, model=Measured(score=_stored(comparison.score), milliseconds=_stored(model)),
        export=Measured(score=_stored(compared.score), milliseconds=_stored(one.time)), lost=_stored(compared.lost),
        largest=compared.largest, notes=notes, classes=class_names(task, vector.shape[1]) if vector is not None else None,
        decode=decoder.settings if decoder.file else None, not_alone=None if decoder.file else decoder.why)


def _stored(metric: Metric | None) -> Any:
    return None if metric is None else metric.as_json()


def _write(run: LoadedRun, target: Path, one: Passed, manifest: Manifest, decoder: Decoder, *, replace: bool) -> None:
    with writing(run, target, replace=replace) as staging:
        describe(run, staging, **manifest.model_dump())
        for file in one.folder.iterdir():
            copyfile(file, RunFolder(staging).model / file.name)
        if decoder.file is not None:
            copyfile(Path(runtimes.__file__), staging / "runtimes.py")
            copyfile(Path(runtimes.__file__).with_name("answer_alone.py"), staging / "answer.py")
            copyfile(decoder.file, staging / "decode.py")
        (staging / "README.txt").write_text(readme(manifest, target), encoding="utf-8")


def readme(manifest: Manifest, target: Path) -> str:
    """README.txt: what it is, how good, and how to use it."""
    def value(one: Any, unit: str = "") -> str:
        return "?" if one is None else f"{number(one.value, manifest.metric) if not unit else f'{one.value:.3f} ms'}"

    lines = [
        f"{manifest.title} ({manifest.task}), converted: {manifest.form}, {manifest.nbytes:,} bytes (weights as trained: "
        f"{manifest.weights:,}).", "",
        f"On {manifest.examples:,} examples of {manifest.split}: {manifest.metric} {value(manifest.export.score)}, the model itself "
        f"{value(manifest.model.score)}; an input takes {value(manifest.export.milliseconds, 'ms')}, in the model "
        f"{value(manifest.model.milliseconds, 'ms')} (without decoding). manifest.json has the intervals.", *manifest.notes, "",
        f"    quartet predict {target.name} INPUT...      # also quartet serve and quartet evaluate", ""]
    if manifest.decode is None:
        lines.append(f"Without Quartet: {manifest.not_alone}.")
    else:
        needs = listed(("numpy", runtimes.PACKAGES[manifest.runtime], *manifest.decode["needs"]), "and")
        lines += [f"Without Quartet and TensorFlow ({needs}):", "", "    python answer.py INPUT...", "",
                  "or in Python: from answer import Model; Model(folder).answer(INPUT)"]
    return "\n".join([*lines, ""])

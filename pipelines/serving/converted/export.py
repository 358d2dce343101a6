"""`quartet export --for mobile|cpu|onnx|openvino`: the numeric core of a run in another form, judged before it is written.

Each form that is tried is loaded again and answers validation beside the model; one that loses more than it may is refused, with the
reason. The folder is written whole or not at all; docs/serving.md says what is in it.
"""

import importlib.util
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile
from typing import Any

from pipelines.base.encryption import key_for, temporary_folder
from pipelines.base.errors import ConfigError, TrainingError
from pipelines.base.files import finite, whole_folder
from pipelines.base.formatting import number
from pipelines.base.inside import held
from pipelines.config.dump import resolved_yaml
from pipelines.config.messages import listed
from pipelines.data.reasons import reason
from pipelines.runs.folder import RunFolder
from pipelines.serving.answers import class_names
from pipelines.serving.converted import runtimes
from pipelines.serving.converted.compare import BATCH, Compared, Comparison, latencies
from pipelines.serving.converted.conversion import DYNAMIC, INT8, LITERT, ONNX, OPENVINO, OPENVINO_INT8, Form, convert, silenced
from pipelines.serving.converted.core import Core, core_of
from pipelines.serving.converted.loading import Manifest, Measured, Tensor, checksum
from pipelines.serving.load import LoadedRun
from pipelines.task.results import Metric

LOSS = 0.5  # points of the score that a converted model may lose
KEEPS, SAME = 1e-5, 1e-4  # largest difference of an answer: of the fastest form, and of any in float32
FORMS: dict[str, list[Form]] = {
    "mobile": [DYNAMIC, INT8], "onnx": [ONNX], "openvino": [OPENVINO, OPENVINO_INT8],
    "cpu": [LITERT, ONNX, OPENVINO, DYNAMIC, INT8, OPENVINO_INT8]}
EXTRAS = {"litert": "mobile", "onnx": "onnx", "openvino": "openvino"}
MODULES = {"litert": ("ai_edge_litert",), "onnx": ("onnxruntime", "tf2onnx"), "openvino": ("openvino",)}
SMALLER = 1.05  # times the bytes of dynamic range that int8 may have to be preferred to it


@dataclass
class Tried:
    """A form on trial; `why` it is refused, or None."""

    form: Form
    why: str | None = None
    folder: Path | None = None
    compute: Any = None
    compared: Compared | None = None
    time: Metric | None = None  # of one input
    together: Metric | None = None  # of a batch

    @property
    def nbytes(self) -> int:
        return sum(file.stat().st_size for file in self.folder.iterdir()) if self.folder else 0


def export_converted(run: LoadedRun, target: Path, *, made_for: str, loss: float = LOSS, replace: bool = False,
                     say: Callable[[str], None] = lambda line: None) -> Manifest:
    """Converts, judges and writes. Returns the manifest.

    Args:
        run: in float32, on the CPU.
        made_for: a key of FORMS.
        loss: points of the score, of 100, that may be lost on validation.
        say: is told each form's result.

    Raises:
        ConfigError: the extra is not installed, the model has no core that can be converted, or every form is refused.
        TrainingError: it cannot be written.
    """
    forms = _installed(made_for)
    core = core_of(run)
    comparison = Comparison(run, core)
    with temporary_folder(run.folder.path) as place:
        tried = [_try(form, core, comparison, place / str(number), loss) for number, form in enumerate(forms)]
        passed = [one for one in tried if one.why is None]
        times = latencies({"model": core, **{one.form.name: one.compute for one in passed}}, comparison.one)
        batches = latencies({one.form.name: one.compute for one in passed}, comparison.batch) if made_for == "openvino" else {}
        for one in passed:
            one.time, one.together = times[one.form.name], batches.get(one.form.name)
        for one in tried:
            say(_line(one, comparison))
        if not passed:
            raise ConfigError(f"{run.folder.path}: not exported. " + "; ".join(f"{one.form.name}: {one.why}" for one in tried))
        chosen = chosen_of(passed, made_for)
        manifest = _manifest(run, core, comparison, chosen, times["model"], made_for)
        _write(run, target, chosen, manifest, replace=replace)
    return manifest


def _installed(made_for: str) -> list[Form]:
    """The forms whose packages are there. Raises ConfigError where there is none."""
    forms = [form for form in FORMS[made_for]
             if all(importlib.util.find_spec(name) for name in (*MODULES[form.runtime], *form.packages))]
    if not forms:
        extras = sorted({EXTRAS[form.runtime] for form in FORMS[made_for]})
        raise ConfigError(f"--for {made_for} needs the extra {listed(extras)}: pip install 'keras-quartet[{extras[0]}]'")
    return forms


def _try(form: Form, core: Core, comparison: Comparison, folder: Path, loss: float) -> Tried:
    """Converts, loads and judges a form."""
    folder.mkdir()
    try:
        file = convert(core, form, comparison.calibration, folder)
    except ConfigError as error:
        return Tried(form, str(error))
    try:
        with silenced():
            compute = runtimes.load(form.runtime, file, [] if form.exact else comparison.shares)
    except Exception as error:  # whatever a runtime fails with
        return Tried(form, f"its file cannot be loaded again: {reason(error)}")
    try:
        compared = comparison.compare(compute)
    except ConfigError as error:
        return Tried(form, str(error))
    return Tried(form, _refusal(form, compared, comparison, loss), folder, compute, compared)


def _refusal(form: Form, compared: Compared, comparison: Comparison, loss: float) -> str | None:
    if form.exact and compared.largest > SAME:
        return f"it is in float32, and an answer differs by {compared.largest:.2g}, over {SAME:g}: the conversion is wrong"
    if form.exact and compared.largest <= KEEPS:
        return None
    if compared.lost is None:
        return f"an answer differs by {compared.largest:.2g}, over {KEEPS:g}, and the task scores no single example to judge that by"
    if compared.lost.value > loss:
        return (f"it loses {compared.lost.value:.2f} points {bounds(compared.lost)} of {comparison.metric} on "
                f"{comparison.split} ({len(comparison.inputs):,} examples); --loss allows {loss:g}")
    return None


def chosen_of(passed: list[Tried], made_for: str) -> Tried:
    """For a mobile, dynamic range, unless int8 is faster beyond chance and no larger; for OpenVINO, float32, unless int8 is faster beyond
    chance with a batch; else the fastest."""
    if made_for == "openvino" and len(passed) == 2:
        exact, int8 = passed
        assert exact.together is not None and int8.together is not None
        return int8 if (int8.together.high or 0.0) < (exact.together.low or 0.0) else exact
    if made_for != "mobile" or len(passed) < 2:
        return min(passed, key=lambda one: one.time.value if one.time else 0.0)
    dynamic, int8 = passed
    assert dynamic.time is not None and int8.time is not None
    faster = (int8.time.high or 0.0) < (dynamic.time.low or 0.0)
    return int8 if faster and int8.nbytes <= SMALLER * dynamic.nbytes else dynamic


def _line(one: Tried, comparison: Comparison) -> str:
    if one.why is not None:
        return f"{one.form.name}: refused: {one.why}"
    compared = one.compared
    score = compared.score.text(comparison.metric) if compared and compared.score else "no score"
    return f"{one.form.name}: {one.nbytes / 1e6:.2f} MB, {comparison.metric} {score}, {_time(one.time)} an input" + (
        f", {_time(one.together)} a batch of {BATCH}" if one.together else "")


def _time(metric: Metric | None) -> str:
    return f"{metric.value:.3f} ms {bounds(metric, 3)}" if metric else "?"


def bounds(metric: Metric, digits: int = 2) -> str:
    """`[0.10, 0.30]`, or nothing."""
    return "" if metric.low is None or metric.high is None else f"[{metric.low:.{digits}f}, {metric.high:.{digits}f}]"


def _manifest(run: LoadedRun, core: Core, comparison: Comparison, one: Tried, model: Metric, made_for: str) -> Manifest:
    task, compared = run.task, one.compared
    assert one.folder is not None and compared is not None and one.time is not None
    described = [Tensor(name=name, dtype=spec.dtype.name, shape=spec.shape.as_list())
                 for name, spec in {"input": core.input, **core.answers}.items()]
    trained_on = "There is no validation split: it was judged on examples that the model was trained on."
    notes = [trained_on] if comparison.split == "train" else []
    vector = next((spec for spec in core.answers.values() if spec.shape.rank == 2 and spec.shape[1]), None)
    alone = task.alone()
    return Manifest(
        title=f"{run.name}/{run.folder.path.name}", task=task.experiment.task, made_for=made_for, form=one.form.name,
        runtime=one.form.runtime, core=one.form.file, files={file.name: checksum(file) for file in sorted(one.folder.iterdir())},
        nbytes=one.nbytes, weights=core.nbytes, input=described[0], answers=described[1:],
        shares=[] if one.form.exact else comparison.shares, split=comparison.split, examples=len(comparison.inputs),
        metric=comparison.metric, model=Measured(score=_stored(comparison.score), milliseconds=_stored(model)),
        export=Measured(score=_stored(compared.score), milliseconds=_stored(one.time)), lost=_stored(compared.lost),
        largest=compared.largest, notes=notes, classes=class_names(task, vector.shape[1]) if vector is not None else None,
        decode=None if isinstance(alone, str) else alone[1], not_alone=alone if isinstance(alone, str) else None)


def _stored(metric: Metric | None) -> Any:
    return None if metric is None else metric.as_json()


def _write(run: LoadedRun, target: Path, one: Tried, manifest: Manifest, *, replace: bool) -> None:
    assert one.folder is not None
    try:
        with held(run.folder.path), whole_folder(target, replace=replace, key=key_for(run.folder.model)) as staging:
            there = RunFolder(staging)
            there.model.mkdir()
            for file in one.folder.iterdir():
                copyfile(file, there.model / file.name)
            there.facts.write_text(json.dumps(finite(run.task.facts)), encoding="utf-8")
            there.experiment.write_text(resolved_yaml(run.experiment), encoding="utf-8")
            kept = {name: run.environment[name] for name in ("data", "fingerprints", "extensions")}  # nothing of the machine
            there.environment.write_text(json.dumps({"precision": "float32", **kept}), encoding="utf-8")
            there.manifest.write_text(manifest.model_dump_json(indent=1), encoding="utf-8")
            alone = run.task.alone()
            if not isinstance(alone, str):
                copyfile(Path(runtimes.__file__), staging / "runtimes.py")
                copyfile(Path(runtimes.__file__).with_name("answer_alone.py"), staging / "answer.py")
                copyfile(alone[0], staging / "decode.py")
            (staging / "README.txt").write_text(readme(manifest, target, alone), encoding="utf-8")
    except OSError as error:
        raise TrainingError(f"{target}: the model cannot be written: {getattr(error, 'strerror', None) or error}") from error


def readme(manifest: Manifest, target: Path, alone: Any) -> str:
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
    if isinstance(alone, str):
        lines.append(f"Without Quartet: {alone}.")
    else:
        needs = listed(("numpy", runtimes.PACKAGES[manifest.runtime], *manifest.decode["needs"]) if manifest.decode else (), "and")
        lines += [f"Without Quartet and TensorFlow ({needs}):", "", "    python answer.py INPUT...", "",
                  "or in Python: from answer import Model; Model(folder).answer(INPUT)"]
    return "\n".join([*lines, ""])

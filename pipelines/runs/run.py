"""A run from experiment to report: assemble, resume, train, keep the best, save, judge once, report."""

import contextlib
import time
from dataclasses import dataclass
from typing import Any

import keras

from pipelines.base import storage
from pipelines.base.errors import DataError, Interrupted, QuartetError, TrainingError
from pipelines.base.files import whole_folder, write_json
from pipelines.config import extensions
from pipelines.config.schema import Experiment
from pipelines.config.yaml_text import resolved_yaml
from pipelines.data.divide import Warned
from pipelines.data.fingerprint import VERSION
from pipelines.data.stream import ORDER
from pipelines.machine import devices, group
from pipelines.machine.environment import version
from pipelines.monitoring.progress import Progress
from pipelines.runs import hooking, judging, reporting, run_display
from pipelines.runs.cleaning import drop_state
from pipelines.runs.folder import RunFolder
from pipelines.runs.run_hook import RunHook, Status
from pipelines.runs.work import Call as Call
from pipelines.runs.work import Voice, Work
from pipelines.task.contract import Task
from pipelines.training import other_run, state, transform
from pipelines.training.session import Session, assemble
from pipelines.training.transform import Kept


@dataclass(frozen=True)
class Begun:
    """What must be known before anything is built; the same on all hosts, but for the checkpoint, which the chief alone reads.

    Attributes:
        before: what the checkpoint that is resumed says of the run.
        precision: that it was begun with, or that a new one is asked to have; None: as the experiment says.
        runs: checksums of other runs that it needs.
        kept: what transforms keep.
    """

    before: state.Identity | None
    precision: str | None
    runs: dict[str, str]
    kept: Kept


def look_up(work: Work) -> Begun:
    """Raises TrainingError where what an interrupted run needs is not what it was begun with."""
    folder, checkpoint = work.folder, work.folder.checkpoints / "resume.npz"
    before = state.peek(checkpoint, state.Identity) if work.hosts.chief and checkpoint.exists() else None
    if before and folder.environment.exists():
        extensions.match(folder.read_environment()["extensions"], work.experiment, str(folder.path))
    precision = work.hosts.of_chief(before.precision if before else work.policy.precision)
    others = other_run.checksums(other_run.named(work.experiment, folder.path))
    changed = [setting for setting, known in (before.runs if before else {}).items() if others.get(setting, known) != known]
    if changed:
        raise TrainingError(f"{folder.path}: the run that {changed[0]} names is not the one that this training was begun with "
                            "(its experiment, weights or facts have changed); restore it, or begin anew with --fresh")
    kept = before.transforms if before else work.policy.kept
    if before and (missing := transform.applying(work.experiment).keys() - kept.keys()):
        raise TrainingError(f"{folder.path}: its checkpoint is of another version of Quartet, which did not keep what {min(missing)} "
                            "needs; begin anew with --fresh")
    return Begun(before, precision, others, work.hosts.of_chief(transform.begin(work.experiment, kept) if work.hosts.chief else None))


def identify(work: Work, begun: Begun, session: Session) -> dict[str, Any]:
    """What checkpoints and environment.json say that the run is. Raises DataError, TrainingError where the data are others than before."""
    splits, before = {"train": session.splits.train, "validation": session.splits.validation}, begun.before
    data = {split: source.fingerprint() for split, source in splits.items() if source}
    every = work.hosts.of_all(data)
    for number, theirs in enumerate(every):
        if theirs != every[0]:
            raise DataError(f"host {number} reads other data than host 0; give all hosts the same files")
    if before and before.fingerprints == VERSION and before.data != data:
        raise TrainingError(f"{work.folder.path}: the data are not those that this run was begun with (files added, removed or changed); "
                            "restore them, or begin anew with --fresh")
    if before and session.feed.by_epoch and before.order != ORDER:
        raise TrainingError(f"{work.folder.path}: the run was begun by another version of Quartet, which reads streams in another "
                            "order; end it with that version, or begin anew with --fresh")
    return {"precision": session.machine.precision, "data": data, "runs": begun.runs, "fingerprints": VERSION, "order": ORDER}


def announce(work: Work, begun: Begun, session: Session, identity: dict[str, Any], listeners: list[RunHook]) -> dict[str, Any]:
    """Says what will be done, and records on what machine and data: environment.json, which is returned. At the chief."""
    run_display.describe(session, work.call.name, work.voice.note)
    if begun.before is not None and begun.before.fingerprints != VERSION:
        work.voice.warn("The run was begun by an earlier version, which knew its data by the files' times: whether they have "
                        "changed since is not known.")
    for note in session.splits.notes:
        if isinstance(note, Warned) and work.policy.guidance:
            work.voice.remark(note)
    facts = session.task.facts
    encoder = {"encoder": facts["encoder"], "keras-hub": version("keras-hub")} if "encoder" in facts else {}
    finetune = {"finetune": session.way.model_dump()} if session.way is not None else {}
    environment = {**(work.call.environment or {}), **devices.describe(session.machine), **identity, **encoder,
                   "extensions": extensions.used_by(work.experiment), **finetune}
    write_json(work.folder.environment, environment)
    for listener in listeners:
        try:
            for file, content in listener.describe_data(work.experiment, session.splits, work.call.name).items():
                write_json(work.folder.path / file, content)
        except (QuartetError, OSError) as error:  # the training has read them, and needs no description
            work.voice.remark(f"{work.folder.path}: the data could not be described: {error}")
    return environment


def train(experiment: Experiment, folder: RunFolder, call: Call) -> dict[str, Any]:
    """Trains, or resumes an interrupted run, and evaluates it. Returns the report as report.json holds it.

    A run that pauses leaves no report.json, so that it can be resumed; what is returned then is what its report would hold.
    Of several hosts, the chief writes the folder, and the others return an empty report.

    Raises:
        ConfigError, DataError: before any work.
        TrainingError: the loss is not finite, or a file cannot be written.
        Interrupted: by a signal; the state is saved.
    """
    began = time.perf_counter()
    hosts = group.current()
    with folder.claimed(resolved_yaml(experiment), fresh=call.fresh) if hosts.chief else contextlib.nullcontext():
        if hosts.chief:
            storage.begin(folder.path, begun=folder.trained)
        if hosts.of_chief(folder.finished):
            return folder.read_report() if hosts.chief else {}
        work = Work(experiment, folder, call, hosts, storage.is_private(folder.path), Voice(call.quiet, hosts))
        return _train(work, began)


def _train(work: Work, began: float) -> dict[str, Any]:
    """The stages of a run: each takes what those before it gave."""
    experiment, policy, hosts, voice, meter = work.experiment, work.policy, work.hosts, work.voice, work.meter
    with meter.part("setup"):
        before = time.perf_counter() - began
        listening = hooking.listeners(work)
        begun = look_up(work)
        session = assemble(experiment, work.call.task_class, precision=begun.precision, beside=work.folder.path, kept=begun.kept,
                           say=voice.note)
        identity = identify(work, begun, session)
        validation = judging.validation(session)
    assembled = time.perf_counter()
    with Progress(session.steps, session.plan.steps_per_epoch, work.call.quiet or not hosts.chief) as progress:
        voice.screen = progress
        environment = announce(work, begun, session, identity, listening) if hosts.chief else {}
        hooked = hooking.hook_up(work, session, validation, identity, listening, progress)
        resumed = hooking.resume_or_initialise(work, session, hooked)
        ended: Status = "failed"
        report: dict[str, Any] = {}
        try:
            if hosts.chief:
                hooking.open_logs(work, session, hooked, resumed)
            meter.add("setup", before + time.perf_counter() - assembled)
            hooked.loop.train()
            with meter.part("checkpoint"):
                chosen = reporting.choose_weights(work, session, hooked, validation)
                if policy.model:
                    session.task.refit(session.model)
                if policy.model and hosts.chief:
                    # a saved model is its weights; the optimizer's state stays in the checkpoint
                    session.model.optimizer = session.learner.model.optimizer = None
                    save_model(session.model, session.task, work.folder)
            with meter.part("evaluation"):
                judgements = judging.judge(session, policy, validation, chosen.answers, voice.warn)
            if not hosts.chief:
                hosts.of_chief(None)  # waits until it has judged
                return {}
            report = reporting.report(work, session, hooked, chosen, judgements, environment)
            ended = "interrupted" if hooked.loop.paused else "finished"
            if policy.model and not experiment.train.keep_state:
                _drop_state(work)
            hosts.of_chief(None)
            return report
        except Interrupted:
            ended = "interrupted"
            raise
        finally:
            hooked.log.close()
            for listener in listening:
                listener.ended(ended, report)


def _drop_state(work: Work) -> None:
    try:
        drop_state(work.folder)
    except OSError as error:  # the run is finished all the same
        work.voice.remark(
            f"{work.folder.checkpoints}: cannot be removed: {error.strerror or error}; quartet runs clean tries again")


def save_model(model: keras.Model, task: Task, folder: RunFolder) -> None:
    """Writes model/, whole: the Keras model, and the facts from which the task is built again."""
    try:
        with whole_folder(folder.model, replace=True) as staging:
            model.save(staging / "model.keras")
            write_json(staging / "facts.json", task.facts)
    except OSError as error:
        raise TrainingError(
            f"{folder.model}: the model cannot be saved: {error.strerror or error}; free some space and start the same command again"
        ) from error

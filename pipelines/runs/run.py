"""A run from experiment to report: assemble, resume, train, keep the best, save, judge once, report."""

import contextlib
import time
from typing import Any

import keras

from pipelines.base import storage
from pipelines.base.errors import Interrupted, TrainingError
from pipelines.base.files import whole_folder, write_json
from pipelines.config.schema import Experiment
from pipelines.config.yaml_text import resolved_yaml
from pipelines.machine import group
from pipelines.monitoring.progress import Progress
from pipelines.runs import beginning, hooking, judging, reporting
from pipelines.runs.cleaning import drop_state
from pipelines.runs.folder import RunFolder
from pipelines.runs.run_hook import Status
from pipelines.runs.work import Call as Call
from pipelines.runs.work import Voice, Work
from pipelines.task.contract import Task
from pipelines.training.session import assemble


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
        begun = beginning.look_up(work)
        session = assemble(experiment, work.call.task_class, precision=begun.precision, beside=work.folder.path, kept=begun.kept,
                           say=voice.note)
        identity = beginning.identify(work, begun, session)
        validation = judging.validation(session)
    assembled = time.perf_counter()
    with Progress(session.steps, session.plan.steps_per_epoch, work.call.quiet or not hosts.chief) as progress:
        voice.screen = progress
        environment = beginning.announce(work, begun, session, identity, listening) if hosts.chief else {}
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

"""The loop of a run with all its hooks, in the order of their calls; resumed, or with its first weights."""

from dataclasses import dataclass
from typing import Any

from pipelines.base import figures
from pipelines.base.errors import ConfigError
from pipelines.config import doors
from pipelines.config.train_settings import protected_by
from pipelines.monitoring.metrics_log import MetricsLog
from pipelines.monitoring.progress import Progress
from pipelines.monitoring.tensorboard import Writer
from pipelines.runs import run_display
from pipelines.runs.run_hook import HookedRun, RunHook
from pipelines.runs.work import Work
from pipelines.training.evaluation import Evaluator
from pipelines.training.hooks.best_weights import KeepBest
from pipelines.training.hooks.checkpoint import Checkpoint
from pipelines.training.hooks.diagnosis import Diagnosis, Remarks, StopWhenNotFinite, WarnOfWaiting
from pipelines.training.hooks.keras_callbacks import KerasCallbacks
from pipelines.training.hooks.log import Log
from pipelines.training.hooks.profile import Profile, Samples
from pipelines.training.hooks.validation import Beginning, Validation
from pipelines.training.loop import Hook, Loop
from pipelines.training.session import Session
from pipelines.training.still import Still, of_chief


@dataclass(frozen=True)
class Hooked:
    """The loop, and those of its hooks that are asked for something afterwards."""

    loop: Loop
    best: KeepBest
    log: Log
    saver: Checkpoint


def listeners(work: Work) -> list[RunHook]:
    """The hooks of extensions; they listen to what a person trains, not to the trials of a search."""
    if not (work.hosts.chief and work.policy.details):
        return []
    run = HookedRun(work.experiment, work.folder, work.call.name, work.call.task_class, work.private, work.voice.note, work.voice.warn)
    return [entry.load()(run) for entry in doors.HOOKS.entries()]


def hook_up(work: Work, session: Session, validation: Evaluator | None, identity: dict[str, Any], listening: list[RunHook],
            progress: Progress) -> Hooked:
    """The loop with its hooks. Raises ConfigError where there are Keras callbacks that must not see the training."""
    train, monitor, plan, voice, chief = work.experiment.train, work.experiment.monitor, session.plan, work.voice, work.hosts.chief
    checkpoints, still = work.folder.checkpoints, Still(work.folder.checkpoints)
    watch, direction = session.watch
    best = KeepBest(checkpoints, f"validation/{watch}", direction, {"weights": session.all_weights,
                    "averages": [average for _, average in session.averages]}, train, say=voice.warn, still=still, hosts=work.hosts)
    log = Log(every=train.log_every or max(1, plan.steps_per_epoch // 10), log=None, writers={}, progress=progress)
    transforms = {"transforms": {one.name: one.kept for one in session.transforms}} if session.transforms else {}
    saver = Checkpoint(checkpoints, session.state_groups, seconds=train.checkpoint_seconds, say=voice.remark,
                       identity=identity | transforms, meter=work.meter, still=still, elsewhere=session.elsewhere)
    if work.call.callbacks and (protection := protected_by(train)):
        raise ConfigError(f"{protection}: Keras callbacks see the training loss, which no noise protects; train without them")
    hooks: list[Hook] = [
        *session.homing(saver.due),
        StopWhenNotFinite(lambda step: run_display.culprits(session, step)),
        voice.warnings,
        *session.freezing,
        Validation(validation, train.validate_every),
        *(hook for one in session.transforms for hook in one.hooks()),
        best,
        *([log] if chief else []),
        *([Beginning(validation, best, log if chief else None)] if validation and session.fits_first else []),
        WarnOfWaiting(monitor.input_wait_warning, voice.warn, run_display.waiting_remedy(session)),
        *([Remarks(session.task.output.remark, voice.warn), *_guidance(work, session, log)] if chief else []),
        *([KerasCallbacks(list(work.call.callbacks), session.model, train, plan.steps_per_epoch)] if work.call.callbacks else []),
        *work.policy.hooks,
        *listening,
        *([Profile(work.folder.tensorboard / "train", monitor.profile, voice.note)] if monitor.profile and chief else []),
        *([saver] if chief else []),
    ]
    until = work.policy.epochs * plan.steps_per_epoch if work.policy.epochs else None
    return Hooked(Loop(session.step, plan=plan, steps=session.steps, hooks=hooks, meter=work.meter, until=until), best, log, saver)


def _guidance(work: Work, session: Session, log: Log) -> list[Hook]:
    """What shows samples, and what notices a training that goes wrong, where the task says what chance is."""
    if not work.policy.guidance:
        return []
    chance, validation, monitor, hooks = session.task.output.chance(), session.splits.validation, work.experiment.monitor, list[Hook]()
    if chance is not None:
        hooks.append(Diagnosis(*chance, examples=len(validation) if validation is not None else 0, say=work.voice.warn))
    if monitor.tensorboard and monitor.samples and not work.private:
        hooks.append(Samples(lambda loop: run_display.show_samples(session, loop, log.writers.get("train"), monitor.samples)))
    return hooks


def resume_or_initialise(work: Work, session: Session, hooked: Hooked) -> bool:
    """Whether an interrupted run is resumed; a new one has its first weights."""
    loop, saver, resumed = hooked.loop, hooked.saver, False
    if work.hosts.chief:
        resumed = saver.load(loop)
        if resumed:
            work.voice.note(f"resuming at step {loop.step:,} of {loop.steps:,}")
        else:
            session.initialise()
            if work.hosts.size > 1:
                saver.save(loop)
                saver.wait(loop)
    with of_chief(work.hosts, saver.file) as file:  # all hosts begin with the same, to the last bit
        return resumed if work.hosts.chief else saver.load(loop, file)


def open_logs(work: Work, session: Session, hooked: Hooked, resumed: bool) -> None:
    """Opens metrics.jsonl and TensorBoard's files, less what was logged after the step that is resumed from. At the chief."""
    step = hooked.loop.step if resumed else None
    hooked.log.log = MetricsLog(work.folder.metrics, resume_step=step, unjudged=hooked.loop.unjudged)
    if work.experiment.monitor.tensorboard:
        for split in ("train", "validation"):
            hooked.log.writers[split] = Writer(work.folder.tensorboard / split, resume_step=step, on_failure=work.voice.remark)
        with Writer(work.folder.tensorboard) as root:  # at once, so that a run can be watched by it
            root.custom_scalars(figures.layout(session.step.scores.names))

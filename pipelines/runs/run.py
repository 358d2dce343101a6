"""A run from experiment to report: assemble, resume, train, keep the best, save, judge once, report."""

import contextlib
import time
from dataclasses import dataclass, field
from typing import Any

import keras

from pipelines.base import figures
from pipelines.base.encryption import MARKER
from pipelines.base.errors import ConfigError, DataError, Interrupted, QuartetError, TrainingError
from pipelines.base.files import whole_folder, write_json
from pipelines.base.progress import Say
from pipelines.base.screen import Screen
from pipelines.config import doors, extensions
from pipelines.config.dump import resolved_yaml
from pipelines.config.schema import Experiment, protected_by
from pipelines.data.divide import Warned
from pipelines.data.fingerprint import VERSION
from pipelines.data.stream import ORDER
from pipelines.machine import devices, group
from pipelines.machine.environment import version
from pipelines.monitoring.metrics_log import MetricsLog, read_rows
from pipelines.monitoring.progress import Progress
from pipelines.monitoring.tensorboard import Writer
from pipelines.reports.report import write_report
from pipelines.reports.settings import changed_settings
from pipelines.runs import encryption, judging, run_display
from pipelines.runs.cleaning import drop_state
from pipelines.runs.folder import RunFolder
from pipelines.runs.policy import Policy
from pipelines.runs.run_hook import HookedRun, RunHook, Status
from pipelines.task.contract import Condensed, Task
from pipelines.task.results import Judgement
from pipelines.training import other_run, state, transform
from pipelines.training.evaluation import Evaluator
from pipelines.training.hooks.beginning import Beginning
from pipelines.training.hooks.best_weights import KeepBest
from pipelines.training.hooks.checkpoint import Checkpoint
from pipelines.training.hooks.diagnosis import Diagnosis
from pipelines.training.hooks.keras_callbacks import KerasCallbacks
from pipelines.training.hooks.log import Log
from pipelines.training.hooks.not_finite import StopWhenNotFinite
from pipelines.training.hooks.profile import Profile
from pipelines.training.hooks.remarks import Remarks, Warnings, WarnOfWaiting
from pipelines.training.hooks.samples import Samples
from pipelines.training.hooks.tables_home import TablesHome
from pipelines.training.hooks.validation import Validation
from pipelines.training.loop import Hook, Loop
from pipelines.training.meter import Meter
from pipelines.training.session import Session, assemble
from pipelines.training.still import Still, of_chief


@dataclass(frozen=True)
class Call:
    """How the person called: everything that is not the experiment."""

    name: str  # vision/cifar10_cnn
    task_class: type[Task]
    fresh: bool = False
    quiet: bool = False
    callbacks: tuple[keras.callbacks.Callback, ...] = ()
    environment: dict[str, Any] | None = None
    policy: Policy = field(default_factory=Policy)
    encrypt: bool = False


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
            encryption.begin(folder, call.encrypt)
        if hosts.of_chief(folder.finished):
            return folder.read_report() if hosts.chief else {}
        return _Run(experiment, folder, call, began).go()


class _Run:
    """One process's work on a run."""

    def __init__(self, experiment: Experiment, folder: RunFolder, call: Call, began: float):
        self.experiment, self.folder, self.call, self.policy, self.began = experiment, folder, call, call.policy, began
        self.hosts = group.current()
        self.encrypted = (folder.path / MARKER).is_file()  # then TensorBoard, which others read, shows scores alone
        self.meter = Meter()
        self.notes: list[str] = []
        self.say: Say = Screen("", quiet=call.quiet).note  # until there is a bar
        self.warnings = Warnings()

    def go(self) -> dict[str, Any]:
        """The order of events."""
        with self.meter.part("setup"):
            before = time.perf_counter() - self.began
            self.run_hooks = self._run_hooks()
            session = self._assembled()
            validation = judging.validation(session, self.experiment)
        assembled = time.perf_counter()
        with Progress(session.steps, session.plan.steps_per_epoch, self.call.quiet or not self.hosts.chief) as progress:
            self.progress, self.say = progress, progress.note
            if self.hosts.chief:
                self._announce(session)
            loop = self._loop(session, validation)
            resumed = self._resumed_or_initialised(session, loop)
            ended: Status = "failed"
            report: dict[str, Any] = {}
            try:
                if self.hosts.chief:
                    self._open_logs(session, loop, resumed)
                self.meter.add("setup", before + time.perf_counter() - assembled)
                loop.train()
                with self.meter.part("checkpoint"):
                    self._settle(session, loop)
                    answered = self._choose(session, validation)
                    if self.policy.model:
                        session.task.refit(session.model)
                    if self.policy.model and self.hosts.chief:
                        # a saved model is its weights; the optimizer's state stays in the checkpoint
                        session.model.optimizer = session.learner.model.optimizer = None
                        save_model(session.model, session.task, self.folder)
                with self.meter.part("evaluation"):
                    judgements = judging.judge(session, self.experiment, self.policy, validation, answered, self._warn)
                if not self.hosts.chief:
                    self.hosts.of_chief(None)  # waits until it has judged
                    return {}
                report = self._report(session, loop, judgements)
                ended = "interrupted" if loop.paused else "finished"
                if self.policy.model and not self.experiment.train.keep_state:
                    self._drop_state()
                self.hosts.of_chief(None)
                return report
            except Interrupted:
                ended = "interrupted"
                raise
            finally:
                self.log.close()
                for hook in self.run_hooks:
                    hook.ended(ended, report)

    def _run_hooks(self) -> list[RunHook]:
        """Those of extensions; they listen to what a person trains, not to the trials of a search."""
        if not (self.hosts.chief and self.policy.details):
            return []
        run = HookedRun(self.experiment, self.folder, self.call.name, self.call.task_class, self.encrypted,
                        lambda text: self.progress.note(text), self._warn)
        return [entry.load()(run) for entry in doors.HOOKS.entries()]

    def _assembled(self) -> Session:
        """The session, once it is known to be of the data that an interrupted run was begun with."""
        checkpoint = self.folder.checkpoints / "resume.npz"
        before = state.peek(checkpoint, state.Identity) if self.hosts.chief and checkpoint.exists() else None
        if before and self.folder.environment.exists():
            extensions.match(self.folder.read_environment()["extensions"], self.experiment, str(self.folder.path))
        precision = self.hosts.of_chief(before.precision if before else self.policy.precision)
        others = other_run.checksums(other_run.named(self.experiment, self.folder.path))
        changed = [setting for setting, known in (before.runs if before else {}).items() if others.get(setting, known) != known]
        if changed:
            raise TrainingError(f"{self.folder.path}: the run that {changed[0]} names is not the one that this training was begun with "
                                "(its experiment, weights or facts have changed); restore it, or begin anew with --fresh")
        kept = before.transforms if before else self.policy.kept
        if before and (missing := transform.applying(self.experiment).keys() - kept.keys()):
            raise TrainingError(f"{self.folder.path}: its checkpoint is of another version of Quartet, which did not keep what train."
                                f"{min(missing)} needs; begin anew with --fresh")
        kept = self.hosts.of_chief(transform.begin(self.experiment, kept) if self.hosts.chief else None)
        session = assemble(self.experiment, self.call.task_class, precision=precision, beside=self.folder.path,
                           kept=kept, say=lambda text: self.say(text))
        splits = {"train": session.splits.train, "validation": session.splits.validation}
        data = {split: source.fingerprint() for split, source in splits.items() if source}
        every = self.hosts.of_all(data)
        for number, theirs in enumerate(every):
            if theirs != every[0]:
                raise DataError(f"host {number} reads other data than host 0; give all hosts the same files")
        self.identity = {"precision": session.machine.precision, "data": data, "runs": others, "fingerprints": VERSION, "order": ORDER}
        self.incomparable = before is not None and before.fingerprints != VERSION
        if before and not self.incomparable and before.data != data:
            raise TrainingError(
                f"{self.folder.path}: the data are not those that this run was begun with (files added, removed or changed); "
                "restore them, or begin anew with --fresh"
            )
        if before and session.feed.by_epoch and before.order != ORDER:
            raise TrainingError(f"{self.folder.path}: the run was begun by another version of Quartet, which reads streams in another "
                                "order; end it with that version, or begin anew with --fresh")
        return session

    def _announce(self, session: Session) -> None:
        """Says what will be done, and records on what machine and data."""
        run_display.describe(session, self.call.name, self.progress.note)
        if self.incomparable:
            self._warn("The run was begun by an earlier version, which knew its data by the files' times: whether they have "
                       "changed since is not known.")
        for note in session.splits.notes:
            if isinstance(note, Warned) and self.policy.guidance:
                self.progress.warning(note)
        facts = session.task.facts
        encoder = {"encoder": facts["encoder"], "keras-hub": version("keras-hub")} if "encoder" in facts else {}
        self.environment = {**(self.call.environment or {}), **devices.describe(session.machine), **self.identity, **encoder,
                            "extensions": extensions.used_by(self.experiment)}
        if session.way is not None:
            self.environment["finetune"] = session.way.model_dump()
        write_json(self.folder.environment, self.environment)
        for hook in self.run_hooks:
            try:
                for file, content in hook.describe_data(self.experiment, session.splits, self.call.name).items():
                    write_json(self.folder.path / file, content)
            except (QuartetError, OSError) as error:  # the training has read them, and needs no description
                self.progress.warning(f"{self.folder.path}: the data could not be described: {error}")

    def _loop(self, session: Session, validation: Evaluator | None) -> Loop:
        """The loop with its hooks, in the order of their calls."""
        train, monitor, plan = self.experiment.train, self.experiment.monitor, session.plan
        watch, direction = session.watch
        still = Still(self.folder.checkpoints)
        self.best = KeepBest(self.folder.checkpoints, f"validation/{watch}", direction,
                             {"weights": session.all_weights, "averages": session.averages}, train, say=self._warn, still=still,
                             hosts=self.hosts)
        self.log = Log(every=train.log_every or max(1, plan.steps_per_epoch // 10), log=None, writers={}, progress=self.progress)
        transforms = {"transforms": {one.name: one.kept for one in session.transforms}} if session.transforms else {}
        self.saver = Checkpoint(self.folder.checkpoints, session.state_groups, seconds=train.checkpoint_seconds, say=self.progress.warning,
                                identity=self.identity | transforms, meter=self.meter, still=still, divided=session.divided)
        hooks: list[Hook] = [
            *([TablesHome(session.divided, self.saver.due)] if session.divided is not None else []),
            StopWhenNotFinite(lambda step: run_display.culprits(session, step)),
            self.warnings,
            *session.freezing,
            Validation(validation, train.validate_every),
            *(hook for one in session.transforms for hook in one.hooks()),
            self.best,
            *([self.log] if self.hosts.chief else []),
            *([Beginning(validation, self.best, self.log if self.hosts.chief else None)] if validation and session.fits_first else []),
            WarnOfWaiting(monitor.input_wait_warning, self._warn, run_display.waiting_remedy(session)),
            *([Remarks(session.task.remark, self._warn), *self._guidance(session)] if self.hosts.chief else []),
        ]
        if self.call.callbacks and (protection := protected_by(train)):
            raise ConfigError(f"{protection}: Keras callbacks see the training loss, which no noise protects; train without them")
        if self.call.callbacks:
            hooks.append(KerasCallbacks(list(self.call.callbacks), session.model, train, plan.steps_per_epoch))
        hooks += self.policy.hooks
        hooks += self.run_hooks
        if monitor.profile and self.hosts.chief:
            hooks.append(Profile(self.folder.tensorboard / "train", monitor.profile, self.progress.note))
        until = self.policy.epochs * plan.steps_per_epoch if self.policy.epochs else None
        if self.hosts.chief:
            hooks.append(self.saver)
        return Loop(session.step, plan=plan, steps=session.steps, hooks=hooks, meter=self.meter, until=until)

    def _guidance(self, session: Session) -> list[Hook]:
        """What shows samples, and what notices a training that goes wrong, where the task says what chance is."""
        hooks: list[Hook] = []
        if not self.policy.guidance:
            return hooks
        chance, validation, monitor = session.task.chance(), session.splits.validation, self.experiment.monitor
        if chance is not None:
            hooks.append(Diagnosis(*chance, examples=len(validation) if validation is not None else 0, say=self._warn))
        if monitor.tensorboard and monitor.samples and not self.encrypted:
            hooks.append(Samples(lambda loop: run_display.show_samples(session, loop, self.log.writers.get("train"), monitor.samples)))
        return hooks

    def _resumed_or_initialised(self, session: Session, loop: Loop) -> bool:
        """Whether an interrupted run is resumed; a new one has its first weights."""
        if self.hosts.chief:
            resumed = self.saver.load(loop)
            if resumed:
                self.progress.note(f"resuming at step {loop.step:,} of {loop.steps:,}")
            else:
                session.initialise()
                for average, variable in zip(session.averages, session.averaged):
                    average.assign(variable.value)
                if self.hosts.size > 1:
                    self.saver.save(loop)
                    self.saver.wait(loop)
        with of_chief(self.hosts, self.saver.file) as file:  # all hosts begin with the same, to the last bit
            return resumed if self.hosts.chief else self.saver.load(loop, file)

    def _open_logs(self, session: Session, loop: Loop, resumed: bool) -> None:
        """Opens metrics.jsonl and TensorBoard's files, less what was logged after the step that is resumed from."""
        step = loop.step if resumed else None
        self.log.log = MetricsLog(self.folder.metrics, resume_step=step, unjudged=loop.unjudged)
        if self.experiment.monitor.tensorboard:
            for split in ("train", "validation"):
                self.log.writers[split] = Writer(self.folder.tensorboard / split, resume_step=step, on_failure=self.progress.warning)
            with Writer(self.folder.tensorboard) as root:  # at once, so that a run can be watched by it
                root.custom_scalars(figures.layout(session.step.score_names))

    def _warn(self, text: str) -> None:
        """Says a warning, and keeps it for the report."""
        self.progress.warning(text if self.hosts.chief else f"host {self.hosts.number}: {text}")
        self.warnings.texts.append(text)

    def _settle(self, session: Session, loop: Loop) -> None:
        """Puts the weights that are judged and saved into the model."""
        if loop.stopping:
            self.notes.append(f"Training ended after epoch {loop.epoch}: {loop.stopping}.")
        self.best_epoch = self.best.restore_best()
        if self.best_epoch is not None and session.steps:
            done = "Judged and saved" if self.policy.model else "Judged"
            which = f"the weights of epoch {self.best_epoch}" if self.best_epoch else "the encoder as it was under its fitted head"
            self.notes.append(f"{done}: {which}, best on {self.best.watch}.")
        for variable, average in zip(session.averaged, session.averages):
            variable.assign(average.value)

    def _choose(self, session: Session, validation: Evaluator | None) -> Condensed | None:
        """Lets the task choose by the answers for validation; returns these, where there is a validation split."""
        answered = judging.answered(session, self.experiment, validation)
        if answered is not None:
            session.task.facts.update(self.hosts.of_chief(session.task.choose(*answered) if self.hosts.chief else None))
        return answered

    def _report(self, session: Session, loop: Loop, judgements: dict[str, Judgement]) -> dict[str, Any]:
        policy, summary, writers = self.policy, self.meter.summary(), self.log.writers
        metrics = {f"{split}/{name}": metric for split, judged in judgements.items() for name, metric in judged.metrics.items()}
        timing = {
            "train_seconds": loop.seconds,
            "setup_seconds": self.meter.seconds["setup"],
            # None where nothing trained by steps, or the one call that did was compiled, too
            "examples_per_second": summary["examples_per_second"] if summary["steps"] else None,
            "input_wait_fraction": summary["input_wait_fraction"] if summary["steps"] else None,
            "epochs": loop.epoch,
            "steps": loop.step,
            "best_epoch": self.best_epoch,
        }
        recorded = {one.name: one.record(loop.step) for one in session.transforms}
        self.environment.update({name: record for name, record in recorded.items() if record})
        if recorded:
            write_json(self.folder.environment, self.environment)
        self.notes += [record["note"] for record in recorded.values() if "note" in record]
        curves = None
        if policy.details:
            summary["arithmetic"] = run_display.work(session, summary["examples_per_second"]) if session.steps else None
            if session.steps:
                curves = figures.learning_curves(read_rows(self.folder.metrics), best_epoch=self.best_epoch)
        if writers:
            if policy.details and not self.encrypted:
                run_display.show_results(session, judgements, writers, loop.step)
            changed = {one.name: one.value for one in changed_settings(self.experiment, leave_out=("tune", "monitor"))}
            # at the root, so that TensorBoard lists the metrics of both splits with the settings
            with Writer(self.folder.tensorboard) as root:
                values = {key: metric.value for key, metric in metrics.items()}
                root.hparams(changed if policy.settings is None else policy.settings, values, step=loop.step,
                             name=policy.title or f"{self.call.name}/{self.folder.path.name}")
                root.custom_scalars(figures.layout(session.step.score_names))
        if loop.paused:
            return {"metrics": {name: metric.as_json() for name, metric in metrics.items()}, "timing": timing, "time": summary}
        if not policy.details:
            judgements = {split: Judgement(judged.metrics, notes=judged.notes) for split, judged in judgements.items()}
        return write_report(
            self.folder.report,
            task=self.experiment.task,
            experiment=self.call.name,
            run=self.folder.path.name,
            judgements=judgements,
            timing=timing,
            meter=summary,
            curves=curves,
            splits=session.splits,
            settings=self.experiment,
            environment=self.environment,
            readme=self.folder.path / "README.md",
            fingerprints={split: source.fingerprint() for split in judgements if (source := getattr(session.splits, split)) is not None},
            notes=[*self.warnings.texts, *session.splits.notes, *session.learner.notes, *session.machine.notes, *self.notes],
        )

    def _drop_state(self) -> None:
        try:
            drop_state(self.folder)
        except OSError as error:  # the run is finished all the same
            self.progress.warning(
                f"{self.folder.checkpoints}: cannot be removed: {error.strerror or error}; quartet runs clean tries again")


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

"""A run from experiment to report: assemble, resume, train, keep the best, save, judge once, report."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from pipelines.base import figures
from pipelines.base.errors import TrainingError
from pipelines.base.files import whole_folder, write_json
from pipelines.config import extensions
from pipelines.config.dump import resolved_yaml
from pipelines.config.schema import Experiment
from pipelines.data.divide import Warned
from pipelines.data.fingerprint import VERSION
from pipelines.data.source import Source
from pipelines.data.stream import StreamSource
from pipelines.machine import devices
from pipelines.monitoring.metrics_log import MetricsLog, read_rows
from pipelines.monitoring.progress import Progress
from pipelines.monitoring.tensorboard import Writer
from pipelines.reports.baselines import put_beside
from pipelines.reports.report import write_report
from pipelines.reports.settings import changed_settings
from pipelines.runs import run_display
from pipelines.runs.cleaning import drop_state
from pipelines.runs.folder import RunFolder
from pipelines.task.contract import Condensed, Task
from pipelines.task.results import Baseline, Judgement
from pipelines.training import hooks, state
from pipelines.training.callbacks import KerasCallbacks
from pipelines.training.diagnosis import Diagnosis
from pipelines.training.evaluation import Evaluator, batch_size
from pipelines.training.loop import Hook, Loop
from pipelines.training.meter import Meter
from pipelines.training.profile import Profile
from pipelines.training.session import Session, assemble

INITIAL_BATCH = 256  # examples at a time for Task.initialise


@dataclass(frozen=True)
class Trial:
    """How a trial of a search is trained: as any run, but judged on validation alone, and reported in short.

    The test split is not read, no model is saved, no figure drawn and no sample shown.

    Attributes:
        searched: the settings that the search chose, for TensorBoard's table.
        title: the row's name there.
        precision: that of the whole search, so that trials are compared in one.
        epochs: after which the trial pauses with its state saved, to go on later; None: it trains to its end.
        further: hooks besides the usual ones.
    """

    searched: dict[str, Any]
    title: str
    precision: str | None = None
    epochs: int | None = None
    further: tuple[Hook, ...] = ()


@dataclass(frozen=True)
class Call:
    """How the person called: everything that is not the experiment."""

    name: str  # vision/cifar10_cnn
    task_class: type[Task]
    fresh: bool = False
    quiet: bool = False
    callbacks: tuple[keras.callbacks.Callback, ...] = ()
    environment: dict[str, Any] | None = None
    trial: Trial | None = None


def train(experiment: Experiment, folder: RunFolder, call: Call) -> dict[str, Any]:
    """Trains, or goes on with an interrupted run, and judges it. Returns the report as report.json holds it.

    A trial that pauses leaves no report.json, so that it can go on; what is returned then is what its report would hold.

    Raises:
        ConfigError, DataError: before any work.
        TrainingError: the loss is not finite, or a file cannot be written.
        Interrupted: by a signal; the state is saved.
    """
    began = time.perf_counter()
    with folder.claimed(resolved_yaml(experiment), fresh=call.fresh):
        if folder.finished:
            return folder.read_report()
        return _Run(experiment, folder, call, began).go()


class _Run:
    """One process's work on a run."""

    def __init__(self, experiment: Experiment, folder: RunFolder, call: Call, began: float):
        self.experiment, self.folder, self.call, self.began = experiment, folder, call, began
        self.meter = Meter()
        self.notes: list[str] = []
        self.warnings = hooks.Warnings()

    def go(self) -> dict[str, Any]:
        checkpoint = self.folder.checkpoints / "resume.npz"
        identity = state.peek(checkpoint, state.Identity) if checkpoint.exists() else None
        if identity and self.folder.environment.exists():
            extensions.match(self.folder.read_environment()["extensions"], self.experiment, str(self.folder.path))
        trial = self.call.trial
        with self.meter.part("setup"):
            before = time.perf_counter() - self.began
            chosen = identity.precision if identity else trial.precision if trial else None
            session = assemble(self.experiment, self.call.task_class, precision=chosen)
            fingerprint = {
                "train": session.splits.train.fingerprint(),
                **({"validation": session.splits.validation.fingerprint()} if session.splits.validation else {}),
            }
            unlike = identity is not None and identity.fingerprints != VERSION
            if identity and not unlike and identity.data != fingerprint:
                raise TrainingError(
                    f"{self.folder.path}: the data are not those that this run was begun with (files added, removed or changed); "
                    "restore them, or begin anew with --fresh"
                )
            evaluator = self._evaluator(session, session.splits.validation) if session.splits.validation else None
        assembled = time.perf_counter()
        with Progress(session.steps, session.plan.steps_per_epoch, self.call.quiet) as progress:
            run_display.describe(session, self.call.name, progress.note)
            if unlike:
                self._warn(progress)("The run was begun by an earlier version, which knew its data by the files' times: whether they have "
                                     "changed since is not known.")
            for note in session.splits.notes:
                if isinstance(note, Warned) and not trial:
                    progress.warning(note)
            self.environment = {**(self.call.environment or {}), **devices.describe(session.machine), "data": fingerprint,
                                "fingerprints": VERSION, "extensions": extensions.used_by(self.experiment)}
            write_json(self.folder.environment, self.environment)
            loop_hooks, best, log = self._hooks(session, evaluator, progress)
            saver = hooks.Checkpoint(
                self.folder.checkpoints,
                session.state_groups,
                seconds=self.experiment.train.checkpoint_seconds,
                say=progress.warning,
                identity={"precision": session.machine.precision, "data": fingerprint, "fingerprints": VERSION},
                meter=self.meter,
            )
            until = trial.epochs * session.plan.steps_per_epoch if trial and trial.epochs else None
            loop = Loop(session.step, plan=session.plan, steps=session.steps, hooks=[*loop_hooks, saver], meter=self.meter, until=until)
            resumed = saver.load(loop)
            if resumed:
                progress.note(f"going on from step {loop.step:,} of {loop.steps:,}")
            else:
                session.task.initialise(session.model, map(session.task.prepare, session.feed.judged(INITIAL_BATCH)))
                for average, variable in zip(session.averages, session.averaged):
                    average.assign(variable.value)
            log.log = MetricsLog(self.folder.metrics, resume_step=loop.step if resumed else None, unjudged=loop.unjudged)
            if self.experiment.monitor.tensorboard:
                log.writers = {
                    split: Writer(self.folder.tensorboard / split, resume_step=loop.step if resumed else None, on_failure=progress.warning)
                    for split in ("train", "validation")
                }
                with Writer(self.folder.tensorboard) as root:  # at once, so that a run can be watched by it
                    root.custom_scalars(figures.layout(session.step.score_names))
            try:
                self.meter.add("setup", before + time.perf_counter() - assembled)
                loop.train()
                if loop.stopping:
                    self.notes.append(f"Training ended after epoch {loop.epoch}: {loop.stopping}.")
                with self.meter.part("checkpoint"):
                    judged = self._settle(session, best, evaluator)
                with self.meter.part("evaluation"):
                    judgements = self._judge(session, evaluator, judged, self._warn(progress))
                report = self._report(session, loop, judgements, log.writers)
                if not trial and not self.experiment.train.keep_state:
                    self._drop_state(progress)
                return report
            finally:
                log.log.close()
                for writer in log.writers.values():
                    writer.close()

    def _hooks(self, session: Session, evaluator: Evaluator | None, progress: Progress) -> tuple[list[Hook], hooks.KeepBest, hooks.Log]:
        """What happens between steps, in this order; of them, the one that keeps the best weights and the one that logs."""
        train, monitor, trial = self.experiment.train, self.experiment.monitor, self.call.trial
        watch, direction = session.watch
        best = hooks.KeepBest(
            self.folder.checkpoints,
            f"validation/{watch}",
            direction,
            {"weights": session.all_weights, "averages": session.averages},
            train,
            say=self._warn(progress),
        )
        every = train.log_every or max(1, session.plan.steps_per_epoch // 10)
        log = hooks.Log(every=every, log=None, writers={}, progress=progress)
        found = [
            hooks.StopWhenNotFinite(lambda step: run_display.culprits(session, step)),
            self.warnings,
            *session.freezing,
            hooks.Validation(evaluator, train.validate_every),
            best,
            log,
            hooks.WarnOfWaiting(monitor.input_wait_warning, self._warn(progress), run_display.waiting_remedy(session)),
            hooks.Remarks(session.task.remark, self._warn(progress)),
            *self._diagnosis(session, progress),
        ]
        if monitor.tensorboard and monitor.samples and not trial:
            found.append(hooks.Samples(lambda loop: run_display.show_samples(session, loop, log.writers.get("train"), monitor.samples)))
        if self.call.callbacks:
            found.append(KerasCallbacks(list(self.call.callbacks), session.model, train, session.plan.steps_per_epoch))
        found += trial.further if trial else ()
        if monitor.profile:
            found.append(Profile(self.folder.tensorboard / "train", monitor.profile, progress.note))
        return found, best, log

    def _drop_state(self, progress: Progress) -> None:
        try:
            drop_state(self.folder)
        except OSError as error:  # the run is finished all the same
            progress.warning(f"{self.folder.checkpoints}: cannot be removed: {error.strerror or error}; quartet runs clean tries again")

    def _diagnosis(self, session: Session, progress: Progress) -> list[Hook]:
        """What notices a training that goes wrong, where the task says what chance is."""
        chance, validation = session.task.chance(), session.splits.validation
        if chance is None or self.call.trial:
            return []
        return [Diagnosis(*chance, examples=len(validation) if validation is not None else 0, say=self._warn(progress))]

    def _warn(self, progress: Progress) -> Callable[[str], None]:
        """Says a warning, and keeps it for the report."""

        def warn(text: str) -> None:
            progress.warning(text)
            self.warnings.texts.append(text)

        return warn

    def _evaluator(self, session: Session, source: Source) -> Evaluator:
        return Evaluator(
            session.task,
            session.model,
            source,
            machine=session.machine,
            data=self.experiment.data,
            averages=zip(session.averaged, session.averages),
            batch=batch_size(self.experiment.evaluate, self.experiment.train.batch_size),
        )

    def _settle(self, session: Session, best: hooks.KeepBest, evaluator: Evaluator | None) -> Condensed | None:
        """Puts the weights that are judged and saved into the model, lets the task choose by validation, and writes the model.

        Returns:
            The answers for validation, where there is one.
        """
        epoch = best.restore_best()
        self.best_epoch = epoch
        if epoch:
            self.notes.append(f"Judged{'' if self.call.trial else ' and saved'}: the weights of epoch {epoch}, best on {best.watch}.")
        for variable, average in zip(session.averaged, session.averages):
            variable.assign(average.value)
        judged = evaluator.judged() if evaluator else None
        if judged is not None:
            session.task.facts.update(session.task.choose(*judged))
        if self.call.trial:
            return judged
        session.model.optimizer = None  # a saved model is its weights; the optimizer's state stays in the checkpoint
        save_model(session.model, session.task, self.folder)
        return judged

    def _judge(self, session: Session, evaluator: Evaluator | None, judged: Condensed | None, warn: Callable[[str], None],
               ) -> dict[str, Judgement]:
        """Judges validation and test as the saved model answers. The test split is read here and nowhere else, and never by a trial."""
        splits, trial = session.splits, self.call.trial
        evaluators = {"validation": evaluator, "test": self._evaluator(session, splits.test) if splits.test and not trial else None}
        baseline = None if trial or not self.experiment.evaluate.baseline else self._baseline(session, evaluators)
        found = {}
        for split, one in evaluators.items():
            if one is not None:
                answers, targets = judged if one is evaluator and judged is not None else one.judged()
                found[split] = session.task.judge(answers, targets, one.source)
                if not trial:  # what needs the model is for the report; a search follows what judge() gives
                    session.task.explain(session.model, found[split], answers, targets, one.source)
                verdict = found[split].beaten
                if baseline is not None:
                    own, other = session.task.each(answers, targets), baseline.score(one.source)
                    verdict = put_beside(found[split], baseline, own, other, self.experiment.evaluate.bootstrap)
                if verdict and not trial and (split == "test" or evaluators["test"] is None):
                    warn(verdict)
        return found

    def _baseline(self, session: Session, evaluators: Mapping[str, Evaluator | None]) -> Baseline | None:
        """The task's cheap model, fitted; None where there is none, or train cannot be read by number."""
        train = session.splits.train
        if isinstance(train, StreamSource) or not any(evaluators.values()):
            return None

        def features(source: Source, function: Callable[[Any], Any]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
            known = next((one for one in evaluators.values() if one is not None and one.source is source), None)
            return (known or self._evaluator(session, source)).features(function)

        return session.task.baseline(train, features)

    def _report(self, session: Session, loop: Loop, judgements: dict[str, Judgement], writers: dict[str, Writer]) -> dict[str, Any]:
        metrics = {f"{split}/{name}": metric for split, judged in judgements.items() for name, metric in judged.metrics.items()}
        summary = self.meter.summary()
        setup = self.meter.seconds["setup"]
        timing = {
            "train_seconds": loop.seconds,
            "setup_seconds": setup,
            "examples_per_second": summary["examples_per_second"],
            "input_wait_fraction": summary["input_wait_fraction"],
            "epochs": loop.epoch,
            "steps": loop.step,
            "best_epoch": self.best_epoch,
        }
        trial = self.call.trial
        if not trial:
            summary["arithmetic"] = run_display.work(session, summary["examples_per_second"]) if session.steps else None
        curves = None if trial else figures.learning_curves(read_rows(self.folder.metrics), best_epoch=self.best_epoch)
        if writers:
            if not trial:
                run_display.show_results(session, judgements, writers, loop.step)
            name = trial.title if trial else f"{self.call.name}/{self.folder.path.name}"
            changed = {one.name: one.value for one in changed_settings(self.experiment, leave_out=("tune", "monitor"))}
            # at the root, so that TensorBoard lists the metrics of both splits with the settings
            with Writer(self.folder.tensorboard) as root:
                values = {key: metric.value for key, metric in metrics.items()}
                root.hparams(trial.searched if trial else changed, values, name=name, step=loop.step)
                root.custom_scalars(figures.layout(session.step.score_names))
        if trial and loop.paused:
            return {"metrics": {name: metric.as_json() for name, metric in metrics.items()}, "timing": timing, "time": summary}
        if trial:
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
            fingerprints={split: source.fingerprint() for split in judgements if (source := getattr(session.splits, split)) is not None},
            notes=[*self.warnings.texts, *session.splits.notes, *session.machine.notes, *self.notes],
        )


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

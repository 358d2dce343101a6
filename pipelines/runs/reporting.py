"""The end of a run: the weights that are judged, and the report on them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.base import figures
from pipelines.base.files import write_json
from pipelines.monitoring.metrics_log import read_rows
from pipelines.monitoring.tensorboard import Writer
from pipelines.reports.report import Reported, changed_settings, write_report
from pipelines.runs import judging, run_display
from pipelines.runs.hooking import Hooked
from pipelines.runs.work import Work
from pipelines.task.contract import Condensed
from pipelines.task.results import Judgement
from pipelines.training.evaluation import Evaluator
from pipelines.training.session import Session


@dataclass(frozen=True)
class Chosen:
    """The weights that are judged and saved, which the model has.

    Attributes:
        epoch: whose they are; None: the last.
        answers: for validation, where there is such a split.
        notes: on them, for the report.
    """

    epoch: int | None
    answers: Condensed | None
    notes: list[str]


def choose_weights(work: Work, session: Session, hooked: Hooked, validation: Evaluator | None) -> Chosen:
    """Puts the weights that are judged into the model, and lets the task choose its thresholds by their answers for validation."""
    loop, notes = hooked.loop, list[str]()
    if loop.stopping:
        notes.append(f"Training ended after epoch {loop.epoch}: {loop.stopping}.")
    epoch = hooked.best.restore_best()
    if epoch is not None and session.steps:
        done = "Judged and saved" if work.policy.model else "Judged"
        which = f"the weights of epoch {epoch}" if epoch else "the encoder as it was under its fitted head"
        notes.append(f"{done}: {which}, best on {hooked.best.watch}.")
    for variable, average in session.averages:
        variable.assign(average.value)
    answers = judging.answered(session, validation)
    if answers is not None:
        session.task.facts.update(work.hosts.of_chief(session.task.output.choose(*answers) if work.hosts.chief else None))
    return Chosen(epoch, answers, notes)


def report(work: Work, session: Session, hooked: Hooked, chosen: Chosen, judgements: Mapping[str, Judgement],
           environment: dict[str, Any]) -> dict[str, Any]:
    """Writes the report; of a run that pauses, returns alone what it would hold. At the chief."""
    policy, folder, loop, summary, writers = work.policy, work.folder, hooked.loop, work.meter.summary(), hooked.log.writers
    metrics = {f"{split}/{name}": metric for split, judged in judgements.items() for name, metric in judged.metrics.items()}
    timing = {
        "train_seconds": loop.seconds,
        "setup_seconds": work.meter.seconds["setup"],
        # None where nothing trained by steps, or the one call that did was compiled, too
        "examples_per_second": summary["examples_per_second"] if summary["steps"] else None,
        "input_wait_fraction": summary["input_wait_fraction"] if summary["steps"] else None,
        "epochs": loop.epoch,
        "steps": loop.step,
        "best_epoch": chosen.epoch,
    }
    recorded = {one.name: record for one in session.transforms if (record := one.record(loop.step))}
    if recorded:
        environment = environment | recorded
        write_json(folder.environment, environment)
    curves = None
    if policy.details:
        summary["arithmetic"] = run_display.work(session, summary["examples_per_second"]) if session.steps else None
        if session.steps:
            curves = figures.learning_curves(read_rows(folder.metrics), best_epoch=chosen.epoch)
    if writers:
        if policy.details and not work.private:
            run_display.show_results(session, judgements, writers, loop.step)
        changed = {one.name: one.value for one in changed_settings(work.experiment, leave_out=("tune", "monitor"))}
        # at the root, so that TensorBoard lists the metrics of both splits with the settings
        with Writer(folder.tensorboard) as root:
            values = {key: metric.value for key, metric in metrics.items()}
            root.hparams(changed if policy.settings is None else policy.settings, values, step=loop.step,
                         name=policy.title or f"{work.call.name}/{folder.path.name}")
            root.custom_scalars(figures.layout(session.step.scores.names))
    if loop.paused:
        return {"metrics": {name: metric.as_json() for name, metric in metrics.items()}, "timing": timing, "time": summary}
    if not policy.details:
        judgements = {split: Judgement(judged.metrics, notes=judged.notes) for split, judged in judgements.items()}
    return write_report(folder.report, Reported(
        task=work.experiment.task,
        experiment=work.call.name,
        run=folder.path.name,
        judgements=judgements,
        timing=timing,
        meter=summary,
        curves=curves,
        splits=session.splits,
        settings=work.experiment,
        environment=environment,
        readme=folder.path / "README.md",
        fingerprints={split: source.fingerprint() for split in judgements if (source := getattr(session.splits, split)) is not None},
        notes=[*work.voice.warnings.texts, *session.splits.notes, *session.learner.notes, *session.machine.notes, *chosen.notes,
               *(record["note"] for record in recorded.values() if "note" in record)],
    ))

"""With what a run is begun, and whether an interrupted one still is what it was: its data, other runs, extensions and hosts."""

from dataclasses import dataclass
from typing import Any

from pipelines.base.errors import DataError, QuartetError, TrainingError
from pipelines.base.files import write_json
from pipelines.config import extensions
from pipelines.data.divide import Warned
from pipelines.data.fingerprint import VERSION
from pipelines.data.stream import ORDER
from pipelines.machine import devices
from pipelines.machine.environment import version
from pipelines.runs import run_display
from pipelines.runs.run_hook import RunHook
from pipelines.runs.work import Work
from pipelines.training import other_run, state, transform
from pipelines.training.session import Session
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

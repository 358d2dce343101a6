"""How long an experiment will take here, and what room: a few of its steps are run. Writes nothing."""

import resource
import sys
import time
from collections.abc import Sequence
from typing import Any

from pipelines.base.progress import Say, silent
from pipelines.config.load import apply
from pipelines.config.schema import Experiment
from pipelines.encoders.settings import PretrainedModel

SECONDS = 1.0  # of steps that are measured, after the first, which compiles
SAMPLE = 256  # training examples by which a pretrained encoder is measured, where there are more; of fewer, training finds the features
EACH = 4  # of a class at least
JUDGED = 1 / 3  # an example that is judged, as a share of one that is trained on


def estimate(experiment: Experiment, say: Say = silent) -> list[tuple[str, str]]:
    """(what, how much) in words; reads the data and builds the model as training does.

    Args:
        say: is told how far it is.

    Raises:
        QuartetError: what training would raise: data that cannot be read, settings that do not fit.
    """
    from pipelines.base.formatting import duration, size
    from pipelines.runs.launch import task_class
    from pipelines.training.embedding_tables import all_variables
    from pipelines.training.loop import Hook, Loop
    from pipelines.training.meter import Meter
    from pipelines.training.session import assemble

    class Until(Hook):
        """Ends after some seconds of steps and keeps their pace."""

        began, first, pace = 0.0, 0, 0.0

        def on_steps(self, loop: Loop) -> None:
            now = time.perf_counter()
            if not self.began:
                self.began, self.first = now, loop.step
            elif now - self.began > SECONDS or loop.step == loop.steps:
                self.pace = (now - self.began) / (loop.step - self.first)
                loop.stopping = "measured"

    kind, examples = task_class(experiment.task), 0
    if isinstance(getattr(experiment, "model", None), PretrainedModel):
        splits = kind(experiment).splits()
        examples, few = len(splits.train), max(SAMPLE, EACH * len(splits.facts.get("classes") or ()))
        if examples > few:
            experiment = apply(experiment, {"data.limit": few})
    start = time.perf_counter()
    session = assemble(experiment, kind, say=say)
    measured = len(session.splits.train)
    larger, of_all = max(1.0, examples / measured), f" of the {examples:,}" if examples > measured else ""
    hook = Until()
    if session.steps:
        Loop(session.step, plan=session.plan, steps=session.steps, hooks=[hook], meter=Meter()).train()
    else:  # fitted at once, which is what takes the time
        session.initialise()
    setup = (hook.began or time.perf_counter()) - start
    validation, test = (0 if source is None else len(source) for source in (session.splits.validation, session.splits.test))
    judged = validation * (experiment.train.epochs + 1) + test + (larger * measured if session.fits_first else 0)
    steps = round(larger * session.steps)
    seconds = (setup if steps else larger * setup) + hook.pace * (steps + JUDGED * judged / experiment.train.batch_size)
    state = sum(map(_bytes, session.state_groups.values()))  # of a checkpoint; what stands still is not in it
    best, saved = _bytes(session.all_weights), _bytes(all_variables(session.model))
    unit = 1 if sys.platform == "darwin" else 1024
    most = "at most " if experiment.train.early_stopping else ""
    work = f"{steps:,} steps of {1000 * hook.pace:.0f} ms, measured; {setup:.0f} s to begin" if steps else (
        f"it is fitted at once, measured on {measured:,}{of_all} examples; judging comes on top")
    return [
        ("time", f"{most}{duration(seconds)} on this machine ({work})"),
        ("memory", f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30:.1f} GiB so far, with "
                   f"{measured:,}{of_all} training examples"),
        ("disk", f"{size(state + best + saved)} for the run: {saved // 4 / 1e6:,.2f} M weights"),
    ]


def _bytes(variables: Sequence[Any]) -> int:
    import numpy as np

    return sum(int(one.value.nbytes if hasattr(one.value, "nbytes") else np.asarray(one).nbytes) for one in variables)

"""`quartet prepare`: how far it is, and what to do with what it wrote."""

import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from pipelines.config.schema import Experiment
from pipelines.runs.launch import task_class
from pipelines.task.prepared import prepare


def prepared(experiment: Experiment, target: Path, config: str, *, decoded: bool = False, quiet: bool = False,
             say: Callable[[str], None] = lambda text: None) -> str:
    """Writes the folder; returns what to say of it. Raises as pipelines.task.prepared.prepare."""
    task = task_class(experiment.task)(experiment)
    with Progress(console=Console(file=sys.stderr), transient=True, disable=quiet or not sys.stderr.isatty()) as bar:
        writing = bar.add_task("writing", total=None)
        index = prepare(task, target, lambda done: bar.update(writing, completed=done), decoded=decoded, say=say)
    counts = ", ".join(f"{name} {sum(shard.examples for shard in stored.shards):,}" for name, stored in (index.splits or {}).items())
    size = sum(path.stat().st_size for path in target.iterdir())
    return "\n".join([f"prepared     {target} ({counts + ', ' if counts else ''}{size / 1e6:,.1f} MB)",
                      f"train        quartet train {config} data.prepared={target}"])

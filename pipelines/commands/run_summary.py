"""What the command line prints when a training is over: the result, where it is stored and what can be done with it."""

from collections.abc import Mapping
from typing import Any

from pipelines.base import formatting
from pipelines.commands.shell import quoted, shown, to_copy, tool
from pipelines.runs.folder import RunFolder
from pipelines.runs.listing import headline


def closing(folder: RunFolder, report: Mapping[str, Any]) -> str:
    """A few lines: the leading metric with its interval, where the time went, the report, TensorBoard, and how to predict."""
    seeds = [folder.path.with_name(seed["run"]) for seed in report.get("seeds") or ()]
    run = RunFolder(seeds[0]) if seeds else folder
    lines = [headline(report)] + ([report["compared"]] if report.get("compared") else [])
    time = report.get("time") or {}
    if time.get("shares"):
        used = formatting.used(time)
        lines.append(f"time         {formatting.shares(time['shares'])}" + (f"; {used}" if used else ""))
    lines += [f"report       {shown(folder.report / 'report.html')}"]
    if run.tensorboard.is_dir():
        lines.append(f"TensorBoard  {tool('tensorboard')} --logdir {quoted(folder.path.parent if seeds else run.tensorboard)}")
    lines.append(f"use it       {to_copy(f'predict {quoted(run.path)} INPUT...')}")
    return "\n".join(lines)

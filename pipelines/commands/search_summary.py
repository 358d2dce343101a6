"""What the command line says when a search is over: the trials, what mattered, and what to do with the best."""

import io
import shlex
from collections.abc import Mapping
from typing import Any

from pipelines.base import storage
from pipelines.base.terminal import print_table
from pipelines.commands.shell import quoted, shown, to_copy, tool
from pipelines.tuning import analysis
from pipelines.tuning.analysis import Importance
from pipelines.tuning.report import headline, importance_lines, repeats_lines, trials_table
from pipelines.tuning.search_folder import SearchFolder, run_name

SHOWN = 15


def closing(folder: SearchFolder, content: Mapping[str, Any]) -> str:
    """The best trials as a table, importance, the outcome over several seeds, and commands."""
    out = io.StringIO()
    columns, rows = trials_table(content, SHOWN)
    print_table(columns, rows, right=(1,), file=out)
    more = len(content["trials"]) - len(rows)
    lines = [f"and {more} more in {shown(folder.report / 'trials.csv')}"] if more > 0 else []
    importance = content["importance"]
    if importance:
        lines.append("mattered     " + ", ".join(f"{name} {share:.0%}" for name, share in list(importance["shares"].items())[:6]))
        lines += importance_lines(Importance(**importance))[1:]
    else:
        lines += importance_lines(None)
    lines += analysis.lines(content)
    called = run_name(content["experiment"], content["search"])
    lines += ["", headline(content), *repeats_lines(content), f"report       {shown(folder.report / 'report.html')}",
              f"TensorBoard  {tool('tensorboard')} --logdir {quoted(folder.path)}",
              f"train it     {to_copy(f'train {quoted(folder.best)} --name {shlex.quote(called)}{storage.options(folder.path)}')}"]
    return out.getvalue() + "\n".join(lines) + "\n"

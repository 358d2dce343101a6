"""Tables of which each replica holds a part: what it holds, and that a killed run ends as if it had not been."""

import json

import pytest

from tests import processes

pytestmark = pytest.mark.slow(seconds=30)

PARTS = """
import json
import numpy as np
from tests.training.toy import WORDS, TableToyTask, experiment
from pipelines.training.session import assemble

found = {}
for divided in (False, True):
    tables = {"optimizer": "rowwise_adagrad", "divided": divided}
    made = assemble(experiment(model="table", train={"devices": 3, "tables": tables}), TableToyTask)
    table = made.update.tables.tables[0].variable
    found[divided] = [np.array(table.value).tolist(), len(made.machine.strategy.experimental_local_results(table.value))]
    if divided:
        made.elsewhere.spread()
        local = made.machine.strategy.experimental_local_results(made.elsewhere.parts[id(table)])
        found["parts"], found["devices"] = [part.numpy().tolist() for part in local], [part.device[-5:] for part in local]
        table.assign(0 * table)
        made.elsewhere.stale = True
        made.elsewhere.gather()
        found["gathered"] = np.array(table.value).tolist()
print(json.dumps([found[False], found[True], found["parts"], found["devices"], found["gathered"]]))
"""

KILLED = """
import sys
from pathlib import Path
from tests.training.runs import assert_same_outcome, killed, whole
from tests.training.toy import TableToyTask

changes = {"task": TableToyTask, "model": "table",
           "train": {"devices": 2, "deterministic": True, "tables": {"optimizer": "adam", "divided": True}}}
folder = Path(sys.argv[1])
whole(folder / "whole", **changes)
killed(folder / "killed", [8], **changes)
assert_same_outcome(folder / "whole", folder / "killed")
"""


def test_each_replica_holds_its_part_and_main_memory_the_whole():
    whole, divided, parts, devices, gathered = json.loads(processes.run("-c", PARTS, check=True).stdout.splitlines()[-1])
    assert whole == [divided[0], 3] and divided[1] == 1  # the same first values: three copies of all rows, and one
    assert devices == ["CPU:0", "CPU:1", "CPU:2"]
    for number, part in enumerate(parts):
        rows = divided[0][number::3]
        assert part[:len(rows)] == rows and len(part) == -(-len(divided[0]) // 3)
    assert gathered == divided[0]


def test_a_killed_run_with_divided_tables_ends_as_one_that_was_never_killed(tmp_path):
    processes.run("-c", KILLED, tmp_path, check=True)

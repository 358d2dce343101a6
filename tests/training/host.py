"""One host of a training of the toy, as a process:

python -m tests.training.host FOLDER '{"train": ...}' '{"host": 1, "step": 4, "signal": 9}'

Trains in FOLDER with the hosts of TF_CONFIG, without TensorBoard and with a checkpoint after every call; the host named in the third
argument sends itself the signal after that step.
"""

import json
import os
import sys
from pathlib import Path

from pipelines.base.errors import QuartetError
from pipelines.machine import group
from pipelines.machine.hosts import named
from tests import undrawn
from tests.training.runs import At, run


def main(folder: str, changes: str, fault: str = "{}") -> None:
    hosts, fault = named(), json.loads(fault)
    assert hosts is not None
    mine = {fault["step"]: lambda: os.kill(os.getpid(), fault["signal"])} if fault.get("host") == hosts.number else {}
    undrawn.in_this_process()
    try:
        with group.joined(hosts, {"changes": changes}):
            run(Path(folder), callbacks=[At(mine)], **json.loads(changes))
    except QuartetError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main(*sys.argv[1:])

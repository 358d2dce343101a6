"""One host of a training of the toy, as a process, with the hosts of TF_CONFIG:

python -m extensions.cluster.tests.host train FOLDER '{"train": ...}' '{"host": 1, "step": 4, "signal": 9}'
python -m extensions.cluster.tests.host weights OUT.npz '[{"train": ...}, ...]'

The first trains in FOLDER, without TensorBoard and with a checkpoint after every call; the host named in the last argument sends itself the
signal after that step. The second writes the final weights of each case, as tests.training.toy does.
"""

import json
import os
import sys
from pathlib import Path

from extensions.cluster.host_group import joined
from extensions.cluster.hosts import named
from pipelines.base.errors import QuartetError
from tests import undrawn
from tests.training.runs import At, run
from tests.training.toy import save_final_weights


def main(what: str, place: str, changes: str, fault: str = "{}") -> None:
    hosts, fault = named(), json.loads(fault)
    assert hosts is not None
    mine = {fault["step"]: lambda: os.kill(os.getpid(), fault["signal"])} if fault.get("host") == hosts.number else {}
    undrawn.in_this_process()
    try:
        with joined(hosts, {"changes": changes}):
            if what == "weights":
                save_final_weights(place, json.loads(changes))
            else:
                run(Path(place), callbacks=[At(mine)], **json.loads(changes))
    except QuartetError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A run in Weights & Biases. Its own environment variables (WANDB_API_KEY, WANDB_MODE, ...) hold. Needs the extra `wandb`."""

import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from extensions.tracking.trackers import Order, Status, numbers


class WandbRun:
    """One run; the project there is called as the experiment here, vision-digits."""

    def __init__(self, order: Order, settings: Mapping[str, Any], known: str | None):
        import wandb

        # nothing of this machine is sent but what the run measured: no code, revision, command, host or output
        quiet = wandb.Settings(console="off", silent=True, disable_git=True, disable_code=True, save_code=False, x_disable_meta=True,
                               x_disable_stats=True, x_disable_machine_info=True)
        if order.server:
            quiet.base_url = order.server
        self.id = known or uuid.uuid4().hex[:12]
        self.run = wandb.init(project=order.project.replace("/", "-"), name=order.name, id=self.id, resume="allow",
                              config=dict(settings), settings=quiet)
        # steps come again where a run is resumed, which wandb's own counter does not allow
        self.run.define_metric("*", step_metric="step")
        self.place = self.run.url or f"{self.run.dir}, for wandb sync"

    def log(self, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            self.run.log({"step": int(row["step"]), **numbers(row)})

    def finish(self, status: Status, metrics: Mapping[str, float], files: Mapping[Path, str], step: int) -> None:
        self.run.summary.update(dict(metrics))
        for file in files:
            base = file.parent if not files[file] else file.parents[len(Path(files[file]).parts)]
            self.run.save(str(file), base_path=str(base), policy="now")
        self.run.finish(exit_code=0 if status == "finished" else 1)

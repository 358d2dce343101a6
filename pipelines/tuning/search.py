"""A search: asks the oracle for trials, runs each in a process of its own, and keeps a journal from which it resumes.

Promises: what the journal says happened is not done again, and what it does not say is; so a search killed at any moment and
started again has the same trials. Random and grid search ask for the same trials whatever their results and the number of
workers; where trials are deterministic (train.deterministic) the outcome is the same, too.
"""

import contextlib
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.base import storage
from pipelines.base.errors import ConfigError, TrainingError
from pipelines.base.files import write_json, write_whole
from pipelines.base.formatting import better
from pipelines.base.signals import handling
from pipelines.config import extensions
from pipelines.config.messages import did_you_mean
from pipelines.config.schema import Experiment, Tune
from pipelines.config.space import Dimension, current, dimensions
from pipelines.config.train_settings import protected_by, protecting
from pipelines.config.yaml_text import resolved_yaml
from pipelines.machine.memory import WORKERS
from pipelines.runs.launcher import Processes
from pipelines.tuning import tuner_space
from pipelines.tuning.analysis import worth
from pipelines.tuning.extra_runs import REPEATED, WAIT_SECONDS, alone, repeat
from pipelines.tuning.search_folder import NO_VALIDATION, Journal, SearchFolder, best_yaml, check_events, repeated_yaml, trial_name
from pipelines.tuning.trial_processes import Nursery, worker_devices
from pipelines.tuning.trials import SearchProgress, Stopped, Trial, best_of, read_result, time_left

GIVE_UP = 10  # trials that failed before any succeeded: then the experiment is wrong, not the setting


def search(experiment: Experiment, folder: SearchFolder, name: str, *, workers: int = 1, fresh: bool = False, quiet: bool = False,
           processes: Processes | None = None) -> dict[str, Any]:
    """Searches, or resumes searching, the space in the experiment's tune section. Returns the report.

    Args:
        name: the experiment's, such as vision/cifar10_cnn.
        workers: trials at a time; where there are GPUs, each worker has its own.
        processes: of the trials; None: of this machine.

    Raises:
        ConfigError: the space, the objective or the folder is wrong; nothing was done.
        TrainingError: no trial came to an end.
        Stopped: by a signal.
    """
    _, space = prepared(experiment)
    resolved = resolved_yaml(experiment)
    if fresh:
        folder.move_aside()
    with folder.locked():
        same = folder.compared(resolved)
        storage.begin(folder.path, begun=folder.started)
        if same and folder.finished:
            return folder.read_report()
        journal = Journal(folder.journal)
        try:
            check_events(journal.events, str(journal.path))
            return _Search(experiment, space, folder, name, workers, journal, quiet, processes).run()
        finally:
            journal.close()


def prepared(experiment: Experiment) -> tuple[Tune, list[Dimension]]:
    """The tune section and the searched settings; imports no TensorFlow.

    Raises:
        ConfigError: there is nothing to search, or the space does not suit the search.
    """
    tune = experiment.tune or Tune()
    searched = (name for name in protecting() if any(one == name or one.startswith(f"{name}.") for one in tune.space))
    if protection := protected_by(experiment.train) or next(searched, None):
        raise ConfigError(f"{protection}: every trial would spend its protection on the same examples anew, and the choice among them "
                          "tells of the examples, too; no search can promise what one training does. Choose the settings on data that need "
                          f"no protection, without {protection}, or by what others publish, and train once")
    if isinstance(experiment.data.validation, float) and not experiment.data.validation:
        raise ConfigError(NO_VALIDATION)
    space = dimensions(experiment)
    tuner_space.check(space, tune.algorithm, tune.trials)
    return tune, space


class _Search:
    """One process's work on a search."""

    def __init__(self, experiment: Experiment, space: list[Dimension], folder: SearchFolder, name: str, workers: int,
                 journal: Journal, quiet: bool, processes: Processes | None):
        self.experiment, self.tune, self.space = experiment, experiment.tune or Tune(), space
        self.folder, self.name, self.workers, self.journal, self.quiet, self.given = folder, name, workers, journal, quiet, processes
        self.trials: dict[int, Trial] = {}
        self.begun = time.monotonic()
        self.before = max((event.get("elapsed", 0.0) for event in journal.events), default=0.0)
        self.signalled: int | None = None
        self.pending: list[Trial] = []
        self.asking = True
        self.started: dict[int, float] = {}

    @property
    def elapsed(self) -> float:
        """Seconds of searching, over all processes."""
        return self.before + time.monotonic() - self.begun

    def run(self) -> dict[str, Any]:
        with handling(self._on_signal), contextlib.nullcontext(self.given) if self.given else self._here() as processes:
            self.processes: Processes = processes
            begin = self._begin()
            self.objective, self.direction, self.precision = begin["objective"], begin["direction"], begin["precision"]
            self.sign = 1.0 if self.direction == "max" else -1.0
            with SearchProgress(self.objective, self.direction, self._total(), quiet=self.quiet) as progress:
                self.progress = progress
                self._search()
                return self._finish()

    def _here(self) -> Nursery:
        return Nursery(self.experiment.task.partition(".")[0], extensions.environment(self.experiment))

    # --- before the first trial

    def _begin(self) -> dict[str, Any]:
        """The journal's first event: objective, direction, precision. Made by a survey where there is none yet."""
        from pipelines.tuning.oracles import first_drawn

        if self.journal.events:
            return self.journal.events[0]
        self.folder.claim(resolved_yaml(self.experiment))
        order = self.folder.path / "survey.order.json"
        write_json(order, {"kind": "survey", "experiment": self.folder.search.name})
        result = self._alone(order)
        if result["status"] != "completed":
            error = ConfigError if result.get("exit_status") == 2 else TrainingError
            raise error(result["reason"])
        own = result["own"][0]
        objective = (self.tune.objective or own).removeprefix("validation/")
        known = result["judged"] and list(dict.fromkeys([*result["judged"], *result["streamed"]]))
        if objective.startswith("test/"):
            raise ConfigError(f"tune.objective: {objective!r}: the test split is read once, after the search; name a metric of validation")
        if known is not None and objective not in known:
            raise ConfigError(f"tune.objective: {objective!r} is no metric of this task{did_you_mean(objective, known)} "
                              f"(there are: {', '.join(known)})")
        if self.tune.stop_early == "median" and objective not in result["streamed"]:
            raise ConfigError("tune.stop_early: median needs an objective that is known after each epoch: "
                              f"{', '.join(result['streamed'])}; {objective!r} is not")
        if self.experiment.monitor.tensorboard and not storage.is_private(self.folder.path):
            self._write_columns(objective, result["judged"] or [])
        direction = self.tune.direction or _direction(objective, result["own"])
        self.journal.add({"event": "begin", "objective": objective, "direction": direction, "precision": result["precision"],
                          "replicas": result["replicas"], "fingerprint": result["fingerprint"],
                          "drawn": first_drawn(len(self.space), self.tune.trials),
                          "first": tuner_space.placed(self.space, current(self.experiment, self.space)), "elapsed": self.elapsed})
        return self.journal.events[0]

    def _write_columns(self, objective: str, judged: list[str]) -> None:
        """What TensorBoard's HParams shows of the trials: the settings searched, the objective, and the other metrics of validation."""
        from pipelines.monitoring.tensorboard import Writer

        space = {one.name: list(one.values) if one.values else (one.low, one.high) for one in self.space}
        metrics = [(name, "", f"hparam/validation/{name}") for name in judged if name != objective]
        first = ("", f"hparam/validation/{objective}") if objective in judged else ("validation", f"epoch/{objective}")
        with Writer(self.folder.path / "tensorboard") as writer:
            writer.hparams_config(space, [(objective, *first), *metrics])

    def _total(self) -> int:
        """Trials that there will be."""
        if self.tune.algorithm == "grid":
            return tuner_space.count(self.space, self.tune.trials)
        return self.tune.trials

    # --- trials

    def _search(self) -> None:
        from pipelines.tuning.oracles import Oracle, hyperband_plan

        self.oracle = Oracle(self.tune.algorithm, tuner_space.hyperparameters(self.space),
                             objective=(self.objective, self.direction),
                             trials=self.tune.trials, epochs=self.experiment.train.epochs, seed=self.tune.seed,
                             drawn=self.journal.events[0].get("drawn"), first=self.journal.events[0].get("first"))
        self.plan = hyperband_plan(self.experiment.train.epochs) if self.tune.algorithm == "hyperband" else []
        if self.plan and self.tune.trials % len(self.plan):
            self.progress.note(f"A sweep of hyperband over {self.experiment.train.epochs} epochs is {len(self.plan)} trials; with "
                               f"tune.trials: {self.tune.trials} the last is cut short.")
        self.pending = self._replay()
        self.folder.claim(resolved_yaml(self.experiment))  # not before: a search that cannot resume stays unchanged
        if self.trials:
            done = sum(trial.result is not None for trial in self.trials.values())
            self.progress.note(f"resuming: {done} trials done, {len(self.trials) - done} under way")
        self._trials()
        if self.signalled is not None:
            raise Stopped(self.signalled)

    def _trials(self) -> None:
        """Runs trials until there are no more."""
        free = list(range(self.workers))
        running: dict[str, tuple[Trial, int]] = {}
        while True:
            while free and not isinstance(trial := self._take(), str):
                if self._ready(trial):
                    worker = free.pop(0)
                    self._start(trial, worker)
                    running[str(trial.number)] = trial, worker
            if not running and not self.pending and not self.asking:
                return
            if self.signalled is not None:
                return self._stop(running)
            self.progress.refresh(len(running))
            for key, status in self.processes.ended(WAIT_SECONDS):
                trial, worker = running.pop(key)
                free = sorted([*free, worker])
                if self.signalled is None or self._result_file(trial).exists():
                    self._end(trial, self._result(trial, status))

    def _take(self) -> Trial | str:
        """The next trial to run; "wait" for one that runs, or "stop"."""
        if self.signalled is not None:
            return "wait"
        if self.pending:
            return self.pending.pop(0)
        if self.asking and self.tune.minutes is not None and self.elapsed >= 60.0 * self.tune.minutes:
            self.progress.note(f"{self.tune.minutes:g} minutes are over")
            self.asking = False
        if not self.asking:
            return "stop"
        asked = self.oracle.ask()
        if asked.kind == "run":
            return self._asked(asked)
        if asked.kind == "wait" and self._under_way():
            return "wait"
        self.asking = False
        return "stop"

    def _under_way(self) -> list[Trial]:
        return [trial for trial in self.trials.values() if trial.result is None and trial not in self.pending]

    def _replay(self) -> list[Trial]:
        """Takes oracle and trials to where the journal ends; returns the trials that had begun and not ended."""
        for event in self.journal.events:
            if event["event"] == "start":
                try:
                    asked = self.oracle.ask(event["places"])
                except ValueError as error:
                    raise ConfigError(f"{self.journal.path}: this version of Keras Tuner does not ask for the trials in the journal again "
                                      f"({error}); begin anew with --fresh") from None
                if asked.kind != "run" or asked.number != event["trial"]:
                    raise ConfigError(f"{self.journal.path}: does not fit this search (trial {event['trial']}); begin anew with --fresh")
                self._add(event)
            elif event["event"] == "end":
                trial = self.trials[event["trial"]]
                trial.result = {name: value for name, value in event.items() if name not in ("event", "trial")}
                self.oracle.tell(trial.number, worth(trial, self.tune.cost, self.sign))
                self.progress.known(trial.number, trial.value)
        return [trial for trial in self.trials.values() if trial.result is None]

    def _asked(self, asked: Any) -> Trial:
        places = asked.places
        setting = self.trials[asked.goes_on].setting if asked.goes_on else asked.number
        finished = [trial.number for trial in self.trials.values() if trial.value is not None and trial.number == trial.setting]
        self.journal.add({
            "event": "start", "trial": asked.number, "places": places, "setting": setting,
            "epochs": asked.epochs, "peers": finished if self.tune.stop_early == "median" else [], "elapsed": self.elapsed})
        return self._add(self.journal.events[-1])

    def _add(self, event: Mapping[str, Any]) -> Trial:
        values = tuner_space.decoded(self.space, event["places"])
        trial = Trial(event["trial"], values, event["setting"], event["epochs"], event["peers"])
        self.trials[trial.number] = trial
        return trial

    def _ready(self, trial: Trial) -> bool:
        """Writes a trial's order; False where it has ended already."""
        before = self.trials[trial.setting]
        if before is not trial and before.result is not None and before.value is None:
            reason = f"the trial that it continues failed: {before.result['reason']}"
            self._end(trial, {"status": "failed", "reason": reason, "seconds": 0.0})
            return False
        if self._result_file(trial).exists():  # it had ended, and the search was killed before it could say so
            self._end(trial, self._result(trial, 0))
            return False
        write_json(self._order_file(trial), {
            "kind": "trial", "experiment": "../../search.yaml", "folder": ".", "name": self.name, "values": trial.values,
            "title": f"{trial.setting:02d} {self.name} {self.folder.path.name}",
            "epochs": trial.epochs, "objective": self.objective, "direction": self.direction, "precision": self.precision,
            "peers": [f"../{self._folder(self.trials[number]).name}" for number in trial.peers]})
        self.started[trial.number] = time.monotonic()
        return True

    def _start(self, trial: Trial, worker: int) -> None:
        self.processes.start(str(trial.number), [str(self._order_file(trial))], log=str(self._folder(trial) / "log.txt"),
                           environment={**worker_devices(worker, self.workers, self.experiment), WORKERS: str(self.workers)})

    def _end(self, trial: Trial, result: dict[str, Any]) -> None:
        if trial.number in self.started:
            result["seconds"] = time.monotonic() - self.started.pop(trial.number)
        trial.result = result
        if not self._result_file(trial).exists():  # `quartet runs` reads it
            write_json(self._result_file(trial), result)
        self.journal.add({"event": "end", "trial": trial.number, "elapsed": self.elapsed, **result})
        self.oracle.tell(trial.number, worth(trial, self.tune.cost, self.sign))
        left = time_left(list(self.trials.values()), self._total(), self.plan, self.workers, self._minutes_left())
        self.progress.ended(trial.number, trial.values, result, left)
        ended = [one for one in self.trials.values() if one.result is not None]
        if len(ended) >= GIVE_UP and all(one.value is None and not (one.result or {}).get("too_costly") for one in ended):
            raise TrainingError(f"the first {len(ended)} trials all failed; the last: {result['reason']}\nLogs are in {self.folder.trials}")

    def _result(self, trial: Trial, status: int) -> dict[str, Any]:
        """What a trial's process left, or why it left nothing."""
        result = read_result(self._result_file(trial), status, self._folder(trial) / "log.txt")
        wanted = f"validation/{self.objective}"
        result["metrics"] = {name: metric["value"] for name, metric in result.pop("metrics", {}).items() if name.startswith("validation/")
                             or name == wanted}
        result.setdefault("seconds", 0.0)
        return result

    def _stop(self, running: dict[str, tuple[Trial, int]]) -> None:
        """Lets the running trials save their state."""
        if not running:
            return
        self.progress.note("saving the state of the running trials")
        self.processes.signal(signal.SIGTERM)
        until = time.monotonic() + 60.0
        while running and time.monotonic() < until:
            for key, status in self.processes.ended(WAIT_SECONDS):
                trial, _ = running.pop(key)
                if self._result_file(trial).exists():
                    self._end(trial, self._result(trial, status))
        running.clear()

    def _minutes_left(self) -> float | None:
        """Seconds until no trial is started any more; None: no limit."""
        return None if self.tune.minutes is None else max(0.0, 60.0 * self.tune.minutes - self.elapsed)

    # --- files

    def _folder(self, trial: Trial) -> Path:
        first = self.trials[trial.setting]
        return self.folder.trials / trial_name(first.number, first.values)

    def _order_file(self, trial: Trial) -> Path:
        return self._folder(trial) / f"{trial.number}.order.json"

    def _result_file(self, trial: Trial) -> Path:
        return self._folder(trial) / f"{trial.number}.result.json"

    def _alone(self, order: Path) -> dict[str, Any]:
        return alone(self.processes, order, environment=worker_devices(0, self.workers, self.experiment), signalled=lambda: self.signalled)

    def _on_signal(self, number: int, frame: Any) -> None:
        if self.signalled is not None:  # asked twice
            raise KeyboardInterrupt
        self.signalled = number

    # --- after the last trial

    def _finish(self) -> dict[str, Any]:
        from pipelines.tuning.report import Searched, write

        best = best_of(list(self.trials.values()), self.sign, self.folder.trials, self.tune.cost)
        write_whole(self.folder.best, best_yaml(self.experiment, self.name, best, len(self.trials), self.objective, self.folder.best))
        repeats = self._repeats(best)
        return write(self.folder, Searched(
            self.name, self.experiment, self.tune, self.space, list(self.trials.values()), best, self.objective, self.direction, repeats,
            self.elapsed, self.workers, {number: self._folder(trial).name for number, trial in self.trials.items()}))

    def _repeats(self, best: Trial) -> dict[str, dict[str, Any]]:
        """Reports of the best setting, and, where requested, of the experiment as it was, over several seeds."""
        if not self.tune.seeds:
            return {}
        wanted = {"best": best.values} | ({"start": {}} if self.tune.compare else {})
        metrics = {}
        for key, values in wanted.items():
            self.progress.note(f"training {REPEATED[key]} over {self.tune.seeds} seeds")
            text = repeated_yaml(self.experiment, values, self.tune.seeds, self.precision)
            metrics[key] = repeat(self.folder.path, key, text, self.name, self._alone)
        return metrics


def _direction(objective: str, own: list[str]) -> str:
    direction = own[1] if objective == own[0] else better(objective)
    if direction is None:
        raise ConfigError(f"tune.objective: whether more or less of {objective} is better is not known; declare it, or compare by {own[0]}")
    return direction

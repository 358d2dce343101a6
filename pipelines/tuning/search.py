"""A search: asks the oracle for trials, runs each in a process of its own, and keeps a journal from which it goes on.

Promises: what the journal says happened is not done again, and what it does not say is; so a search killed at any moment and
started again has the same trials. Random and grid search ask for the same trials whatever their results and the number of
workers; where trials are deterministic (train.deterministic) the outcome is the same, too.
"""

import json
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.config.dump import resolved_yaml
from pipelines.config.schema import Experiment, Tune
from pipelines.config.space import Dimension, dimensions
from pipelines.config.wording import did_you_mean
from pipelines.errors import ConfigError, QuartetError, TrainingError
from pipelines.files import write_json, write_whole
from pipelines.tuning import points
from pipelines.tuning.best import best_yaml, repeated_yaml
from pipelines.tuning.devices import worker_devices
from pipelines.tuning.folder import Journal, SearchFolder, trial_name
from pipelines.tuning.nursery import Nursery
from pipelines.tuning.progress import SearchProgress

GIVE_UP = 10  # trials that failed before any succeeded: then the experiment is wrong, not the setting
_WAIT_SECONDS = 0.5  # between looks at signals and at the clock
_SIGNALS = {signal.SIGKILL: "most likely the system ran out of memory; a smaller model or batch, or fewer --workers"}


class Stopped(QuartetError):
    """A signal came; trials that ran have saved their state."""

    def __init__(self, number: int):
        super().__init__("interrupted; the same command goes on from here")
        self.exit_status = 128 + number


@dataclass
class Trial:
    """One trial as the search knows it.

    Attributes:
        number: from 1, in the order in which they were asked for.
        values: setting -> value.
        setting: number of the trial whose folder it trains in: its own, or with hyperband the one that it goes on from.
        epochs: to which it trains, None for all.
        peers: trials that the median rule compares it with.
        result: what came of it, None while it runs.
    """

    number: int
    values: dict[str, Any]
    setting: int
    epochs: int | None
    peers: list[int]
    result: dict[str, Any] | None = None

    @property
    def value(self) -> float | None:
        return self.result.get("value") if self.result else None


def search(experiment: Experiment, folder: SearchFolder, name: str, *, workers: int = 1, fresh: bool = False, quiet: bool = False,
           ) -> dict[str, Any]:
    """Searches, or goes on with, the space in the experiment's tune section. Returns the report.

    Args:
        name: the experiment's, such as vision/cifar10_cnn.
        workers: trials at a time; where there are GPUs, each worker has its own.

    Raises:
        ConfigError: the space, the objective or the folder is wrong; nothing was done.
        TrainingError: no trial came to an end.
        Stopped: by a signal.
    """
    tune, space = prepared(experiment)
    resolved = resolved_yaml(experiment)
    if fresh and folder.path.exists():
        with folder.locked():
            folder.move_aside()
    with folder.locked():
        folder.claim(resolved)
        if folder.finished:
            return folder.read_report()
        journal = Journal(folder.journal)
        try:
            return _Search(experiment, tune, space, folder, name, workers, journal, quiet).run()
        finally:
            journal.close()


def prepared(experiment: Experiment) -> tuple[Tune, list[Dimension]]:
    """The tune section and the searched settings; imports no TensorFlow.

    Raises:
        ConfigError: there is nothing to search, or the space does not suit the search.
    """
    tune = experiment.tune or Tune()
    space = dimensions(experiment)
    points.check(space, tune.algorithm, tune.trials)
    return tune, space


class _Search:
    """One process's work on a search."""

    def __init__(self, experiment: Experiment, tune: Tune, space: list[Dimension], folder: SearchFolder, name: str, workers: int,
                 journal: Journal, quiet: bool):
        self.experiment, self.tune, self.space, self.folder, self.name = experiment, tune, space, folder, name
        self.workers, self.journal, self.quiet = workers, journal, quiet
        self.trials: dict[int, Trial] = {}
        self.begun = time.monotonic()
        self.before = max((event.get("elapsed", 0.0) for event in journal.events), default=0.0)
        self.signalled: int | None = None
        self.started: dict[int, float] = {}

    @property
    def elapsed(self) -> float:
        """Seconds of searching, over all processes."""
        return self.before + time.monotonic() - self.begun

    def run(self) -> dict[str, Any]:
        previous = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            with Nursery(self.experiment.task.partition(".")[0]) as nursery:
                self.nursery = nursery
                begin = self._begin()
                self.objective, self.direction, self.precision = begin["objective"], begin["direction"], begin["precision"]
                self.sign = 1.0 if self.direction == "max" else -1.0
                with SearchProgress(self.objective, self.direction, self._total(), quiet=self.quiet) as progress:
                    self.progress = progress
                    self._search()
                    return self._finish()
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    # --- before the first trial

    def _begin(self) -> dict[str, Any]:
        """The journal's first event: objective, direction, precision. Made by a survey where there is none yet."""
        if self.journal.events:
            return self.journal.events[0]
        order = self.folder.path / "survey.order.json"
        write_json(order, {"kind": "survey", "experiment": str(self.folder.search)})
        result = self._alone("survey", order)
        if result["status"] != "completed":
            error = ConfigError if result.get("exit_status") == 2 else TrainingError
            raise error(result["reason"])
        own = result["own"][0]
        objective = (self.tune.objective or own).removeprefix("validation/")
        known = result["judged"]
        if objective.startswith("test/"):
            raise ConfigError(f"tune.objective: {objective!r}: the test split is read once, after the search; name a metric of validation")
        if known is not None and objective not in known:
            raise ConfigError(f"tune.objective: {objective!r} is no metric of this task{did_you_mean(objective, known)} "
                              f"(there are: {', '.join(known)})")
        if self.tune.stop_early == "median" and objective not in result["streamed"]:
            raise ConfigError("tune.stop_early: median needs an objective that is known after each epoch: "
                              f"{', '.join(result['streamed'])}; {objective!r} is not")
        direction = self.tune.direction or _direction(objective, result["own"])
        self.journal.add({"event": "begin", "objective": objective, "direction": direction, "precision": result["precision"],
                          "replicas": result["replicas"], "fingerprint": result["fingerprint"], "elapsed": self.elapsed})
        return self.journal.events[0]

    def _total(self) -> int:
        """Trials that there will be."""
        if self.tune.algorithm == "grid":
            return points.count(self.space, self.tune.trials)
        return self.tune.trials

    # --- trials

    def _search(self) -> None:
        from pipelines.tuning.oracles import Oracle, hyperband_plan

        self.oracle = Oracle(self.tune.algorithm, points.hyperparameters(self.space), objective=self.objective, direction=self.direction,
                             trials=self.tune.trials, epochs=self.experiment.train.epochs, seed=self.tune.seed)
        self.plan = hyperband_plan(self.experiment.train.epochs) if self.tune.algorithm == "hyperband" else []
        if self.plan and self.tune.trials % len(self.plan):
            self.progress.note(f"A sweep of hyperband over {self.experiment.train.epochs} epochs is {len(self.plan)} trials; with "
                               f"tune.trials: {self.tune.trials} the last is cut short.")
        pending = self._replay()
        if self.trials:
            done = sum(trial.result is not None for trial in self.trials.values())
            self.progress.note(f"going on: {done} trials done, {len(pending)} under way")
        free = list(range(self.workers))
        running: dict[str, tuple[Trial, int]] = {}
        asking = True
        while running or pending or asking:
            while free and (pending or asking) and self.signalled is None:
                if pending:
                    trial = pending.pop(0)
                else:
                    if self.tune.minutes is not None and self.elapsed >= 60.0 * self.tune.minutes:
                        self.progress.note(f"{self.tune.minutes:g} minutes are over")
                        asking = False
                        break
                    asked = self.oracle.ask()
                    if asked.kind == "stop" or (asked.kind == "wait" and not running):
                        asking = False
                        break
                    if asked.kind == "wait":
                        break
                    trial = self._asked(asked)
                worker = free.pop(0)
                if self._run(trial, worker):
                    running[str(trial.number)] = trial, worker
                else:
                    free.insert(0, worker)
            if not running:
                if self.signalled is not None:
                    break
                continue
            self.progress.refresh(list(running))
            for key, status in self.nursery.ended(_WAIT_SECONDS):
                trial, worker = running.pop(key)
                free = sorted([*free, worker])
                if self.signalled is None or self._result_file(trial).exists():
                    self._end(trial, self._result(trial, status))
            if self.signalled is not None and running:
                self._stop(running)
        if self.signalled is not None:
            raise Stopped(self.signalled)

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
                self.oracle.tell(trial.number, trial.value)
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
        values = points.decoded(self.space, event["places"])
        trial = Trial(event["trial"], values, event["setting"], event["epochs"], event["peers"])
        self.trials[trial.number] = trial
        return trial

    def _run(self, trial: Trial, worker: int) -> bool:
        """Starts a trial's process; False where it has ended without one."""
        before = self.trials[trial.setting]
        if before is not trial and before.result is not None and before.value is None:
            reason = f"the trial that it goes on from failed: {before.result['reason']}"
            self._end(trial, {"status": "failed", "reason": reason, "seconds": 0.0})
            return False
        if self._result_file(trial).exists():  # it had ended, and the search was killed before it could say so
            self._end(trial, self._result(trial, 0))
            return False
        folder = self._folder(trial)
        folder.mkdir(parents=True, exist_ok=True)
        order = self._order_file(trial)
        write_json(order, {
            "kind": "trial", "experiment": str(self.folder.search), "name": self.name, "folder": str(folder), "values": trial.values,
            "title": f"{trial.setting:02d} {self.name} {self.folder.path.name}",
            "epochs": trial.epochs, "objective": self.objective, "direction": self.direction, "precision": self.precision,
            "peers": [str(self._folder(self.trials[number])) for number in trial.peers]})
        self.started[trial.number] = time.monotonic()
        self.nursery.start(str(trial.number), [str(order)], log=str(folder / "log.txt"),
                           environment=worker_devices(worker, self.workers, self.experiment))
        return True

    def _end(self, trial: Trial, result: dict[str, Any]) -> None:
        if trial.number in self.started:
            result["seconds"] = time.monotonic() - self.started.pop(trial.number)
        trial.result = result
        self.journal.add({"event": "end", "trial": trial.number, "elapsed": self.elapsed, **result})
        self.oracle.tell(trial.number, trial.value)
        self.progress.ended(trial.number, trial.values, result, self._left())
        ended = [one for one in self.trials.values() if one.result is not None]
        if len(ended) >= GIVE_UP and all(one.value is None for one in ended):
            raise TrainingError(f"the first {len(ended)} trials all failed; the last: {result['reason']}\nLogs are in {self.folder.trials}")

    def _result(self, trial: Trial, status: int) -> dict[str, Any]:
        """What a trial's process left, or why it left nothing."""
        result = self._read(self._result_file(trial), status, self._folder(trial) / "log.txt")
        wanted = f"validation/{self.objective}"
        result["metrics"] = {name: metric["value"] for name, metric in result.pop("metrics", {}).items() if name.startswith("validation/")
                             or name == wanted}
        result.setdefault("seconds", 0.0)
        return result

    def _read(self, file: Path, status: int, log: Path) -> dict[str, Any]:
        try:
            return json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            pass
        if status < 0:
            name = signal.Signals(-status)
            why = f"killed by {name.name}" + (f": {_SIGNALS[name]}" if name in _SIGNALS else "")
        else:
            why = f"its process ended with status {status}"
        return {"status": "failed", "reason": f"{why}; see {log}"}

    def _stop(self, running: dict[str, tuple[Trial, int]]) -> None:
        """Lets the running trials save their state."""
        self.progress.note("saving the state of the running trials")
        self.nursery.signal(signal.SIGTERM)
        until = time.monotonic() + 60.0
        while running and time.monotonic() < until:
            for key, status in self.nursery.ended(_WAIT_SECONDS):
                trial, _ = running.pop(key)
                if self._result_file(trial).exists():
                    self._end(trial, self._result(trial, status))
        running.clear()

    def _left(self) -> float | None:
        """Seconds to go, from what trials took so far."""
        ended = [trial for trial in self.trials.values() if trial.result is not None and trial.value is not None]
        if not ended:
            return None
        spent = sum(trial.result["seconds"] for trial in ended if trial.result)
        if self.plan:
            steps = [after - before for before, after in (self.plan * (1 + self.tune.trials // len(self.plan)))[:self.tune.trials]]
            done = sum(steps[trial.number - 1] for trial in ended)
            left = spent / max(done, 1) * sum(step for place, step in enumerate(steps, 1)
                                              if place not in self.trials or self.trials[place].result is None)
        else:
            left = spent / len(ended) * (self._total() - sum(trial.result is not None for trial in self.trials.values()))
        left /= self.workers
        return left if self.tune.minutes is None else min(left, max(0.0, 60.0 * self.tune.minutes - self.elapsed) + spent / len(ended))

    # --- files

    def _folder(self, trial: Trial) -> Path:
        first = self.trials[trial.setting]
        return self.folder.trials / trial_name(first.number, first.values)

    def _order_file(self, trial: Trial) -> Path:
        return self._folder(trial) / f"{trial.number}.order.json"

    def _result_file(self, trial: Trial) -> Path:
        return self._folder(trial) / f"{trial.number}.result.json"

    def _alone(self, key: str, order: Path) -> dict[str, Any]:
        """Runs one process that is no trial, and waits for it."""
        result, log = order.with_name(order.name.replace("order", "result")), order.with_suffix(".log")
        result.unlink(missing_ok=True)
        self.nursery.start(key, [str(order)], log=str(log), environment=worker_devices(0, self.workers, self.experiment))
        while True:
            if self.signalled is not None:
                self.nursery.signal(signal.SIGTERM)
            for _, status in self.nursery.ended(_WAIT_SECONDS):
                if self.signalled is not None:
                    raise Stopped(self.signalled)
                found = self._read(result, status, log)
                for file in (order, result, log) if found["status"] == "completed" or "exit_status" in found else (order,):
                    file.unlink(missing_ok=True)
                return found

    def _on_signal(self, number: int, frame: Any) -> None:
        if self.signalled is not None:  # asked twice
            raise KeyboardInterrupt
        self.signalled = number

    # --- after the last trial

    def best(self) -> Trial:
        """The best trial; of equals the one that trained longer, then the first.

        Raises:
            TrainingError: none came to an end.
        """
        ended = [trial for trial in self.trials.values() if trial.value is not None]
        if not ended:
            reasons = [trial.result["reason"] for trial in self.trials.values() if trial.result]
            raise TrainingError("no trial came to an end" + (f"; the last: {reasons[-1]}" if reasons else "") +
                                f"\nLogs are in {self.folder.trials}")
        return max(ended, key=lambda trial: ((trial.value or 0.0) * self.sign, trial.epochs or 0, -trial.number))

    def _finish(self) -> dict[str, Any]:
        from pipelines.tuning.report import write

        best = self.best()
        write_whole(self.folder.best, best_yaml(self.experiment, self.name, best, len(self.trials), self.objective, self.folder.best))
        repeats = self._repeats(best)
        return write(self.folder, name=self.name, experiment=self.experiment, tune=self.tune, space=self.space,
                     trials=list(self.trials.values()), best=best, objective=self.objective, direction=self.direction,
                     repeats=repeats, elapsed=self.elapsed, workers=self.workers, folders={
                         number: self._folder(trial).name for number, trial in self.trials.items()})

    def _repeats(self, best: Trial) -> dict[str, dict[str, Any]]:
        """Reports of the best setting, and if asked for of the experiment as it was, over several seeds."""
        if not self.tune.seeds:
            return {}
        wanted = {"best": best.values} | ({"start": {}} if self.tune.compare else {})
        found = {}
        for key, values in wanted.items():
            file = self.folder.path / f"{key}.order.yaml"
            write_whole(file, repeated_yaml(self.experiment, values, self.tune.seeds, self.precision))
            order = self.folder.path / f"{key}.order.json"
            write_json(order, {"kind": "train", "experiment": str(file), "folder": str(self.folder.path / key), "name": self.name})
            said = "the best setting" if key == "best" else "the experiment as it was"
            self.progress.note(f"training {said} over {self.tune.seeds} seeds")
            result = self._alone(key, order)
            file.unlink(missing_ok=True)
            if result["status"] != "completed":
                raise TrainingError(f"training {said} anew failed: {result['reason']}")
            found[key] = result
        return found


def _direction(objective: str, own: list[str]) -> str:
    from pipelines.reports.words import lower_is_better

    return own[1] if objective == own[0] else "min" if lower_is_better(objective) else "max"

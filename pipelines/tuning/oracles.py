"""Keras Tuner's oracles - random, Bayesian, Hyperband, grid - kept in memory and rebuilt from the search's journal.

An oracle's own files are written in place, so that a kill can leave half of one, and do not hold all of its state (the grid's
order, the Bayesian draw). Here an oracle writes nothing: after a restart it is asked again what the journal says it was asked,
and answers the same.
"""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import keras_tuner
    from keras_tuner import oracles

_FACTOR = 3  # Hyperband's: one in three continues


@dataclass(frozen=True)
class Asked:
    """What an oracle wants next: a trial, to `wait` for one that runs, or nothing more.

    Attributes:
        kind: "run", "wait" or "stop".
        number: of the trial, from 1.
        places: setting -> the oracle's value (see tuner_space.py).
        epochs: to which it trains, over all its rounds; None for all.
        goes_on: number of the trial whose state it continues from, or None.
    """

    kind: str
    number: int = 0
    places: Mapping[str, Any] | None = None
    epochs: int | None = None
    goes_on: int | None = None


class _InMemory:
    """What all four share. Stands before Keras Tuner's class."""

    known: Mapping[str, Any] | None = None  # the places that the journal has for the trial that is requested again
    first: Mapping[str, Any] | None = None  # the places of the first trial; None: drawn, as all others
    trials: dict[str, Any]

    def save(self) -> None:
        """Nothing: the journal is what is kept."""

    def _save_trial(self, trial: Any) -> None:
        pass

    def _random_values(self) -> dict[str, Any] | None:
        if self.first is None or self.trials:
            return super()._random_values()  # type: ignore[misc]
        values = dict(self.first)
        self._duplicate(values)  # type: ignore[attr-defined]  # so that it is not drawn again
        return values

    def score_trial(self, trial: Any) -> None:
        """The score is given with the trial's end."""
        trial.best_step = 0


class _Random(_InMemory, oracles.RandomSearchOracle):
    pass


class _Grid(_InMemory, oracles.GridSearchOracle):
    """Keras Tuner's grid waits for a trial's end before it takes the next point, for settings that only the trial would reveal. This
    space is known, so that the next point follows at once and workers need not wait for each other."""

    def populate_space(self, trial_id: str) -> dict[str, Any]:
        response = super().populate_space(trial_id)
        if response["status"] == "RUNNING" and trial_id not in self._populate_next:
            self._populate_next.append(trial_id)
        return response


class _Bayesian(_InMemory, oracles.BayesianOptimizationOracle):
    """Draws from (seed, trial) and fits anew each time, so that an answer depends on nothing but the trials before it; answers that
    the journal has are not computed again."""

    ongoing_trials: dict[str, Any]

    def populate_space(self, trial_id: str) -> dict[str, Any]:
        finished = {name: trial for name, trial in self.trials.items() if trial.status == "COMPLETED"}
        if self.known is not None and len(finished) >= self.num_initial_points:
            return {"status": "RUNNING", "values": dict(self.known)}
        self._random_state = np.random.RandomState(self.seed + int(trial_id))
        with threadpool_limits(1), warnings.catch_warnings():  # the matrices are small: on several threads this takes five times as long
            warnings.simplefilter("ignore")  # of the fit's convergence
            if self.ongoing_trials and len(finished) >= self.num_initial_points:
                self._fit(finished)  # what the trials under way are guessed from; else it would be what some ask before had left
            return super().populate_space(trial_id)

    def _fit(self, finished: dict[str, Any]) -> None:
        trials, ongoing = self.trials, self.ongoing_trials
        self.trials, self.ongoing_trials = finished, {}
        try:
            self.gpr = self._make_gpr()
            self.gpr.fit(*self._vectorize_trials())
        finally:
            self.trials, self.ongoing_trials = trials, ongoing


class _Hyperband(_InMemory, oracles.HyperbandOracle):
    pass


class Oracle:
    """One search's oracle."""

    def __init__(self, algorithm: str, space: Any, *, objective: tuple[str, str], trials: int, epochs: int, seed: int,
                 drawn: int | None = None, first: Mapping[str, Any] | None = None):
        """
        Args:
            algorithm: random, bayesian, hyperband or grid.
            space: from `points.hyperparameters`.
            objective: its name, for messages, and "max" or "min".
            trials: at most.
            epochs: of a whole training.
            seed: the same seed asks for the same trials.
            drawn: trials that a Bayesian search draws at random first; default: as `first_drawn`.
            first: the places of the first trial, which is otherwise drawn; a grid has an order of its own.
        """
        self.algorithm, self.direction = algorithm, objective[1]
        common: dict[str, Any] = {
            "objective": keras_tuner.Objective(*objective), "hyperparameters": space, "seed": seed + 1,  # 0 would be drawn anew
            "max_consecutive_failed_trials": 10**9,  # when to give up is the search's to say
        }
        self.keras: Any
        if algorithm == "hyperband":
            sweeps = math.ceil(trials / len(hyperband_plan(epochs)))
            self.keras = _Hyperband(max_epochs=epochs, factor=_FACTOR, hyperband_iterations=sweeps, **common)
            self.keras.max_trials = trials
        elif algorithm == "bayesian":
            drawn = first_drawn(len(space.space), trials) if drawn is None else drawn
            self.keras = _Bayesian(max_trials=trials, num_initial_points=drawn, **common)
        else:
            self.keras = {"random": _Random, "grid": _Grid}[algorithm](max_trials=trials, **common)
        self.keras.first = first
        self.keras._max_collisions = 100_000  # a small space is searched to its last point
        self.keras.verbose = 0
        self.failed: set[int] = set()

    def ask(self, known: Mapping[str, Any] | None = None) -> Asked:
        """The next trial. `known`: the places that the journal has for it.

        Raises:
            ValueError: the answer is another than the known one.
        """
        self.keras.known = known
        try:
            # one name for each: a worker that asks again would be given the trial that it has
            trial = _quietly(self.keras.create_trial, f"trial{len(self.keras.trials)}")
        finally:
            self.keras.known = None
        if trial.status != "RUNNING":
            return Asked("wait" if trial.status == "IDLE" else "stop")
        values = trial.hyperparameters.values
        places = {name: value for name, value in values.items() if not name.startswith("tuner/")}
        if known is not None and dict(known) != places:
            raise ValueError(f"trial {int(trial.trial_id) + 1}: {places} now, {dict(known)} in the journal")
        before = values.get("tuner/trial_id")
        return Asked("run", int(trial.trial_id) + 1, places, values.get("tuner/epochs"), None if before is None else int(before) + 1)

    def tell(self, number: int, score: float | None) -> None:
        """A trial's end, with its score; None: it failed."""
        trial = next(trial for trial in self.keras.trials.values() if int(trial.trial_id) == number - 1)
        if score is None:
            self.failed.add(number)
            if self.algorithm == "hyperband":  # its rounds wait for a number of finished trials: a failed one is the worst of them
                score = -math.inf if self.direction == "max" else math.inf
        trial.score = score
        trial.status = "FAILED" if score is None else "COMPLETED"
        _quietly(self.keras.end_trial, trial)


def first_drawn(settings: int, trials: int) -> int:
    """Trials that a Bayesian search of so many settings and trials draws at random before it fits. A search that resumes with more
    trials keeps the number that it began with: its later trials came of it."""
    return min(max(3 * settings, 3), max(3, trials // 3))


def hyperband_plan(epochs: int) -> list[tuple[int, int]]:
    """(epochs before, epochs after) of every trial of one sweep of Hyperband over trainings of `epochs` (Li et al. 2018)."""
    oracle = oracles.HyperbandOracle(objective=keras_tuner.Objective("loss", "min"), max_epochs=epochs, factor=_FACTOR, seed=1)
    return [(oracle._get_epochs(bracket, turn - 1) if turn else 0, oracle._get_epochs(bracket, turn))
            for bracket in reversed(range(oracle._get_num_brackets())) for turn in range(bracket + 1)
            for _ in range(oracle._get_size(bracket, turn))]


def _quietly(call: Any, *arguments: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(*arguments)

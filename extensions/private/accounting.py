"""What a private training has spent, by Google's dp-accounting (extra `privacy`).

Protected is one training example, that is added or left out; each step draws every example with one probability (Poisson sampling) and adds
Gaussian noise. Privacy loss distributions (Koskela et al. 2020, arXiv:1906.03049) give an upper bound, tight to some 1e-3.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from extensions.private.settings import Privacy
from pipelines.base.errors import ConfigError
from pipelines.data import order

PROTECTED = "one training example, added or left out"
COVERED = "the weights of model/ and what is computed from them alone"


@dataclass(frozen=True)
class Accountant:
    """
    Attributes:
        noise: standard deviation as a multiple of the clipping norm.
        rate: probability with which a step draws an example.
        delta: as the settings have it.
        steps: the most that are trained; fewer than asked for where more would spend more than may be.
    """

    noise: float
    rate: float
    delta: float
    steps: int

    def epsilon(self, steps: int) -> float:
        """Spent after so many steps."""
        return _epsilon(self.noise, self.rate, steps, self.delta)

    def record(self, clip: float, steps: int) -> dict[str, Any]:
        """JSON values for report, model card and lineage."""
        spent = self.epsilon(steps)
        cut = 0.0 if self.rate == 1.0 else steps * order.TAIL * (1.0 + math.exp(min(spent, 700.0)))  # batches beyond the room for them
        found = {"epsilon": spent, "delta": self.delta + cut, "protected": PROTECTED, "covers": COVERED, "noise": self.noise, "clip": clip,
                 "sampling": "Poisson", "rate": self.rate, "steps": steps, "accountant": f"dp-accounting {_version()}"}
        return found | {
            "statement": f"Differential privacy: epsilon {spent:.3g} at delta {found['delta']:.3g} for {PROTECTED}; it covers {COVERED}. "
                         f"Noise {self.noise:.4g}, clipping norm {clip:g}, Poisson sampling at rate {self.rate:.4g}, {steps:,} steps; "
                         f"computed by {found['accountant']}.",
            "note": f"Trained with differential privacy: epsilon {spent:.3g}, delta {found['delta']:.3g}, for {PROTECTED}. It covers "
                    f"{COVERED}; not this report, metrics.jsonl and tensorboard/, computed from the data without noise, nor validation and "
                    "test examples, by which the weights may be chosen."}


def accountant(settings: Privacy, examples: int, batch: int, epochs: int, noise: float | None = None) -> Accountant:
    """
    Args:
        examples: of the training split.
        batch: examples of a step on average.
        noise: of an interrupted run.

    Raises:
        ConfigError: the extra is missing; delta is too large for so few examples, or the first epoch spends more than may be.
    """
    if settings.delta >= 1.0 / examples:
        raise ConfigError(f"train.privacy.delta: {settings.delta:g} is not below 1 / {examples:,} training examples: it would allow one of "
                          "them to be published")
    rate, an_epoch = batch / examples, -(-examples // batch)
    noise = settings.noise or noise or _noise_for(settings.epsilon or 0.0, rate, an_epoch * epochs, settings.delta)
    trained = epochs
    if settings.epsilon is not None and settings.noise is not None:
        trained = _most(lambda number: _epsilon(noise, rate, number * an_epoch, settings.delta) <= settings.epsilon, epochs)
        if not trained:
            one = _epsilon(noise, rate, an_epoch, settings.delta)
            raise ConfigError(f"train.privacy.noise: with {noise:g} the first epoch spends epsilon {one:.3g}, and train.privacy.epsilon "
                              f"allows {settings.epsilon:g}; take more noise, or leave it out")
    return Accountant(noise, rate, settings.delta, trained * an_epoch)


def _most(holds: Any, highest: int) -> int:
    """The largest of 0 .. highest for which it holds; it holds for 0, and for none beyond one for which it does not."""
    low, high = 0, highest
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


@lru_cache(maxsize=64)
def _epsilon(noise: float, rate: float, steps: int, delta: float) -> float:
    if not steps:
        return 0.0
    accounting = _library()
    return float(accounting.pld.PLDAccountant().compose(_event(accounting, noise, rate, steps)).get_epsilon(delta))


@lru_cache(maxsize=16)
def _noise_for(epsilon: float, rate: float, steps: int, delta: float) -> float:
    """The least noise that spends no more."""
    accounting = _library()

    def least(kind: Any, within: Any) -> float:
        return float(accounting.calibrate_dp_mechanism(
            kind, lambda noise: _event(accounting, noise, rate, steps), epsilon, delta, within, tol=1e-3))

    # a looser bound, in no time; other orders than whole ones may not converge, and warn of it
    above = least(lambda: accounting.rdp.RdpAccountant(range(2, 65)), accounting.LowerEndpointAndGuess(0.2, 1.0))
    below = above / 1.25  # far below, a privacy loss distribution is large
    while _epsilon(below, rate, steps, delta) <= epsilon:
        below /= 1.25
    return least(accounting.pld.PLDAccountant, accounting.ExplicitBracketInterval(below, above))


def _event(accounting: Any, noise: float, rate: float, steps: int) -> Any:
    drawn = accounting.PoissonSampledDpEvent(rate, accounting.GaussianDpEvent(noise))
    return accounting.SelfComposedDpEvent(drawn, steps)


def _library() -> Any:
    try:
        import dp_accounting
        from dp_accounting import pld, rdp
    except ImportError:
        raise ConfigError("train.privacy needs dp-accounting: pip install 'keras-quartet[privacy]'") from None
    assert pld and rdp  # they become attributes by being imported
    return dp_accounting


def _version() -> str:
    from importlib.metadata import version

    return version("dp-accounting")

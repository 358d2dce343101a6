"""Which function fits which model in closed form, and what was chosen in words."""

from collections.abc import Mapping

import numpy as np

from recsys.closed_form import ease, item_knn
from recsys.closed_form.ease import FittedEase
from recsys.closed_form.factors import FittedFactors
from recsys.closed_form.histories import Value
from recsys.closed_form.item_knn import FittedKnn
from recsys.data.catalogue import Histories
from recsys.settings import ClosedForm, Ease, Factors, ItemKnn


def fit(histories: Histories, items: int, settings: ClosedForm, value: Value | None, *, timely: bool, seed: int = 0,
        late: Mapping[int, np.ndarray] | None = None) -> FittedEase | FittedKnn:
    """See `ease.fit` and `item_knn.fit`. Raises TypeError for other settings."""
    if isinstance(settings, Ease):
        return ease.fit(histories, items, settings, value, timely=timely, seed=seed)
    if isinstance(settings, ItemKnn):
        return item_knn.fit(histories, items, settings, value, timely=timely, late=late)
    raise TypeError(f"{settings!r} is no model in closed form")


def described(fitted: FittedEase | FittedKnn | FittedFactors) -> str:
    """What was chosen, such as "EASE: rank 512, l2 120, damping 0.25, decay 0.5"."""
    settings = fitted.settings
    if isinstance(settings, Ease):
        return (f"EASE: rank {fitted.candidates.shape[1]:,}, l2 {settings.l2:.4g}, damping {settings.damping:g}, "  # type: ignore[union-attr]
                f"decay {settings.decay:g}")
    if isinstance(settings, Factors):
        return f"Matrix factorisation: rank {settings.rank}, l2 {settings.l2:g}"
    of = "what came next" if settings.ordered else "what the same users had"
    lately = [f"{name} {value:g}" for name, value in (("recency", settings.recency), ("prior", settings.prior)) if value]
    recency = f", {', '.join(lately)} at {settings.half_lives} half-lives" if lately else ""
    return f"Item kNN: by {of}, {settings.neighbours:,} neighbours, shrink {settings.shrink:g}, decay {settings.decay:g}{recency}"

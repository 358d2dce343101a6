"""Intervals for metrics of one's own: means and shares over examples, functions of sums over them, and anything that takes all answers.

    from quartet import intervals

    intervals.interval(np.stack([errors, words], 1), lambda sums: sums[:, 0] / sums[:, 1], units=task.input.units(source))
"""

from pipelines.task.intervals import interval, mean, measured, of_sets, resampled, resampled_by_counts, resampled_sums, share
from pipelines.task.units import Units, grouped

__all__ = ["Units", "grouped", "interval", "mean", "measured", "of_sets", "resampled", "resampled_by_counts", "resampled_sums", "share"]

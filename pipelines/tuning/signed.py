"""Signatures of what a search begins from, and of a search that is resumed or finished: checked before anything of them is read."""

from pathlib import Path

from pipelines.config.schema import Experiment
from pipelines.runs.signed import holds_work, require_named
from pipelines.tuning.search_folder import SearchFolder


def require_search(folder: SearchFolder, experiment: Experiment, key: Path | None, *, fresh: bool) -> None:
    """A begun search, and teachers, weights and presets that its trials read, are each to be signed.

    Args:
        experiment: with its search space.
        fresh: what is there is moved aside, unread.

    Raises:
        Untrusted: one is not as the key has signed it.
        ConfigError: one is not there.
    """
    if key is None:
        return
    from pipelines.trust.signing import verify

    if not fresh and holds_work(folder.path):
        verify(folder.path, key)
    require_named(experiment, folder.trials / "0", key, trials=True)  # trials look for a run's name beside themselves

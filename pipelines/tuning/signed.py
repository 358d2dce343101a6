"""Signatures of what a search begins from, and of a search that is resumed or finished: checked before anything of them is read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.runs.signed import require_named
from pipelines.tuning.search_folder import SearchFolder


def require_search(folder: SearchFolder, settings: Mapping[str, Any], key: Path | None, *, fresh: bool) -> None:
    """A begun search, and teachers, weights and presets that its trials read, are each to be signed.

    Args:
        settings: the experiment as plain values, with its search space.
        fresh: what is there is moved aside, unread.

    Raises:
        Untrusted: one is not as the key has signed it.
    """
    if key is None:
        return
    from pipelines.trust.signing import verify

    if folder.begun and not fresh:
        verify(folder.path, key)
    require_named(settings, folder.path, key)
    for name, choices in _choices(settings):
        for one in choices:
            require_named({"searched": {name.rpartition(".")[2]: one}}, folder.path, key)


def _choices(settings: Mapping[str, Any]) -> list[tuple[str, list[Any]]]:
    """Searched settings with their choices."""
    space = (settings.get("tune") or {}).get("space") or {}
    return [(name, list(one["choice"])) for name, one in space.items() if isinstance(one, Mapping) and one.get("choice")]

"""Signatures of runs that are resumed, and of what a run begins from: checked before anything of them is read, where they lie.

Training works in the run's folder. Who can write there meanwhile can change what is trained; a signature does not prevent that.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipelines.encoders.locate import presets_folder
from pipelines.runs.folder import RunFolder
from pipelines.runs.lineage import parents


def require_signed(config: Path | str | None, key: Path | None) -> None:
    """Of an experiment.yaml that lies in a begun run, the run. Raises Untrusted where it is not as the key has signed it."""
    path = Path(config or "")
    if key is not None and path.name == "experiment.yaml" and path.is_file():
        require_begun(RunFolder(path.parent), key)


def require_named(settings: Mapping[str, Any], run: Path, key: Path | None) -> None:
    """What an experiment begins from: runs that its settings name, such as a teacher, presets, and files of weights; each is to be signed.

    Args:
        settings: as plain values; those of data are left out.
        run: the folder that is trained in.

    Raises:
        Untrusted: one is not as the key has signed it.
    """
    if key is None:
        return
    from pipelines.trust.signing import verify

    learned = {name: value for name, value in settings.items() if name not in ("data", "tune", "monitor")}
    runs = [one for _, one in parents(learned, run)]
    for one in runs:
        verify(one.path, key)
    for path in _paths(learned):
        if not any(path.is_relative_to(one.path.absolute()) for one in runs):
            verify(path, key)


def _paths(value: Any, name: str = "") -> Iterator[Path]:
    """Files and folders that settings name, presets by their name too."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _paths(inner, str(key))
    elif isinstance(value, (str, Path)) and name in ("weights", "preset", "encoder", "run"):
        near = (Path(value).expanduser(), presets_folder() / str(value))
        found = next((path for path in near if path.exists()), None)
        if found is not None:
            yield found.absolute()
        elif name in ("preset", "encoder") or "://" in str(value):
            from pipelines.trust.signing import Untrusted

            raise Untrusted(f"{value}: is not on this machine, and what is downloaded is not signed; download it first, and sign it")


def require_begun(folder: RunFolder, key: Path | None) -> None:
    """A begun run and those of its seeds; a new one has nothing to check. Raises Untrusted as above."""
    if key is None:
        return
    from pipelines.trust.signing import verify

    seeds = [RunFolder(path) for path in sorted(folder.path.parent.glob("*")) if path.name.startswith(f"{folder.path.name}-seed")]
    for one in (folder, *seeds):
        if one.trained:
            verify(one.path, key)

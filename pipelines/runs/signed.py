"""Signatures of runs that are resumed: checked before anything of them is read, where they lie.

Training works in the run's folder. Who can write there meanwhile can change what is trained; a signature does not prevent that.
"""

from pathlib import Path

from pipelines.runs.folder import RunFolder


def require_signed(config: Path | str | None, key: Path | None) -> None:
    """Of an experiment.yaml that lies in a begun run, the run. Raises Untrusted where it is not as the key has signed it."""
    path = Path(config or "")
    if key is not None and path.name == "experiment.yaml" and path.is_file():
        require_begun(RunFolder(path.parent), key)


def require_begun(folder: RunFolder, key: Path | None) -> None:
    """A begun run and those of its seeds; a new one has nothing to check. Raises Untrusted as above."""
    if key is None:
        return
    from pipelines.trust.signing import verify

    seeds = [RunFolder(path) for path in sorted(folder.path.parent.glob("*")) if path.name.startswith(f"{folder.path.name}-seed")]
    for one in (folder, *seeds):
        if one.trained:
            verify(one.path, key)

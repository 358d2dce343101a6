"""The environment of a run: versions, platform, and the revision of the source. Imports no TensorFlow."""

import importlib.metadata
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

DISTRIBUTION = "keras-quartet"
NO_CODE = ("tests", "benchmarks")  # never executed by a run
RECORDED = ("tensorflow", "keras", "numpy", "tensorflow-datasets")


def facts() -> dict[str, Any]:
    """Versions, platform and source revision, as JSON values."""
    return {
        "python": platform.python_version(), **{name: version(name) for name in RECORDED}, "quartet": version(DISTRIBUTION),
        "platform": platform.platform(), "command": sys.argv[1:], "source": revision(Path(__file__).resolve().parents[2]),
    }


def version(distribution: str) -> str | None:
    """Version of an installed distribution, or None."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def revision(checkout: Path) -> dict[str, Any] | None:
    """Commit of a git checkout and whether its code differs from it; None where `checkout` is not the root of one.

    An installed package that happens to lie inside somebody's repository is not that repository's source.
    """
    if not (checkout / ".git").exists():
        return None
    code = ["configs", *(each.parent.name for each in checkout.glob("*/__init__.py") if each.parent.name not in NO_CODE)]
    commit = _git(checkout, "rev-parse", "HEAD")
    changed = _git(checkout, "status", "--porcelain", "--", *code)
    return None if commit is None else {"revision": commit, "changed": None if changed is None else bool(changed)}


def _git(checkout: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "--no-optional-locks", "-C", str(checkout), *arguments], capture_output=True, text=True, timeout=10,
                              check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None

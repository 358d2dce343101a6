"""The models of a server by name and version. A version that another one replaces ends with its last answer."""

from collections.abc import Callable
from pathlib import Path

from pipelines.serving.answerer import Answerer
from pipelines.serving.apart import Apart
from pipelines.serving.http.hosting import Hosted
from pipelines.serving.http.observing import Observed
from pipelines.serving.http.refusals import Refused
from pipelines.serving.options import Options


class Models:
    """Changed by the thread of the server's loop alone, once it runs."""

    def __init__(self, observed: Observed, options: Options, apart: Callable[[Path], Apart] | None = None):
        """
        Args:
            apart: for the folder of a version, what answers its inputs that take long; None: the version itself.
        """
        self._observed, self._options, self._apart = observed, options, apart
        self._models: dict[str, dict[int, Hosted]] = {}

    def add(self, name: str, version: int, model: Answerer, folder: Path | None = None) -> None:
        """A version that is warm, and where it was loaded from; requests without a version go to the newest."""
        versions = self._models.setdefault(name, {})
        versions[version] = Hosted(name, version, model, self._observed, self._options,
                                   apart=self._apart(folder) if self._apart and folder else None)
        self._observed.versions.labels(name, version, model.task).set(1)
        for old in sorted(versions)[:-self._options.versions]:
            self._observed.ended(name, old, versions[old].model.task)
            versions.pop(old).retire()

    @property
    def names(self) -> list[str]:
        return list(self._models)

    def versions(self, name: str) -> list[int]:
        """Ascending. Raises Refused."""
        return sorted(self._of(name))

    def get(self, name: str | None = None, version: str | None = None) -> Hosted:
        """A model, the first by default; its newest version by default. Raises Refused."""
        name = name or next(iter(self._models))
        versions = self._of(name)
        if version is None:
            return versions[max(versions)]
        found = versions.get(int(version)) if version.isdecimal() and len(version) < 19 else None
        if found is None:
            raise Refused(f"{name} has no version {version:.20}; it has {', '.join(map(str, sorted(versions)))}", status=404)
        return found

    def _of(self, name: str) -> dict[int, Hosted]:
        if name not in self._models:
            raise Refused(f"there is no model {name:.60}; there is {', '.join(self.names)}", status=404)
        return self._models[name]


def versions_in(folder: Path) -> dict[int, Path]:
    """The versions below a folder: subfolders with whole numbers as names."""
    return {int(path.name): path for path in folder.iterdir() if path.name.isdecimal() and len(path.name) < 19 and path.is_dir()}

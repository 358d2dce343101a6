"""`quartet.tune`: a search over the settings of an experiment."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.base.errors import ConfigError
from pipelines.tuning.search_folder import SearchFolder
from quartet.drafts import Given, Settings, choose
from quartet.process import for_python, options_of, tensorflow
from quartet.run import framed

if TYPE_CHECKING:
    from pipelines.config.schema import Experiment

# the extent of a search, not what it searches: with another number the same search is continued
_LIMITS = ("tune.trials=", "tune.minutes=", "tune.seeds=", "tune.compare=")


class Search:
    """A finished search.

    Attributes:
        path: its folder.
    """

    def __init__(self, folder: SearchFolder):
        self._folder = folder
        self.path: Path = folder.path

    @property
    def report(self) -> dict[str, Any]:
        """search.json: the objective, all trials, what mattered, the best trained anew. Raises ConfigError where it is not finished."""
        if not self._folder.finished:
            raise ConfigError(f"{self.path}: the search is not finished; the same call resumes it")
        return self._folder.read_report()

    @property
    def trials(self) -> list[dict[str, Any]]:
        """Each trial: its number, its settings, its value. `pandas.DataFrame(...)` takes the list."""
        return list(self.report["trials"])

    @property
    def best(self) -> "Experiment":
        """The experiment with the best setting, for `quartet.train`."""
        from pipelines.config.load import load

        return load(self._folder.best, check_paths=False).experiment

    @property
    def best_path(self) -> Path:
        """The file of `best`, for the command line."""
        return self._folder.best

    def __repr__(self) -> str:
        from pipelines.tuning.report import headline

        return f"<quartet.Search {self.path}: {headline(self.report) if self._folder.finished else 'not finished'}>"

    def _repr_html_(self) -> str:
        return framed(self._folder.report / "report.html")


@for_python
def tune(experiment: Given, settings: Settings = None, *, data: Any = None, runs: str | Path = "runs", name: str | None = None,
         fresh: bool = False, workers: int = 1, quiet: bool = False, **options: Any) -> Search:
    """Searches the settings in the experiment's tune section; the same call resumes an interrupted search.

    Each trial runs in a process of its own.

    Args:
        experiment, settings, data, runs, fresh, quiet: as for `quartet.train`; the search may be given as
            {"tune.space": {"train.learning_rate.peak": {"float": [1e-4, 1e-2], "scale": "log"}}, "tune.trials": 10}.
        name: the search's; default: `search`, with the settings that are changed.
        workers: trials at a time; where there are GPUs, each has its own.
        options: what extensions add to `quartet tune`, such as require_signature=KEY and encrypt=True, as for `quartet.train`: a run that
            is trained on `best` is encrypted where `quartet.train` is asked to.

    Raises:
        ConfigError: the experiment, the space or the objective is wrong; nothing was done.
        TrainingError: no trial came to an end.
        QuartetError: interrupted; what is done is kept.

    Example:
        import quartet

        space = {"train.learning_rate.peak": {"choice": [0.001, 0.003]}}
        search = quartet.tune("vision/digits", {"tune.space": space, "tune.algorithm": "grid", "tune.seeds": 0, "train.epochs": 1})
        run = quartet.train(search.best, name="best")
    """
    with options_of("tune", options):
        return _tune(experiment, settings, data, runs, name, fresh, workers, quiet)


def _tune(experiment: Given, settings: Settings, data: Any, runs: str | Path, name: str | None, fresh: bool, workers: int,
          quiet: bool) -> Search:
    from pipelines.base import storage
    from pipelines.config import guard
    from pipelines.config.yaml_text import resolved_yaml
    from pipelines.runs.folder import name_of, run_folder
    from pipelines.stores.remote import address_of
    from pipelines.tuning.search import prepared, search

    if address_of(runs):
        raise ConfigError(f"runs: {runs}: a search is kept on a disk; give a folder")
    chosen = choose(experiment, settings, data, runs)
    kept = [one for one in chosen.changes if not one.startswith(_LIMITS)]
    folder = SearchFolder(run_folder(runs, chosen.name, name or (f"search-{name_of(kept)}" if kept else "search")).path)
    prepared(chosen.experiment)
    guard.check_training(chosen.experiment, folder.path, search=True, fresh=fresh)
    if not fresh:
        storage.check_begin(folder.path, begun=folder.started)
    if workers < 1:
        raise ConfigError(f"workers: {workers}; give 1 or more")
    if fresh or not (folder.compared(resolved_yaml(chosen.experiment)) and folder.finished):
        with tensorflow(devices=False, training=True):
            search(chosen.experiment, folder, chosen.name, workers=workers, fresh=fresh, quiet=quiet)
    return Search(folder)

"""Where a finished run lies that an experiment names: a folder, or the run's name below the folder of runs. Imports no TensorFlow."""

from pathlib import Path

from pipelines.base.errors import ConfigError
from pipelines.stores.remote import local

NEEDED = ("experiment.yaml", "model/model.keras", "model/facts.json")


def place_of(given: str, beside: Path | None = None) -> Path:
    """The folder that a name or path of a run means, whether there is a run or not.

    Args:
        given: a path, an address in a store, or such as vision/digits/default, which is looked for in runs/ and in all folders above
            `beside`.
        beside: the folder of the run that names it.

    Raises:
        ConfigError, StoreError, DataError: the store cannot be read.
    """
    path = local(given).expanduser()
    above = beside.absolute().parents if beside is not None else ()
    places = [path, *(folder / given for folder in (Path("runs"), *above))]
    return next((place for place in places if (place / "experiment.yaml").is_file()), path)


def located(setting: str, given: str, beside: Path | None = None) -> Path:
    """The folder of a run with a model.

    Args:
        setting: that names it, for the message.
        given, beside: as of `place_of`.

    Raises:
        ConfigError: there is none, or it has no model yet; and as `place_of`.
    """
    place = place_of(given, beside)
    if not all((place / name).is_file() for name in NEEDED):
        where = "" if place.exists() else "; there is no such folder, and no run of that name in runs/"
        raise ConfigError(f"{setting}: {given} is no finished run: it has no experiment.yaml or no model/{where}")
    return place

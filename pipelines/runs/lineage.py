"""Where a run comes from: its data, code, settings, encoder, the runs that it was made from, and what extensions know of it.

All of it is what the run itself recorded. Imports no TensorFlow.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipelines.base.inside import digest, refuse_links
from pipelines.config.doors import LINEAGE
from pipelines.config.registry import import_extensions
from pipelines.runs.folder import RunFolder

CODE = ("quartet", "tensorflow", "keras", "keras-hub", "python")


class Line:
    """What an extension knows of a run, such as who has signed it (the door `lineage`)."""

    def check(self, run: Path) -> None:
        """Raises QuartetError for a run that is not to be read; asked of all lines before any file of the run is read."""

    def read(self, run: Path) -> Any:
        """A plain value for programs, None where it knows nothing."""
        raise NotImplementedError

    def text(self, value: Any) -> str | None:
        """The value for a person, such as "signature    none"; None: no line."""
        raise NotImplementedError


def lineage(folder: RunFolder, *, _above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Plain values, with the same of every run below `parents`.

    Raises:
        ConfigError: its environment.json or experiment.yaml is missing or damaged.
        Untrusted: as the extensions' lines.
    """
    refuse_links(folder.path)
    further = known_of(folder.path)
    environment, settings = folder.read_environment(), folder.read_settings()
    here = folder.path.resolve()
    return {
        "run": str(folder.path), "experiment": folder.experiment_name, "task": settings.get("task"),
        "settings": {"sha256": digest(folder.experiment)},
        "data": {"settings": settings.get("data"), "fingerprints": environment["data"], "version": environment["fingerprints"],
                 "description": _description(folder.croissant)},
        "code": {"source": environment["source"], "versions": {name: environment[name] for name in CODE if environment.get(name)},
                 "extensions": environment["extensions"]},
        "encoder": environment.get("encoder"),
        "parents": [{"setting": name, **lineage(parent, _above=(*_above, here))} for name, parent in parents(settings, here)
                    if parent.path.resolve() not in (*_above, here)],
        **further,
    }


def known_of(folder: Path) -> dict[str, Any]:
    """What the extensions know of a run or an export, by their lines' names."""
    lines = _lines()
    for line in lines.values():
        line.check(folder)
    return {name: line.read(folder) for name, line in lines.items()}


def text(one: Mapping[str, Any], indent: str = "") -> str:
    """The same for a person."""
    source, data, encoder = one["code"]["source"], one["data"], one["encoder"]
    settings = data["settings"] if isinstance(data["settings"], dict) else {}
    named = ", ".join(f"{name} {settings[name]}" for name in ("source", "name", "path") if settings.get(name))
    code = "no revision is known" if source is None else f"revision {source['revision']}" + (", changed since" if source["changed"] else "")
    versions = ", ".join(f"{name} {version}" for name, version in one["code"]["versions"].items())
    lines = [f"run          {one['run']}", f"settings     sha256 {one['settings']['sha256']}", f"data         {named or 'not named'}"]
    lines += [f"             {split}: {fingerprint}" for split, fingerprint in data["fingerprints"].items()]
    if data.get("description"):
        lines.append(f"             {data['description']['file']}, sha256 {data['description']['sha256']}")
    lines += [f"code         {code}", f"             {versions}"]
    lines += [f"extension    {each['name']} {each['version'] or each['sha256'] or ''}".rstrip() for each in one["code"]["extensions"]]
    if isinstance(encoder, dict):
        lines.append(f"encoder      {encoder.get('name')} from {encoder.get('source') or 'a source that is not stated'}, sha256 "
                     f"{encoder.get('checksum')}")
    lines += [said for name, line in _lines().items() if (said := line.text(one[name])) is not None]
    parents = [f"from         {parent['setting']}\n{text(parent, '  ')}" for parent in one["parents"]]
    return "\n".join(indent + line for line in "\n".join([*lines, *parents]).split("\n"))


def parents(settings: Any, run: Path, name: str = "") -> Iterator[tuple[str, RunFolder]]:
    """Settings that name something in a run, by its path or its name below the folder of runs: (dotted name, that run)."""
    if isinstance(settings, dict):
        for key, value in settings.items():
            yield from parents(value, run, f"{name}.{key}" if name else str(key))
    elif isinstance(settings, str) and "/" in settings:
        try:
            given = (Path(settings).expanduser(), *(above / settings for above in run.parents))
            path = next((one for one in given if one.exists()), None)
            places = (path, *path.absolute().parents) if path is not None else ()
        except (OSError, RuntimeError, ValueError):
            return
        found = next((place for place in places if (place / "experiment.yaml").is_file() and (place / "environment.json").is_file()), None)
        if found is not None:
            yield name, RunFolder(found)


def _description(file: Path) -> dict[str, str] | None:
    return {"file": file.name, "sha256": digest(file)} if file.is_file() else None


def _lines() -> dict[str, Line]:
    import_extensions()
    return {entry.name: entry.load()() for entry in LINEAGE.entries()}

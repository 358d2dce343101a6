"""Where a run comes from: its data, code, settings, encoder, the runs that it was made from, and who has signed it.

All of it is what the run itself recorded; a signature that is checked says who stands for that. Imports no TensorFlow.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipelines.base import stored
from pipelines.base.errors import ConfigError
from pipelines.base.inside import refuse_links
from pipelines.runs.folder import RunFolder
from pipelines.trust import signing

TRACKED = "tracking.json"  # of a run that was sent to a tracker
CODE = ("quartet", "tensorflow", "keras", "keras-hub", "python")


def lineage(folder: RunFolder, key: Path | None = None, *, _above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Plain values, with the same of every run below `parents`.

    Args:
        key: a public key to check the signatures with; None leaves them unchecked.

    Raises:
        ConfigError: its environment.json or experiment.yaml is missing or damaged.
        Untrusted: a signature that is there is not that key's, or something has changed.
    """
    refuse_links(folder.path)
    signature = _signature(folder.path, key)  # before anything is read
    environment, settings = folder.read_environment(), folder.read_settings()
    here = folder.path.resolve()
    return {
        "run": str(folder.path), "experiment": folder.experiment_name, "task": settings.get("task"),
        "settings": {"sha256": signing.digest(folder.experiment)},
        "data": {"settings": settings.get("data"), "fingerprints": environment["data"], "version": environment["fingerprints"],
                 "description": _description(folder.croissant)},
        "code": {"source": environment["source"], "versions": {name: environment[name] for name in CODE if environment.get(name)},
                 "extensions": environment["extensions"]},
        "encoder": environment.get("encoder"),
        **{name: value for name, value in environment.items() if isinstance(value, dict) and "summary" in value},  # of extensions
        "tracked": _tracked(folder.path / TRACKED),
        "parents": [{"setting": name, **lineage(parent, key, _above=(*_above, here))} for name, parent in parents(settings, here)
                    if parent.path.resolve() not in (*_above, here)],
        "signature": signature,
    }


def text(one: Mapping[str, Any], indent: str = "") -> str:
    """The same for a person."""
    source, data, signature, encoder = one["code"]["source"], one["data"], one["signature"], one["encoder"]
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
    lines += [f"{name:<12} {each['summary']}" for name, each in one.items() if isinstance(each, dict) and "summary" in each]
    if one.get("tracked"):
        lines.append(f"tracked      in {one['tracked']['tracker']}, run {one['tracked']['id']}")
    if signature is None:
        lines.append("signature    none")
    else:
        checked = "" if signature["verified"] else ", not checked (--key)"
        lines.append(f"signature    by the key with sha256 {signature['key']}{checked}")
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


class _Tracked(stored.Record):
    tracker: stored.Name
    id: stored.Name


def _tracked(file: Path) -> dict[str, str] | None:
    return stored.read(file, _Tracked).model_dump(include={"tracker", "id"}) if file.is_file() else None


def _description(file: Path) -> dict[str, str] | None:
    return {"file": file.name, "sha256": signing.digest(file)} if file.is_file() else None


def _signature(path: Path, key: Path | None) -> dict[str, Any] | None:
    """The key that a signature names, by the SHA-256 of its public half, and whether it was checked; None without a signature."""
    file = signing.signature_of(path)
    if not file.is_file():
        return None
    if key is not None:
        signing.verify(path, key)
    try:
        return {"file": file.name, "key": signing.key_of(file), "verified": key is not None}
    except ConfigError:
        return {"file": file.name, "key": None, "verified": False}

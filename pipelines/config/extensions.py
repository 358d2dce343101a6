"""Models, sources and tasks of somebody's own: imported from the files that a person names, and known again by what a run recorded.

A person names a file on the command line (`--use my_models.py`) or imports it, or installs a package with an entry point in the group
`quartet.extensions`. A run records what it used and is loaded with just that; it never says where code lies, so that nothing of a run is
executed. Imports no TensorFlow, though the file may.
"""

import hashlib
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.base.errors import ConfigError
from pipelines.base.stored import UsedExtension
from pipelines.config import doors, registry
from pipelines.config.doors import Origin, of_file, remember, remembered
from pipelines.config.schema import Experiment, Section
from pipelines.config.section import ADDED
from pipelines.config.variants import registered

VARIABLE = "QUARTET_USE"  # by which a search tells its own processes


def use(names: Sequence[str | Path]) -> None:
    """Imports extensions: Python files, or modules by name. A file that is in use already is left as it is.

    Raises:
        ConfigError: no such file or module, or it fails; with the line in it.
    """
    for name in names:
        if str(name).endswith(".py") or isinstance(name, Path):
            _use_file(Path(name).expanduser())
        else:
            _use_module(str(name))


def forget(name: str) -> None:
    """Takes back what a file or package registered, such as "my_models.py", so that it can be changed and used again, as in a notebook."""
    registry.forget(name)
    doors.forget(name)


def environment(experiment: Experiment) -> dict[str, str]:
    """Environment variables by which the processes of a search know what is in use here.

    Raises:
        ConfigError: something is defined in the program itself, which another process would have to run whole.
    """
    for source, what in _used(experiment):
        if not _importable(source):
            raise ConfigError(f"{what} is defined in the program or notebook itself, and the processes of a search cannot import it from "
                              "there; put it into a file of its own, and import that")
    named = sorted(source.module if source.version else str(source.file) for source in registry.origins()
                   if _importable(source) and not source.entry_point)
    return {VARIABLE: os.pathsep.join(named)} if named else {}


def _importable(source: Origin) -> bool:
    return source.module != "__main__" and source.file is not None


def use_environment() -> None:
    """Imports what the process that started this one uses."""
    use([name for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name])


def used_by(experiment: Experiment) -> list[dict[str, Any]]:
    """What an experiment uses that Quartet does not have, as JSON values: name, version, sha256, and what of it."""
    found: dict[Origin, list[str]] = {}
    for source, what in _used(experiment):
        found.setdefault(source, []).append(what)
    return [{"name": source.name, "version": source.version, "sha256": source.sha256, "registers": sorted(set(what))}
            for source, what in found.items()]


def options(used: Sequence[Mapping[str, Any]] | None) -> str:
    """What a command is followed by that needs the files in what `used_by` gave: " --use my_models.py"."""
    return "".join(f" --use {one['name']}" for one in used or () if not one["version"])


def require(recorded: Sequence[Mapping[str, Any] | UsedExtension], place: str) -> None:
    """Raises ConfigError where an extension that a run recorded is not in use; says what to pass."""
    there = {source.name for source in registry.origins()}
    for one in map(_parsed, recorded):
        if one.name not in there:
            remedy = f"install {one.name} {one.version}" if one.version else (
                f"pass --use {one.name}, from where you keep it (in Python, import it first)")
            raise ConfigError(f"{place}: uses {', '.join(one.registers) or 'something'} of {one.name}, which is not in use here; {remedy}")


def match(recorded: Sequence[Mapping[str, Any] | UsedExtension], experiment: Experiment, place: str) -> None:
    """Raises ConfigError where what an experiment uses now is not what a run recorded, to the letter."""
    require(recorded, place)
    before = {one.name: one for one in map(_parsed, recorded)}
    for now in map(_parsed, used_by(experiment)):
        then = before.get(now.name)
        if then is None:
            raise ConfigError(f"{place}: uses {', '.join(now.registers)} of {now.name}, which its environment.json does not record")
        if then.version != now.version:
            raise ConfigError(f"{place}: uses {now.name} {then.version}, and {now.version} is here; install that version")
        if then.sha256 != now.sha256:
            raise ConfigError(f"{place}: {now.name} has changed (sha256 {_short(then.sha256)} then, {_short(now.sha256)} now), so that "
                              "its answers may differ; use the file as it was, or train anew (--fresh)")


def _parsed(one: Mapping[str, Any] | UsedExtension) -> UsedExtension:
    return one if isinstance(one, UsedExtension) else UsedExtension.model_validate(dict(one))


def _short(digest: str | None) -> str:
    return digest[:12] if digest else "unknown"


def _used(experiment: Experiment) -> Iterator[tuple[Origin, str]]:
    """(origin, what it is) of each registered thing that an experiment uses and Quartet does not have."""
    source = registry.task_origin(experiment.task)
    if source is not None:
        yield source, f"task {experiment.task}"
    yield from _used_in(experiment)


def _used_in(value: Any) -> Iterator[tuple[Origin, str]]:
    if isinstance(value, Section):
        entry = registered(type(value))
        if entry is not None and entry.origin is not None:
            yield entry.origin, f"{entry.what} {getattr(value, entry.key)}"
        for added in ADDED.get(type(value), ()):
            if (source := doors.origin_of(added)) is not None and (changed := value.added(added).changed()):
                yield source, f"settings {', '.join(sorted(changed))}"
    inner = [getattr(value, name) for name in type(value).model_fields] if isinstance(value, Section) else (
        value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ())
    for each in inner:
        yield from _used_in(each)


def _use_file(path: Path) -> None:
    if not path.is_file():
        raise ConfigError(f"--use: there is no file {path}")
    path = path.resolve()
    if remembered(path) or any(getattr(module, "__file__", None) == str(path) for module in list(sys.modules.values())):
        return
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    name = f"quartet_use_{re.sub('[^0-9A-Za-z_]', '_', path.stem)}_{digest[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    remember(Origin(path.name, None, digest, name, path))
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # what it imports from beside itself
    try:
        exec(compile(content, str(path), "exec"), module.__dict__)
    except Exception as error:
        raise ConfigError(f"--use: {path}{_line(error, path)}: {type(error).__name__}: {error}") from error


def _use_module(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"--use: there is no module {error.name}; name a Python file (my_models.py) or an installed package") from error
    if module.__file__:
        remember(of_file(Path(module.__file__), name))


def _line(error: BaseException, path: Path) -> str:
    """`:12`, the last line of that file in a traceback."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f":{error.lineno}"
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f":{line}" if line else ""

"""A hundred changes to what was signed, by a fixed seed: each is refused by every command that reads it, before any file of it is opened.

What is opened, in the folder itself and in private copies of it, by whatever code but the verification's, is seen by Python's audit hook.
"""

import contextlib
import io
import os
import random
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

import quartet
from extensions.secure.signing import files_of, sign, signature_of
from extensions.secure.tests.keys import needs_trust, pair
from pipelines.base.errors import ConfigError, Untrusted
from pipelines.commands.main import app
from tests import finished_run

pytestmark = [needs_trust, pytest.mark.slow(seconds=15)]
COMMANDS = typer.main.get_command(app)
SEED = 17
OF_RUN, OF_CONVERTED, OF_EXPORT, OF_FILE = 50, 20, 15, 15
REFUSED = re.compile("as it was signed|is not signed|was not made with the key")
WITHOUT = {  # commands that take no --require-signature, and why
    "sign": "signs", "verify": "--key, tried here", "lineage": "--key, tried here", "encrypt": "changes what is one's own",
    "decrypt": "changes what is one's own", "runs clean": "removes",
    "prepare": "reads data alone", "new": "reads data alone; its encoder is one's own",
    "encoders": "lists presets by their headers",
    "doctor": "reads the machine", "schema": "reads nothing"}


def run_calls(run: Path, place: Path) -> dict[str, list[Any]]:
    """Command -> arguments, of all that read a run or what trains from it."""
    anew = ["vision/digits", f"train.teacher.run={run}", "--runs", place / "new"]
    space = ["tune.space={train.learning_rate.peak: {choice: [0.1]}}", "tune.algorithm=grid"]
    return {
        "predict": [run, "digit.png"], "evaluate": [run], "embed": [run, "x.png", "-o", place / "x.npz"], "nearest": [run, "x.png"],
        "index": [run, "x.png", "-o", place / "x.index"], "search": [run, "x.png"],
        "export": [run, "-o", place / "out"], "serve": [run, "--port", "0"], "prune": [run, "-o", place / "out"],
        "register": [run, "--to", "mlflow"], "push": [run, "hf://me/digits", "--dry-run"],
        "chat": [run], "report": [run], "runs compare": [run, place / "another"], "check": anew, "train": anew, "tune": [*anew, *space],
        "race": [run / "experiment.yaml", run / "experiment.yaml", "--minutes", "1"], "train what was begun": [run / "experiment.yaml"],
        "train again": ["vision/digits", *finished_run.SETTINGS, "--runs", run.parents[2], "--name", run.name],
    }


def converted_calls(export: Path, place: Path) -> dict[str, list[Any]]:
    return {"predict": [export, "digit.png"], "evaluate": [export], "serve": [export, "--port", "0"]}


def export_calls(export: Path, place: Path) -> dict[str, list[Any]]:
    return {"serve": [export, "--port", "0"]}


class Signed(NamedTuple):
    """A signed folder or file, all that may be opened of it, and the commands that read it."""

    path: Path
    calls: dict[str, list[Any]]
    another: Path  # signature of something else of the same key


def made(place: Path) -> dict[str, Signed]:
    """A run, another run, a converted model, a SavedModel and a data manifest, all signed with one key."""
    key = pair()[0]
    run = finished_run.copy(place)
    shutil.rmtree(run / "tensorboard", ignore_errors=True)
    another = place / "another"
    shutil.copytree(run, another)
    (another / "metrics.jsonl").write_text("")
    converted, export, table = place / "converted", place / "export", place / "data.csv"
    (converted / "model").mkdir(parents=True)
    for name in ("experiment.yaml", "environment.json", "model/facts.json"):
        shutil.copy(run / name, converted / name)
    (converted / "manifest.json").write_text("{}")
    (converted / "model" / "core.tflite").write_bytes(bytes(range(256)))
    (export / "variables").mkdir(parents=True)
    for name in ("saved_model.pb", "signature.json", "variables/variables.index", "variables/variables.data-00000-of-00001"):
        (export / name).write_bytes(bytes(reversed(range(256))))
    table.write_text("file,label\na.png,1\nb.png,2\n")
    for one in (run, another, converted, export, table):
        sign(one, key)
    other = signature_of(another)
    return {"run": Signed(run, run_calls(run, place), other), "converted": Signed(converted, converted_calls(converted, place), other),
            "export": Signed(export, export_calls(export, place), other), "table": Signed(table, {}, other)}


def changed(one: Signed, dice: random.Random, kind: str) -> tuple[str, Path]:
    """Makes one change. Returns (a file that the refusal has to name, the key to ask for)."""
    path, public = one.path, pair()[1]
    whole = path.is_dir()
    name = dice.choice(files_of(path)) if whole else path.name
    file = path / name if whole else path
    content = file.read_bytes()
    at = dice.randrange(len(content) + 1)
    if kind == "bit" and content:
        at %= len(content)
        file.write_bytes(content[:at] + bytes([content[at] ^ 1 << dice.randrange(8)]) + content[at + 1:])
    elif kind == "cut" and content:
        file.write_bytes(content[:at % len(content)])
    elif kind in ("bit", "cut", "longer"):
        file.write_bytes(content + b"\0")
    elif kind == "key":
        return signature_of(path).name, pair("other")[1]
    elif kind == "another's":
        shutil.copy(one.another, signature_of(path))
        return "", public
    elif kind == "unsigned":
        signature_of(path).unlink()
        return signature_of(path).name, public
    elif kind == "added":
        name = (Path(name).parent / f"more{dice.randrange(100)}.json").as_posix()
        (path / name).write_text("{}")
    elif kind == "removed":
        file.unlink()
    else:
        file.rename(file.with_name("renamed"))
        return (Path(name).parent / "renamed").as_posix(), public
    return name, public


OF_FOLDERS = ("bit", "added", "removed", "key", "another's", "bit", "cut", "longer", "renamed", "unsigned")
OF_FILES = ("bit", "cut", "longer", "key", "another's", "unsigned")


@contextlib.contextmanager
def restored(path: Path) -> Iterator[None]:
    """Puts a folder, or a file with its signature, back as it was."""
    root, files = (path, sorted(path.rglob("*"))) if path.is_dir() else (path.parent, [path, signature_of(path)])
    kept = {file: file.read_bytes() for file in files if file.is_file()}
    try:
        yield
    finally:
        for file in sorted(root.rglob("*")) if path.is_dir() else ():
            if file.is_file() and file not in kept:
                file.unlink()
        for file, content in kept.items():
            file.write_bytes(content)


_watched: list[str] = []
_names: set[str] = set()
_opened: list[str] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    """Notes what is opened in a watched folder, or in a copy of one, by anything but the verification."""
    if not _watched or event != "open" or not isinstance(arguments[0], str):
        return
    name = arguments[0]
    if not os.path.isabs(name) and not os.path.exists(name):  # of an open folder, which the hook does not tell: by the file's own name
        name = next((f"{each}/.../{name}" for each in _watched if name in _names), name)
    if not ("quartet-verified-" in name or any(name.startswith(each) for each in _watched)):
        return
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.endswith(("secure/signing.py", "_hashing/io.py")):
            return
        frame = frame.f_back  # type: ignore[assignment]
    _opened.append(name)


sys.addaudithook(_hook)


@contextlib.contextmanager
def watched(*folders: Path) -> Iterator[list[str]]:
    """The names of files that are opened meanwhile."""
    _opened.clear()
    _names.update(file.name for folder in folders for file in folder.rglob("*") if file.is_file())
    _watched.extend(map(str, folders))
    try:
        yield _opened
    finally:
        _watched.clear()
        _names.clear()


def called(name: str, arguments: list[Any], *options: Any) -> tuple[int, str]:
    """(exit status, all that was printed) of a command, in this process."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        parts = name.split() if name.startswith("runs ") else name.split()[:1]
        status = COMMANDS.main([*parts, *map(str, arguments), *map(str, options)], standalone_mode=False)
    return status or 0, printed.getvalue()


def python_calls(run: Path, public: Path, held: "quartet.Run | None") -> list[Callable[[], Any]]:
    teacher = {"train.teacher.run": str(run)}
    calls: list[Callable[[], Any]] = [
        lambda: quartet.load(run, require_signature=public), lambda: quartet.train(run / "experiment.yaml", require_signature=public),
        lambda: quartet.train("vision/digits", teacher, runs=run.parents[3] / "new", require_signature=public),
        lambda: quartet.tune("vision/digits", {**teacher, "tune.algorithm": "grid", "tune.space": {
            "train.learning_rate.peak": {"choice": [0.1]}}}, runs=run.parents[3] / "new", require_signature=public)]
    if held is not None:  # loaded when all was well
        calls += [lambda: held.predict("digit.png"), lambda: held.evaluate(), lambda: held.export(run.parents[3] / "out")]
    return calls


def test_a_hundred_changes_are_refused_by_all_commands_before_a_file_is_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    signed, key = made(tmp_path), pair()[1]
    held = quartet.load(signed["run"].path, require_signature=key)
    counts = {"run": OF_RUN, "converted": OF_CONVERTED, "export": OF_EXPORT, "table": OF_FILE}
    assert sum(counts.values()) == 100
    dice = random.Random(SEED)
    tried = 0
    for what, count in counts.items():
        one = signed[what]
        kinds = OF_FOLDERS if one.path.is_dir() else OF_FILES
        for number in range(count):
            with restored(one.path):
                kind = kinds[number % len(kinds)]
                named, public = changed(one, dice, kind)
                about = f"{what}, change {number}: {kind} {named}"
                gone = one.path.is_dir() and not any((one.path / each).is_file() for each in ("experiment.yaml", "saved_model.pb"))
                with watched(one.path) as opened:
                    for name, arguments in one.calls.items():
                        status, said = called(name, arguments, "--require-signature", public)
                        assert status == 1 or (gone and status == 2), (about, name, status, said)  # 2: there is no such run
                        assert status == 2 or (named in said and len(said.splitlines()) == 1 and REFUSED.search(said)), (about, said)
                        assert not opened, (about, name, opened)
                        tried += 1
                    for name in ("verify", "lineage") if what == "run" and kind != "unsigned" else ("verify",):
                        status, said = called(name, [one.path], "--key", public)
                        assert (status == 1 and named in said) or (gone and status == 2), (about, name, status, said)
                        assert not opened, (about, name, opened)
                        tried += 1
                    for call in python_calls(one.path, public, held if kind != "key" else None) if what == "run" else ():
                        with pytest.raises(ConfigError if gone else Untrusted):
                            call()
                        assert not opened, (about, opened)
                        tried += 1
    assert tried > 900
    assert not (tmp_path / "new").exists() and not (tmp_path / "out").exists() and not (tmp_path / "x.npz").exists()
    assert not (tmp_path / "x.index").exists()


def test_what_is_as_it_was_signed_is_opened_from_a_copy(tmp_path, monkeypatch):
    """The other half: the same commands with the same key accept what nobody changed, and are seen to open it."""
    monkeypatch.chdir(tmp_path)
    signed, key = made(tmp_path), pair()[1]
    run = signed["run"]
    for name in ("report", "runs compare"):
        with watched(run.path) as opened:
            status, said = called(name, run.calls[name], "--require-signature", key)
            assert status == 0, said
            assert any("quartet-verified-" in one for one in opened) and not any(one.startswith(str(run.path)) for one in opened), opened
    with watched(run.path) as opened:
        assert called("train", run.calls["train again"], "--require-signature", key)[0] == 0
        assert any(one.endswith("report.json") for one in opened)
    for one in signed.values():
        assert called("verify", [one.path], "--key", key)[0] == 0


def test_every_command_that_reads_a_model_can_require_its_signature(tmp_path):
    """A new command takes the option, and is tried above, or is named here with its reason."""
    every = {}
    for name, one in COMMANDS.commands.items():
        every |= {f"{name} {inner}": each for inner, each in getattr(one, "commands", {}).items()} or {name: one}
    taking = {name for name, one in every.items() if any(each.name == "require_signature" for each in one.params)}
    tried = {name if name.startswith("runs ") else name.split()[0] for name in run_calls(tmp_path / "a" / "b" / "c" / "d", tmp_path)}
    assert taking == tried
    assert set(every) - taking == set(WITHOUT)

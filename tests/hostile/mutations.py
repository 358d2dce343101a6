"""Files changed at random by a fixed seed, each used in one process that notes what no stranger's file may cause.

The process prints a line before and after every try, so that a crash, a hang or too much memory is known by its number. Within it,
`audited` refuses to let code run or a file be written elsewhere go unnoticed.
"""

import io
import json
import os
import random
import re
import resource
import signal
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests import processes

SECONDS = 10  # of the processor, for one try
MEMORY = 2 << 30  # bytes that all tries together may take
NUMBERS = (b"-1", b"0", b"1e308", b"99999999999999999999", b"NaN", b"true", b"null", b'"x"', b"[]", b"{}")
CODE = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "pickle.find_class", "socket.connect", "socket.bind",
        "ctypes.dlopen")


class Kind(NamedTuple):
    """What is changed and used.

    Attributes:
        files: of `make`'s folder, the more often named the more often changed.
        use: called with that folder after each change.
        refusals: what `use` may raise.
    """

    make: Callable[[Path], list[str]]
    use: Callable[[Path], Any]
    refusals: tuple[type[BaseException], ...]


def changed(content: bytes, dice: random.Random) -> bytes:
    """One change: bits, a cut, a piece that is doubled, removed or random, another value for a number, deep nesting."""
    place = dice.randrange(len(content) + 1)
    length = dice.choice((1, 4, 64, 4096))
    kind = dice.randrange(7)
    if kind == 0 and content:
        array = bytearray(content)
        for _ in range(min(length, 8)):
            array[dice.randrange(len(array))] ^= 1 << dice.randrange(8)
        return bytes(array)
    if kind == 1:
        return content[:place]
    if kind == 2:
        return content[:place] + content[place:place + length] * 2 + content[place + length:]
    if kind == 3:
        return content[:place] + content[place + length:]
    if kind == 4:
        return content[:place] + dice.randbytes(length) + content[place:]
    if kind == 5:
        found = list(re.finditer(rb"-?\b\d+(\.\d+)?\b", content[:200_000]))
        if found:
            one = dice.choice(found)
            return content[:one.start()] + dice.choice(NUMBERS) + content[one.end():]
    return content[:place] + dice.choice((b"[", b"{\"a\":", b"- ", b"(")) * 50_000 + content[place:]


def inside(content: bytes, dice: random.Random) -> bytes:
    """A change in a part of an archive, packed again so that its checksums fit."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name = dice.choice(sorted(name for name, part in parts.items() if part))
    parts[name] = changed(parts[name], dice)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for each, part in parts.items():
            archive.writestr(each, part)
    return packed.getvalue()


@contextmanager
def audited(place: Path) -> Iterator[list[str]]:
    """Notes code that is run, connections, and files opened for writing elsewhere than in `place` and among temporary files."""
    noted: list[str] = []
    own = (str(place), tempfile.gettempdir() + os.sep + "tmp", "/dev/null")
    active = True

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if not active:
            return
        if event in CODE:
            noted.append(f"{event} {arguments[:1]}")
        elif event == "open" and isinstance(arguments[0], (str, bytes)) and isinstance(arguments[2], int):
            writes = arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            name = os.fsdecode(arguments[0])
            if writes and not name.startswith(own) and name != tempfile.gettempdir():  # the folder itself: a file without a name
                noted.append(f"write {name}")

    sys.addaudithook(hook)
    try:
        yield noted
    finally:
        active = False


def tried(kind: Kind, place: Path, first: int, count: int) -> None:
    """In the process: every change from `first` on, with a line before and one after. The processor's time and memory are limited."""
    files = kind.make(place)
    whole = {name: (place / name).read_bytes() for name in files}
    kind.use(place)  # loads modules, takes the memory that it needs
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    with audited(place) as noted:
        for number in range(first, first + count):
            dice = random.Random(number)
            name = dice.choice(files)
            packed = zipfile.is_zipfile(io.BytesIO(whole[name])) and dice.random() < 0.8
            (place / name).write_bytes(inside(whole[name], dice) if packed else changed(whole[name], dice))
            there = sorted(place.rglob("*"))
            print(json.dumps({"begun": number, "file": name}), flush=True)
            signal.setitimer(signal.ITIMER_PROF, SECONDS)  # unheard, it ends the process
            try:
                kind.use(place)
                outcome = "used"
            except kind.refusals as error:
                outcome = "refused" if str(error).strip() else "refused without a word"
            except BaseException as error:
                outcome = f"{type(error).__name__}: {error}"[:300]
            signal.setitimer(signal.ITIMER_PROF, 0)
            if sorted(place.rglob("*")) != there:
                outcome = "the folder is another one"
            print(json.dumps({"done": number, "outcome": outcome, "noted": noted[:3]}), flush=True)
            noted.clear()
            (place / name).write_bytes(whole[name])


def outcomes(kind: str, place: Path, first: int, count: int, *, kinds: str = "tests.hostile.kinds") -> dict[str, int]:
    """Outcome -> how often, of tries in a process of their own. Raises AssertionError at the first that is neither used nor refused.

    Args:
        kinds: the module with KINDS, where the kind is.
    """
    place.mkdir(parents=True, exist_ok=True)
    code = """
import importlib
import sys
from pathlib import Path
from pipelines.machine.startup import start_tensorflow
start_tensorflow()
from tests.hostile.mutations import tried
tried(importlib.import_module(sys.argv[1]).KINDS[sys.argv[2]], Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
"""
    done = processes.run("-c", code, kinds, kind, place, first, count, timeout=3000)
    counts: dict[str, int] = {}
    begun: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        if not line.startswith(('{"begun"', '{"done"')):  # a converter's
            continue
        said = json.loads(line)
        if "begun" in said:
            begun = said
            continue
        assert said["outcome"] in ("used", "refused") and not said["noted"], f"{kind}, change {said['done']} of {begun['file']}: {said}"
        counts[said["outcome"]] = counts.get(said["outcome"], 0) + 1
        begun = {}
    assert done.returncode == 0 and not begun, f"{kind}, {begun or 'before the first'}: status {done.returncode}: {done.stderr[-2000:]}"
    return counts

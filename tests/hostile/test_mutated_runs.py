"""Runs of a stranger, changed at random by a fixed seed: each is loaded, or refused with a plain error, and nothing crashes or hangs.

QUARTET_FUZZ=1000 tries as many; the suite tries a few.
"""

import io
import os
import random
import re
import time
import zipfile
from pathlib import Path

import pytest

from pipelines.base.errors import QuartetError
from pipelines.runs.folder import RunFolder
from pipelines.runs.lineage import lineage
from pipelines.runs.listing import entry_of
from pipelines.serving.load import load_run
from tests import finished_run

pytestmark = pytest.mark.slow(seconds=10)
COUNT = int(os.environ.get("QUARTET_FUZZ", "24"))
FILES = ("experiment.yaml", "environment.json", "model/facts.json", "model/model.keras", "model/model.keras", "report/report.json",
         "metrics.jsonl")
SECONDS = 10.0  # of the processor, for one run
NUMBERS = (b"-1", b"0", b"1e308", b"99999999999999999999", b"NaN", b"true", b"null", b'"x"', b"[]", b"{}")


def changed(content: bytes, dice: random.Random) -> bytes:
    """One change: bits, a cut, a piece that is doubled, removed or random, another value for a number, deep nesting."""
    place = dice.randrange(len(content) + 1)
    length = dice.choice((1, 4, 64, 4096))
    kind = dice.randrange(7)
    if kind == 0:
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
    """A change in a part of model.keras, packed again so that its checksums fit."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name = dice.choice(sorted(name for name, part in parts.items() if part))
    parts[name] = changed(parts[name], dice)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for each, part in parts.items():
            archive.writestr(each, part)
    return packed.getvalue()


def tried(folder: Path) -> str:
    """What became of it, in a word."""
    outcome = "loaded"
    for use in (lambda run: load_run(run, where="cpu"), lambda run: run.read_report(), lambda run: entry_of(run, "x").as_json(), lineage):
        try:
            use(RunFolder(folder))
        except QuartetError as error:
            assert str(error).strip()
            outcome = "refused"
    return outcome


def test_a_changed_run_is_loaded_or_refused(tmp_path):
    folder = finished_run.copy(tmp_path)
    whole = {name: (folder / name).read_bytes() for name in FILES}
    outcomes = []
    for number in range(COUNT):
        dice = random.Random(number)
        name = dice.choice(FILES)
        packed = name.endswith(".keras") and dice.random() < 0.8
        (folder / name).write_bytes(inside(whole[name], dice) if packed else changed(whole[name], dice))
        there = sorted(tmp_path.rglob("*"))
        began = time.process_time()
        try:
            outcomes.append(tried(folder))
        except BaseException as error:
            raise AssertionError(f"change {number} of {name}: {type(error).__name__}: {error}") from error
        assert time.process_time() - began < SECONDS, f"change {number} of {name}"
        assert sorted(tmp_path.rglob("*")) == there, f"change {number} of {name}"
        (folder / name).write_bytes(whole[name])
    assert "refused" in outcomes and "loaded" in outcomes

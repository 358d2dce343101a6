"""Answers for very many inputs on a Ray cluster: read here in their order, answered in parts by an actor on each device, written here.

A part is a file of the output folder, named by its number and by the names of its inputs, and whole or absent; the same command answers
what is not there yet. So the nodes need the run alone, and neither the inputs nor the output. Imports no TensorFlow.
"""

import hashlib
import io
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from extensions.cluster.options import Asked
from extensions.cluster.ray_cluster import connected, nodes, share, uses
from extensions.cluster.ray_pool import Pool
from pipelines.base.errors import ConfigError, DataError
from pipelines.base.json_text import parse_json
from pipelines.base.progress import Say
from pipelines.commands.shell import fail, shown
from pipelines.config import extensions, guard
from pipelines.data.reasons import reason
from pipelines.runs.launcher import PredictCall
from pipelines.serving.output import Prediction, Shown, as_object, to_binary
from pipelines.stores.remote import OutputFolder, address_of, inputs, named

INPUTS, BYTES = 1024, 16 << 20  # of a part, at most
AHEAD = 2  # parts that an actor has, so that it need not wait for the next one
FORMATS = ("jsonl", "parquet")
RECORD = "predictions.json"  # which call a folder belongs to
_PART = re.compile(r"part-\d{6,}-[0-9a-f]{8}\.(jsonl|parquet)")


@dataclass(frozen=True)
class Ask:
    """What is to be written of each input.

    Attributes:
        run: the run's folder, as all nodes have it, or its address.
        kind: one of FORMATS.
        batch: inputs answered at a time; None: the task's.
        uses: files and modules of the person's own.
        guards: variables by which guards look at the run there, too.
    """

    run: str
    kind: str
    top: int
    probabilities: bool
    batch: int | None = None
    uses: tuple[str, ...] = ()
    guards: dict[str, str] = field(default_factory=dict)


@dataclass
class Part:
    """Some inputs that follow each other; `read` as `Task.read` gives them."""

    number: int
    read: list[Any]

    @property
    def stem(self) -> str:
        names = hashlib.sha256("\0".join(one[0] for one in self.read).encode("utf-8", "surrogateescape")).hexdigest()
        return f"part-{self.number:06d}-{names[:8]}"


@dataclass
class Answered:
    """A part's file, and how it went: the number of answers, and (input, why it cannot be read) of the others."""

    content: bytes
    answered: int
    failed: list[tuple[str, str]]


@dataclass
class Outcome:
    """What came of all inputs; `there`: parts that earlier calls had written."""

    parts: int = 0
    there: int = 0
    answered: int = 0
    failed: int = 0


class Answerer:
    """The work of an actor: a run on one device, loaded for the first part, so that a failure there is that part's answer."""

    def __init__(self, ask: Ask, processors: int):
        self._ask, self._processors = ask, processors
        self._loaded: tuple[Any, Shown] | None = None

    def there(self) -> None:
        """Answered once the actor is placed."""

    def answer(self, read: list[Any]) -> Answered:
        self._loaded = self._loaded or self._load()
        predictor, shown = self._loaded
        predictions = list(predictor.answers(read))
        failed = [(one.name, one.error) for one in predictions if one.error is not None]
        return Answered(content(self._ask.kind, predictions, shown), len(predictions) - len(failed), failed)

    def _load(self) -> tuple[Any, Shown]:
        os.environ.pop("TF_USE_LEGACY_KERAS", None)
        os.environ.setdefault("TF_NUM_INTRAOP_THREADS", str(self._processors))
        from pipelines.machine.startup import start_tensorflow

        start_tensorflow()
        ask = self._ask
        extensions.use(ask.uses)
        from pipelines.runs.folder import RunFolder
        from pipelines.runs.in_store import fetched
        from pipelines.serving.load import load_run
        from pipelines.serving.predict import Predictor

        os.environ.update(ask.guards)
        folder = fetched(Path(), ask.run) or Path(ask.run)
        predictor = Predictor(load_run(RunFolder(folder), where=1), batch=ask.batch, workers=self._processors)
        return predictor, Shown.of(predictor.columns, predictor.classes, top=ask.top, every=ask.probabilities, details=predictor.details,
                                   ranked=predictor.ranked)


def content(kind: str, predictions: Sequence[Prediction], shown: Shown) -> bytes:
    """A part's file. Parquet has a column for each name that any of its answers has, and always `error`."""
    file = io.BytesIO()
    if kind == "jsonl":
        to_binary("jsonl", predictions, shown, file)
        return file.getvalue()
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [as_object(one, shown) for one in predictions]
    names = dict.fromkeys([*(name for row in rows for name in row if name != "error"), "error"])
    columns = {name: [row.get(name) for row in rows] for name in names}
    for name, values in columns.items():
        if any(isinstance(value, bytes) for value in values):  # then all of them: a column is of one kind
            columns[name] = [value.encode() if isinstance(value, str) else value for value in values]
    pq.write_table(pa.table({name: pa.array(values, pa.string() if name == "error" else None) for name, values in columns.items()}), file)
    return file.getvalue()


def parts(inputs: Iterable[Any], *, most: int = INPUTS, size: int = BYTES) -> Iterator[Part]:
    """Inputs as `Task.read` gives them, in parts of at most so many, and of so many bytes of raw input."""
    held: list[Any] = []
    number, room = 0, size
    for one in inputs:
        if isinstance(one[1], Exception):  # not every exception can be sent to another process
            one = (one[0], DataError(reason(one[1])), *one[2:])
        taken = 0 if isinstance(one[1], Exception) else sum(_size(value) for value in one[1].values())
        if held and (len(held) == most or taken > room):
            yield Part(number, held)
            held, number, room = [], number + 1, size
        held.append(one)
        room -= taken
    if held:
        yield Part(number, held)


def _size(value: Any) -> int:
    return len(value) if isinstance(value, (bytes, str)) else int(getattr(value, "nbytes", 8))


def answer_call(call: PredictCall, cluster: Asked, say: Say) -> int:
    """`quartet predict` on the workers of a cluster, into a folder of parts. Returns the exit status.

    Raises:
        ConfigError: the call has what cannot be done there, or the folder has something else.
        DataError: there is no input.
    """
    form = call.form or "jsonl"
    if call.refused:
        raise ConfigError(f"{' and '.join(call.refused)}: not with --ray")
    if call.output is None or form not in FORMATS:
        raise ConfigError("--ray: answers are written in parts: give --output FOLDER, and --format jsonl or parquet")
    folder = OutputFolder(call.output)
    if "-" in call.inputs:
        raise ConfigError("--ray: standard input cannot be read again to go on; name files")
    here = inputs(call.inputs)
    from pipelines.machine.startup import start_tensorflow

    start_tensorflow(devices=False)
    from pipelines.serving.load import load_run

    task = load_run(call.run, where="cpu").task
    ask = Ask(named(str(call.run.path.absolute())), form, call.top, call.probabilities, call.batch, uses(task.experiment),
              dict(guard.environment()))
    model = hashlib.sha256()
    for file in sorted(call.run.model.rglob("*")):
        if file.is_file():
            model.update(file.read_bytes())
    record = {"run": ask.run, "model": model.hexdigest(), "inputs": list(call.inputs), "format": form, "top": call.top,
              "probabilities": call.probabilities}
    there, began = claim(folder, record, replace=call.replace), time.perf_counter()
    with connected(cluster.address, workers=cluster.workers or 1):
        reads = ((named(one[0]), *one[1:]) for one in task.input.requests.read(here))
        done = predict(reads, ask, folder, there, workers=cluster.workers, say=say,
                       failed=lambda name, why: fail(f"{name}: cannot be read: {why}"))
    for note in task.input.requests.notes:
        say(note)
    if not done.parts:
        raise DataError(f"{' '.join(call.inputs)}: no input is there")
    missed = f"; {done.failed:,} could not be read" if done.failed else ""
    place = folder if address_of(call.output) else shown(call.output)
    say(f"{done.answered:,} answered in {time.perf_counter() - began:.1f} s{missed}: {done.parts:,} parts in {place}"
        + (f", {done.there:,} of them from before" if done.there else ""))
    return 0 if done.answered or done.there else 1


def claim(folder: OutputFolder, record: Mapping[str, Any], *, replace: bool) -> set[str]:
    """Reserves the folder for one call, or resumes that call. Returns the stems of the parts that are there.

    Args:
        record: what must be the same for the call to go on: run, inputs and what is written.
        replace: what is there of another call, or of this one, goes.

    Raises:
        ConfigError: there is something else.
    """
    there = folder.names()
    own = [name for name in there if _PART.fullmatch(name)]
    if replace:
        folder.remove([*({RECORD} & set(there)), *own])
        own = []
    elif RECORD in there:
        try:
            before = parse_json(folder.read(RECORD))
        except ValueError:
            before = {}
        differing = [name for name in record if not isinstance(before, dict) or before.get(name) != record[name]]
        if differing:
            raise ConfigError(f"--output: {folder} has the answers of another call ({', '.join(differing)} differ); give another "
                              "folder, or --replace")
    elif there:
        raise ConfigError(f"--output: {folder} has other files, and no answers to resume from; give another folder")
    folder.write(RECORD, (json.dumps(dict(record), indent=1) + "\n").encode())
    return {name.partition(".")[0] for name in own}


def predict(reads: Iterable[Any], ask: Ask, folder: OutputFolder, there: set[str], *, workers: int | None,
            failed: Callable[[str, str], None], say: Callable[[str], None]) -> Outcome:
    """Answers what has no part yet, and writes it. Connected to a cluster already.

    Args:
        reads: inputs as `Task.read` gives them.
        there: stems of the parts that are written.
        workers: actors; None: one for each GPU of the cluster, or else for each node.
        failed: called with (input, why it cannot be read).
        say: what there is to say, such as of a worker that is lost.

    Raises:
        TrainingError: a part's actors were lost again and again.
        DataError: the inputs of a part that is there have changed.
    """
    present = nodes()
    gpus = sum(int(node.get("GPU", 0)) for node in present)
    count = workers or gpus or sum(1 for node in present if node.get("CPU")) or 1
    own = share(present, count, 1 if gpus else 0)
    numbers = {stem.split("-")[1]: stem for stem in there}
    result = Outcome()

    def missing() -> Iterator[Part]:
        for part in parts(reads):
            result.parts += 1
            before = numbers.get(f"{part.number:06d}")
            if before is None:
                yield part
            elif before == part.stem:
                result.there += 1
            else:
                raise DataError(f"{folder}: {before}: its inputs are not those that it was answered for; give another --output, or "
                                "--replace")

    with Pool[Part](Answerer, (ask, own.cpus), lambda actor, part: actor.answer.remote(part.read), own, count, ahead=AHEAD,
                    name=lambda part: part.stem, large="an input there may take more memory than a worker has", say=say) as pool:
        for part, answers in pool.answers(missing()):
            folder.write(f"{part.stem}.{ask.kind}", answers.content)
            result.answered += answers.answered
            result.failed += len(answers.failed)
            for name, why in answers.failed:
                failed(name, why)
    return result

"""The start of a training from very many prepared recordings of different lengths: memory, and time to the first step.

python -m benchmarks.many_examples [--examples 100000000] [--folder DIR]     # 3 minutes; DIR needs 40 bytes an example and 1 GB

A few tones are prepared as by `quartet prepare`; then its train split is made long: every shard is a link to one file of 100,000 recordings
(0.05 to 0.4 s at 8 kHz), while lengths, names and transcripts are written for each. So the disk holds it, and all that a start reads and
a step looks up is of full length. Memory is what the process has for itself (RssAnon) and, with the pages of mapped files that the system
takes back when it needs them, all of it (VmHWM).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

SHARD = 100_000  # recordings
SECONDS, RATE = (0.05, 0.4), 8000
WRITTEN = b"ab "  # every transcript; names and files are of the same length


def experiment_of(folder: Path) -> Any:
    """The experiment on the prepared recordings."""
    from pipelines.config.load import load

    ready = folder / "ready"
    return load(str(folder / "tones.yaml"), [f"data.prepared={ready}"] if ready.exists() else []).experiment


def write(folder: Path, examples: int) -> None:
    """Writes tones, and prepares so many of them."""
    import pyarrow as pa
    import soundfile

    from pipelines.runs.launch import task_class
    from pipelines.task.prepared import INDEX, prepare

    rng, rows = np.random.default_rng(0), []
    for number in range(64):
        samples = rng.normal(scale=0.1, size=int(rng.uniform(*SECONDS) * RATE))
        soundfile.write(folder / f"{number}.wav", samples.astype(np.float32), RATE, subtype="PCM_16")
        rows.append({"file": f"{number}.wav", "text": "ab"[:1 + number % 2], "split": "train" if number < 56 else "validation"})
    (folder / "tones.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (folder / "tones.yaml").write_text(f"""task: speech.transcription
data: {{source: table, path: {folder / 'tones.jsonl'}, split_key: split, validation: validation, test: null, rate: {RATE}, cache: none}}
frontend: {{mels: 16}}
model: {{name: quartz, width: 16, kernels: [5], stride: 2}}
train: {{epochs: 1, batch_size: 64, precision: float32, devices: cpu}}
""", encoding="utf-8")
    experiment, ready = experiment_of(folder), folder / "ready"
    prepare(task_class(experiment.task)(experiment), ready)
    index = json.loads((ready / INDEX).read_text(encoding="utf-8"))
    train = index["splits"]["train"]
    with pa.OSFile(str(ready / train["shards"][0]["file"])) as file:
        few = pa.ipc.open_file(file).read_all()
    size = min(SHARD, examples)
    count, shards = size * (examples // size), examples // size
    one = few.take(pa.array(np.arange(size) % few.num_rows)).combine_chunks().to_batches()[0]
    first = ready / "train-0.arrow"
    with pa.OSFile(str(first), "wb") as sink, pa.ipc.new_file(sink, one.schema) as writer:
        writer.write_batch(one)
    train["shards"] = [{"file": f"train-{number}.arrow", "examples": size, "bytes": first.stat().st_size} for number in range(shards)]
    for number in range(1, shards):
        os.link(first, ready / f"train-{number}.arrow")
    lengths = np.load(ready / train["beside"]["lengths"])[np.arange(size) % few.num_rows]
    stored = np.lib.format.open_memmap(ready / train["beside"]["lengths"], "w+", lengths.dtype, (count,))
    for number in range(shards):
        stored[number * size:(number + 1) * size] = lengths
    stored.flush()
    offsets = pa.py_buffer(np.arange(count + 1, dtype=np.int64) * len(WRITTEN))
    texts = pa.Array.from_buffers(pa.large_string(), count, [None, offsets, pa.py_buffer(WRITTEN * count)])
    more = pa.record_batch(dict.fromkeys(("names", "files", "texts"), texts))
    with pa.OSFile(str(ready / train["more"]), "wb") as sink, pa.ipc.new_file(sink, more.schema) as writer:
        writer.write_batch(more)
    (ready / INDEX).write_text(json.dumps(index), encoding="utf-8")


def first_step(folder: Path) -> dict[str, float]:
    """Trains one step in this process."""
    from pipelines.runs.launch import task_class
    from pipelines.training.loop import Loop
    from pipelines.training.meter import Meter
    from pipelines.training.session import assemble

    experiment = experiment_of(folder)
    session = assemble(experiment, task_class(experiment.task))
    session.initialise()
    Loop(session.step, plan=session.plan, steps=session.steps, hooks=[], meter=Meter(), until=1).train()
    return {"examples": len(session.splits.train)}


def measured(folder: Path) -> dict[str, float]:
    """The same in a process of its own, with the most memory that it had, bytes."""
    command = [sys.executable, "-m", "benchmarks.many_examples", "--step", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"})
    own = whole = 0
    began = time.perf_counter()
    while process.poll() is None:
        own, whole = max(own, _memory(process.pid, "RssAnon")), max(whole, _memory(process.pid, "VmHWM"))
        time.sleep(0.05)
    assert process.stdout is not None
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: status {process.returncode}")
    return {**json.loads(process.stdout.read().splitlines()[-1]), "own": own, "whole": whole, "ended": time.perf_counter() - began}


def _memory(process: int, name: str) -> int:
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=100_000_000)
    parser.add_argument("--folder", type=Path, help="keeps what is written here, and takes what is there")
    parser.add_argument("--step", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step:
        print(json.dumps(first_step(given.step)))
        return
    from benchmarks.product import machine

    print(machine())
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "ready").exists():
            write(folder, given.examples)
        found = measured(folder)
    print(f"{found['examples']:,} recordings: {found['ended']:.1f} s to the end of the first step, {found['own'] / 1e9:.2f} GB of the "
          f"process's own, {found['whole'] / 1e9:.2f} GB with mapped files")


if __name__ == "__main__":
    main()

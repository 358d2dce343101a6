"""`quartet serve` against a handler that computes nothing, in one run: the first answer, one client, 64, and 64 at half of their load.

python -m benchmarks.serving            # about 90 s on 2 cores, with a training of vision/digits; RUN serves that run
python -m benchmarks.serving RUN --json '{"inputs": ["a text"]}'      # of texts or ids: the body of a request
Both are Starlette under uvicorn with httptools and uvloop on the loopback, each in a process of its own; the clients, in a third one, keep
their connections, and take turns with the two servers. Medians; what a request costs beyond the bare handler's is reading and answering
it, and the queue between them. Server and clients share the processors: the ratios mean more than the rates, and the processor time of a
request - of all threads, and of all --workers - says something on a busy machine, too. On Linux.
"""

import argparse
import asyncio
import io
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.product import machine

CLIENTS = 64


def bare() -> None:
    """Takes a body and answers a constant."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    from pipelines.serving.server import bind

    async def predict(request):  # type: ignore[no-untyped-def]
        await request.body()
        return JSONResponse({"answers": [{"input": "input", "label": "7", "confidence": 0.5}]})

    with bind("127.0.0.1", 0) as bound:
        bound.listen()
        print(f"serving      http://127.0.0.1:{bound.getsockname()[1]}", file=sys.stderr, flush=True)
        app = Starlette(routes=[Route("/predict", predict, methods=["POST"])])
        uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False, proxy_headers=False, lifespan="off")).run(sockets=[bound])


@contextmanager
def server(*arguments: str) -> Iterator[tuple[int, float, int]]:
    """(its port, seconds until it said so, its process)."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", *arguments], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = next((line for line in process.stderr if line.startswith("serving")), None)
        if line is None:
            raise SystemExit(f"{' '.join(arguments)}: does not come up")
        yield int(line.rpartition(":")[2]), time.perf_counter() - began, process.pid
    finally:
        process.terminate()
        process.wait()


def processor_seconds(process: int) -> float:
    """Of a process and its descendants, so far."""
    stats = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            fields = path.read_text().rpartition(")")[2].split()
            stats[int(path.parent.name)] = (int(fields[1]), int(fields[11]) + int(fields[12]))
    family = {process}
    while more := {one for one, (parent, _) in stats.items() if parent in family} - family:
        family |= more
    return sum(stats[one][1] for one in family if one in stats) / os.sysconf("SC_CLK_TCK")


async def client(port: int, sent: bytes, end: float, pause: float) -> list[float]:
    """Seconds of each request of one client, one after the other; with a pause, one is due every `pause` s, and late ones count from
    then."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    found, due = [], time.perf_counter()
    while (now := time.perf_counter()) < end or not found:
        if pause:
            due += pause
            await asyncio.sleep(max(0.0, due - now))
        began = due if pause else now
        writer.write(sent)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(head.decode())
        await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]))
        found.append(time.perf_counter() - began)
    writer.close()
    return found


def load(port: int, sent: bytes, seconds: float, clients: int = 1, rate: float = 0.0) -> list[float]:
    """ms of each request of that many clients, of `rate` requests/s together; 0: as many as are answered."""
    import uvloop

    async def all_clients() -> list[list[float]]:
        end = time.perf_counter() + seconds
        return await asyncio.gather(*(client(port, sent, end, clients / rate if rate else 0.0) for _ in range(clients)))

    return [1000 * one for found in uvloop.run(all_clients()) for one in found]


def wire(body: bytes, kind: str) -> bytes:
    return f"POST /predict HTTP/1.1\r\nHost: here\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def image() -> bytes:
    import numpy as np
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8), np.uint8)).save(buffer, "JPEG")
    return buffer.getvalue()


def measure(run: str, sent: bytes, rounds: int, seconds: float, workers: int = 1) -> None:
    served = server("quartet", "serve", run, "--port", "0", "--workers", str(workers))
    with served as (ours, up, own), server("benchmarks.serving", "--bare") as (other, _, bare_own):
        first = load(ours, sent, 0.0001)[0]
        alone: dict[int, list[float]] = {ours: [], other: []}
        crowd: dict[int, list[float]] = {ours: [], other: []}
        spent: dict[int, list[float]] = {ours: [], other: []}
        half: list[float] = []
        load(other, sent, 0.5)
        for _ in range(rounds):
            for port, process in ((ours, own), (other, bare_own)):
                alone[port].extend(load(port, sent, seconds))
                before = processor_seconds(process)
                count = len(load(port, sent, seconds, CLIENTS))
                crowd[port].append(count / seconds)
                spent[port].append(1e6 * (processor_seconds(process) - before) / count)
            half.extend(load(ours, sent, seconds, CLIENTS, crowd[ours][-1] / 2))
    (mine, theirs), (many, bare_many) = ([statistics.median(found[port]) for port in (ours, other)] for found in (alone, crowd))
    share = statistics.median(one / two for one, two in zip(crowd[ours], crowd[other]))
    print(f"up after {up:.1f} s; the first answer after {first:.1f} ms, {first / mine:.1f} x the median")
    print(f"one client: median {mine:.2f} ms, 99 % within {statistics.quantiles(alone[ours], n=100)[98]:.2f} ms; "
          f"bare handler {theirs:.2f} ms; {mine / theirs:.1f} x")
    print(f"{CLIENTS} clients: {many:,.0f} requests/s; bare handler {bare_many:,.0f}; {share:.0%} of it")
    costs = [statistics.median(spent[port]) for port in (ours, other)]
    print(f"processor time of one of their requests: {costs[0]:.0f} us; bare handler {costs[1]:.0f} us; {costs[1] / costs[0]:.0%}")
    middle, late = statistics.median(half), statistics.quantiles(half, n=100)[98]
    print(f"half of that load: median {middle:.2f} ms, 99 % within {late:.2f} ms; {late / middle:.1f} x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", nargs="?", help="a finished run; without it, one of vision/digits is made")
    parser.add_argument("--json", help="the body of a request; default: an image of 8 x 8 px")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--workers", type=int, default=1, help="processes that answer")
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.bare:
        return bare()
    print(machine(), flush=True)
    sent = wire(asked.json.encode(), "application/json") if asked.json else wire(image(), "image/jpeg")
    if asked.run:
        return measure(asked.run, sent, asked.rounds, asked.seconds, asked.workers)
    with tempfile.TemporaryDirectory() as runs:
        subprocess.run([sys.executable, "-m", "vision.train", "train.epochs=1", "--runs", runs, "--name", "run", "--quiet"], check=True,
                       stdout=subprocess.DEVNULL)
        measure(str(Path(runs) / "vision" / "digits" / "run"), sent, asked.rounds, asked.seconds, asked.workers)


if __name__ == "__main__":
    main()

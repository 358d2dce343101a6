"""`quartet serve` against a handler that computes nothing, in one run: the first answer, one client, sixteen.

python -m benchmarks.serving            # about 90 s on 2 cores, with a training of vision/digits; RUN serves that run (of images)
Both are Starlette under uvicorn on the loopback, each in a process of its own; the clients keep their connections, and take turns with the
two servers. Medians; what a request costs beyond the bare handler's is reading the image, answering it, and the queue between them.
"""

import argparse
import http.client
import io
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from benchmarks.product import machine

CLIENTS = 16


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
        uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off")).run(sockets=[bound])


@contextmanager
def server(*arguments: str) -> Iterator[tuple[int, float]]:
    """(its port, seconds until it said so)."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", *arguments], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = next((line for line in process.stderr if line.startswith("serving")), None)
        if line is None:
            raise SystemExit(f"{' '.join(arguments)}: does not come up")
        yield int(line.rpartition(":")[2]), time.perf_counter() - began
    finally:
        process.kill()
        process.wait()


def times(port: int, body: bytes, seconds: float) -> list[float]:
    """ms of each request of one client, one after the other."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    found = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        connection.request("POST", "/predict", body, {"Content-Type": "image/jpeg"})
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise SystemExit(f"status {answer.status}")
        found.append(1000 * (time.perf_counter() - began))
    connection.close()
    return found


def rate(port: int, body: bytes, seconds: float) -> float:
    """Requests/s of sixteen clients."""
    with ThreadPoolExecutor(CLIENTS) as pool:
        return sum(len(found) for found in pool.map(lambda _: times(port, body, seconds), range(CLIENTS))) / seconds


def image() -> bytes:
    import numpy as np
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8), np.uint8)).save(buffer, "JPEG")
    return buffer.getvalue()


def measure(run: str, rounds: int, seconds: float) -> None:
    body = image()
    with server("quartet", "serve", run, "--port", "0") as (ours, up), server("benchmarks.serving", "--bare") as (other, _):
        first = times(ours, body, 0.0001)[0]
        alone: dict[int, list[float]] = {ours: [], other: []}
        crowd: dict[int, list[float]] = {ours: [], other: []}
        times(other, body, 0.5)
        for _ in range(rounds):
            for port in (ours, other):
                alone[port].extend(times(port, body, seconds))
                crowd[port].append(rate(port, body, seconds))
    (mine, theirs), (many, bare_many) = ([statistics.median(found[port]) for port in (ours, other)] for found in (alone, crowd))
    print(f"up after {up:.1f} s; the first answer after {first:.1f} ms, {first / mine:.1f} x the median")
    print(f"one client: median {mine:.2f} ms, 99 % within {statistics.quantiles(alone[ours], n=100)[98]:.2f} ms; "
          f"bare handler {theirs:.2f} ms; {mine / theirs:.1f} x")
    print(f"{CLIENTS} clients: {many:,.0f} requests/s; bare handler {bare_many:,.0f}; {bare_many / many:.1f} x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", nargs="?", help="a finished run of images; without it, one of vision/digits is made")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.bare:
        return bare()
    print(machine(), flush=True)
    if asked.run:
        return measure(asked.run, asked.rounds, asked.seconds)
    with tempfile.TemporaryDirectory() as runs:
        subprocess.run([sys.executable, "-m", "vision.train", "train.epochs=1", "--runs", runs, "--name", "run", "--quiet"], check=True,
                       stdout=subprocess.DEVNULL)
        measure(str(Path(runs) / "vision" / "digits" / "run"), asked.rounds, asked.seconds)


if __name__ == "__main__":
    main()

"""`quartet serve`: over HTTP come the answers of the evaluation, each client its own, and what cannot be read has an error in its place."""

import asyncio
import base64
import io
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipelines.serving.forms import forms
from tests import finished_run
from tests.serving.bad_requests import HUGE_PNG
from tests.serving.toy_server import needs_extra

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server():
    """(address, process) of a server in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "quartet", "serve", str(finished_run.run()), "--port", "0", "--limit", "1", "--batch", "8",
         "--deadline", "300", *(["--form", "tensorflow"] if forms() else [])],
        stderr=subprocess.PIPE, text=True, env=finished_run.environment())
    said = []
    for line in process.stderr:
        said.append(line)
        if line.startswith("serving"):
            break
    else:
        raise AssertionError("".join(said))
    yield said[-1].split()[1], process
    process.kill()
    process.wait()


def post(address, body, kind="application/octet-stream", query=""):
    """(status, what was answered)."""
    request = urllib.request.Request(f"{address}/predict{query}", body, {"Content-Type": kind}, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def as_json(images):
    return json.dumps({"inputs": [{"b64": base64.b64encode(image).decode()} for image in images]}).encode()


def shares(answer):
    return np.array(list(answer["probabilities"].values()))


@needs_extra
def test_a_file_as_the_body_is_answered_as_it_was_judged(server, judged):
    images, _, probabilities = judged
    status, found = post(server[0], images[0], "image/png", "?probabilities=1&top=2")
    (answer,) = found["answers"]
    assert status == 200 and np.abs(shares(answer) - probabilities[0]).max() <= 1e-5
    assert answer["label"] == str(probabilities[0].argmax()) and answer["top"][0]["label"] == answer["label"]


@needs_extra
def test_several_files_are_answered_in_their_order_and_a_broken_one_has_an_error(server, judged):
    images, _, probabilities = judged
    parts = [("a.png", images[1]), ("half.png", images[0][:60]), ("b\u2028\u0085.png", images[2])]
    head = b'--limit\r\nContent-Disposition: form-data; name="file"; filename="%s"\r\n\r\n%s\r\n'
    body = b"".join(head % (name.encode(), data) for name, data in parts) + b"--limit--\r\n"
    status, found = post(server[0], body, "multipart/form-data; boundary=limit", "?probabilities=1")
    first, broken, last = found["answers"]
    assert status == 200 and [one["input"] for one in found["answers"]] == ["a.png", "half.png", "b\u2028\u0085.png"]
    assert set(broken) == {"input", "error"}
    assert np.abs(shares(first) - probabilities[1]).max() <= 1e-5 and np.abs(shares(last) - probabilities[2]).max() <= 1e-5


@needs_extra
def test_many_clients_get_each_their_own_answers(server, judged):
    images, _, probabilities = judged

    def ask(number):
        some = [number % len(images), (number * 7 + 1) % len(images)]
        status, found = post(server[0], as_json([images[one] for one in some]), "application/json", "?probabilities=1")
        assert status == 200
        return max(np.abs(shares(answer) - probabilities[one]).max() for one, answer in zip(some, found["answers"]))

    with ThreadPoolExecutor(16) as pool:
        assert max(pool.map(ask, range(64))) <= 1e-5


@needs_extra
@pytest.mark.parametrize("body, kind, status, part", [
    (b"", "application/octet-stream", 400, "the request is empty"),
    (b"{", "application/json", 400, "is not JSON"),
    (b'{"inputs": "a"}', "application/json", 400, "has no inputs"),
    (b"nothing", "multipart/form-data", 400, "multipart"),
    (bytes((1 << 20) + 1), "image/png", 413, "over 1 MiB"),
    (json.dumps({"inputs": ["x"] * 1000}).encode(), "application/json", 413, "send 128 at most"),
])
def test_a_wrong_request_is_said_to_be_one(server, body, kind, status, part):
    code, found = post(server[0], body, kind)
    assert code == status and part in found["error"]


@needs_extra
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_large_picture_is_answered_by_a_process_of_its_own_as_the_run_answers_it(server, judged, loaded):
    from pipelines.serving.predict import Predictor

    address, process = server
    rows, columns = np.mgrid[:2100, :2100] // 9 % 256
    file = io.BytesIO()
    Image.fromarray((rows ^ columns).astype(np.uint8)).save(file, "PNG")
    large, predictor = file.getvalue(), Predictor(loaded)
    assert predictor.large({"image": large}) and len(large) < 500_000
    (right,) = predictor.together([("large", {"image": large})])
    status, found = post(address, as_json([large, judged[0][0], large[:-1000]]), "application/json", "?probabilities=1")
    first, small, broken = found["answers"]
    assert status == 200 and np.abs(shares(first) - right.values["probabilities"]).max() <= 1e-5
    assert np.abs(shares(small) - judged[2][0]).max() <= 1e-5 and "error" in broken
    assert sum(len(one.read_text().split()) for one in Path(f"/proc/{process.pid}/task").glob("*/children")) == 1


@needs_extra
def test_pictures_that_are_none_cost_bounded_time_and_memory(server, judged):
    address, process = server

    def resident():
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])

    good = judged[0][0]
    draw = np.random.default_rng(0)
    broken = [good[:length] for length in range(1, len(good), 7)]
    for number in range(300):
        data = bytearray(good)
        for place in draw.integers(0, len(data), 1 + number % 5):
            data[place] = draw.integers(256)
        broken.append(bytes(data))
    broken += [HUGE_PNG, bytes(500_000), b"GIF89a" + b"\xff\xff" * 1000, b"BM" + b"\xff" * 60]
    for data in broken[:50]:
        post(address, data, "image/png")
    before = resident()
    for data in broken:
        began = time.monotonic()
        status, found = post(address, data, "image/png")
        assert status == 200 and time.monotonic() - began < 30 and len(found["answers"]) == 1
    assert resident() < 1.2 * before
    status, found = post(address, as_json([good, HUGE_PNG, good]), "application/json")
    assert [set(one) >= {"error"} for one in found["answers"]] == [False, True, False]


@needs_extra
def test_a_client_names_no_file_of_the_server(server):
    status, found = post(server[0], json.dumps({"inputs": ["/etc/passwd"]}).encode(), "application/json")
    assert status == 200 and "send the bytes" in found["answers"][0]["error"]


@needs_extra
def test_it_says_what_it_is_and_ends_when_asked(server):
    address, process = server
    with urllib.request.urlopen(f"{address}/", timeout=60) as answer:
        found = json.load(answer)
    assert found["run"] == "vision/digits/small" and "image file" in found["send"]
    assert found["classes"] == [str(digit) for digit in range(10)]
    for path in ("/health", "/health/live", "/health/ready"):
        assert urllib.request.urlopen(f"{address}{path}", timeout=60).status == 200
    with urllib.request.urlopen(f"{address}/metrics", timeout=60) as answer:
        metrics = answer.read().decode()
    assert 'quartet_inputs_total{model="digits",outcome="unreadable"}' in metrics
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) in (0, 143, -signal.SIGTERM)


@needs_extra
def test_a_port_that_is_taken_is_a_plain_error():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = finished_run.quartet("serve", str(finished_run.run()), "--port", str(taken.getsockname()[1]))
    assert done.returncode == 2 and "name another" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_answer_waits_for_no_acknowledgement(host):
    """Nagle's algorithm is off on accepted connections, and asyncio, which looks at the protocol, leaves it so."""
    from pipelines.serving.server import bind

    try:
        bound = bind(host, 0)
    except OSError:
        pytest.skip(f"{host} is no address of this machine: not tested")

    async def option() -> int:
        found = asyncio.get_running_loop().create_future()
        server = await asyncio.start_server(lambda _, out: found.set_result(
            out.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)), sock=bound)
        with socket.create_connection(bound.getsockname()[:2]):
            value = await asyncio.wait_for(found, 10)
        server.close()
        return value

    assert bound.proto == socket.IPPROTO_TCP
    assert asyncio.run(option())


def test_warming_up_answers_alone_and_in_a_full_batch_and_nothing_is_traced_after_it(loaded, judged):
    from pipelines.serving.predict import Predictor

    predictor = Predictor(loaded, batch=5)
    sizes = []
    whole = predictor._whole
    predictor._whole = lambda raw: sizes.append(len(raw["image"])) or whole(raw)
    predictor.warm_up()
    assert sizes == [1, 5]
    for count in (1, 2, 3, 5):
        found = predictor.together([("a", {"image": image}) for image in judged[0][:count]])
        assert all(one.error is None for one in found)
    broken = predictor.together([("a", {"image": judged[0][0]}), ("b", {"image": b"x"})])
    assert [one.error is None for one in broken] == [True, False]
    for function in (whole, predictor._receive, predictor._respond):
        assert function.experimental_get_tracing_count() == 1


def test_without_the_extra_the_message_names_it(monkeypatch):
    from pipelines.base.errors import ConfigError
    from pipelines.serving.server import require_extra

    monkeypatch.setitem(sys.modules, "starlette", None)
    with pytest.raises(ConfigError, match=r"keras-quartet\[serve\]"):
        require_extra()

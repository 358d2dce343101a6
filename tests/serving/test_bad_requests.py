"""Whatever is sent, the server says what is wrong with it, soon and in bounded memory, and answers the next request."""

import resource
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.serving import bad_requests
from tests.serving.toy_server import Doubling, answer, needs_extra, numbers, request, running
from tests.waiting import until

pytestmark = needs_extra
PATIENCE = 0.3  # s without an answer after which a client leaves, since what it has sent is not a whole request


@pytest.fixture(scope="module")
def server():
    with running(limit=4 << 20) as there:
        yield there


def send(server, wire):
    """(status, content); status 0 where the request is not whole, or the connection was closed without an answer."""
    with server.connect() as client:
        client.settimeout(10)
        try:
            client.sendall(wire)
            client.settimeout(PATIENCE)
            client.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            client.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it has its answer already
        client.settimeout(10)
        status, _, content = answer(client)
    return status, content


def test_a_bad_request_has_a_status_that_says_so(server):
    for name, wire, statuses in bad_requests.by_hand():
        status, content = send(server, wire)
        assert status in statuses, (name, status)
        if status >= 400 and isinstance(content, dict):
            assert 0 < len(content["error"]) < 1000, name
        if status == 200 and isinstance(content, dict) and "answers" in content:
            assert all(len(one.get("error", "")) < 1000 for one in content["answers"]), name


def test_many_bad_requests_leave_the_server_as_it_was(server):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda one: send(server, one[1]), bad_requests.by_hand()))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for status, _ in pool.map(lambda one: send(server, one[1]), bad_requests.mutated(400)):
            assert status in (0, 200, 400, 404, 405, 411, 413, 415, 431)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 1.2 * before
    status, _, content = server.ask(numbers([1, 2, 3]))
    assert status == 200 and content["answers"][0]["doubled"] == [2, 4, 6]
    assert 'status="500"' not in server.observed.text().decode()


def test_one_bad_input_fails_alone(server):
    body = b'{"inputs": [[1, 2, 3], {"b64": "?"}, 9223372036854775808, {"x": 1}, [4, 5, 6]]}'
    status, _, content = server.ask(body)
    first, *wrong, last = content["answers"]
    assert status == 200 and first["doubled"] == [2, 4, 6] and last["doubled"] == [8, 10, 12]
    assert all("error" in one and "doubled" not in one for one in wrong) and "b64" in wrong[0]["error"]


def test_a_model_that_breaks_is_a_failure_of_the_server_and_harms_no_other_request(caplog):
    model = Doubling()
    with running(model) as server:
        model.gate.clear()
        clients = [server.connect() for _ in range(4)]
        for waiting, (client, row) in enumerate(zip(clients, ([0, 0, 0], [-1, 0, 0], [1, 1, 1], [-1, 1, 1]))):
            client.sendall(request(numbers(row)))
            until(lambda waiting=waiting: model.begun == 1 and server.queued() == waiting)
        model.gate.set()
        found = [answer(client) for client in clients]
    assert [status for status, _, _ in found] == [200, 500, 200, 500]
    assert found[2][2]["answers"][0]["doubled"] == [2, 2, 2] and found[1][1]["x-request-id"] in found[1][2]["error"]
    assert [bool(record.message.count("Traceback")) for record in caplog.records] == [True, False]


def test_parsing_much_json_holds_up_nobody_for_long():
    body = b'{"inputs": [' + b"[]," * 13_000_000 + b"0]}"
    with running(limit=64 << 20) as server, server.connect() as client:
        client.sendall(request(body, headers="Connection: close\r\n"))
        began = time.process_time()
        assert server.ask(path="/health/live", method="GET")[0] == 200
        waited = time.process_time() - began
        assert answer(client)[0] == 413
    assert waited < 2

"""Whatever is sent, the server says what is wrong with it, soon and in bounded memory, and answers the next request."""

import resource
import socket
import time

import pytest

from tests.serving import bad_requests
from tests.serving.toy_server import Doubling, answer, needs_extra, numbers, request, running
from tests.waiting import until

pytestmark = needs_extra


@pytest.fixture(scope="module")
def server():
    with running(limit=4 << 20) as there:
        yield there


def send(server, wire):
    """(status, content) and the seconds that it took; the client has sent all that it will send."""
    began = time.monotonic()
    with server.connect() as client:
        try:
            client.sendall(wire)
            client.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it has its answer already
        status, _, content = answer(client)
    return status, content, time.monotonic() - began


@pytest.mark.parametrize("name, wire, statuses", bad_requests.by_hand(), ids=[name for name, _, _ in bad_requests.by_hand()])
def test_a_bad_request_has_a_status_that_says_so(server, name, wire, statuses):
    status, content, seconds = send(server, wire)
    assert status in statuses and seconds < 10
    if status >= 400 and isinstance(content, dict):
        assert 0 < len(content["error"]) < 1000
    if status == 200 and isinstance(content, dict) and "answers" in content:
        assert all(len(one.get("error", "")) < 1000 for one in content["answers"])


def test_a_thousand_bad_requests_leave_the_server_as_it_was(server):
    for _, wire, _ in bad_requests.by_hand():
        send(server, wire)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name, wire in bad_requests.mutated(1000):
        status, _, seconds = send(server, wire)
        assert status in (0, 200, 400, 404, 405, 408, 411, 413, 415, 431) and seconds < 10, (name, wire, status)
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

"""Whatever is sent, the server says what is wrong with it, soon and in bounded memory, and answers the next request."""

import resource
import socket
import time

import pytest

from extensions.gateway.tests.gateway_server import running
from tests.serving import bad_requests
from tests.serving.toy_server import answer, needs_extra, numbers

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

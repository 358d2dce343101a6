"""Slow, silent, many and vanishing clients cost a server a bounded time and memory; SIGTERM ends it in a stated time without a lost
answer."""

import asyncio
import contextlib
import io
import json
import re
import select
import socket
import struct
import threading
import time

import pytest

from extensions.gateway.tests.gateway_server import running
from tests.serving import toy_server
from tests.serving.toy_server import Doubling, answer, asking, needs_extra, numbers, request
from tests.waiting import until

pytestmark = needs_extra


@pytest.fixture
def patient(monkeypatch):
    """Half a minute in place of a second: on a machine that is busy, a client may need it."""
    from pipelines.serving.http import app

    monkeypatch.setattr(app, "GRACE", 30.0)


@pytest.fixture
def fast(monkeypatch):
    """Half a second in place of ten."""
    from extensions.gateway import connections

    for name in ("HEAD_SECONDS", "STALLED", "WINDOW"):
        monkeypatch.setattr(connections, name, 0.5)


def test_what_uvicorn_bounds_by_itself_shuts_everybody_out():
    """Why there is extensions/gateway/connections.py: silent clients count, and a head without an end is taken in."""
    with toy_server.running(uvicorn={"limit_concurrency": 20}) as server, server.connect() as endless, contextlib.ExitStack() as clients:
        endless.sendall(b"GET / HTTP/1.1\r\nX: " + b"a" * (8 << 20))
        assert not select.select([endless], [], [], 0.5)[0]
        for _ in range(20):
            clients.enter_context(server.connect())
        until(lambda: server.ask(numbers([1, 2, 3]))[0] == 503)
    with running(connections=20) as server, contextlib.ExitStack() as clients:
        for _ in range(40):
            clients.enter_context(server.connect())
        assert [server.ask(numbers([1, 2, 3]))[0] for _ in range(20)] == [200] * 20


def test_a_head_and_a_body_that_come_slowly_are_ended_and_others_are_answered(fast):
    with running() as server:
        head, body, silent = server.connect(), server.connect(), server.connect()
        head.sendall(b"POST /predict HTTP/1.1\r\nHost")
        body.sendall(b"POST /predict HTTP/1.1\r\nHost: toy\r\nContent-Length: 100\r\n\r\n")
        slow, end = [head, body], time.monotonic() + 60
        while slow and time.monotonic() < end:  # until they are answered, byte by byte
            slow = [client for client in slow if not select.select([client], [], [], 0.05)[0]]
            for client in slow:
                with contextlib.suppress(OSError):
                    client.sendall(b"x")
        assert server.ask(numbers([1, 2, 3]))[0] == 200
        assert answer(silent) == (0, {}, b"")
        for client, word in ((head, "headers"), (body, "body")):
            status, _, content = answer(client)
            assert status == 408 and word in content["error"]


def test_a_head_without_an_end_is_refused():
    with running() as server, server.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\n" + b"X-Long: " + b"a" * 60_000 + b"\r\n")
        client.sendall(b"X-Long: " + b"a" * 60_000)
        assert answer(client)[0] == 431


def test_where_all_connections_wait_for_answers_another_is_told_to_come_again():
    model = Doubling()
    with running(model, connections=8) as server:
        model.gate.clear()
        clients = [server.connect() for _ in range(8)]
        for client in clients:
            client.sendall(request(numbers([1, 2, 3])))
        until(lambda: server.observed.in_flight == 8)
        status, headers, _ = server.ask(numbers([1, 2, 3]))
        assert status == 503 and headers["retry-after"] == "1"
        model.gate.set()
        assert [answer(client)[0] for client in clients] == [200] * 8


def test_bodies_held_together_are_bounded_and_freed():
    with running(limit=1 << 18) as server:
        clients = []

        def full():
            clients.append(server.connect())
            clients[-1].sendall(b"POST /predict HTTP/1.1\r\nHost: toy\r\nContent-Length: 262144\r\n\r\n" + bytes(250_000))
            return server.ask(numbers([1, 2, 3]) + b" " * 100_000)[0] == 503

        until(full)
        statuses = [server.ask(numbers([1, 2, 3]) + b" " * 100_000)[:2] for _ in range(2)]
        assert [(status, headers["retry-after"]) for status, headers in statuses] == [(503, "1")] * 2
        assert server.ask(path="/health/ready", method="GET")[0] == 200
        for client in clients:
            client.close()
        until(lambda: server.observed.in_flight == 0)
        assert server.ask(numbers([1, 2, 3]) + b" " * 100_000)[0] == 200


def test_a_client_that_leaves_is_no_defect(caplog):
    log = io.StringIO()
    model = Doubling()
    with running(model, log=log) as server:
        with server.connect() as client:
            client.sendall(b"POST /predict HTTP/1.1\r\nHost: toy\r\nContent-Length: 100\r\n\r\nx")
            until(lambda: server.observed.in_flight == 1)
        until(lambda: server.observed.in_flight == 0)
        model.gate.clear()
        with server.connect() as client:
            client.sendall(request(numbers([1, 2, 3])))
            until(lambda: model.begun == 1)
        model.gate.set()
        assert server.ask(numbers([1, 2, 3]))[0] == 200
        until(lambda: server.observed.in_flight == 0)
    assert json.loads(log.getvalue().splitlines()[0])["status"] == 499
    assert not caplog.records


@pytest.fixture(params=["asyncio", "uvloop"])
def loop(request):
    if request.param == "uvloop":  # as `quartet serve` has it
        return pytest.importorskip("uvloop").new_event_loop()
    return asyncio.new_event_loop()


def test_a_client_that_has_sent_all_it_will_send_gets_its_answers(loop):
    model, head = Doubling(), b"POST /predict HTTP/1.1\r\nHost: toy\r\nContent-Length: 100\r\n"
    sent = {b"": [200], request(numbers([2, 2, 2])): [200, 200], head: [200], head + b"\r\n{": [200, 400],
            request(numbers([2, 2, 2])) + head + b"\r\n{": [200, 200, 400]}
    with running(model, loop=loop) as server, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(server.connect()) for _ in sent]
        model.gate.clear()
        for client, more in zip(clients, sent):
            client.sendall(request(numbers([1, 2, 3])) + more)
            client.shutdown(socket.SHUT_WR)
        # of requests behind others the server reads no more until it comes to them, so that it does not know of their end
        until(lambda: sum(one.ended for one in server.connections()) >= 2 and server.observed.in_flight == len(sent))
        model.gate.set()
        found = [client.makefile("rb").read() for client in clients]
    assert [list(map(int, re.findall(rb"HTTP/1.1 (\d+)", one))) for one in found] == list(sent.values())
    assert all(b"[2.0,4.0,6.0]" in one for one in found)


def test_requests_that_follow_at_once_are_answered_though_the_last_is_not_whole_yet(loop):
    sent = [request(numbers([1, 1, 1])) + request(numbers([2, 2, 2]))[:-5], request(numbers([2, 2, 2]))[-5:]]
    with running(loop=loop) as server, server.connect() as client:
        client.sendall(sent[0])
        assert answer(client)[0] == 200
        client.sendall(sent[1])
        assert answer(client)[2]["answers"][0]["doubled"] == [4, 4, 4]


@pytest.mark.parametrize("part", [b"POST /pre", b"POST /predict HTTP/1.1\r\nHost: toy\r\nContent-Length: 100\r\n\r\n{"])
def test_a_request_that_breaks_off_is_told_so(loop, part):
    with running(loop=loop) as server:
        with server.connect() as client:
            client.sendall(part)
            client.shutdown(socket.SHUT_WR)
            status, headers, content = answer(client)
            assert status == 400 and headers["connection"] == "close" and "breaks off" in content["error"]
        with server.connect() as client:  # nothing at all, and a line's end that some clients send behind a request
            client.sendall(request(numbers([1, 2, 3])) + b"\r\n")
            assert answer(client)[0] == 200
            client.shutdown(socket.SHUT_WR)
            assert answer(client) == (0, {}, b"")
        until(lambda: not server.observed.in_flight)


def test_a_connection_that_is_reset_takes_its_inputs_out_of_the_queue(loop):
    log, model = io.StringIO(), Doubling()
    with running(model, loop=loop, log=log) as server, server.connect() as first:
        model.gate.clear()
        first.sendall(request(numbers([1, 2, 3])))
        until(lambda: model.begun == 1)
        gone = server.connect()
        gone.sendall(request(numbers([4, 5, 6], [7, 8, 9])))
        until(lambda: server.queued() == 2)
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone.close()
        until(lambda: server.queued() == 0)
        model.gate.set()
        assert answer(first)[0] == 200
        until(lambda: server.observed.in_flight == 0)
    assert sorted(json.loads(line)["status"] for line in log.getvalue().splitlines()) == [200, 499] and sum(model.sizes) == 1


def test_an_answer_that_nobody_reads_is_given_up(fast):
    with running() as server, server.connect() as client:
        client.setblocking(False)
        try:
            for _ in range(100_000):
                client.sendall(request(path="/metrics", method="GET"))
        except BlockingIOError:
            pass
        until(lambda: not server.server.server_state.connections)
        assert 'quartet_refused_total{reason="unread"} 1.0' in server.observed.text().decode()


def test_a_connection_is_kept_for_a_time_and_then_closed(monkeypatch):
    from pipelines.serving.http import app as server_module

    monkeypatch.setattr(server_module, "KEPT", 1)
    with running() as server, server.connect() as client:
        for _ in range(2):
            client.sendall(request(numbers([1, 2, 3])))
            assert answer(client)[0] == 200
        assert answer(client) == (0, {}, b"")


def test_clients_that_keep_their_connections_lose_no_answer_at_the_end(patient):
    with running(drain=60.0) as server, asking(server, 16) as ends:
        seconds = server.stop()
    assert ends == [(200, "close")] * 16 and seconds < 25


def test_what_has_been_asked_is_answered_at_the_end_and_a_dribbling_body_does_not_hold_it_up():
    model = Doubling()
    with running(model, drain=5.0) as server:
        model.gate.clear()
        waiting, dribbling = server.connect(), server.connect()
        waiting.sendall(request(numbers([1, 2, 3])))
        dribbling.sendall(b"POST /predict HTTP/1.1\r\nHost: toy\r\nContent-Length: 100\r\n\r\nx")
        until(lambda: model.begun == 1 and server.observed.in_flight == 2)
        threading.Thread(target=lambda: (until(lambda: server.observed.draining), model.gate.set())).start()
        seconds = server.stop()
        assert answer(waiting)[2]["answers"][0]["doubled"] == [2, 4, 6]
        assert seconds < 30


def test_readiness_ends_when_the_end_begins(patient):
    with running(drain=60.0) as server:
        kept = server.connect()
        kept.sendall(request(path="/health/ready", method="GET"))
        assert answer(kept)[0] == 200
        server.server.should_exit = True
        until(lambda: server.observed.draining)
        kept.sendall(request(path="/health/ready", method="GET"))
        status, headers, _ = answer(kept)
        assert status == 503 and headers["connection"] == "close"

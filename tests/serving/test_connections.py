"""Slow, silent, many and vanishing clients cost a server a bounded time and memory; SIGTERM ends it in a stated time without a lost
answer."""

import contextlib
import io
import json
import select
import threading
import time

import pytest

from tests.serving.toy_server import Doubling, answer, asking, needs_extra, numbers, request, running
from tests.waiting import until

pytestmark = needs_extra


@pytest.fixture
def patient(monkeypatch):
    """Half a minute in place of a second: on a machine that is busy, a client may need it."""
    from pipelines.serving.http import connections

    monkeypatch.setattr(connections, "GRACE", 30.0)


@pytest.fixture
def fast(monkeypatch):
    """Half a second in place of ten."""
    from pipelines.serving.http import connections

    for name, value in (("HEAD_SECONDS", 0.5), ("WINDOW", 0.5), ("GRACE", 0.3), ("STALLED", 0.5)):
        monkeypatch.setattr(connections, name, value)


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


def test_idle_connections_beyond_the_limit_give_way_to_new_ones():
    with running(connections=20) as server:
        clients = [server.connect() for _ in range(60)]
        assert server.ask(numbers([1, 2, 3]))[0] == 200
        assert server.ask(path="/health/live", method="GET")[0] == 200
        for client in clients:
            client.close()


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

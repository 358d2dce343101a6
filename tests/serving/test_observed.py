"""What operators see: metrics; and how requests are batched, held back and refused."""

import threading
import time

from tests.serving.toy_server import Doubling, answer, needs_extra, numbers, request, running
from tests.waiting import until

pytestmark = needs_extra


def metrics(server):
    """Name with labels -> value, as Prometheus' own parser reads them."""
    from prometheus_client.parser import text_string_to_metric_families

    status, headers, content = server.ask(path="/metrics", method="GET")
    assert status == 200 and headers["content-type"].startswith("text/plain")
    return {(sample.name, *sorted(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(content.decode()) for sample in family.samples}


def test_metrics_count_what_happened():
    with running() as server:
        for body in (numbers([1, 2, 3], "a"), numbers([1, 2, 3]), b"{"):
            server.ask(body)
        found = metrics(server)
    assert found["quartet_requests_total", "/predict", "200", "toy"] == 2
    assert found["quartet_requests_total", "/predict", "400", "toy"] == 1
    assert found["quartet_inputs_total", "answered", "toy"] == 2 and found["quartet_inputs_total", "toy", "unreadable"] == 1
    assert found["quartet_request_seconds_count", "/predict", "toy"] == 3
    assert found["quartet_batch_inputs_count", "toy"] == found["quartet_batch_inputs_sum", "toy"] == 2
    assert found["quartet_queue_inputs", "toy"] == 0 and found["quartet_requests_in_flight",] == 1
    assert found["quartet_connections",] >= 1


def held(server, rows):
    """Requests that wait while the model holds up the first of them: what each is answered."""
    server.model.gate.clear()
    clients = [server.connect() for _ in rows]
    begun = server.model.begun
    for place, (client, row) in enumerate(zip(clients, rows)):
        client.sendall(request(numbers(*row)))
        until(lambda place=place: server.model.begun > begun and server.queued() == sum(map(len, rows[1:place + 1])))
    return clients


def test_requests_that_arrive_while_it_computes_are_answered_together_and_a_large_one_in_parts():
    with running() as server:
        clients = held(server, [[[1, 1, 1]], [[2, 2, 2]] * 3, [[3, 3, 3]] * 6])
        server.model.gate.set()
        found = [answer(client)[2]["answers"] for client in clients]
    assert [[row["doubled"][0] for row in one] for one in found] == [[2], [4] * 3, [6] * 6]
    assert server.model.sizes == [1, 4, 4, 1]


def test_a_full_queue_and_a_long_wait_are_refused_with_a_time_to_come_again():
    with running(deadline=2.0) as server:
        clients = held(server, [[[1, 1, 1]], [[2, 2, 2]] * 60])
        status, headers, content = server.ask(numbers(*[[3, 3, 3]] * 10))
        assert status == 429 and int(headers["retry-after"]) >= 1 and "too many inputs" in content["error"]
        time.sleep(2.1)  # longer than the deadline
        server.model.gate.set()
        (first, _, _), (second, headers, content) = (answer(client) for client in clients)
        assert first == 200 and second == 503 and int(headers["retry-after"]) >= 1 and "waited over" in content["error"]
        assert metrics(server)["quartet_inputs_total", "expired", "toy"] == 60
        assert server.ask(numbers([1, 2, 3]))[0] == 200


def test_a_delay_gathers_requests_into_one_batch():
    with running(delay=60.0) as server:
        threads = [threading.Thread(target=server.ask, args=(numbers([1, 2, 3]),)) for _ in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert server.model.sizes == [4]
    with running(delay=0.1) as server:  # one that does not fill up is answered when it is over
        assert server.ask(numbers([1, 2, 3]))[0] == 200 and server.model.sizes == [1]


def test_answers_are_as_json_has_them():
    model = Doubling(factor=float("inf"))
    with running(model) as server:
        status, _, content = server.ask(numbers([1, 2, 3]))
    assert status == 200 and content["answers"][0]["doubled"] == [None, None, None]  # JSON has no infinity

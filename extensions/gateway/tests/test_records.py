"""The log: a line for each request, under the id that its answer carries."""

import io
import json

from extensions.gateway.tests.gateway_server import running
from tests.serving.toy_server import needs_extra, numbers

pytestmark = needs_extra


def test_the_log_has_a_line_for_each_request_and_answers_carry_its_id():
    log = io.StringIO()
    with running(log=log) as server:
        own = server.ask(numbers([1, 2, 3], "a"), headers="X-Request-ID: mine-1\r\n")[1]["x-request-id"]
        other = server.ask(b"{")[1]["x-request-id"]
    first, second = (json.loads(line) for line in log.getvalue().splitlines())
    assert own == first["id"] == "mine-1" and other == second["id"] and len(other) == 32
    assert (first["status"], first["inputs"], first["model"], first["path"]) == (200, 2, "toy", "/predict")
    assert second["status"] == 400 and "not JSON" in second["error"] and second["ms"] >= 0

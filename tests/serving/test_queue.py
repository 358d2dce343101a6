"""The queue before a model: what is asked by nobody any more makes room at once, and no client fills it alone."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from pipelines.serving.output import Prediction
from tests.serving.toy_server import needs_extra

pytestmark = needs_extra


def queue(**options):
    """Batches of 4, whose computing says that it has begun and waits for the gate; the sizes computed."""
    from pipelines.serving.http.hosting import Batches
    from pipelines.serving.http.observing import ModelMetrics, Observed

    gate, begun, sizes = threading.Event(), threading.Event(), []

    def answer(rows):
        begun.set()
        gate.wait(60)
        sizes.append(len(rows))
        return [Prediction(name, row) for name, row in rows]

    return SimpleNamespace(batches=Batches(answer, batch=4, metrics=ModelMetrics(Observed(), "toy"), **options), gate=gate, begun=begun,
                           sizes=sizes)


def rows(count):
    return [(str(number), {"number": number}) for number in range(count)]


def asked(batches, given, client=""):
    """The answers for a client."""
    from pipelines.serving.http.observing import Exchange

    return batches.answers(given, Exchange(client=client))


async def computing(there, *given):
    """A request whose first rows are being computed."""
    job = asyncio.create_task(asked(there.batches, *given))
    assert await asyncio.to_thread(there.begun.wait, 60)
    return job


@pytest.mark.parametrize("partly", [False, True])
def test_a_request_that_nobody_waits_for_is_taken_out_whole(partly):
    async def run():
        there = queue()
        batches = there.batches
        first = await computing(there, rows(10 if partly else 1))
        gone = first if partly else asyncio.create_task(asked(batches, rows(60)))
        behind = asyncio.create_task(asked(batches, rows(2)))
        await asyncio.sleep(0)
        assert batches.waiting == (8 if partly else 62)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        assert batches.waiting == 2
        full = asyncio.create_task(asked(batches, rows(62)))  # there is room for as many again
        there.gate.set()
        assert [one.name for one in await behind] == ["0", "1"] and len(await full) == 62
        assert batches.waiting == 0 and there.sizes[0] == (4 if partly else 1) and sum(there.sizes[1:]) == 64
        batches.close()

    asyncio.run(run())


def test_a_client_may_have_so_many_inputs_in_the_queue_and_others_theirs():
    from pipelines.serving.http.bodies import TooMany

    async def run():
        there = queue(each=6)
        batches = there.batches
        held = [await computing(there, rows(1), "a")]
        held += [asyncio.create_task(asked(batches, rows(count), client)) for count, client in ((4, "a"), (2, "a"), (6, "b"))]
        await asyncio.sleep(0)
        with pytest.raises(TooMany, match="over 6 inputs of one client wait") as caught:
            await asked(batches, rows(1), "a")
        assert caught.value.status == 429 and caught.value.retry >= 1
        there.gate.set()
        assert [len(one) for one in await asyncio.gather(*held)] == [1, 4, 2, 6]
        assert len(await asked(batches, rows(6), "a")) == 6
        batches.close()

    asyncio.run(run())


def test_what_takes_long_to_decode_holds_up_nobody_else():
    from tests.serving.toy_server import Doubling, answer, numbers, request, running

    class Slow(Doubling):
        """An input of 99 takes until the gate opens."""

        def together(self, read):
            return super().together(read) if any(self.large(row) for _, row in read) else self.quickly(read)

        def quickly(self, read):
            return [Prediction(name, {"doubled": 2 * row["x"]}) for name, row in read]

    with running(Slow()) as server, server.connect() as slow, server.connect() as both:
        server.model.gate.clear()
        slow.sendall(request(numbers([99, 0, 0])))
        both.sendall(request(numbers([1, 1, 1], [99, 1, 1], [2, 2, 2])))
        for _ in range(20):
            status, _, content = server.ask(numbers([1, 2, 3]))
            assert status == 200 and content["answers"][0]["doubled"] == [2, 4, 6]
        server.model.gate.set()
        assert answer(slow)[2]["answers"][0]["doubled"] == [198, 0, 0]
        assert [one["doubled"][0] for one in answer(both)[2]["answers"]] == [2, 198, 4]

"""Where time goes, on a clock that the test turns."""

import time

import pytest

from pipelines.training.meter import Meter


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_parts_nest_without_counting_twice():
    clock = Clock()
    meter = Meter(clock=clock)
    with meter.part("evaluation"):
        clock.now += 3
        with meter.part("checkpoint"):
            clock.now += 2
            with meter.part("evaluation"):
                clock.now += 5
        clock.now += 1
    clock.now += 50
    assert meter.seconds["evaluation"] == 9 and meter.seconds["checkpoint"] == 2
    assert meter.shares() == pytest.approx({"evaluation": 9 / 11, "checkpoint": 2 / 11})


def test_a_part_that_fails_is_counted_and_closed():
    clock = Clock()
    meter = Meter(clock=clock)
    with pytest.raises(KeyError), meter.part("callbacks"):
        clock.now += 2
        raise KeyError
    with meter.part("setup"):
        clock.now += 1
    assert meter.seconds["callbacks"] == 2 and meter.seconds["setup"] == 1


def test_steps_give_rate_and_wait_and_the_first_call_is_compilation():
    meter = Meter()
    meter.step(20.0, 1.0, 1, 128, first=True)
    assert meter.examples_per_second == 0 and meter.input_wait_fraction == 0 and meter.seconds["compile"] == 20
    meter.step(2.0, 0.5, 10, 128)
    assert (meter.examples_per_second, meter.input_wait_fraction) == (640, 0.25)
    meter.step(2.0, 0.0, 30, 128)
    summary = meter.summary()
    assert summary["examples"] == 5120 and summary["steps"] == 40
    assert summary["examples_per_second"] == pytest.approx(1280) and summary["input_wait_fraction"] == pytest.approx(0.125)
    assert sum(summary["shares"].values()) == pytest.approx(1) and "evaluation" not in summary["shares"]


def test_waiting_never_passes_the_call():
    meter = Meter()
    meter.step(1.0, 1.5, 1, 8)
    meter.step(1.0, -0.1, 1, 8)
    assert meter.seconds["input"] == 1.0 and meter.seconds["step"] == 1.0


def test_state_goes_on_in_another_process():
    first = Meter()
    first.step(4.0, 1.0, 4, 16)
    first.add("setup", 2.0)
    second = Meter()
    second.add("setup", 3.0)
    second.restore(first.state())
    second.step(4.0, 0.0, 4, 16)
    assert second.seconds["setup"] == 5 and second.examples == 128
    assert (second.examples_per_second, second.input_wait_fraction) == (16, 0.125)


def test_a_part_costs_a_few_microseconds():
    meter = Meter()

    def once():
        began = time.process_time()
        for _ in range(20_000):
            with meter.part("step"):
                pass
        return (time.process_time() - began) / 20_000

    assert min(once() for _ in range(5)) < 2e-5  # some 1e-6 on a quiet machine

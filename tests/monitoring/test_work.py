"""How far long work is: lines after some seconds alone, from a thread, and none once it is over."""

import threading

import pytest

from pipelines.base.progress import Work, followed


def lines_of(work_on, total=0):
    """The first two lines of some work that waits for them."""
    said, twice = [], threading.Event()

    def say(text):
        said.append(text)
        if len(said) == 2:
            twice.set()

    with Work(say, "judging test", total, every=0.01) as work:
        work_on(work)
        assert twice.wait(20)
    count = len(said)
    assert work._thread.is_alive() is False and count == len(said), "it ends with the work"
    return said[:2]


def test_a_share_and_the_time_left_where_the_total_is_known():
    first, second = lines_of(lambda work: work.at(20), 80)
    assert first.startswith("judging test: 25%, ") and first.endswith(" left") and second.startswith("judging test: 25%, ")


def test_the_time_that_it_has_taken_and_what_is_done_now_where_it_is_not():
    assert all(line.startswith("judging test: ") and line.endswith(" so far") for line in lines_of(lambda work: None))
    assert lines_of(lambda work: work.doing("fitting"))[1].startswith("fitting: ")
    assert lines_of(lambda work: work.of(3, 6))[1].startswith("judging test: 50%, ")


def test_short_work_says_nothing_and_an_error_passes():
    said = []
    with pytest.raises(KeyboardInterrupt), Work(said.append, "judging test"):
        raise KeyboardInterrupt
    assert said == []


def test_items_of_unknown_number_are_counted():
    assert lines_of(lambda work: work.at(1200))[1].startswith("judging test: 1,200 in ")
    said = []
    assert list(followed(iter("abc"), said.append, "answering")) == ["a", "b", "c"] and said == []

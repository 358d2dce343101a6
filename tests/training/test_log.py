"""Lines of a training: each a mean over enough examples to be one point of a curve."""

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from pipelines.training.hooks.log import Log
from pipelines.training.totals import ScoreSums

SIZES = [64, 64, 14] * 2  # examples of each step, two epochs of 142


def logged(every: int, sizes: list[int] = SIZES, epoch: int = 3) -> list[dict]:
    """The lines of a training whose loss at step n is n for each example."""
    rows: list[dict] = []
    loop = SimpleNamespace(
        step=0, epoch=0, seconds=0.0, epoch_metrics={}, train_metrics=dict, meter=SimpleNamespace(
            summary=lambda: {"examples_per_second": 1.0}, part=lambda name: contextlib.nullcontext()),
        plan=SimpleNamespace(steps_per_epoch=epoch, usual=64, examples=sum(sizes[:epoch])), carry=None,
        run_steps=SimpleNamespace(scores=ScoreSums({}), chain=SimpleNamespace(row=lambda step: {"learning_rate": 0.1}),
                                  machine=SimpleNamespace(precision="float32", working=())))
    progress = SimpleNamespace(update=lambda *_: None, epoch_line=lambda *_: None)
    log = Log(every=every, log=SimpleNamespace(append=rows.append), writers={}, progress=progress)
    totals = np.zeros(2)
    for step, size in enumerate(sizes, 1):
        totals = totals + np.asarray([step * size, size])
        loop.step, loop.carry = step, SimpleNamespace(totals=tf.constant(totals), waited=0.0, gradient_norm=1.0)
        if step == 1:
            log.on_start(loop)
        if step == log.next_stop(SimpleNamespace(step=step - 1)):
            log.on_steps(loop)
        if step % epoch == 0:
            log.on_epoch(loop)
            totals = np.zeros(2)
    return [row for row in rows if "train/loss" in row]


def test_a_few_examples_left_over_at_the_end_of_an_epoch_are_no_point_of_a_curve():
    rows = logged(1)
    assert [row["step"] for row in rows] == [1, 2, 4, 5]
    assert rows[2]["train/loss"] == pytest.approx((3 * 14 + 4 * 64) / 78)  # they count in the next


def test_a_point_is_a_mean_over_all_steps_since_the_one_before():
    rows = logged(2)
    assert [row["step"] for row in rows] == [2, 4, 6]
    means = [1.5, (3 * 14 + 4 * 64) / 78, (5 * 64 + 6 * 14) / 78]
    assert [row["train/loss"] for row in rows] == pytest.approx(means)


def test_epochs_of_one_small_batch_have_their_points():
    assert len(logged(1, [9] * 4, epoch=1)) == 4

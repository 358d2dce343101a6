"""A signal or a kill while an epoch is judged loses none of its training, and the run ends as one that was never disturbed."""

import keras
import pytest

from pipelines.base.errors import Interrupted
from pipelines.training.evaluation import Evaluator
from tests.training.runs import At, Killed, assert_same_outcome, checkpoint, interrupt, kill, rows, run, whole

pytestmark = pytest.mark.slow

STEPS = 5  # an epoch of 200 examples in batches of 48
EVERY = {"train": {"ema": 0.9, "log_every": 2}}
SELDOM = {"train": {**EVERY["train"], "checkpoint_seconds": 3600.0}}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    whole(folder, **EVERY)
    return folder


def at_validation(monkeypatch, epoch: int, action) -> list[int]:
    """Does something once, when the validation of an epoch begins. Returns the epochs whose validation came to its end."""
    really, seen = Evaluator.scores, {"begun": 0}
    judged = []

    def scores(self, *stop):
        seen["begun"] += 1
        if seen["begun"] == epoch:
            action()
        found = really(self, *stop)
        if found is not None:
            judged.append(int(self.model.optimizer.iterations) // STEPS)
        return found

    monkeypatch.setattr(Evaluator, "scores", scores)
    return judged


def test_a_signal_while_an_epoch_is_judged_saves_it_at_once(tmp_path, monkeypatch, undisturbed):
    epoch = 2
    with monkeypatch.context() as patch:
        judged = at_validation(patch, epoch, interrupt)
        with pytest.raises(Interrupted, match=f"interrupted at step {epoch * STEPS} of 15"):
            run(tmp_path / "run", callbacks=[At()], **SELDOM)
        assert judged == list(range(1, epoch))  # the notice may be short: it was not judged to its end
    about = checkpoint(tmp_path / "run")[1]
    assert (about["step"], about["unjudged"]) == (epoch * STEPS, True)
    judged = at_validation(monkeypatch, 0, None)
    run(tmp_path / "run", callbacks=[At()], **SELDOM)
    assert judged == list(range(epoch, 4))
    assert_same_outcome(undisturbed, tmp_path / "run")


def test_a_kill_while_an_epoch_is_judged_loses_none_of_it_where_a_checkpoint_was_due(tmp_path, monkeypatch, undisturbed):
    epoch = 1
    with monkeypatch.context() as patch:
        at_validation(patch, epoch, kill)
        with pytest.raises(Killed):
            run(tmp_path / "run", callbacks=[At()], **EVERY)
    assert checkpoint(tmp_path / "run")[1]["step"] == epoch * STEPS
    run(tmp_path / "run", callbacks=[At()], **EVERY)
    assert_same_outcome(undisturbed, tmp_path / "run")


class AtEpoch(keras.callbacks.Callback):
    """Is killed at the end of an epoch, when it is judged and logged and that is not saved."""

    def __init__(self, epoch):
        super().__init__()
        self._epoch = epoch

    def on_epoch_end(self, epoch, logs=None):
        if epoch == self._epoch:
            kill()


def test_an_epoch_that_is_judged_again_has_one_line(tmp_path, undisturbed):
    with pytest.raises(Killed):
        run(tmp_path / "run", callbacks=[At(), AtEpoch(1)], **EVERY)
    assert sum("epoch/loss" in row for row in rows(tmp_path / "run")) == 2
    about = checkpoint(tmp_path / "run")[1]
    assert (about["step"], about["unjudged"]) == (2 * STEPS, True)
    run(tmp_path / "run", callbacks=[At()], **EVERY)
    assert_same_outcome(undisturbed, tmp_path / "run")

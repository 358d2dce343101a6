"""What goes wrong is said while it happens, once, and nothing is said of a training that goes well."""

from types import SimpleNamespace

import pytest

from pipelines.base.errors import ConfigError
from pipelines.base.stored import checked
from pipelines.training.hooks.diagnosis import Diagnosis, Warnings

pytestmark = pytest.mark.slow


def told(curve: list[tuple[float, float | None]], *, chance: float = 0.1, examples: int = 400, epochs: int | None = None,
         broken_after: int | None = None) -> list[str]:
    """The warnings over a training with these (train, validation) accuracies, one an epoch."""
    epochs = epochs or len(curve)
    heard: list[str] = []
    hook = Diagnosis("accuracy", chance, examples, heard.append)
    loop = SimpleNamespace(steps=epochs, plan=SimpleNamespace(steps_per_epoch=1), stopping=None, epoch=0, epoch_metrics={})
    for epoch, (train, validation) in enumerate(curve, 1):
        loop.epoch = epoch
        loop.epoch_metrics = {"train/accuracy": train, **({} if validation is None else {"validation/accuracy": validation})}
        hook.on_epoch(loop)
        if epoch == broken_after:
            state, hook = hook.state(), Diagnosis("accuracy", chance, examples, heard.append)
            hook.restore(state)
    hook.on_end(loop)
    return heard


def test_validation_at_chance_beside_a_good_train_is_said_in_the_first_tenth_of_training():
    heard = told([(0.3 + 0.05 * epoch, 0.1) for epoch in range(10)], epochs=40)
    assert len(heard) == 1 and heard[0].startswith("Epoch 5: validation is at chance level (10.0 %")


def test_no_learning_at_all_is_said():
    heard = told([(0.1, 0.1)] * 10)
    assert len(heard) == 1 and "nothing has been learned" in heard[0] and "train.learning_rate.peak" in heard[0]


def test_a_training_that_ended_too_early_is_said():
    heard = told([(0.05 * epoch, 0.05 * epoch) for epoch in range(3, 13)])
    assert len(heard) == 1 and "still rising" in heard[0] and "train.epochs" in heard[0]


@pytest.mark.parametrize("curve", [
    [(0.3, 0.2), (0.6, 0.5), (0.8, 0.75), (0.9, 0.85), (0.95, 0.9), (0.97, 0.9), (0.98, 0.9), (0.99, 0.9), (0.99, 0.9), (0.99, 0.9)],
    [(0.2, 0.1), (0.4, 0.1), (0.6, 0.3), (0.8, 0.6), (0.9, 0.8), (0.95, 0.9), (0.95, 0.9), (0.95, 0.9), (0.95, 0.9), (0.95, 0.9)],
    [(0.5, None)] * 10,
], ids=["good", "slow statistics", "no validation"])
def test_nothing_is_said_of_a_training_that_goes_well(curve):
    assert told(curve) == []


def test_each_is_said_once_though_the_run_was_interrupted():
    assert len(told([(0.9, 0.1)] * 10, broken_after=5)) == 1


@pytest.mark.parametrize("kept", [{"history": [["high", None]], "reported": []}, {"history": []}, {"history": [[0.5]], "reported": []}])
def test_a_checkpoint_of_another_kind_is_refused_before_it_is_taken(kept):
    whole = Diagnosis("accuracy", 0.1, 400, print).state()
    assert checked(whole, Diagnosis.Kept, "resume.npz").model_dump() == whole
    with pytest.raises(ConfigError, match="resume"):
        checked(kept, Diagnosis.Kept, "resume.npz")


def test_warnings_given_before_an_interruption_stay_in_the_report():
    before, after = Warnings(), Warnings()
    before.texts.append("validation is at chance level")
    after.texts.append("the data could not be compared")
    after.restore(Warnings.Kept(**before.state()).model_dump())
    assert after.texts == ["validation is at chance level", "the data could not be compared"]

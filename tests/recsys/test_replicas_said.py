"""That a batch is divided among replicas is said where the loss mixes its examples."""

import pytest


@pytest.mark.parametrize(("micro", "replicas", "said"), [(None, 2, True), (32, 2, False), (None, 1, False)])
def test_that_the_softmax_sees_one_devices_examples_is_said_at_the_start(micro, replicas, said, monkeypatch):
    from types import SimpleNamespace

    import keras

    from pipelines.data.order import Plan
    from pipelines.runs import run_display
    from recsys.tasks.retrieval import RetrievedLists

    monkeypatch.setattr(run_display, "other_draws", lambda *_: [])
    plan = Plan(examples=64, batch=64, replicas=replicas, accumulation=1)
    session = SimpleNamespace(
        machine=SimpleNamespace(replicas=replicas, precision="float32", working=["a"] * replicas, xla=False, mesh=None),
        plan=plan, splits=SimpleNamespace(train=[1], validation=None, test=None), weights=[],
        update=SimpleNamespace(tables=SimpleNamespace(tables=[])), steps=1,
        feed=SimpleNamespace(summary="", spec={}), way=None,
        learner=SimpleNamespace(model=keras.Sequential(), task=SimpleNamespace(output=RetrievedLists)),
        task=SimpleNamespace(output=RetrievedLists, experiment=None), transforms=[], layouts=None,
        step=SimpleNamespace(train=SimpleNamespace(micro_batch_size=micro)),
    )
    lines: list[str] = []
    run_display.describe(session, "retrieval", lines.append)
    assert any("softmax over the items of the batch sees the 32 examples of one device" in line for line in lines) == said

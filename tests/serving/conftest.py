"""A finished run, loaded once, and its digits as image files."""

import pytest

from tests import finished_run


@pytest.fixture(scope="session")
def loaded():
    """The run in this process. Tests leave it as it is."""
    from pipelines.runs.folder import RunFolder
    from pipelines.serving.load import load_run

    return load_run(RunFolder(finished_run.run()), where="cpu")


@pytest.fixture(scope="session")
def judged(loaded):
    """(encoded PNG images, labels, probabilities) of the test split, as the evaluation answers it."""
    import tensorflow as tf

    from pipelines.serving.evaluate import own_split
    from pipelines.training.evaluation import Evaluator

    source, _, _ = own_split(loaded, "test")
    evaluator = Evaluator(loaded.task, loaded.model, source, machine=loaded.machine, batch=256, data=loaded.experiment.data)
    answers, targets = evaluator.answers()
    images = source.gather(tf.range(len(source), dtype=tf.int64))["image"]
    return [tf.io.encode_png(image).numpy() for image in images], targets["label"], answers["probabilities"]

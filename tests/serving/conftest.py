"""A finished run, loaded once, its digits as image files, and a server of two toy models."""

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
    evaluator = Evaluator(loaded.task, loaded.model, source, machine=loaded.machine, batch=256)
    answers, targets = evaluator.answers()
    images = source.gather(tf.range(len(source), dtype=tf.int64))["image"]
    return [tf.io.encode_png(image).numpy() for image in images], targets["label"], answers["probabilities"]


@pytest.fixture(scope="module")
def server():
    """Two models: one of texts and numbers, and version 7 of one that doubles numbers."""
    from tests.serving.toy_server import Doubling, Spelling, running

    with running(Spelling()) as there:
        there.models.add("double", 7, Doubling())
        yield there

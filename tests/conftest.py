"""For all tests: their order; the precision and the determinism that one test chose are not the next one's."""

import os
import sys

import pytest

# what `quartet new` proposes must not depend on the presets of the machine that tests; tests of real ones name their folder
os.environ["QUARTET_PRESETS"] = os.path.join(os.path.dirname(__file__), "no presets")


def pytest_collection_modifyitems(items):
    """Files with slow tests first: begun last, one of them would leave the other processes idle at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(autouse=True)
def as_it_was():
    """Keras keeps its precision, and TensorFlow its determinism, for the process; a run sets them, bare layers mean neither."""
    yield
    if "keras" in sys.modules:
        sys.modules["keras"].config.set_dtype_policy("float32")
    if "tensorflow" in sys.modules:
        from tensorflow.python.framework import config

        config.disable_op_determinism()  # there is no public way back

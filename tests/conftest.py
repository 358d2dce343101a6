"""For all tests: the precision that one test chose is not the next one's."""

import sys

import pytest


@pytest.fixture(autouse=True)
def float32_again():
    """Keras keeps its precision for the process; a run sets it, and tests of bare layers mean float32."""
    yield
    if "keras" in sys.modules:
        sys.modules["keras"].config.set_dtype_policy("float32")

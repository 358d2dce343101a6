"""A server of two toy models with all that the gateway adds, and the finished run."""

import pytest

from tests.serving.conftest import judged, loaded  # noqa: F401


@pytest.fixture(scope="module")
def server():
    """Two models: one of texts and numbers, and version 7 of one that doubles numbers."""
    from extensions.gateway.tests.gateway_server import running
    from tests.serving.toy_server import Doubling, Spelling

    with running(Spelling()) as there:
        there.models.add("double", 7, Doubling())
        yield there

"""Each of the gateway's protocols fulfils the contract of the door."""

import pytest

from extensions import gateway  # noqa: F401
from pipelines.config.doors import PROTOCOLS
from quartet.testing import check_protocol
from tests.serving.toy_server import needs_extra

OURS = [entry for entry in PROTOCOLS.entries() if entry.builder.startswith("extensions.gateway.")]
pytestmark = [needs_extra, pytest.mark.slow(seconds=20)]


@pytest.mark.parametrize("entry", OURS, ids=lambda entry: entry.name)
def test_the_contract(entry):
    check_protocol(entry.load())

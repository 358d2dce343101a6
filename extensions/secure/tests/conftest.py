"""The finished run's judged digits, as tests/serving has them."""

from tests.serving.conftest import judged, loaded  # noqa: F401

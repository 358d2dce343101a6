"""The finished run that the tests of serving have, too."""

from tests.serving.conftest import judged as judged
from tests.serving.conftest import loaded as loaded

"""The settings of recommendation: interactions, models, and the experiments on them. Imports no TensorFlow."""

from recsys.settings.interactions import *  # noqa: F403
from recsys.settings.models import *  # noqa: F403
from recsys.settings.tasks import *  # noqa: F403

QUICK_START = "recsys/quickstart"

"""The settings of speech: recordings, models, and the experiments on them. Imports no TensorFlow."""

from speech.settings.models import *  # noqa: F403
from speech.settings.recordings import *  # noqa: F403
from speech.settings.tasks import *  # noqa: F403
from speech.settings.voices import *  # noqa: F403

QUICK_START = "speech/quickstart"

"""The settings of tasks on images; each kind of answer has a module. Imports no TensorFlow."""

from vision.settings.boxes import *  # noqa: F403
from vision.settings.images import *  # noqa: F403
from vision.settings.instances import *  # noqa: F403
from vision.settings.masks import *  # noqa: F403

"""The settings of tasks on texts; each kind of answer has a module. Imports no TensorFlow."""

from nlp.settings.dialogue import *  # noqa: F403
from nlp.settings.language import *  # noqa: F403
from nlp.settings.pairs import *  # noqa: F403
from nlp.settings.passages import *  # noqa: F403
from nlp.settings.tags import *  # noqa: F403
from nlp.settings.texts import *  # noqa: F403
from nlp.settings.translation import *  # noqa: F403

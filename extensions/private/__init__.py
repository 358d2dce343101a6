"""Private training: DP-SGD with an accountant of what it spends (`train.privacy`, extra `privacy`). docs/training.md shows it."""

from extensions.private.settings import Private
from pipelines.config.doors import LINEAGE, TRANSFORMS
from pipelines.config.train_settings import Train
from pipelines.config.variants import add_settings

add_settings(Train, Private)
TRANSFORMS.add("privacy", "extensions.private.gradients:PrivateGradients")
LINEAGE.add("privacy", "extensions.private.lineage:PrivacyLine")

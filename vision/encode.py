"""An encoder of images by itself, without a run: what `quartet embed PRESET` uses."""

from vision.settings import ImageClassification, Pretrained
from vision.tasks.classification import Classification

SIZE = 224  # px, of a preset that does not say on which size it was trained


def task(preset: str) -> Classification:
    """A task whose model has the preset as its encoder, for colour images of the size that it was trained on (cropped to its shape), and a
    head that means nothing. Raises ConfigError as `find` of presets."""
    from vision.models import pretrained

    facts = pretrained.learn(Pretrained(name="pretrained", preset=preset))
    size = list(pretrained.preset_size(facts) or (SIZE, SIZE))
    experiment = ImageClassification.model_validate(
        {"task": "vision.classification", "data": {"source": "digits"}, "model": {"name": "pretrained", "preset": preset}})
    return Classification(experiment, {**facts, "classes": ["0", "1"], "class_counts": [1, 1], "image_size": size, "channels": 3,
                                       "mean": [0.0] * 3, "std": [1.0] * 3})

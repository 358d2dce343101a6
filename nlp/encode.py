"""A text encoder by itself, without a run: what `quartet embed PRESET` uses."""

from nlp.settings import TextClassification
from nlp.tasks.classification import Classification


def task(preset: str, limit: int = 256) -> Classification:
    """A task whose model has the preset as its encoder, and a head that means nothing. Raises ConfigError as `find` of presets.

    Args:
        limit: tokens of a text that are used, or as many as the encoder takes.
    """
    from nlp.models import pretrained

    values = {"task": "nlp.classification", "data": {"source": "quick"}, "model": {"name": "pretrained", "preset": preset, "limit": 4}}
    facts, _ = pretrained.learn(TextClassification.model_validate(values).model)
    longest = facts["backbone"]["config"].get("max_sequence_length") or limit
    values["model"] = {**values["model"], "limit": min(limit, longest)}  # type: ignore[dict-item]
    return Classification(TextClassification.model_validate(values), {**facts, "classes": ["0", "1"], "class_counts": [1, 1]})

"""A text encoder by itself, without a run: what `quartet embed PRESET` uses."""

from typing import Any

from nlp.settings import BiEncoder, Pretrained, TextClassification
from nlp.tasks.classification import Classification


def task(preset: str, limit: int = 256) -> Classification:
    """A task whose model has the preset as its encoder, and a head that means nothing. Raises ConfigError as `find` of presets.

    Args:
        limit: tokens of a text that are used, or as many as the encoder takes.
    """
    facts, most = _learned(preset, limit)
    experiment = TextClassification.model_validate(
        {"task": "nlp.classification", "data": {"source": "quick"}, "model": {"name": "pretrained", "preset": preset, "limit": most}})
    return Classification(experiment, {**facts, "classes": ["0", "1"], "class_counts": [1, 1]})


def one_by_one(run: Any) -> Classification | None:
    """For a task whose encoder makes a vector of each text of a pair, a task on texts with that encoder, without its weights, as its
    `features`; None for any other task."""
    model, facts = run.experiment.model, run.facts
    if not isinstance(model, BiEncoder):
        return None
    same = {name: getattr(model, name) for name in ("preset", "limit", "html", "pool")}
    experiment = TextClassification.model_validate({
        "task": "nlp.classification", "data": {"source": "quick"}, "model": {"name": "pretrained", "weights": None, **same}})
    kept = {name: facts[name] for name in ("encoder", "backbone", "tokenizer", "pool")}
    return Classification(experiment, {**kept, "classes": ["0", "1"], "class_counts": [1, 1]})


def settings(preset: str, limit: int = 128) -> dict[str, Any]:
    """Dotted settings under which an encoder reads the texts of an experiment. Raises ConfigError as `task`."""
    # it brings its own tokens; how alike texts are is known of the last layer, which was trained for it
    return {"tokens": None, "model.limit": _learned(preset, limit)[1], "model.layers": 1,
            "model.window": None}


def _learned(preset: str, limit: int) -> tuple[dict[str, Any], int]:
    """What is known of an encoder, and the limit, or the tokens that it takes."""
    from nlp.models import pretrained

    facts, _ = pretrained.learn(Pretrained(name="pretrained", preset=preset, limit=4))
    return facts, min(limit, facts["backbone"]["config"].get("max_sequence_length") or limit)

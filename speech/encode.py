"""An encoder of recordings by itself, without a run: what `quartet embed PRESET` uses."""

from speech.data import pretrained
from speech.settings import SoundClassification
from speech.tasks.classification import Classification

SECONDS = 10.0  # heard of a recording; of longer ones the loudest part


def task(preset: str) -> Classification:
    """A task whose model has the preset as its encoder, and a head that means nothing. Raises ConfigError as `find` of presets."""
    facts = pretrained.learn(preset)
    rate = facts["converter"]["config"]["sampling_rate"]
    front_end = pretrained.front_end(facts, rate)
    seconds = SECONDS
    if facts["backbone"]["class"] == pretrained.WHISPER:  # which takes so much and no more
        seconds = min(SECONDS, pretrained.most_frames(facts) * front_end.seconds - front_end.silence)
    experiment = SoundClassification.model_validate({
        "task": "speech.classification", "data": {"source": "synthetic", "rate": rate, "seconds": seconds},
        "model": {"name": "pretrained", "preset": preset}})
    return Classification(experiment, {**facts, "classes": ["0", "1"], "class_counts": [1, 1], "mean": [0.0] * front_end.width,
                                    "std": [1.0] * front_end.width, "pool": "loudness"})

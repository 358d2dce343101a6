"""A language model that was trained for dialogues by itself, without a run: what `quartet chat PRESET` uses."""

from nlp.data.dialogues import learned
from nlp.settings import DialogueModel
from nlp.tasks.dialogue import Dialogue

SEEN, WRITTEN = 2048, 512  # tokens that are seen at a time, and of these that are written at most


def task(preset: str) -> Dialogue:
    """A task whose model is the preset, unchanged. Raises ConfigError as `find` of presets, and where it has no template."""
    experiment = DialogueModel.model_validate({
        "task": "nlp.dialogue", "data": {"source": "messages", "path": "none"},
        "model": {"name": "pretrained", "preset": preset, "length": SEEN, "lora": None}, "writing": {"most": WRITTEN}})
    return Dialogue(experiment, learned(experiment))

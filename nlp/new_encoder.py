"""Which encoder an experiment on texts is proposed, by their language."""

from collections.abc import Sequence

from pipelines.base.errors import ConfigError
from pipelines.config.draft import Asked
from pipelines.data.english import are_english
from pipelines.encoders.listing import Proposal, propose
from pipelines.encoders.presets import Preset
from pipelines.machine.startup import start_tensorflow

ENGLISH = "hf://sentence-transformers/all-MiniLM-L6-v2"
MULTILINGUAL = "hf://distilbert/distilbert-base-multilingual-cased"
SAMPLED = 200  # texts by which a language is known


def propose_encoder(asked: Asked, texts: Sequence[str], *, reason: str, gain: str) -> Proposal:
    """As `propose`; for texts that are not English one that is at hand is proposed where its tokenizer knows their language.

    Args:
        reason: why these texts gain by an encoder; empty where they are not known to.
    """
    if not reason or asked.used_encoder() is not None or are_english(texts):
        return propose(asked, "nlp", reason=reason, gain=gain)
    return propose(asked, "nlp", reason=f"{reason}, and their language", gain=f"in the texts' language, {gain}",
                   fits=lambda preset: knows(preset, texts))


def knows(preset: Preset, texts: Sequence[str]) -> bool:
    """Whether an encoder's tokenizer knows the language of texts."""
    start_tensorflow()
    from nlp.tokens import languages
    from nlp.tokens import preset as preset_tokens

    try:
        own = preset_tokens.read(preset)
        return languages.foreign(preset_tokens.make(preset_tokens.kept(own), 512), texts[::max(1, len(texts) // SAMPLED)]) is None
    except ConfigError:
        return False


def downloaded(texts: Sequence[str]) -> str:
    """What can be downloaded where no encoder that fits is at hand."""
    return ENGLISH if are_english(texts) else MULTILINGUAL

"""Which encoder `quartet new` proposes: one that a person names, or one of the presets' folder, for data of a kind that gains by it.

A domain says of what kind data gain, as validation on several sets has shown (docs/pretrained.md).
"""

from dataclasses import dataclass

from pipelines.base.errors import ConfigError
from pipelines.config.draft import Asked
from pipelines.encoders.listing import at_hand, presets_here
from pipelines.encoders.locate import presets_folder
from pipelines.encoders.presets import Preset, find

# of data.validation, under a head that is fitted at once
FOLDS_CHOOSE = "none: parts held out of train in turn choose what there is to choose"
BLENDED = "its answers and those of a kernel machine averaged, both fitted at once; finetune: {name: frozen} for the encoder alone"


@dataclass(frozen=True)
class Proposal:
    """An encoder, or None, and what the experiment's header says of it, a line or nothing."""

    preset: Preset | None = None
    notes: tuple[str, ...] = ()


def propose(asked: Asked, domain: str, *, reason: str, gain: str) -> Proposal:
    """What `quartet new` proposes.

    Args:
        asked: its encoder is a preset's name, "none", or None: propose one that is at hand.
        domain: of the task.
        reason: why these data gain by an encoder, "since ..."; empty where they are not known to: then only a named one is proposed.
        gain: what one would gain, where none is at hand.

    Raises:
        ConfigError: the encoder that was named cannot be used.
    """
    name = asked.used_encoder()
    if name == "none":
        return Proposal()
    if name is not None:
        preset = find(name, domain=domain, key="--encoder")
        doubt = "" if reason else "; that such data gain by one is not known, --encoder none leaves it out"
        return Proposal(preset, (f"Encoder: {_described(preset)}, as asked for{doubt}.",))
    if not reason:
        return Proposal()
    there = _there(domain)
    if not there:
        return Proposal(None, (f"No pretrained encoder is at hand in {presets_folder()}: with one, {gain} (docs/pretrained.md).",))
    others = f"; there are also {', '.join(preset.name for preset in there[1:])}" if there[1:] else ""
    return Proposal(there[0], (f"Encoder: {_described(there[0])}, {reason}; --encoder none leaves it out{others}.",))


def choices(asked: Asked, domain: str) -> list[Preset]:
    """The encoders that are worth a try: the one that was asked for, else those at hand, small ones first."""
    if asked.wants_encoder:
        return [find(str(asked.used_encoder()), domain=domain, key="--encoder")]
    return [] if asked.used_encoder() == "none" else _there(domain)


def noted(preset: Preset) -> tuple[str, ...]:
    """What an experiment's header says of the encoder that it names."""
    return (f"Encoder: {_described(preset)}; --encoder none leaves it out.",)


def _there(domain: str) -> list[Preset]:
    try:
        return at_hand(domain) if presets_here() else []
    except ConfigError:  # keras-hub is not installed
        return []


def _described(preset: Preset) -> str:
    return f"{preset.name} ({preset.weights / 1e6:,.1f} M weights, {preset.licence or 'licence not stated'})"

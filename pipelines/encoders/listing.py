"""Which encoders there are: those on this machine, by their headers, and KerasHub's own, by what it says of them; and which one
`quartet new` proposes for data of a kind.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pipelines.base.errors import ConfigError
from pipelines.config.draft import Asked
from pipelines.encoders import presets
from pipelines.encoders.locate import in_kaggle_cache, presets_folder
from pipelines.encoders.presets import Preset, find

DOMAINS = ("vision", "nlp", "speech")
_WITHOUT_TASK = ("DINOV2Backbone", "DINOV3Backbone")  # encoders for which keras-hub has no classifier
_NOT_TEXT = ("ESMBackbone",)  # of proteins
_LAST = ("MoonshineBackbone",)  # proposed behind all others: no trained weights of it were tried (docs/pretrained.md)


@dataclass(frozen=True)
class Listed:
    """An encoder.

    Attributes:
        name: as `model.preset` takes it.
        backbone: its class in keras_hub.models.
        weights: number of parameters.
        bytes: of the weights on this machine's disk; None where they are not here.
        licence: as the preset states it; None where it states none, or is not here.
        here: whether it can be used without a network.
        page: where its licence and card can be read; None for what is not KerasHub's.
        problem: why it cannot be used.
    """

    domain: str
    name: str
    backbone: str
    weights: int | None
    bytes: int | None
    licence: str | None
    here: bool
    page: str | None = None
    problem: str | None = None


def listed(domain: str | None = None) -> list[Listed]:
    """All encoders, or those of a domain: those on this machine first, small ones before large ones.

    Raises:
        ConfigError: keras-hub is not installed, or the domain has no encoders.
    """
    if domain not in (None, *DOMAINS):
        raise ConfigError(f"{domain!r} has no encoders; the domains that have are {', '.join(DOMAINS)}")
    own, names = list(_own()), presets.builtin()
    there = {one.name for one in own}
    found = own + [_builtin(name, about) for name, about in names.items() if name not in there and _usable(_kind(name))]
    order = ("", *DOMAINS)
    found = [one for one in found if domain in (None, one.domain)]
    return sorted(found, key=lambda one: (order.index(one.domain), not one.here, one.weights or 0, one.name))


def at_hand(domain: str) -> list[presets.Preset]:
    """Usable presets of a domain in the presets' folder, small ones first, those behind that were not tried. Raises ConfigError where
    keras-hub is not installed."""
    found = []
    for name in presets_here():
        try:
            found.append(presets.find(name, domain=domain))
        except ConfigError:  # of another domain, or `quartet encoders` says what is wrong
            continue
    return sorted(found, key=lambda preset: (preset.backbone in _LAST, preset.weights))


def presets_here() -> list[str]:
    """Names of the folders in the presets' folder."""
    root = presets_folder()
    return sorted(path.name for path in root.iterdir() if path.is_dir() and not path.name.startswith(".")) if root.is_dir() else []


def _own() -> Iterator[Listed]:
    presets.hub("quartet encoders")
    for name in presets_here():
        try:
            yield _here(presets.find(name))
        except ConfigError as error:
            yield Listed("", name, "", None, None, None, False, problem=str(error))


def _here(preset: presets.Preset, page: str | None = None) -> Listed:
    return Listed(preset.domain, preset.handle, preset.backbone, preset.weights, preset.bytes, preset.licence, True, page)


def _builtin(name: str, about: dict[str, Any]) -> Listed:
    """One of KerasHub's own, from its cache where it is there."""
    kind, handle = _kind(name), str(about["kaggle_handle"]).removeprefix("kaggle://")
    page = f"https://www.kaggle.com/models/{'/'.join(handle.split('/')[:2])}"
    problem = None
    if in_kaggle_cache(handle) is not None:
        try:
            return _here(presets.find(name), page)
        except ConfigError as error:
            problem = str(error)
    return Listed(presets.domain_of(kind), name, kind.__name__, about["metadata"].get("params"), None, None, False, page, problem)


def _kind(name: str) -> Any:
    """The class of one of KerasHub's own presets: the most special that has it."""
    models = presets.hub().models
    kinds = (getattr(models, each) for each in dir(models) if each.endswith("Backbone"))
    return next((kind for kind in kinds if kind not in (models.Backbone, models.FeaturePyramidBackbone) and name in kind.presets),
                models.Backbone)


def _usable(kind: Any) -> bool:
    """Whether a backbone encodes for one of the domains: it has a classifier, fills in masks, or hears."""
    models, domain = presets.hub().models, presets.domain_of(kind)
    if domain == "speech" or kind.__name__ in _WITHOUT_TASK:
        return True
    if kind.__name__ in _NOT_TEXT:
        return False
    tasks = (models.ImageClassifier,) if domain == "vision" else (models.TextClassifier, models.MaskedLM) if domain == "nlp" else ()
    return any(getattr(each, "backbone_cls", None) is kind for task in tasks for each in (task, *presets.subclasses(task)))


# of data.validation, under a head that is fitted at once
FOLDS_CHOOSE = "none: parts held out of train in turn choose what there is to choose"
BLENDED = "its answers and those of a kernel machine averaged, both fitted at once; finetune: {name: frozen} for the encoder alone"


@dataclass(frozen=True)
class Proposal:
    """An encoder, or None, and what the experiment's header says of it, a line or nothing."""

    preset: Preset | None = None
    notes: tuple[str, ...] = ()


def propose(asked: Asked, domain: str, *, reason: str, gain: str, fits: Callable[[Preset], bool] | None = None) -> Proposal:
    """What `quartet new` proposes.

    Args:
        asked: its encoder is a preset's name, "none", or None: propose one that is at hand.
        domain: of the task.
        reason: why these data gain by an encoder, "since ..."; empty where they are not known to: then only a named one is proposed.
        gain: what one would gain, where none is at hand.
        fits: whether one that is at hand can be proposed; default: each can.

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
    every = _there(domain)
    there = [preset for preset in every if fits is None or fits(preset)]
    if every and not there:
        return Proposal(None, (f"None of the encoders at hand fits these data: with one that does, {gain} (docs/pretrained.md).",))
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

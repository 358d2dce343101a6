"""Which encoders there are: those on this machine, by their headers, and KerasHub's own, by what it says of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pipelines.base.errors import ConfigError
from pipelines.encoders import presets
from pipelines.encoders.locate import in_kaggle_cache, presets_folder

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

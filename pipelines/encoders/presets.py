"""A pretrained encoder on this machine: what it is, by its headers alone, and its loading.

Everything that can be wrong with a preset is one ConfigError before any weight is read. No code comes from a preset: a pickle is
never read, and only classes of Keras and keras-hub are built from its settings.
"""

import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pipelines.base import formatting
from pipelines.base.errors import ConfigError
from pipelines.base.inside import all_below, check_regular
from pipelines.encoders import arrays
from pipelines.encoders.locate import WEIGHTS, locate, on_disk, parameters, read_json, weight_files
from pipelines.machine import memory
from pipelines.machine.startup import start_tensorflow

Form = Literal["keras", "huggingface", "timm", "arrays"]
_PICKLES = (".bin", ".ckpt", ".joblib", ".pickle", ".pkl", ".pt", ".pth")
_NAMES = {"vision": "images", "nlp": "text", "speech": "speech"}
_TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spiece.model")
_SERIALISED = ("config.json", "tokenizer.json", "image_converter.json", "audio_converter.json", "preprocessor.json", "task.json")
_READING = threading.RLock()
_RUN_CODE = ("Lambda", "__lambda__", "function", "TFSMLayer", "TorchModuleWrapper", "JaxLayer", "FlaxLayer")
_LICENCES = (("Apache License", "Apache-2.0"), ("MIT License", "MIT"), ("BSD 3-Clause", "BSD-3-Clause"))
MOST = 64 << 20  # bytes of a text file beside the weights that is looked into


def hub(key: str = "model") -> Any:
    """The module keras_hub. Raises ConfigError where it is not installed."""
    start_tensorflow()  # which it imports
    try:
        import keras_hub
    except ImportError as error:
        raise ConfigError(f"{key}: pretrained needs keras-hub, which cannot be imported here ({error}): "
                          "pip install 'keras-quartet[pretrained]'") from None
    return keras_hub


@dataclass(frozen=True)
class Preset:
    """A pretrained encoder in a folder of this machine, checked.

    Attributes:
        handle: as the experiment names it.
        form: how it is stored; a name of a hub or of KerasHub is a folder of a cache here.
        backbone: name of its class in keras_hub.models.
        domain: "vision", "nlp" or "speech"; of a backbone that is none of them alone, such as an image-text model, "".
        weights: number of parameters.
        key: the setting that named it, for messages.
        unread: pickles that lie beside the weights, by their paths in the folder; nothing opens them.
    """

    handle: str
    folder: Path
    form: Form
    backbone: str
    domain: str
    weights: int
    files: tuple[Path, ...]
    config: dict[str, Any] = field(repr=False)
    key: str = "model.preset"
    unread: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """A folder's own name, so that no path of a machine is recorded; else the handle."""
        return self.handle if "://" in self.handle else Path(self.handle).expanduser().name or self.folder.resolve().name

    @property
    def bytes(self) -> int:
        """Of the weights, on disk."""
        return sum(path.stat().st_size for path in self.files)

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of the weights; of several files, of one after the other."""
        digest = hashlib.sha256()
        for path in self.files:
            with open(path, "rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
        return digest.hexdigest()

    @cached_property
    def licence(self) -> str | None:
        """As SOURCE.md, the README's front matter or LICENSE state it; None where nothing does."""
        notes = self._text("SOURCE.md")
        stated = re.search(r"(?im)^\W*licen[cs]e:[ \t]*([\w.+-]+)", notes) or re.search(
            r"(?ims)\A---\s.*?^license:[ \t]*([\w.+-]+).*?^---", self._text("README.md"))
        if stated:
            return stated[1].rstrip(".")
        text = self._text("LICENSE")
        return next((name for words, name in _LICENCES if words in text), None)

    @cached_property
    def source(self) -> str | None:
        """Where the weights come from: the hub's handle, or what SOURCE.md or config.json state; None where nothing does."""
        if "://" in self.handle:
            return self.handle
        stated = re.search(r"(?im)^\W*upstream:\s*([^\s,;]+)", self._text("SOURCE.md"))
        named = str(self.config.get("_name_or_path"))  # of a repository, or a folder of whoever saved it
        return stated[1] if stated else named if re.fullmatch(r"[\w.-]+/[\w.-]+", named) else hub_handle(self.handle)

    def _text(self, name: str) -> str:
        path = self.folder / name
        return path.read_text("utf-8", "replace") if path.is_file() and path.stat().st_size < MOST else ""

    def require_domain(self, domain: str) -> None:
        """Raises ConfigError for a preset of another domain."""
        if self.domain != domain:
            of = f"is for {_NAMES[self.domain]}" if self.domain else "is not an encoder of one domain"
            raise ConfigError(f"{self.key}: {self.handle} ({self.backbone}) {of}, and the task needs an encoder for {_NAMES[domain]}")

    def require_tokenizer(self) -> None:
        """Raises ConfigError where the preset has none."""
        if not any((self.folder / name).is_file() for name in _TOKENIZERS):
            raise ConfigError(f"{self.key}: {self.handle} has no tokenizer ({' or '.join(_TOKENIZERS[:2])} in {self.folder}); without the "
                              "one that it was trained with, its weights mean nothing: copy the preset again, whole")


def builtin() -> dict[str, Any]:
    """KerasHub's own presets by name, each with `metadata` and `kaggle_handle`."""
    return hub().models.Backbone.presets


def hub_handle(name: str) -> str | None:
    """The handle from which KerasHub downloads one of its own presets."""
    return builtin().get(name, {}).get("kaggle_handle")


def find(handle: str, *, domain: str | None = None, key: str = "model.preset") -> Preset:
    """A preset by its name, checked by its headers; no weights are read.

    Args:
        handle: see `pipelines.encoders.locate.locate`.
        domain: that it must be of; None for any.
        key: the setting that named it, for messages.

    Raises:
        ConfigError: it is not to be had, not a preset, damaged, holds a pickle, is too large for memory, of another domain, or a text
            encoder without tokenizer.
    """
    there = on_disk(handle)
    if there is not None and (other := arrays.kind_of(there)):
        preset = find_arrays(handle, other, key=key)
        if domain is not None:
            preset.require_domain(domain)
        if other.model:
            raise ConfigError(f"{key}: {handle} ({other.name}) is no encoder; model.name: {other.model} takes it")
        return preset
    folder = locate(handle, key, hub(key).models.Backbone.presets)
    if not (folder / "config.json").is_file():
        raise ConfigError(f"{key}: {handle} is no preset: there is no config.json in {folder}; name the folder that keras-hub's "
                          "save_to_preset wrote, or one from Hugging Face or timm with config.json and model.safetensors")
    unread = _check_files(folder, key)
    config = read_json(folder / "config.json")
    form = _form(config, folder, key)
    kind = _backbone(config, form, folder, key)
    files = weight_files(folder)
    count = sum(parameters(path) for path in files)
    needed, free = 4 * count, memory.free()
    if needed > free:
        raise ConfigError(f"{key}: {handle} is too large for this machine: its {count:,} weights take {formatting.size(needed)}, and "
                          f"{formatting.size(free)} of memory are free; take a smaller encoder, or close other programs")
    preset = Preset(handle, folder, form, kind.__name__, domain_of(kind), count, tuple(files), config, key, unread)
    if domain is not None:
        preset.require_domain(domain)
    if domain == "nlp":
        preset.require_tokenizer()
    return preset


def find_arrays(handle: str, kind: arrays.Kind, *, key: str = "model.preset") -> Preset:
    """A preset of plain arrays, of whose weights only headers are read. Raises ConfigError where it is none of that kind."""
    folder = locate(handle, key, {})
    count = arrays.weights(folder, handle, kind, key)
    return Preset(handle, folder, "arrays", kind.name, kind.domain, count, (folder / arrays.FILE,), {}, key)


def _check_files(folder: Path, key: str) -> tuple[str, ...]:
    """The pickles beside weights of another form, which nothing reads.

    Raises:
        ConfigError: something is neither a file nor a folder; a pickle has the name of a file that is read, or there are no other weights.
    """
    unread = []
    for path in sorted(all_below(folder)):
        if path.is_dir():
            continue
        check_regular(path, key, ConfigError)
        named = path.suffix.lower() in _PICKLES
        if not named and not _pickled(path):
            continue
        if not named or not any((folder / name).is_file() for name in WEIGHTS):
            raise ConfigError(f"{key}: {path} is or may be a pickle, which can run any code when it is read; nothing was read. "
                              + ("Convert it first (save_pretrained of transformers writes safetensors)" if named else
                                 "Its name is of another form: copy the preset again from a source that you trust"))
        unread.append(str(path.relative_to(folder)))
    return tuple(unread)


def _pickled(path: Path) -> bool:
    with open(path, "rb") as file:
        start = file.read(2)
    return start[:1] == b"\x80" and start[1:] in (b"\x02", b"\x03", b"\x04", b"\x05")


def _form(config: dict[str, Any], folder: Path, key: str) -> Form:
    forms: dict[str, Form] = {"registered_name": "keras", "model_type": "huggingface", "architecture": "timm"}
    form = next((form for name, form in forms.items() if name in config), None)
    if form is None:
        raise ConfigError(f"{key}: {folder / 'config.json'} describes no preset of KerasHub, Hugging Face or timm (none of "
                          f"{', '.join(forms)} is in it); save_to_preset of keras-hub writes one")
    return form


def _backbone(config: dict[str, Any], form: Form, folder: Path, key: str) -> Any:
    """The class of a preset's backbone."""
    place = folder / "config.json"
    if form == "keras":
        for path in (folder / name for name in _SERIALISED):
            if path.is_file():
                _trusted(read_json(path), str(path))
        return _named(hub().models, str(config["registered_name"]).rpartition(">")[2], str(place), hub().models.Backbone)
    try:
        import safetensors  # noqa: F401  both forms need it
        from keras_hub.src.utils.preset_utils import get_preset_loader

        return get_preset_loader(str(folder)).check_backbone_class()
    except ImportError as error:
        raise ConfigError(f"{key}: {folder} needs {error.name or error}: pip install 'keras-quartet[pretrained]'") from None
    except Exception as error:  # ValueError, or a KeyError in the settings
        what = config.get("model_type") or config.get("architecture")
        raise ConfigError(f"{key}: {place}: KerasHub cannot convert a {what} model ({(str(error).splitlines() or [''])[0]}); take an "
                          "encoder of another kind (quartet encoders lists some), or one that is a Keras preset already") from None


def domain_of(kind: Any) -> str:
    """The domain of a backbone's class, by what keras-hub turns raw input into for it; "" for several or none."""
    layers, tokenizers = hub().layers, hub().tokenizers

    def takes(base: Any) -> bool:
        return any(getattr(each, "backbone_cls", None) is kind for each in subclasses(base))

    sound, image, text = takes(layers.AudioConverter), takes(layers.ImageConverter), takes(tokenizers.Tokenizer)
    if sound and not image:
        return "speech"
    return {(True, False): "vision", (False, True): "nlp"}.get((image, text), "")


def subclasses(base: Any) -> Iterator[Any]:
    """All classes below a class."""
    for each in base.__subclasses__():
        yield each
        yield from subclasses(each)


def load(preset: Preset, *, weights: bool = True) -> Any:
    """The backbone, a model named `backbone`, in the current precision policy; without `weights` with meaningless ones.

    Raises:
        ConfigError: settings and weights do not fit each other.
    """
    try:
        with _undrawn():
            return hub().models.Backbone.from_preset(str(preset.folder), load_weights=weights, name="backbone")
    except ConfigError:
        raise
    except Exception as error:  # keras-hub raises many kinds: a wrong shape, a missing array, a bad setting
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"{preset.key}: {preset.handle}: {preset.backbone} cannot be built from config.json and the weights beside it "
                          f"({reason}); they do not belong together, or a file is damaged: copy the preset again") from error


@contextlib.contextmanager
def _undrawn() -> Iterator[None]:
    """Inside, a new weight of this thread is zeros where it would be drawn: drawing those of MiniLM takes longer than reading them."""
    import keras

    with _READING:  # what is put back is Keras' own, and not another thread's
        make, kinds, mine = keras.Variable.__init__, keras.initializers, threading.get_ident()
        drawing = kinds.VarianceScaling, kinds.TruncatedNormal, kinds.RandomNormal, kinds.RandomUniform

        def zeros(self: Any, initializer: Any, *further: Any, **options: Any) -> None:
            drawn = isinstance(initializer, drawing) and threading.get_ident() == mine
            make(self, "zeros" if drawn else initializer, *further, **options)

        keras.Variable.__init__ = zeros
        try:
            yield
        finally:
            keras.Variable.__init__ = make


def record(preset: Preset) -> dict[str, Any]:
    """What a run keeps of where its encoder came from (see pipelines.encoders.settings.EncoderRecord)."""
    return {"name": preset.name, "source": preset.source, "checksum": preset.checksum, "licence": preset.licence, "weights": preset.weights,
            **({"unread": list(preset.unread)} if preset.unread else {})}


def description(thing: Any) -> dict[str, Any]:
    """Class and settings of a backbone, tokenizer or converter, JSON values, from which `rebuilt` builds it without its preset."""
    import keras

    config = json.loads(json.dumps(keras.saving.serialize_keras_object(thing)["config"]))
    config.pop("dtype", None)  # the precision is the run's
    return {"class": type(thing).__name__, "config": config}


def rebuilt(module: Any, described: dict[str, Any]) -> Any:
    """The object that a description is of, with fresh weights.

    Args:
        module: of keras_hub, in which its class is, such as keras_hub.models.

    Raises:
        ConfigError: the module has no such class, or the settings name anything but classes of Keras and keras-hub.
    """
    place = "facts of the run"
    _trusted(described["config"], place)
    return _named(module, described["class"], place).from_config(described["config"])


def _named(module: Any, name: str, place: str, base: type = object) -> Any:
    """A class of keras-hub by its name, and nothing else, so that no file can name code."""
    kind = getattr(module, name, None)
    if not name.isidentifier() or not isinstance(kind, type) or not issubclass(kind, base):
        raise ConfigError(f"{place}: keras-hub has no {name}; the version differs, or it is no encoder")
    return kind


def _trusted(value: Any, place: str) -> None:
    """Raises ConfigError where serialised settings name anything but classes of Keras and keras-hub, or one that runs code."""
    if isinstance(value, dict):
        module, name = value.get("module"), value.get("class_name")
        root = str(module or "keras").partition(".")[0]
        if name is not None and (root not in ("keras", "keras_hub") or name in _RUN_CODE):
            raise ConfigError(f"{place}: names {module}.{name}, which is no class of Keras or keras-hub; no code of a preset is executed")
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _trusted(each, place)

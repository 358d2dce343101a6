"""What every section of an experiment is made of: settings with a meaning, checked strictly. Imports no TensorFlow."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

if TYPE_CHECKING:
    from typing import Annotated as Overridable
else:
    class Overridable:
        """`Overridable[Any, Literal["a", "b"]]` is the second, and to type checkers the first: a derived section may take other values."""

        def __class_getitem__(cls, types: tuple[Any, Any]) -> Any:
            return types[1]


Added = TypeVar("Added", bound="Section")
ADDED: "dict[type[Section], list[type[Section]]]" = {}  # section -> those whose settings extensions have added (`variants.add_settings`)


def setting(default: Any, meaning: str, *, unit: str = "", path: bool | Literal["data"] = False, names: str = "", run: bool = False,
            preset: bool = False, search: bool | str | None = None, **limits: Any) -> Any:
    """A setting: its default (`...` where one must be given), meaning, unit, and pydantic's limits.

    Args:
        default: the value when the experiment does not say; a class or function to call for a fresh one.
        meaning: one sentence for the reference page.
        unit: what the number counts ("examples", "s", "px", "share"), empty for none.
        path: the value is a file or folder that must exist before any work starts; outside of `data`, --require-signature asks for its
            signature, unless it is "data".
        run: the value is a finished run: its folder, or its name below the folder of runs; it is looked for when training begins.
        preset: the value is a pretrained encoder, as `pipelines.encoders.locate.locate` has it.
        names: the Keras module, such as "keras.optimizers", that must have a class of that name, in whatever case.
        search: whether a search may vary it, or why not; None: it may, but for the settings of `data`, which change what trials are
            judged on.
        limits: `ge`, `gt`, `le`, `lt`, `min_length`, `pattern`, ... as pydantic's Field takes them.
    """
    extra: dict[str, Any] = {"unit": unit, "path": path, "run": run, "preset": preset, "names": names, "search": search}
    if callable(default):
        return Field(default_factory=default, description=meaning, json_schema_extra=extra, **limits)
    return Field(default, description=meaning, json_schema_extra=extra, **limits)


class Section(BaseModel):
    """A mapping in the YAML: unknown keys and wrong types are errors, and nothing changes after the check."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, protected_namespaces=())
    # of settings that an extension adds to `train`: with one of them no example of train shows in the weights (`schema.protected_by`)
    protects_examples: ClassVar[bool] = False

    @model_serializer(mode="wrap")
    def _without_unset(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Of the settings that extensions add, those that were set: a run that uses none of them is read without the extension, too."""
        values: dict[str, Any] = dump(self)
        for added in ADDED.get(type(self), ()):
            for name in added.model_fields.keys() - self.added(added).changed():
                values.pop(name, None)
        return values

    def conflicts(self, experiment: Any) -> list[tuple[str, str]]:
        """Of settings that an extension adds: (dotted setting, why) for each of the experiment that cannot be used with them."""
        return []

    def problems(self) -> list[tuple[str, str]]:
        """Checks across the settings of this section and of those in it: (dotted setting, what is wrong and what to do) for each that
        does not hold. A section with checks of its own adds them."""
        within = ((name, section) for name in type(self).model_fields if isinstance(section := getattr(self, name), Section))
        found = [(f"{name}.{setting}", text) for name, section in within for setting, text in section.problems()]
        return found + [problem for added in ADDED.get(type(self), ()) for problem in self.added(added).problems()]

    def added(self, section: type[Added]) -> Added:
        """The settings that an extension has added to this section, as the section in which it declared them."""
        return section.model_construct(**{name: vars(self)[name] for name in section.model_fields if name in vars(self)})

    def changed(self) -> set[str]:
        """Names of the settings that differ from their defaults."""
        return {name for name, field in type(self).model_fields.items()
                if getattr(self, name) != field.get_default(call_default_factory=True)}


class WithHeads(Section):
    """A network with attention, whose `width` is divided over its `heads`, unless it has a `head_size`."""

    def problems(self) -> list[tuple[str, str]]:
        found, own = super().problems(), vars(self)
        heads = own["heads"]
        if isinstance(heads, int) and own.get("head_size") is None and own["width"] % heads:
            found.append(("width", f"{own['width']} is not a multiple of heads = {heads}"))
        return found


class PrunableBlocks(WithHeads):
    """A transformer whose blocks may each have heads and units of their own: settings `width`, `depth`, `heads`, `head_size`, `hidden`."""

    def problems(self) -> list[tuple[str, str]]:
        found, own = super().problems(), vars(self)
        for name in ("heads", "hidden"):
            value, depth = own[name], own["depth"]
            if isinstance(value, list) and len(value) != depth:
                found.append((name, f"{value} has {len(value)} numbers, and depth is {depth}; one number, or one for each block"))
        if isinstance(own["heads"], list) and own["head_size"] is None:
            found.append(("head_size", "must be given where heads is a list"))
        return found

    def of_block(self, name: str, number: int) -> int:
        """`heads` or `hidden` of a block, from 1."""
        value = vars(self)[name]
        return int(value[number - 1] if isinstance(value, list) else value)

    @property
    def size_of_head(self) -> int:
        own = vars(self)
        return int(own["head_size"] or own["width"] // own["heads"])

    @property
    def prunable(self) -> list[str]:
        return [f"block{number}_{part}" for number in range(1, vars(self)["depth"] + 1) for part in ("attention", "dense1")]

    def pruned(self, counts: Mapping[str, int]) -> dict[str, Any]:
        blocks = range(1, vars(self)["depth"] + 1)
        return {"heads": [counts[f"block{number}_attention"] for number in blocks],
                "hidden": [counts[f"block{number}_dense1"] for number in blocks], "head_size": self.size_of_head}


Share = Annotated[float, Field(ge=0.0, lt=1.0)]

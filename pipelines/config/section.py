"""What every section of an experiment is made of: settings with a meaning, checked strictly. Imports no TensorFlow."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field


def setting(default: Any, meaning: str, *, unit: str = "", path: bool = False, names: str = "", search: bool | str | None = None,
            **limits: Any) -> Any:
    """A setting: its default (`...` where one must be given), meaning, unit, and pydantic's limits.

    Args:
        default: the value when the experiment does not say; a class or function to call for a fresh one.
        meaning: one sentence for the reference page.
        unit: what the number counts ("examples", "s", "px", "share"), empty for none.
        path: the value is a file or folder that must exist before any work starts.
        names: the Keras module, such as "keras.optimizers", that must have a class of that name, in whatever case.
        search: whether a search may vary it, or why not; None: it may, but for the settings of `data`, which change what trials are
            judged on.
        limits: `ge`, `gt`, `le`, `lt`, `min_length`, `pattern`, ... as pydantic's Field takes them.
    """
    extra: dict[str, Any] = {"unit": unit, "path": path, "names": names, "search": search}
    if callable(default):
        return Field(default_factory=default, description=meaning, json_schema_extra=extra, **limits)
    return Field(default, description=meaning, json_schema_extra=extra, **limits)


class Section(BaseModel):
    """A mapping in the YAML: unknown keys and wrong types are errors, and nothing changes after the check."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, protected_namespaces=())

    def problems(self) -> list[tuple[str, str]]:
        """Checks across the settings of this section and of those in it: (dotted setting, what is wrong and what to do) for each that
        does not hold. A section with checks of its own adds them."""
        within = ((name, section) for name in type(self).model_fields if isinstance(section := getattr(self, name), Section))
        return [(f"{name}.{setting}", text) for name, section in within for setting, text in section.problems()]


class WithHeads(Section):
    """A network with attention, whose `width` is divided over its `heads`."""

    def problems(self) -> list[tuple[str, str]]:
        found, own = super().problems(), vars(self)
        if own["width"] % own["heads"]:
            found.append(("width", f"{own['width']} is not a multiple of heads = {own['heads']}"))
        return found


Share = Annotated[float, Field(ge=0.0, lt=1.0)]

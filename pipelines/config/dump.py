"""An experiment as YAML that says everything, so that it trains the same again by itself."""

from typing import Any

import yaml

from pipelines.config.schema import Experiment
from pipelines.config.yaml_text import scalar


def resolved_yaml(experiment: Experiment) -> str:
    """Every setting, defaults included, in the order of the schema; `load` reads it back into an equal experiment."""
    return to_yaml(experiment.model_dump(mode="python"))


def to_yaml(values: dict[str, Any]) -> str:
    """Plain values as YAML: sections as blocks, lists of plain values in one line, text quoted where any reader would mistake it."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000, default_flow_style=False)


def inline(value: Any) -> str:
    """One value as YAML in one line, for text that is put together by hand."""
    text = yaml.dump(value, Dumper=_Dumper, allow_unicode=True, width=100_000, default_flow_style=True)
    return text.removesuffix("...\n").strip()


class _Dumper(yaml.SafeDumper):
    """SafeDumper without aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    # SafeDumper quotes what YAML 1.1 would mistake ("yes", "012"); YAML 1.2 also takes "1e-3" for a number.
    style = None if isinstance(scalar(text), str) and "\n" not in text else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _number(dumper: yaml.SafeDumper, value: float) -> yaml.Node:
    text = repr(value).lower()
    if "e" in text and "." not in text:
        text = text.replace("e", ".0e")  # YAML 1.1 readers take 1e-05 for text
    return dumper.represent_scalar("tag:yaml.org,2002:float", text)


def _list(dumper: yaml.SafeDumper, values: list[Any]) -> yaml.Node:
    flat = not any(isinstance(value, (dict, list)) for value in values)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=flat or None)


def _mapping(dumper: yaml.SafeDumper, values: dict[str, Any]) -> yaml.Node:
    return dumper.represent_mapping("tag:yaml.org,2002:map", values.items(), flow_style=not values or None)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(float, _number)
_Dumper.add_representer(list, _list)
_Dumper.add_representer(dict, _mapping)

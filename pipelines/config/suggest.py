"""Which setting was meant by a key that there is not: near in spelling, or right in another section."""

from collections.abc import Mapping
from typing import Any

from pipelines.config.messages import likeness, nearest
from pipelines.config.problems import Route, dotted
from pipelines.config.schema import Section
from pipelines.config.tree import Setting, default, settings

# Names that other tools use, too far from ours in spelling.
SYNONYMS = {"lr": "train.learning_rate.peak", "bs": "train.batch_size", "wd": "train.optimizer.weight_decay", "gpus": "train.devices",
            "gpu": "train.devices", "patience": "train.early_stopping.patience", "amp": "train.precision", "dtype": "train.precision",
            "mixed_precision": "train.precision", "jit_compile": "train.xla", "clipnorm": "train.clip.norm",
            "global_clipnorm": "train.clip.global_norm", "gradient_accumulation_steps": "train.accumulation"}
_SURE = 0.85  # a sibling this alike is a slip of the finger, even where another section has the very name
_LIKE = 0.8  # how alike a name in another section must be


def suggest(experiment: type[Section], section: type[Section], route: Route, key: str, values: Mapping[str, Any]) -> list[str]:
    """Dotted names that `key` in `section` (at `route`) may stand for, best first; more than one only where equally good."""
    prefix = f"{dotted(route)}." if route else ""
    sibling = nearest(key, section.model_fields)
    if sibling and likeness(key, sibling) >= _SURE:
        return [prefix + sibling]
    candidates = [each for each in settings(experiment) if "*" not in each.route and each.exists_in(values)]
    same = [each for each in candidates if likeness(each.route[-1], key) == 1.0]
    if same:
        ranks = [_distance(each, route) for each in same]
        return [each.name for each, rank in zip(same, ranks) if rank == min(ranks)][:3]
    if sibling:
        return [prefix + sibling]
    if known := next((each.name for each in candidates if each.name == SYNONYMS.get(key.lower())), None):
        return [known]
    alike = max(candidates, key=lambda each: likeness(each.route[-1], key), default=None)
    return [alike.name] if alike and likeness(alike.route[-1], key) >= _LIKE else []


def nearest_name(experiment: type[Section], name: str, values: Mapping[str, Any]) -> str | None:
    """The setting that a wrong dotted name stands for: alike as a whole, or with the same last part elsewhere."""
    names = [each.name for each in settings(experiment) if "*" not in each.route and not each.shape.sections and each.exists_in(values)]
    last = name.rpartition(".")[2]
    same = [each for each in names if each.rpartition(".")[2] == last]
    return nearest(name, same, 0.0) if same else nearest(name, names)


def _distance(setting: Setting, route: Route) -> tuple[int, int, bool]:
    common = 0
    for ours, theirs in zip(setting.route, route):
        if ours != theirs:
            break
        common += 1
    return (-common, len(setting.route), default(setting.field) is None)

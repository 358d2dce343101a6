"""The words of messages: what a setting may be, what was given, and what was probably meant."""

import difflib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from pipelines.config.problems import Route, dotted
from pipelines.config.schema import Section
from pipelines.config.tree import Kind, Setting, Shape, default, settings, shape
from pipelines.config.yaml_text import scalar

_SINGULAR = {int: "a whole number", float: "a number", bool: "true or false", str: "text", dict: "a mapping", list: "a list"}
_PLURAL = {int: "whole numbers", float: "numbers", bool: "true or false", str: "texts", dict: "mappings", list: "lists"}
_SIGNS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<", "multiple_of": "a multiple of"}


def listed(words: Iterable[Any], last: str = "or") -> str:
    """a, b or c."""
    texts = [str(word) for word in words]
    return f" {last} ".join(part for part in (", ".join(texts[:-1]), texts[-1]) if part) if texts else "none"


def nearest(word: str, words: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The word most like `word`, whatever case, hyphens and underscores; None where none is like it."""
    plain: dict[str, str] = {}
    for each in words:
        plain.setdefault(_plain(each), each)
    found = difflib.get_close_matches(_plain(word), plain, n=1, cutoff=cutoff)
    return plain[found[0]] if found else None


def likeness(word: str, other: str) -> float:
    """0 (nothing in common) to 1 (the same but for case, hyphens and underscores)."""
    return difflib.SequenceMatcher(None, _plain(word), _plain(other)).ratio()


def did_you_mean(word: str, words: Iterable[str], cutoff: float = 0.6) -> str:
    """`; did you mean X?`, or nothing."""
    found = nearest(word, words, cutoff)
    return f"; did you mean {found}?" if found else ""


def show(value: Any, most: int = 60) -> str:
    """A value as YAML would have it, texts in quotes, cut where it is long."""
    text = _show(value)
    return text if len(text) <= most else text[: most - 3] + "..."


def describe(found: Shape, unit: str = "") -> str:
    """What a setting may be: `a whole number >= 1 (epochs)`, `one of constant, cosine or step`."""
    options: list[str] = []
    counted = next((kind for kind in reversed(found.kinds) if kind.base is not Literal and kind.base is not str), None)
    for kind in _distinct(found):
        if kind.base in (Literal, bool):
            options += [_show_choice(choice) for choice in kind.choices or (True, False)]
        else:
            options.append(_describe(kind) + (f" ({unit})" if unit and kind is counted else ""))
    if found.nullable:
        options.append("null")
    only_choices = len(options) > 2 and all(kind.base is Literal for kind in found.kinds)
    return ("one of " if only_choices else "") + listed(options) + (f" ({unit})" if unit and not counted else "")


def remedies(value: Any, found: Shape) -> Iterator[tuple[Any, str]]:
    """What YAML or a habit may have made of the value that was meant: (that value, what to write), the likeliest first.

    The caller checks whether the setting takes that value.
    """
    numeric = any(kind.base in (int, float) or any(isinstance(choice, (int, float)) for choice in kind.choices) for kind in found.kinds)
    if isinstance(value, str):
        yield from _of_text(value, numeric)
    elif isinstance(value, bool):
        for word in ("on", "yes") if value else ("off", "no", "none"):
            if any(word in kind.choices for kind in found.kinds):
                yield word, f"write {word}"
    elif isinstance(value, (int, float)):
        if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
            yield int(value), f"write {int(value)}"
        if value in (0, 1):
            yield bool(value), f"write {_show(bool(value))}"
    if isinstance(value, (bool, int, float)) and not numeric:
        what = "not text" if isinstance(value, bool) else "a number"
        yield _show(value), f"{_show(value)} is {what} in YAML; write '{_show(value)}' in quotes"
    items = found.kind(list)
    if items and isinstance(value, (int, float, str)) and not isinstance(value, bool):
        whole = [value] * (dict(items.limits).get("min_length") or 1)
        yield whole, f"write [{', '.join(map(spell, whole))}]"


def _of_text(text: str, numeric: bool) -> Iterator[tuple[Any, str]]:
    value, word = scalar(text), text.strip().lower()
    if word in ("none", "nil", "null", "~", "undefined"):
        yield None, "write null, without quotes"
    if isinstance(value, bool):
        yield value, f"its quotes make it text; write {word}"
    elif word in ("yes", "on", "y", "t", "true", "no", "off", "n", "f", "false"):
        meant = word[0] in "yt" or word == "on"
        yield meant, f"YAML reads {text} as text; write {_show(meant)}"
    if not numeric:
        return
    if isinstance(value, (int, float)):
        yield value, f"its quotes make it text; write {text}"
    if re.fullmatch(r"[-+]?\d{1,3}([,_' ]\d{3})+", word):
        digits = re.sub("[^-+0-9]", "", word)
        yield int(digits), f"write {digits}"
    if re.fullmatch(r"[-+]?\d+,\d+", word):
        point = word.replace(",", ".")
        yield float(point), f"write {point}, with a decimal point"
    if percent := re.fullmatch(r"([-+]?[\d.]+) ?%", word):
        share = scalar(percent[1])
        if isinstance(share, (int, float)):
            yield share / 100, f"write {share / 100:g}"
    if quantity := re.fullmatch(r"([-+]?[\d.]+) ?[a-z]+", word):
        yield scalar(quantity[1]), f"write the number alone, such as {quantity[1]}"


def no_number(value: Any) -> str:
    """Why a value that is near a number is none; empty for others."""
    if isinstance(value, float) and not math.isfinite(value):
        return "it must be finite"
    summed = isinstance(value, str) and re.fullmatch(r"[\d.]+ ?[*/+^-]+ ?[\d.]+", value.strip())
    return "sums are not worked out; write the result" if summed else ""


def _describe(kind: Kind, plural: bool = False) -> str:
    words = _PLURAL if plural else _SINGULAR
    if kind.section:
        return f"{'mappings' if plural else 'a mapping'} of {listed(kind.section.model_fields, 'and')}"
    if kind.base is list:
        items = shape(kind.item)
        low, high = (dict(kind.limits).get(key) for key in ("min_length", "max_length"))
        inner = listed(_describe(each, plural=True) if each.base is not Literal else listed(map(_show_choice, each.choices))
                       for each in _distinct(items)) or "sections"
        if low is not None and low == high:
            return f"{'lists' if plural else 'a list'} of {low} {inner}"
        size = f"{low} to {high} " if low and high else f"{low} or more " if low else f"up to {high} " if high else ""
        return f"{'lists' if plural else 'a list'} of {size}{inner}"
    if kind.base is dict:
        inside = _distinct(shape(kind.item))
        if any(each.base is Any for each in inside):
            return words[dict]
        return f"{words[dict]} of names to {listed(_describe(each, plural=True) for each in inside)}"
    if kind.base is Any:
        return "anything"
    return f"{words.get(kind.base, kind.base)}{_range(dict(kind.limits))}"


def _distinct(found: Shape) -> list[Kind]:
    """Without whole numbers where any number will do."""
    return [kind for kind in found.kinds if not (kind.base is int and not kind.limits and found.kind(float))]


def _range(limits: dict[str, Any]) -> str:
    if "ge" in limits and "le" in limits:
        return f" from {limits['ge']:g} to {limits['le']:g}"
    bounds = [f"{sign} {limits[name]:g}" for name, sign in _SIGNS.items() if name in limits]
    lengths = [f"{words} {limits[name]} long" for name, words in (("min_length", "at least"), ("max_length", "at most")) if name in limits]
    pattern = [f"matching {limits['pattern']}"] if "pattern" in limits else []
    return f" {' and '.join(bounds + lengths + pattern)}" if bounds + lengths + pattern else ""


def spell(value: Any) -> str:
    """A value as one would type it: like `show`, but for text without quotes where YAML needs none."""
    return value if isinstance(value, str) and re.fullmatch(r"[A-Za-z_][\w./-]*", value) and scalar(value) == value else show(value)


def _show(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return repr(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_show(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_show(item) for item in value) + "]"
    return str(value)


def _show_choice(choice: Any) -> str:
    return choice if isinstance(choice, str) else _show(choice)


def _plain(word: str) -> str:
    return word.lower().replace("-", "_").replace(" ", "_")


def shown_changes(changes: Sequence[tuple[str, Any, Any]]) -> str:
    """A line for each setting that differs."""
    more = f"\n  and {len(changes) - 10} more" if len(changes) > 10 else ""
    return "\n".join(f"  {name}: {show(there)} there, {show(here)} now" for name, there, here in changes[:10]) + more


def differences(there: Any, here: Any, name: str = "") -> list[tuple[str, Any, Any]]:
    """Settings that differ between two experiments: (dotted name, value there, value here)."""
    if isinstance(there, dict) and isinstance(here, dict):
        return [difference for key in sorted(set(there) | set(here), key=str)
                for difference in differences(there.get(key), here.get(key), f"{name}.{key}" if name else str(key))]
    return [] if there == here and type(there) is type(here) else [(name, there, here)]


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

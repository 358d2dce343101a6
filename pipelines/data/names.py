"""Facts in file names: the class, and people, scenes or devices that should stay in one split. Imports no TensorFlow.

A name is cut into fields: `3/3_theo_12.wav` has the field theo. A field is a group where it has few values, each with several files
of more than one class, so that a random split would put the same speaker in both.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np

from pipelines.base.errors import DataError

MARKS = r"[^\W_]+"  # a field: letters and digits
BETWEEN = r"(?:[^\w/]|_)"  # between fields
START, STEP, END = rf"(?:^|/){BETWEEN}*", rf"{MARKS}{BETWEEN}+", r"[^/]*$"  # of a pattern: a file's name, a field before, what is left
FEWEST = 20  # files below which groups are not suspected
EACH = 3  # files of a group on average, at least
REPEATED = 1.5  # files of a group in a class on average, below which numbers just count the files of the class
ACROSS = 0.6  # share of the groups that have files of more than one class
COVERED = 0.98  # share of the names that a pattern must fit


@dataclass(frozen=True)
class Named:
    """A field of the names.

    Attributes:
        pattern: regular expression whose first group matches it in a path.
        values: its distinct values, the most frequent first.
    """

    pattern: str
    values: tuple[str, ...]


def some(values: Sequence[str]) -> str:
    """`a, b, c, d, e, ...: 12 in all`."""
    return ", ".join(values[:5]) + (f", ...: {len(values):,} in all" if len(values) > 5 else "")


def groups_in_names(names: Sequence[str], pattern: str, setting: str = "data.group_pattern") -> list[str]:
    """The first group of `pattern` in each name. Raises DataError for a name without a match."""
    matches = [re.search(pattern, name.replace("\\", "/")) for name in names]
    missing = next((number for number, one in enumerate(matches) if one is None or one[1] is None), None)
    if missing is not None:
        raise DataError(f"{names[missing]}: {setting} {pattern!r} finds nothing in this name")
    return [str(one[1]) for one in matches if one]


def suspected_groups(names: Sequence[str], labels: Sequence[str] | None) -> Named | None:
    """The field that is probably a speaker, patient or scene; None where there is none.

    Args:
        names: paths relative to the data's folder, with `/`.
        labels: the class of each; None where there are no classes.
    """
    if len(names) < FEWEST:
        return None
    classes = list(labels) if labels is not None else [""] * len(names)
    fields = _fields(names)
    candidates = []
    for place, (pattern, values) in enumerate(fields):
        counts = Counter(values)
        if not 2 <= len(counts) <= len(names) / 5 or float(np.median(list(counts.values()))) < EACH:
            continue
        if labels is not None and not _crosses(values, classes):
            continue
        if _numbered(counts) and len(names) < REPEATED * len(set(zip(values, classes))):
            continue  # numbers of the files of a class
        if _lettered(values, [own for other, (_, own) in enumerate(fields) if other != place], classes):
            continue  # parts of a recording
        candidates.append((place, Named(pattern, tuple(value for value, _ in counts.most_common())), values))
    numbered = [one for one in candidates if _numbered(one[1].values)]
    words = [one for one in candidates if one not in numbered]
    if words:
        return words[0][1]
    others = {place: [values for other, (_, values) in enumerate(fields) if other != place] for place, _, _ in numbered}
    speaking = [one for one in numbered if not _counts_on(one[2], others[one[0]], classes)]
    if speaking:
        return speaking[0][1]
    return numbered[0][1] if len(numbered) > 1 else None  # a whole grid of people and takes: takes are counted last


def suspected_folders(names: Sequence[str], labels: Sequence[str]) -> tuple[str, ...]:
    """The names of the folders that files lie in below their class folder, where these are probably groups; empty where not."""
    parents = [PurePosixPath(name.replace("\\", "/")).parent.name for name in names]
    counts = Counter(parents)
    if len(names) < FEWEST or not 2 <= len(counts) <= len(names) / EACH or not _crosses(parents, labels):
        return ()
    return tuple(value for value, _ in counts.most_common())


def suspected_labels(names: Sequence[str]) -> Named | None:
    """The field that is probably the class, of files without class folders: few values, each with several files, marked by a word or a
    leading number; None where there is none."""
    best: tuple[float, Named] | None = None
    for pattern, values in _fields(names):
        counts = Counter(values)
        if not 2 <= len(counts) <= min(1000, len(names) / EACH) or (min(counts.values()) * EACH * 5 < max(counts.values()) and (
                np.median(list(counts.values())) < EACH)):
            continue
        words = sum(not value.isdigit() for value in counts) / len(counts)
        first = pattern.startswith(f"{START}(")
        if words < 1 and not first:
            continue
        score = 2 * first + words - np.log(len(counts)) / 20
        if best is None or score > best[0]:
            best = (score, Named(pattern, tuple(value for value, _ in counts.most_common())))
    return best[1] if best else None


def _fields(names: Sequence[str]) -> list[tuple[str, list[str]]]:
    """(pattern, value in each name) of every field that nearly all file names have, counted from the beginning and from the end."""
    stems = [PurePosixPath(name.replace("\\", "/")).stem for name in names]
    cut = [re.findall(MARKS, stem) for stem in stems]
    widths = Counter(map(len, cut))
    width, count = widths.most_common(1)[0]
    patterns: list[str] = []
    if width >= 1 and count >= COVERED * len(names):
        for place in range(width):
            patterns.append(START + STEP * place + f"({MARKS})" + END)
        # letters before digits, as in cat12.jpg and p003s02.wav
        for place in range(width):
            parts = [re.findall(r"[^\W\d_]+|\d+", fields[place]) for fields in cut if len(fields) == width]
            inner = Counter(len(part) for part in parts)
            many, same = inner.most_common(1)[0]
            if many < 2 or many > 4 or same < COVERED * len(names):
                continue
            kinds = [("\\d+" if part.isdigit() else "[^\\W\\d_]+") for part in next(part for part in parts if len(part) == many)]
            for at in range(many):
                inside = "".join(f"({kind})" if number == at else kind for number, kind in enumerate(kinds))
                patterns.append(START + STEP * place + inside + r"(?![^\W_])" + END)
    result = []
    for pattern in patterns:
        compiled = re.compile(pattern)
        matches = [compiled.search(name.replace("\\", "/")) for name in names]
        if all(matches):
            result.append((pattern, [str(match[1]) for match in matches if match]))
    return result


def _numbered(values: Collection[str]) -> bool:
    """Whether the values are numbers, also with the same letters before each, as img12."""
    return len({re.sub(r"\d+", "", value) for value in values}) == 1 and all(re.search(r"\d", value) for value in values)


def _crosses(values: Sequence[str], labels: Sequence[str]) -> bool:
    """Whether most groups have files of more than one class."""
    classes = defaultdict(set)
    for value, label in zip(values, labels):
        classes[value].add(label)
    return sum(len(labels) > 1 for labels in classes.values()) >= ACROSS * len(classes)


def _lettered(values: Sequence[str], others: Sequence[Sequence[str]], labels: Sequence[str]) -> bool:
    """Whether a field letters the files that are alike in all else: A alone, or A and B, or A to C. People are not always A first."""
    if not all(len(value) == 1 and value.isalpha() for value in set(values)):
        return False
    lettered = defaultdict(set)
    for value, *place in zip(values, labels, *others):
        lettered[tuple(place)].add(ord(value.lower()))
    first = min(map(min, lettered.values()))
    begun = [own == set(range(first, first + len(own))) for own in lettered.values()]
    return len({len(own) for own in lettered.values()}) > 1 and sum(begun) >= COVERED * len(begun)


def _counts_on(values: Sequence[str], others: Sequence[Sequence[str]], labels: Sequence[str]) -> bool:
    """Whether a field counts from 0 or 1 among files alike in class and other fields: takes."""
    shared = [other for other in others if len(set(other)) * 2 <= len(other)]
    takes = defaultdict(list)
    for number, value in enumerate(values):
        takes[(labels[number], *(other[number] for other in shared))].append(int(re.sub(r"\D", "", value)))
    counting = [sorted(own) == list(range(min(own), min(own) + len(own))) and min(own) <= 1 for own in takes.values()]
    return sum(counting) >= 0.5 * len(counting)

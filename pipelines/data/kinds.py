"""What kind of thing a column holds - classes, labels, numbers, texts, files, names of its own - for every domain alike, which question
it asks, and the one line about a question that Quartet does not answer yet. Asked of how often each value occurs, so that folders and TFDS
can be asked, too. Imports no TensorFlow.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pipelines.base.errors import DataError
from pipelines.config.draft import Asked
from pipelines.data.columns import FEW, Facts, number_of, plain
from pipelines.data.divide import MANY, seen_once, too_many

Name = Literal["classes", "labels", "numbers", "files", "names", "masks"]

NUMERIC = 0.95  # share of the rows with a number from which a column holds numbers
SEVERAL = 0.02  # share of the values with a separator from which a column holds several labels a row
# separator -> different labels, of different values, below which the parts between them repeat as labels do; commas stand in names, too
SEPARATORS = {";": 1.0, "|": 1.0, ",": 0.7}
MEASURED = 10  # different numbers from which a column that is called like a quantity holds one
_MEASURES = """age price cost amount value score grade rating probability percentage percent rate ratio length width height size weight
    distance duration seconds minutes hours days temperature pressure speed count counts quantity income salary revenue year similarity
    relatedness readability difficulty alter preis kosten betrag wert note gewicht groesse laenge dauer jahr prix valeur poids taille duree
    annee edad precio valor peso anno prezzo leeftijd prijs"""
_LABELLED = "label labels class classes category categories id ids code intent topic type kind klasse classe clase"
_LIST = re.compile(r"\s*\[(.*)\]\s*$", re.DOTALL)
_FILE = re.compile(r"[^\s]+\.[A-Za-z][A-Za-z0-9]{1,4}$")
PICTURES = {"image", "images", "img", "imgs", "input", "inputs", "photo", "photos", "picture", "pictures", "jpegimages", "frames"}
MASKS = {"mask", "masks", "label", "labels", "annotation", "annotations", "segmentation", "segmentations", "segmentationclass", "gt",
          "groundtruth", "ground_truth", "target", "targets", "boxes", "bboxes"}
_PAIRS = [{"premise", "hypothesis"}, {"query", "document"}, {"query", "passage"}, {"question", "sentence"}, {"question", "passage"},
          {"claim", "evidence"}, {"source", "target"}, {"src", "tgt"}, {"anchor", "positive"}, {"original", "translation"}]
_SIDES = [{"1", "2"}, {"a", "b"}, {"0", "1"}, {"left", "right"}, {"one", "two"}, {"first", "second"}]
LANGUAGES = "ar az bg bn cs da de el en es et fa fi fr he hi hr hu id it ja ko lt lv nl no pl pt ro ru sk sl sr sv th tr uk vi zh"


Question = Literal["classes", "labels", "numbers"]


@dataclass(frozen=True)
class Kind:
    """What a column holds.

    Attributes:
        name: classes (one of few), labels (several of few), numbers, files (that it names), names (of its rows: most values occur once),
            masks (folders of pictures and of what is to be predicted of each).
        separator: between several labels in a text; "[" for a list written as text.
        example: a value.
        detail: the range of numbers, or how many values there are, in words.
    """

    name: Name
    separator: str | None = None
    example: str = ""
    detail: str = ""


def kind_of(counts: Mapping[str, int], name: str = "") -> Kind:
    """The kind of a column whose values, as text, occur so often.

    Args:
        name: of the column, which decides where values leave it open: 1 to 87 are ages or classes.
    """
    rows, distinct = sum(counts.values()), len(counts)
    known = {value: number for value in counts if (number := number_of(value)) is not None}
    example = max(counts, key=lambda value: counts[value], default="")
    if sum(counts[value] for value in known) >= NUMERIC * max(1, rows):
        numbers = list(known.values())
        detail = f"{min(numbers):g} to {max(numbers):g}, {distinct:,} different"
        return Kind("numbers" if _measured(numbers, rows, name) else "classes", example=example, detail=detail)
    folders = {plain(value) for value in counts}
    if distinct == 2 and len(set(counts.values())) == 1 and folders & PICTURES and folders & MASKS:
        return Kind("masks", example=" and ".join(counts))
    if sum(_FILE.match(value) is not None for value in counts) > 0.9 * distinct and distinct > MANY:
        return Kind("files", example=example)
    separator = separator_in(counts)
    if separator:
        several = max((value for value in counts if separator in value), key=lambda value: counts[value])
        return Kind("labels", separator, several)
    if too_many(counts):
        return Kind("names", example=example, detail=f"{distinct:,} different values in {rows:,} rows, {seen_once(counts):,} of them once")
    return Kind("classes", example=example)


def _measured(numbers: Sequence[float], rows: int, name: str) -> bool:
    """Whether numbers are a quantity, not the numbers of classes."""
    words, measures = set(plain(name).split("_")), set(_MEASURES.split())
    distinct = len(numbers)
    if words & measures and distinct > 2 and not all(number.is_integer() for number in numbers):
        return True
    if distinct <= (MEASURED if words & measures else FEW):
        return False
    whole = all(number.is_integer() for number in numbers)
    if not whole or distinct > rows / 2 or words & measures:
        return True
    counted = min(numbers) in (0, 1) and max(numbers) - min(numbers) + 1 == distinct
    return not counted and words.isdisjoint(_LABELLED.split())


def separator_in(counts: Mapping[str, int]) -> str | None:
    """The separator of several labels in one text, where some texts have several and the parts repeat; "[" for lists written as text."""
    if counts and all(_LIST.match(value) for value in counts):
        return "["
    rows = sum(counts.values())
    for separator, most in SEPARATORS.items():
        if sum(count for value, count in counts.items() if separator in value) < max(3, SEVERAL * rows):
            continue
        parts = {part.strip() for value in counts for part in value.split(separator)}
        if len(parts) < most * len(counts):
            return separator
    return None


def labels_in(value: Any, separator: str) -> list[Any]:
    """The labels in a cell: a list, a list written as text such as `['a', 'b']`, or texts between separators."""
    if isinstance(value, (list, tuple)):
        return list(value)
    if value is None:
        return []
    if match := _LIST.match(str(value)):
        return [part.strip().strip("'\"") for part in match[1].split(",")]
    return str(value).split(separator)


def pair_in(facts: Mapping[str, Facts]) -> tuple[str, str] | None:
    """Two columns of texts that belong together by their names: question1 and question2, premise and hypothesis, en and de."""
    texts = {plain(name): name for name, one in facts.items() if one.kind == "text" and one.words >= 2}
    names, languages = list(texts), set(LANGUAGES.split())
    for place, one in enumerate(names):
        for other in names[place + 1:]:
            first, second = (re.sub(r"(?<=[a-z])(?=[12]$)", "_", name).split("_") for name in (one, other))
            apart = {word for word in first if word not in second} | {word for word in second if word not in first}
            if apart in _PAIRS or (len(first) == len(second) > 1 and apart in _SIDES) or (len(apart) == 2 and apart <= languages):
                return texts[one], texts[other]
    return None


def unanswered(kind: Kind, what: str, examples: str) -> str | None:
    """What is to be said where labels of such a kind are asked of a task for classes; None of classes.

    Args:
        what: the column, or the classes, in words.
        examples: what they are labels of, in the plural.
    """
    hold, name, their = ("holds", "names", "its") if what.startswith("column") else ("hold", "name", "their")
    return {
        "numbers": f"{what} {hold} numbers ({kind.detail}): the task for numbers, called regression, predicts them with an interval each, "
                   "from a column of a table. Or put them into a few ranges (low, middle, high) in a column of their own",
        "labels": f"{what} {hold} several labels a row ({kind.example}): with data.labels: many each label of {examples} is "
                  "learned by itself (docs/images.md, Several labels). Or keep the one that matters most in a column of its own",
        "files": f"{what} {name} files ({kind.example}): where these are masks, source: table of vision.segmentation learns them "
                 "(docs/boxes-and-masks.md). Else use a column of classes",
        "masks": f"{what} are folders of pictures and of masks ({kind.example}): --task segmentation learns masks "
                 "(docs/boxes-and-masks.md). Or give a folder of pictures for each class",
        "names": f"{what} {hold} names or texts of {their} own, not classes: {kind.detail}. Use a column whose values repeat, or join rare "
                 "classes into one",
    }.get(kind.name)


def question(counts: Mapping[str, int], path: Path, asked: Asked, examples: str, label: str | Sequence[str] | None = None) -> Question:
    """Which question the values of a column ask: of one of some classes, of several labels, of numbers.

    `--task regression` takes them for numbers, another task that is named numbers and combinations of labels for classes, while each has
    examples enough.

    Args:
        counts: value -> examples of train.
        label: the column that holds them, where it is one; several hold a 1 for each class.

    Raises:
        DataError: they ask for something that is not there yet, in one line: what it looks like, and what to do.
    """
    if label is not None and not isinstance(label, str):
        return "labels" if any(";" in value or not value for value in counts) else "classes"
    what, kind = f"column {label}" if label is not None else "the classes", kind_of(counts, label or "")
    if asked.task == "regression":
        wrong = next((value for value in counts if number_of(value) is None), None)
        if wrong is not None and kind.name != "numbers":
            raise DataError(f"{path}: {what} holds {wrong!r}, which is no number; name the column of numbers with --label")
        return "numbers"
    if kind.name in ("numbers", "labels") and label is not None and asked.task is None:
        return "numbers" if kind.name == "numbers" else "labels"
    if kind.name in ("numbers", "labels") and not too_many(counts) and asked.task is not None:
        return "classes"
    if text := unanswered(kind, what, examples):
        raise DataError(f"{path}: {text}{' and name it with --label' if label is not None else ''}")
    return "classes"


def reading(counts: Mapping[str, int], asked: Question, label: str | Sequence[str] | None) -> list[str]:
    """A line on how a column is read that could be read otherwise, too; none where it is plain."""
    if not isinstance(label, str):
        return []
    kind = kind_of(counts, label)
    if asked == "numbers":
        return [f"Column {label} holds numbers ({kind.detail}): they are predicted as such. --task with the task for classes takes each "
                "for a class."]
    if asked == "labels":
        return [f"Column {label} holds several labels a row, such as {kind.example}: each is learned by itself."]
    numbers = [number_of(value) for value in counts]
    if len(numbers) > 2 and all(number is not None for number in numbers):
        return [f"Column {label} holds {len(numbers)} numbers, which are taken for classes: --task regression predicts the number."]
    return []


def not_used(names: Collection[str], used: Iterable[Any]) -> list[str]:
    """A note on what is in the data and is not used; none where all is."""
    there = set(used)
    rest = [name for name in names if name not in there]
    return [f"Not used: columns {first(rest)}."] if rest else []


def first(names: Sequence[str]) -> str:
    """The first twelve of some names, and how many there are."""
    return ", ".join(name or "''" for name in names[:12]) + (f", ... ({len(names):,} in all)" if len(names) > 12 else "")

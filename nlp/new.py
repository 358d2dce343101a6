"""A text experiment for somebody's data: columns, cutting, model and training chosen from what is there. Imports no TensorFlow.

The choices are starting points that train in reasonable time on two cores; each says in a comment what else there is.
"""

from pathlib import Path

from nlp.look import ROLES as ROLES
from nlp.look import Seen, look
from pipelines.config.new import Asked, Draft, Entry, section
from pipelines.data.frame import COMMENTS
from pipelines.errors import DataError

TASKS = ("classification",)
_UNEVEN = 5.0  # largest class over smallest from which the loss weighs classes
_FEWEST = 10  # texts without which there is nothing to divide
_SHORT = 40  # words of a usual text up to which character n-grams are worth their time


def draft(path: Path, asked: Asked) -> Draft:
    """Looks at a table or folder of texts. Raises DataError for what it does not understand."""
    seen = look(path, asked)
    path = seen.path or path
    if seen.texts < _FEWEST:
        raise DataError(f"{path}: {seen.texts} texts are too few to train on and to judge by; give {_FEWEST} or more")
    many = seen.settings.get("labels") == "many"
    sections = ["task: nlp.classification", section("data", _data(seen, path)), section("tokens", _tokens(seen)),
                section("model", _model(seen)), section("train", _train(seen))]
    fewest, most = min(seen.counts.values()), max(seen.counts.values())
    if most >= _UNEVEN * fewest and not many:
        sections.append(section("loss", [("class_weights", "balanced", f"the largest class has {most / fewest:.0f} times the smallest")]))
    return Draft(f"Texts of {path.name}: {len(seen.counts)} {'labels' if many else 'classes'}.", _found(seen), "\n".join(sections),
                 "TF-IDF with a linear support vector machine, fitted in the run")


def _found(seen: Seen) -> tuple[str, ...]:
    names = list(seen.counts)
    shown = ", ".join(names[:8]) + (f", ... ({len(names)} in all)" if len(names) > 8 else "")
    fewest, most = min(seen.counts.values()), max(seen.counts.values())
    each = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
    return (f"Found: {seen.texts:,} training texts of {seen.words[0]:,} words (median; the longest of a sample {seen.words[1]:,}); "
            f"{each} a class: {shown}.", *seen.notes)


def _data(seen: Seen, path: Path) -> list[Entry]:
    comments = {**COMMENTS, "labels": "several in a text", "header": "columns by position, from 0",
                "group_by": "all texts of one stay on one side of the splits"}
    entries: list[Entry] = [("source", seen.source, ""), ("path", str(path), "" if path.is_absolute() else "from the current directory")]
    entries += [(key, value, comments.get(key, "")) for key, value in seen.settings.items()]
    own = seen.validation, seen.test
    entries.append(("validation", own[0] or 0.1, "the data's own" if own[0] else "share of train"))
    entries.append(("test", own[1] or 0.2, "the data's own" if own[1] else "share of all; judged once, at the end"))
    return entries


def _tokens(seen: Seen) -> list[Entry]:
    entries: list[Entry] = [("name", "hashed", "or words, subwords"), ("words", 2, "words and pairs of neighbours")]
    if seen.words[0] <= _SHORT or seen.ascii < 0.5:
        entries.append(("characters", [2, 5] if seen.ascii >= 0.5 else [1, 4], "also parts of words; null trains faster"))
    entries.append(("limit", max(64, min(2000, 2 * seen.words[1])), "words of a text that are used"))
    return entries


def _model(seen: Seen) -> list[Entry]:
    wide = 32 if len(seen.counts) <= 10 else 128
    return [("name", "bag", "fast and hard to beat; or cnn, lstm, transformer, pretrained"), ("width", wide, ""),
            ("drop_tokens", 0.1, "share left out at random in training")]


def _train(seen: Seen) -> list[Entry]:
    batch = 256 if seen.texts >= 20_000 else 64 if seen.texts >= 2000 else 16
    epochs = 30 if seen.texts < 2000 else 15 if seen.texts < 20_000 else 5
    return [("epochs", epochs, ""), ("batch_size", batch, "examples per update, over all devices"), ("optimizer", {"name": "adam"}, ""),
            ("tables", {"optimizer": "adam"}, "of the embedding"), ("learning_rate", {"peak": 0.005, "schedule": "linear"}, "")]

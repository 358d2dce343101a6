"""`quartet check` for texts: each is read and tokenised once; duplicates, near duplicates, damage and languages are reported."""

from collections.abc import Callable
from itertools import islice

import numpy as np
import tensorflow as tf

from nlp import encode, tokens
from nlp.check_answers import check_answers
from nlp.check_dialogues import check_dialogues
from nlp.check_documents import check_documents
from nlp.check_tags import check_tags
from nlp.check_translations import check_translations
from nlp.data.scan import Examined, examine
from nlp.data.sources import OUTSIDE, Loaded, open_data
from nlp.data.splits import NO_VALIDATION, class_numbers, of_known_classes
from nlp.settings import Hashed, TextClassification, TextData, Words, text_keys
from nlp.tasks.classification import Classification
from nlp.tokens import languages
from pipelines.base.errors import DataError
from pipelines.config.messages import listed
from pipelines.data import text_rows
from pipelines.data.check import LEVELS, Check, Finding, Read, check
from pipelines.data.columns import facts_of
from pipelines.data.divide import divide
from pipelines.data.kinds import pair_in
from pipelines.data.opened import LENIENT
from pipelines.data.source import Source, origin
from pipelines.stores.remote import local

IDENTICAL = "the same text"
MARKUP = 0.02  # share of texts with tags from which tokens.html is suggested
NO_LIMIT = 1 << 30
SAMPLE = 1000  # rows of a table by which its columns are known
SAMPLED = 1000  # texts by which a language is known


def check_texts(experiment: TextClassification, progress: Callable[[int, int], None] | None = None) -> Check:
    """Reads every text of the splits that the experiment uses.

    Args:
        experiment: its data section and its tokens.
        progress: called now and then with (texts read, texts of this split).

    Raises:
        DataError: where there are no splits to look at; everything else is a finding.
    """
    data = experiment.data
    # opened leniently, so that bad examples are listed with the other findings
    opened = open_data(data.model_copy(update=LENIENT), experiment.reject)
    train, validation, test, notes = divide(opened.names, opened.load, data, opened.place)
    splits: dict[str, Source | None] = {"train": train, "validation": validation, "test": test}
    if data.on_bad_example == "skip":
        splits = of_known_classes(splits, opened, skip=True)
    outside = {name: int((source.labels == OUTSIDE).sum()) for name, source in splits.items() if source is not None and
               source.labels is not None}
    if any(outside.values()):
        notes.append("texts of no class: " + ", ".join(f"{count:,} in {name}" for name, count in outside.items()) + "; not examined here")
    parts = {name: _of_classes(source) for name, source in splits.items() if source is not None}
    if not len(parts["train"]):
        raise DataError(f"{opened.place}: train has no text that can be used")
    cut, limit = _cutter(experiment, parts["train"])
    limited_by = "model.limit" if experiment.own_tokens else "tokens.limit"
    examined = {name: examine(texts(source), cut, progress) for name, source in parts.items()}
    labels = {name: class_numbers(source) for name, source in parts.items()}
    reads = {name: Read([], one.fingerprints, {"characters": one.characters, "tokens": one.tokens}, one.kinds,
                        labels[name] if data.labels == "many" else None) for name, one in examined.items()}
    general = check(opened.place, dict(parts), reads, opened.classes, identical=IDENTICAL, skip=data.on_bad_example == "skip",
                 lost=opened.skipped, notes=[*opened.notes, *notes])
    html = getattr(experiment.tokens, "html", False)
    more = [*_empty(parts, examined), *near_copies(parts, examined, labels, opened.classes), *_cut_off(examined, limit, limited_by),
            *_damage(parts, examined), *_markup(examined, html)]
    if experiment.reject is not None and validation is None:
        more.append(Finding("error", NO_VALIDATION))
    general.findings.extend([*more, *_half_of_a_pair(data)])
    general.findings.sort(key=lambda finding: LEVELS.index(finding.level))
    return general


CHECKS: dict[str, Callable[..., Check]] = {"nlp.classification": check_texts, "nlp.tagging": check_tags,
                                           "nlp.question_answering": check_answers, "nlp.translation": check_translations,
                                           "nlp.language_model": check_documents, "nlp.dialogue": check_dialogues}


def foreign(task: Classification, source: Source) -> str | None:
    """Why an encoder says little of these texts (nlp.tokens.languages); None where it does not."""
    sample = source.gather(tf.range(0, len(source), max(1, -(-len(source) // SAMPLED)), dtype=tf.int64))["text"]
    return languages.foreign(task.input.tokenizer, [text.decode("utf-8", "replace") for text in sample.numpy()])


ENCODED = {"nlp.classification": encode.settings}
FOREIGN = {"nlp.classification": foreign}


def texts(source: Source) -> tf.Tensor:
    """[n] string."""
    base, numbers = origin(source)
    if not isinstance(base, Loaded):
        raise TypeError(f"texts expected, got {type(base).__name__}")
    return tf.gather(base.texts, numbers)


def _of_classes(source: Source) -> Source:
    return source if source.labels is None else source.subset(np.flatnonzero(source.labels != OUTSIDE))


def _cutter(experiment: TextClassification, train: Source) -> tuple[tokens.Tokenizer, int]:
    """The tokenizer without a limit, and the limit."""
    if experiment.own_tokens:
        return tokens.make(Words(name="words", limit=NO_LIMIT), {"vocabulary": []}), experiment.model.limit
    settings = experiment.cutting
    whole = texts(train)
    facts = tokens.learn(settings, (whole[start:start + 1024] for start in range(0, len(whole), 1024)))
    if isinstance(settings, Hashed):  # the limit counts words; n-grams come in addition
        return tokens.make(Words(name="words", lower=settings.lower, html=settings.html, limit=NO_LIMIT), {"vocabulary": []}
                           ), settings.limit
    return tokens.make(settings.model_copy(update={"limit": NO_LIMIT}), facts), settings.limit


def _empty(parts: dict[str, Source], examined: dict[str, Examined]) -> list[Finding]:
    places = [f"{parts[name].name(int(number))} ({name})" for name, one in examined.items() for number in np.flatnonzero(one.empty)]
    if not places:
        return []
    return [Finding("warning", f"{len(places):,} text{'s are' if len(places) > 1 else ' is'} empty or hold{'' if len(places) > 1 else 's'} "
                    "no word: the answer for them does not depend on the text; remove them", tuple(places))]


def near_copies(parts: dict[str, Source], examined: dict[str, Examined], labels: dict[str, list[tuple[int, ...]]], classes: list[str],
                ) -> list[Finding]:
    """Pairs of texts that share most of their word pairs but are not identical, across splits and with different labels."""
    from nlp.data.near_duplicates import near_pairs

    names = list(parts)
    where = np.concatenate([np.full(len(parts[name]), place) for place, name in enumerate(names)])
    numbers = np.concatenate([np.arange(len(parts[name])) for name in names])
    prints = np.concatenate([examined[name].fingerprints for name in names])
    pairs, capped = near_pairs([examined[name].shingles for name in names])
    pairs = [(a, b, share) for a, b, share in pairs if prints[a] != prints[b]]

    def name(place: int) -> str:
        return f"{parts[names[where[place]]].name(int(numbers[place]))} ({names[where[place]]})"

    def label(place: int) -> tuple[int, ...]:
        return labels[names[where[place]]][numbers[place]]

    def titles(place: int) -> str:
        return ", ".join(classes[number] for number in label(place)) or "without label"

    across = [(a, b, share) for a, b, share in pairs if where[a] != where[b]]
    findings = []
    more = " or more" if capped else ""
    if across:
        judged = len({place for pair in across for place in pair[:2] if where[place] > 0})
        findings.append(Finding("warning", (
            f"nearly the same text in more than one split: {judged:,}{more} texts outside of train have a near copy in another split (at "
            "least 80 % of their word pairs), so their scores are too high"),
            tuple(f"{name(a)} = {name(b)}, {share:.0%} alike" for a, b, share in across)))
    conflicts = [(a, b, share) for a, b, share in pairs if label(a) != label(b)]
    if conflicts:
        findings.append(Finding("warning", f"nearly the same text with different labels, {len(conflicts):,}{more} pairs", tuple(
            f"{name(a)} is {titles(a)}, {name(b)} is {titles(b)}, {share:.0%} alike" for a, b, share in conflicts)))
    within = len(pairs) - len(across)
    if within:
        findings.append(Finding("note", f"nearly the same text within a split: {within:,}{more} pairs"))
    return findings


def _cut_off(examined: dict[str, Examined], limit: int, setting: str) -> list[Finding]:
    findings = []
    for name, one in examined.items():
        over = one.tokens > limit
        if over.any():
            lost = int((one.tokens[over] - limit).sum())
            share = lost / max(1, int(one.tokens.sum()))
            level = "warning" if over.mean() > 0.05 else "note"
            findings.append(Finding(level, (  # type: ignore[arg-type]
                f"{name}: {over.sum():,} of {len(over):,} texts ({over.mean():.1%}) are longer than the limit of {limit:,} tokens; "
                f"{lost:,} tokens ({share:.1%} of all) are cut off. The longest has {one.tokens.max():,}; {setting} sets it")))
    return findings


def _damage(parts: dict[str, Source], examined: dict[str, Examined]) -> list[Finding]:
    findings = []
    for kind, text in (("replaced", "hold U+FFFD, the replacement for a character lost in a wrong encoding"),
                       ("mojibake", "look as if UTF-8 had been read as Windows-1252 (Ã© for é); repair them, or set data.encoding"),
                       ("controls", "hold control characters")):
        places = [f"{parts[name].name(number)} ({name})" for name, one in examined.items() for number in one.damaged[kind]]
        if places:
            findings.append(Finding("warning", f"{len(places):,} texts {text}", tuple(places)))
    return findings


def _half_of_a_pair(data: TextData) -> list[Finding]:
    """Whether a table has a second column of texts that belongs to the one which is read."""
    keys = text_keys(data)
    path = local(data.path or "") if data.source == "table" else None
    if path is None or len(keys) != 1 or not isinstance(keys[0], str):
        return []
    file = next(iter(text_rows.split_files(path).values())) if path.is_dir() else path
    records = text_rows.records(file, named=data.columns is None, delimiter=data.delimiter, encoding=data.encoding, quote=data.quote,
                                lenient=True)
    _, names = next(records)
    rows = [record for _, record in islice(records, SAMPLE) if not isinstance(record, str)]
    names = data.columns or names
    pair = pair_in({name: facts_of([row[place] for row in rows]) for place, name in enumerate(names)})
    if pair is None or keys[0] not in pair:
        return []
    return [Finding("warning", f"{file}: columns {pair[0]} and {pair[1]} are pairs of texts, and {keys[0]} alone is read: "
                    f"by data.text_key: [{pair[0]}, {pair[1]}] nlp.pair_classification and nlp.pair_regression read both, and "
                    "nlp.classification as one text")]


def _markup(examined: dict[str, Examined], html: bool) -> list[Finding]:
    tagged, total = (sum(int(value) for value in values) for values in zip(*((one.tagged, len(one.tokens)) for one in examined.values())))
    shares = [f"{name} {one.tagged / max(1, len(one.tokens)):.0%}" for name, one in examined.items()]
    if html or tagged < MARKUP * total:
        return []
    return [Finding("note", f"{tagged:,} of {total:,} texts hold tags such as <br /> ({listed(shares, 'and')}): "
                    "tokens.html: true leaves them out")]

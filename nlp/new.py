"""A text experiment for somebody's data: columns, tokens, model and training chosen from what is there.

The choices are starting points that train in reasonable time on two cores; comments name the alternatives.
"""

from collections import Counter
from dataclasses import replace
from pathlib import Path

from nlp import new_answers, new_dialogues, new_language, new_tags, new_translations
from nlp.data.inspection import ROLES as ROLES
from nlp.data.inspection import Seen, look
from nlp.data.ngrams import SHORT, Grams, ngram_counts, ngrams_for
from nlp.data.other_forms import running_text
from nlp.new_encoder import propose_encoder
from pipelines.base.errors import DataError
from pipelines.config.draft import Asked, Draft, Entry, Way, section
from pipelines.data.columns import number_of
from pipelines.data.frame import COMMENTS
from pipelines.data.kinds import question, reading
from pipelines.encoders.finetune import FROZEN_BELOW, Frozen, by_examples
from pipelines.encoders.listing import FOLDS_CHOOSE, choices, noted
from pipelines.encoders.presets import Preset

TASKS = ("classification", "regression", "pair_classification", "pair_regression", "pair_ranking", "tagging",
         "question_answering", "translation", "language_model", "dialogue")
_UNEVEN = 5.0  # largest class over smallest from which a comment says how to weigh classes
_FEWEST = 10  # texts without which there is nothing to divide
_NEIGHBOURS = {2: "pairs", 3: "up to triples"}
_JUDGE_EPOCHS = 5000  # texts below which a tenth of them is too few to choose an epoch by
_FEW = 2000  # texts below which all of them are learned from, in short steps
_LABELS_FITTED = 10_000  # of several labels, texts below which linear machines are no worse than a bag: benchmarks/results/labels.csv
_ROWS = (1 << 10, 1 << 20)  # fewest and most rows of a table
_SPARE = 8  # rows for each n-gram at least: on a table that is full, n-grams that train lacks fall on weights of others
_WEIGHTS = 1 << 23  # of both tables, beyond which n-grams share rows: 32 MiB
# of a pretrained encoder, chosen on validation: docs/pretrained.md
_GAINING = 30_000  # short texts up to which one is proposed
_WHOLE = 6000  # short ones up to which all of it is trained: of more, that takes over half an hour, and a fitted head gains on it
_LONG_GAINING = 5000  # long ones, under an encoder that stays as it is; with more, it takes longer than some minutes
_FEW_CLASSES = 3  # with fewer, single words tell classes apart, such as spam, and a bag of them is as good, but where texts are very few
_TOKENS, _LONG_TOKENS = 256, 512  # of its own that are read at most, of short texts and of long ones
_NOTHING_TO_CHOOSE = "none: a tenth of so few texts chooses nothing; all are learned from"


def draft(path: Path, asked: Asked) -> Draft:
    """Looks at a table or folder of texts. Raises DataError for what it does not understand."""
    if asked.task in (None, "question_answering") and (known := new_answers.form_of(path)):
        return new_answers.draft(path, *known, asked)
    if asked.task == "question_answering":
        raise DataError(f"{path}: holds no questions with answers in passages: JSON as SQuAD has it, or a table with columns such as "
                        "question, context and answers, whose answers stand in the passages (docs/text.md)")
    if asked.task in (None, "dialogue") and not asked.columns and (column := new_dialogues.column_of(path)):
        return new_dialogues.draft(path, column)
    if asked.task == "dialogue":
        raise DataError(f"{path}: holds no dialogues: JSON lines or Parquet with a column messages, each with role and content "
                        "(docs/writing.md)")
    if asked.task in (None, "translation") and (pair := new_translations.columns_of(path, asked)):
        return new_translations.draft(path, pair)
    if asked.task == "translation":
        raise DataError(f"{path}: holds no texts with what is to be written of them: a table, or a folder with train.csv, with a column of "
                        "each, such as source and target, or en and de (docs/writing.md)")
    if asked.task in (None, "tagging") and (form := new_tags.form_of(path)):
        return new_tags.draft(path, form, asked)
    if asked.task == "tagging":
        raise DataError(f"{path}: holds no texts in which things are marked: CoNLL columns, or JSON with spans in characters "
                        "(docs/text.md)")
    if asked.task == "language_model":
        return new_language.draft(path)
    try:
        seen = look(path, asked)
    except DataError:
        if asked.task is None and not asked.columns and running_text(path):
            return new_language.draft(path)
        raise
    if asked.task == "pair_ranking":
        return _matches(seen, seen.path or path, asked)
    asked.task = asked.task and asked.task.removeprefix("pair_")  # what is asked of pairs is asked of texts, too
    path = seen.path or path
    if seen.texts < _FEWEST:
        raise DataError(f"{path}: {seen.texts} texts are too few to train on and to judge by; give {_FEWEST} or more")
    if seen.pairs and _many(seen):
        raise DataError(f"{path}: column {seen.label} has several labels a pair; name one with a class of each, or a number, with --label")
    if not _many(seen):
        asks = question(seen.counts, path, asked, "a text", seen.label)
        seen.notes += reading(seen.counts, asks, seen.label)
        if seen.pairs:
            return _pairs(seen, path, asked, numbers=asks == "numbers")
        if asks == "numbers":
            return _numbers(seen, path)
    proposal = propose_encoder(asked, seen.sample, reason=_reason(seen), gain="short texts are told apart by what they mean")
    what = "labels" if _many(seen) else "classes"
    fitted = _many(seen) and proposal.preset is None and seen.texts < _LABELS_FITTED
    body = _linear(seen, path) if fitted else _body(seen, path, proposal.preset)
    return Draft(f"Texts of {path.name}: {len(seen.counts)} {what}.", _found(seen), body,
                 "TF-IDF with a linear support vector machine, fitted in the run", proposal.notes,
                 lambda: _ways(seen, path, asked))


def _numbers(seen: Seen, path: Path) -> Draft:
    """A number of each text, by ridge regression, which is the cheap baseline, too."""
    numbers = sorted(number for value in seen.counts if (number := number_of(value)) is not None)
    found = (f"Found: {seen.texts:,} training texts of {seen.words[0]:,} words (median), with {len(numbers):,} different numbers.",
             *seen.notes)
    one = replace(seen, counts=Counter({"number": seen.texts}))  # of tokens: a row has one weight
    body = "\n".join(["task: nlp.regression", section("data", _data(seen, path, none="")), section("tokens", _tokens(one, _grams(one))),
                      section("model", [("name", "linear", "ridge regression, fitted at once; or bag, pretrained, cnn, lstm")])])
    return Draft(f"Texts of {path.name}: a number from {numbers[0]:g} to {numbers[-1]:g}.", found, body)


def _pairs(seen: Seen, path: Path, asked: Asked, *, numbers: bool) -> Draft:
    """What is said of two texts: by an encoder, or by what they have in common."""
    reason = "since it knows words that mean the same" if seen.texts <= _GAINING else ""
    proposal = propose_encoder(asked, seen.sample, reason=reason,
                               gain="pairs are told apart by what they mean, and not by shared words alone")
    still, tuned_as = by_examples(seen.texts).name == "frozen", "bi_encoder" if numbers else "cross_encoder"

    def body(model: list[Entry], train: list[str]) -> str:
        task = f"task: nlp.pair_{'regression' if numbers else 'classification'}"
        return "\n".join([task, section("data", _data(seen, path, none="")), section("model", model), *train])

    def encoded(preset: Preset, name: str, way: str) -> str:
        other = "cross_encoder, which reads both texts at once" if name == "bi_encoder" else "bi_encoder, whose vectors can be searched"
        return body([("name", name, f"or {other}; or linear"), ("preset", preset.handle, "quartet encoders lists others"),
                     ("limit", _pieces(seen, _TOKENS), "tokens that are used"),
                     ("finetune", {"name": way}, "all of it trains" if way == "whole" else "the last layer is fitted at once")],
                    [_steps()] if way == "whole" else [])

    linear = body([("name", "linear", "what both texts have in common; or bi_encoder, cross_encoder: with a pretrained encoder")], [])

    def ways() -> list[Way]:
        found = [] if asked.wants_encoder else [Way("tf-idf overlap", linear)]
        for preset in choices(asked, "nlp"):
            tuned = None if still or seen.texts > _GAINING else Way(f"{preset.name}, all of it trained",
                                                                    encoded(preset, tuned_as, "whole"), noted(preset))
            found.append(Way(f"{preset.name}, frozen", encoded(preset, "bi_encoder", "frozen"), noted(preset), tuned))
        return found

    proposed = linear if proposal.preset is None else (
        encoded(proposal.preset, "bi_encoder", "frozen") if still else encoded(proposal.preset, tuned_as, "whole"))
    if numbers:
        known = sorted(number for value in seen.counts if (number := number_of(value)) is not None)
        title = f"Pairs of texts of {path.name}: a number from {known[0]:g} to {known[-1]:g}."
    else:
        title = f"Pairs of texts of {path.name}: {len(seen.counts)} classes."
    columns = " and ".join(map(str, seen.settings["text_key"]))
    found = f"Found: {seen.texts:,} training pairs, in columns {columns}, of {seen.words[0]:,} words (median of both together)."
    return Draft(title, (found, *seen.notes), proposed, "a linear model of the tf-idf overlap of both texts, fitted in the run",
                 proposal.notes, ways)


def _matches(seen: Seen, path: Path, asked: Asked) -> Draft:
    """Texts that belong together, found by the vectors of an encoder."""
    if seen.texts < _FEWEST:
        raise DataError(f"{path}: {seen.texts} pairs are too few to train on and to judge by; give {_FEWEST} or more")
    proposal = propose_encoder(asked, seen.sample, reason="since it knows words that mean the same",
                               gain="texts are found by what they mean")
    if proposal.preset is None:
        raise DataError(f"{path}: texts are found by the vectors of a pretrained encoder, and none that fits is at hand; name one with "
                        "--encoder (quartet encoders nlp lists them)")
    body = "\n".join([
        "task: nlp.pair_ranking", section("data", _data(seen, path, none="")),
        section("model", [("name", "bi_encoder", "a vector of each text"),
                          ("preset", proposal.preset.handle, "quartet encoders lists others"),
                          ("limit", _pieces(seen, _TOKENS), "tokens of a text that are used")]),
        section("train", [("epochs", 2, "a pair teaches by what it is not: more pairs help more than more epochs"),
                          ("batch_size", 32, "each text's partner is told from the 31 others: more are harder, and better"),
                          ("optimizer", {"name": "adamw", "weight_decay": 0.01}, ""),
                          ("learning_rate", {"schedule": "linear", "warmup": 0.1}, "")])])
    columns = " and ".join(map(str, seen.settings["text_key"]))
    found = f"Found: {seen.texts:,} training pairs, in columns {columns}, of {seen.words[0]:,} words (median of both together)."
    return Draft(f"Pairs of texts of {path.name} that belong together: the second is found by the first.", (found, *seen.notes), body,
                 "cosines of tf-idf vectors", proposal.notes)


def _many(seen: Seen) -> bool:
    """Texts have several labels."""
    return seen.settings.get("labels") == "many"


def _body(seen: Seen, path: Path, preset: Preset | None, *, frozen: bool | None = None,
          grams: Grams | None = None) -> str:
    """The YAML of an encoder, or of a bag.

    Args:
        frozen: whether the encoder stands still; None: as the number of texts suggests.
        grams: of a bag; None: as words and letters suggest.
    """
    still = (_stands_still(seen) or seen.texts > _WHOLE) if frozen is None else frozen
    none = FOLDS_CHOOSE if preset and still else _NOTHING_TO_CHOOSE if seen.texts < _FEW else ""
    none = "" if _many(seen) else none
    sections = ["task: nlp.classification", section("data", _data(seen, path, none=none))]
    if preset:
        sections += _encoded(preset, seen, still)
    else:
        sections += [section("tokens", _tokens(seen, grams or _grams(seen))), section("model", _model()), section("train", _train(seen))]
    if not _many(seen) and not preset and (weights := _class_weights(seen)):  # several labels a text have a loss of their own
        sections.append(section("loss", weights))
    return "\n".join(sections)


def _linear(seen: Seen, path: Path) -> str:
    """The YAML of the cheap baseline as a model."""
    data = _data(seen, path, none="" if _many(seen) else FOLDS_CHOOSE)
    return "\n".join(["task: nlp.classification", section("data", data), section("tokens", _tokens(seen, _grams(seen))),
                      section("model", [("name", "linear", "fitted at once; or bag, pretrained, cnn, lstm, transformer")])])


def _ways(seen: Seen, path: Path, asked: Asked) -> list[Way]:
    """Bags of n-grams, then encoders. Cheap ones first."""
    presets = choices(asked, "nlp")
    usual = _grams(seen)
    other: Grams = (2, (2, 5)) if usual == (2, None) else (2, None)
    bags = [] if asked.wants_encoder else sorted({usual, other}, key=lambda grams: grams[1] is not None)
    found = [] if asked.wants_encoder else [Way("linear machines on words and their parts", _linear(seen, path))]
    found += [Way(_called(grams), _body(seen, path, None, grams=grams)) for grams in bags]
    for preset in presets:
        tuned = None if _stands_still(seen) or seen.texts > _GAINING else Way(
            f"{preset.name}, all of it trained", _body(seen, path, preset, frozen=False), noted(preset))
        found.append(Way(f"{preset.name}, frozen", _body(seen, path, preset, frozen=True), noted(preset), tuned))
    return found


def _found(seen: Seen) -> tuple[str, ...]:
    names = list(seen.counts)
    shown = ", ".join(names[:8]) + (f", ... ({len(names)} in all)" if len(names) > 8 else "")
    fewest, most = min(seen.counts.values()), max(seen.counts.values())
    each = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
    return (f"Found: {seen.texts:,} training texts of {seen.words[0]:,} words (median; the longest of a sample {seen.words[1]:,}); "
            f"{each} a class: {shown}.", *seen.notes)


def _data(seen: Seen, path: Path, *, none: str) -> list[Entry]:
    """The section data; `none`: why nothing is held out for validation, if so."""
    comments = {**COMMENTS, "labels": "several in a text", "header": "columns by position, from 0",
                "group_by": "all texts of one stay on one side of the splits"}
    entries: list[Entry] = [("source", seen.source, ""), ("path", str(path), "" if path.is_absolute() else "from the current directory")]
    entries += [(key, value, comments.get(key, "")) for key, value in seen.settings.items()]
    own = seen.validation, seen.test
    if none and not own[0]:
        entries.append(("validation", 0, none))
    else:  # thresholds of several labels are chosen on it, too
        entries.append(("validation", own[0] or 0.1, "the data's own" if own[0] else "share of train"))
    entries.append(("test", own[1] or 0.2, "the data's own" if own[1] else "share of all; judged once, at the end"))
    return entries


def _grams(seen: Seen) -> Grams:
    """What of a text counts: parts of words only where they are worth their time."""
    return ngrams_for(seen.sample)


def _called(grams: Grams) -> str:
    words, characters = grams
    return f"bag of words and {_NEIGHBOURS[words]}" + (f", parts of words of {characters[0]} to {characters[1]}" if characters else "")


def _tokens(seen: Seen, grams: Grams) -> list[Entry]:
    most, characters = grams
    words, letters = _rows(seen, most, characters)
    entries: list[Entry] = [("name", "hashed", "or words, subwords"), ("words", most, f"words and {_NEIGHBOURS[most]} of neighbours")]
    if characters:
        entries.append(("characters", list(characters), "also parts of words; without them (and their buckets) it trains faster"))
    entries += [("distinct", True, "an n-gram counts once a text"), ("buckets", words, "rows, eight or more for each different n-gram")]
    if characters:
        entries.append(("character_buckets", letters, "the same for parts of words"))
    entries.append(("limit", max(64, min(2000, 2 * seen.words[1])), "words of a text that are used"))
    return entries


def _reason(seen: Seen) -> str:
    """Why these texts gain by a pretrained encoder; empty where they do not, or validation has not shown it."""
    most = _LONG_GAINING if _long(seen) else _GAINING if len(seen.counts) >= _FEW_CLASSES else FROZEN_BELOW - 1
    if seen.texts > most or _many(seen):
        return ""
    return f"since {seen.texts:,} {'long' if _long(seen) else 'short'} texts are few: it knows words that occur in none of them"


def _long(seen: Seen) -> bool:
    return seen.words[0] > SHORT


def _stands_still(seen: Seen) -> bool:
    """Whether an encoder is not trained: texts are too few, or so long that it takes an hour rather than minutes."""
    return _long(seen) or by_examples(seen.texts).name == "frozen"


def _encoded(preset: Preset, seen: Seen, still: bool) -> list[str]:
    """The section model of an encoder that trains as the number of texts suggests, and train where it takes epochs."""
    limit = _pieces(seen, _LONG_TOKENS if _long(seen) else _TOKENS)
    way = Frozen(name="frozen") if still else by_examples(max(seen.texts, FROZEN_BELOW))
    sections = [section("model", [
        ("name", "pretrained", "or bag, which needs no encoder and is served faster"),
        ("preset", preset.handle, "quartet encoders lists others"),
        ("limit", limit, "tokens of a text that are used"),
        ("finetune", {"name": way.name}, "the last layer is fitted at once; whole: all of it trains" if way.name == "frozen" else
         "all of it trains; frozen is much faster, and less accurate")])]
    return [*sections, _steps()] if way.name == "whole" else sections


def _pieces(seen: Seen, most: int) -> int:
    """Tokens of an encoder that are read, which are parts of words."""
    return 8 * -(-min(most, max(16, 3 * seen.words[1] // 2 + 2)) // 8)


def _steps() -> str:
    """The section train of an encoder all of which trains."""
    return section("train", [
        ("epochs", 3, ""), ("batch_size", 32, "examples per update, over all devices"),
        ("optimizer", {"name": "adamw", "weight_decay": 0.01}, ""),
        ("learning_rate", {"schedule": "linear", "warmup": 0.1}, "its shape; finetune.learning_rate has the peak")])


def _rows(seen: Seen, most_words: int, characters: tuple[int, int] | None) -> tuple[int, int]:
    """Rows for word and for character n-grams: the power of two from `_SPARE` times their number on, or fewer where many classes make rows
    long."""
    each = max(_ROWS[0], _WEIGHTS // ((2 if characters else 1) * len(seen.counts)))
    most = min(_ROWS[1], 1 << (each.bit_length() - 1))
    words, letters = (min(most, max(_ROWS[0], 1 << (_SPARE * count - 1).bit_length()))
                      for count in ngram_counts(seen.sample, seen.texts, most_words, characters))
    return words, letters


def _model() -> list[Entry]:
    return [("name", "bag", "fast and hard to beat; or cnn, lstm, transformer, pretrained"),
            ("linear", True, "a weight for each n-gram and class; with linear: false also width and hidden"),
            ("rarity", True, "tf-idf: n-grams of few texts weigh more"), ("drop_tokens", 0.3, "share left out at random in training")]


def _train(seen: Seen) -> list[Entry]:
    batch, epochs = (16, 30) if seen.texts < _FEW else (32, 15) if seen.texts < 10_000 else (32, 8) if seen.texts < 50_000 else (128, 5)
    entries: list[Entry] = [("epochs", epochs, ""), ("batch_size", batch, "examples per update, over all devices"),
                            ("optimizer", {"name": "sgd"}, ""), ("tables", {"optimizer": "sgd"}, "of the n-grams' weights"),
                            ("learning_rate", {"peak": 10.0 if seen.texts < _FEW else 30.0, "schedule": "linear"},
                             "high because tf-idf features are small")]
    if seen.texts < _JUDGE_EPOCHS and not seen.validation:
        entries.append(("keep", "last", "validation chooses no epoch: it is too small, or not there"))
    return entries


def _class_weights(seen: Seen) -> list[Entry]:
    fewest, most = min(seen.counts.values()), max(seen.counts.values())
    if most < _UNEVEN * fewest:
        return []
    return [("class_weights", "none",
             f"the largest class has {most / fewest:.0f} times the smallest; balanced finds more of the rare ones, and costs accuracy")]

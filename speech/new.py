"""A speech experiment for somebody's data: task, lengths, rate, model and training chosen from what is there."""

import unicodedata
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median

from pipelines.base.errors import ConfigError, DataError
from pipelines.config.draft import Asked, Draft, Entry, Way, section
from pipelines.config.yaml_text import inline
from pipelines.data.columns import number_of
from pipelines.data.english import are_english
from pipelines.data.frame import COMMENTS
from pipelines.data.kinds import Question, labels_in, question, reading, separator_in
from pipelines.encoders.finetune import FROZEN_BELOW
from pipelines.encoders.listing import BLENDED, FOLDS_CHOOSE, Proposal, choices, noted, propose
from pipelines.encoders.presets import Preset
from speech.data import audio
from speech.data.enough import too_little
from speech.data.inspection import ROLES as ROLES
from speech.data.inspection import Seen, headers_of, look

KERNEL = "kernel machine on statistics of cepstra"
TASKS = ("classification", "transcription", "regression", "verification")
FEWEST = 10  # recordings without which there is nothing to divide
LARGE = 5000  # recordings from which little is augmented, and validation chooses
TEST, VALIDATION = 0.2, 0.1  # held out: a share of all, and one of the rest
COMMAND_STEPS, TEXT_STEPS = 3000, 1500  # updates, at least
LISTENED = 100  # recordings whose loud part is measured
RATES = (8000, 16_000)  # Hz, for the model: more tells little of speech
ENCODED = 16_000  # Hz, of pretrained encoders
MOST_WORDS = 30  # up to which words are what an output step represents
ENCODED_STEPS = 300  # updates under a pretrained encoder that trains, at least
WHISPER, YAMNET = "WhisperBackbone", "YAMNet"
_OF_SPEECH = (WHISPER, "MoonshineBackbone")  # encoders with a vector for each moment
SIGNS = ".,?!"  # that Whisper writes; a transcript without any was not punctuated
WINDOW = "what the model gets: the loudest part of longer recordings"
SHORT, VOICE, VOICES_HELD = 1.5, 3.0, 0.3  # s: of single words little is heard of a voice, of so much enough; share of voices for test
LONGEST, LONGEST_SOUND = 3.0, 10.0  # s of it; of sounds that are no words, which YAMNet hears in pieces


def draft(path: Path, asked: Asked) -> Draft:
    """Looks at a folder of recordings or a table. Raises DataError for what it does not understand."""
    seen = look(path, asked)
    path = seen.path or path
    if len(seen.files) < FEWEST:
        raise DataError(f"{path}: {len(seen.files)} recordings are too few to train on and to judge by; give {FEWEST} or more")
    asks: Question = "classes"
    if seen.texts is None and asked.task != "verification":
        asks = question(seen.classes, path, asked, "a recording", seen.label)
        seen.notes += reading(seen.classes, asks, seen.label)
    headers, sampled = headers_of(seen.files)
    stored = Counter(header.rate for header in headers).most_common(1)[0][0]
    rate = max([one for one in RATES if one <= stored], default=RATES[0])
    seconds = sorted(header.seconds for header in headers)
    rates = Counter(header.rate for header in headers)
    notes = (f"Found: {len(seen.files):,} recordings of {seconds[0]:.2f} to {seconds[-1]:.2f} s (median {median(seconds):.2f}), "
             f"{'all' if len(rates) == 1 else 'mostly'} {stored:,} Hz{f', in a sample of {len(headers):,}' if sampled else ''}"
             f"{_contents(seen)}.",
             *seen.notes)
    if asked.task == "verification":
        return _voices(path, seen, rate, seconds, notes)
    if asks != "classes":
        return _other_question(path, seen, rate, seconds, notes, asks, asked)
    proposal = propose(asked, "speech", reason=_reason(seen), gain="new voices are understood after few recordings",
                       fits=None if seen.texts is None else lambda preset: preset.backbone in _OF_SPEECH)
    if proposal.preset and proposal.preset.backbone == YAMNET and seen.texts is not None:
        raise ConfigError(f"--encoder: {proposal.preset.name} knows sounds, not words: for transcripts name an encoder of Whisper or "
                          "Moonshine, or none")
    if proposal.preset and not _few(seen) and not _writes(proposal.preset) and not asked.wants_encoder:
        proposal = Proposal()  # an encoder that does not write English by itself is not known to gain
    if seen.texts is not None and not proposal.preset and (
            note := too_little(seen.texts, sum(seconds) / len(seconds) * len(seen.files))):
        notes = (*notes, f"Warning: {note}.")
    write = _commands if seen.texts is None else _transcription

    def body(preset: Preset | None, frozen: bool | None = None) -> str:
        return write(path, seen, rate, seconds, preset, frozen)

    def blended(preset: Preset) -> str:
        return _commands(path, seen, rate, seconds, preset, blend=True)

    own, judged_alone = body(proposal.preset), False
    if proposal.preset and _sentences(seen) and _writes(proposal.preset):
        own, judged_alone = _written(path, seen, proposal.preset), True
    kernel = [] if seen.texts is not None else [Way(KERNEL, _kernel(path, seen, rate, seconds))]
    what = "Speech to text" if seen.texts is not None else f"Recordings of {len(seen.classes)} classes"
    compared = ("the transcript of the most similar training recording" if seen.texts is not None else
                "a kernel classifier on statistics of cepstra, fitted in the run")
    blends = asked.used_blend(lambda: kernel and choices(asked, "speech"))
    return Draft(f"{what}, of {path.name}.", notes, own, "" if judged_alone else compared, proposal.notes,
                 lambda: [] if judged_alone else _ways(seen, asked, body, kernel, blended if blends else None))


def _other_question(path: Path, seen: Seen, rate: int, seconds: list[float], notes: tuple[str, ...], asks: Question, asked: Asked) -> Draft:
    """Numbers, or several labels a recording, of a kernel machine: the cheap baseline, with YAMNet beside the cepstra where it is at
    hand."""
    preset = next((preset for preset in choices(asked, "speech") if preset.backbone == YAMNET), None)
    if preset is None and asked.wants_encoder:
        raise ConfigError("--encoder: for several labels and for numbers only YAMNet is proposed; leave the option out")
    if asks == "labels":
        separator = separator_in(seen.classes) or ";"
        names = sorted({label for value in seen.classes for label in labels_in(value, separator) if label})
        seen.columns |= {"labels": "many"} | ({} if separator in (";", "[") else {"label_separator": separator})
        what = f"{len(names)} labels"
    else:
        numbers = sorted(number for value in seen.classes if (number := number_of(value)) is not None)
        what = f"a number from {numbers[0]:g} to {numbers[-1]:g}"
    data = [(key, 0.2, "share of train: it chooses " + ("thresholds" if asks == "labels" else "the widths of intervals"))
            if key == "validation" and "validation" not in seen.splits else (key, value, comment)
            for key, value, comment in _heard(path, seen, rate, seconds, preset)]
    task = "speech.regression" if asks == "numbers" else "speech.classification"
    body = "\n".join([f"task: {task}", section("data", data), _machine(preset)])
    return Draft(f"Recordings of {path.name}: {what}.", notes, body, notes=noted(preset) if preset else ())


def _voices(path: Path, seen: Seen, rate: int, seconds: list[float], notes: tuple[str, ...]) -> Draft:
    """Whether two recordings are of one voice: whose each is, says the speaker, else the class."""
    typical = median(seconds)
    short = typical < SHORT and typical * len(seen.files) / max(1, len(seen.classes)) >= 2 * VOICE  # of which two can be joined for each
    data: list[Entry] = [("seconds", VOICE if short else _window(seen.files, seconds, LONGEST_SOUND), WINDOW)]
    if short:
        data.append(("join", VOICE, "s; recordings of one voice are joined until they last so long"))
    held = {"validation": (0.0, "it is calibrated by folds of train"), "test": (VOICES_HELD, "share of all, whole voices; judged once")}
    if seen.texts is not None:
        raise DataError(f"{path}: nothing says who speaks; name recordings and speakers in a table with a header, its column with --label")
    entries = [(key, *held[key]) if key in held and key not in seen.splits else (key, value, comment)
               for key, value, comment in _data(path, seen, rate, data) if key != "group_by"]
    whose = f"the column {seen.label}" if seen.label else "what the names hold (data.speaker_pattern)" if seen.pattern else "the folder"
    body = "\n".join(["task: speech.verification", section("data", entries),
                      section("model", [("name", "plda", "on statistics of cepstra, fitted at once; or ds_cnn, for hundreds of voices")])])
    return Draft(f"Whether two recordings of {path.name} are of one voice.", (*notes, f"Whose voice it is, says {whose}."), body)


def _ways(seen: Seen, asked: Asked, body: Callable[..., str], cheap: list[Way], blended: Callable[[Preset], str] | None) -> list[Way]:
    """Encoders as they are, means of one and a kernel machine where these are `blended`, and a network from scratch. Cheap ones first. What
    writes untrained is judged by tokens of its own, so that no fold compares it with others."""
    found = []
    for preset in choices(asked, "speech"):
        if preset.backbone == YAMNET:
            if seen.texts is None:
                found.append(Way(f"kernel machine on those, and on {preset.name}'s", body(preset), noted(preset)))
        elif seen.texts is None or preset.backbone in _OF_SPEECH:
            tuned = seen.texts is not None and _kept(seen) >= FROZEN_BELOW
            trained = Way(f"{preset.name}, its last blocks trained", body(preset, False), noted(preset)) if tuned else None
            found.append(Way(f"{preset.name}, frozen", body(preset, True), noted(preset), trained))
            if blended:
                found.append(Way(f"mean of {preset.name} and a kernel machine", blended(preset), noted(preset)))
    return found if asked.wants_encoder else [*cheap, *found, Way("a network from scratch", body(None))]


def _kernel(path: Path, seen: Seen, rate: int, seconds: list[float], preset: Preset | None = None) -> str:
    """The YAML of the cheap baseline as a model; with YAMNet beside it."""
    data = _heard(path, seen, rate, seconds, preset, folds=True)
    return "\n".join(["task: speech.classification", section("data", data), _machine(preset)])


def _heard(path: Path, seen: Seen, rate: int, seconds: list[float], preset: Preset | None, *, folds: bool = False) -> list[Entry]:
    """The section data of a kernel machine."""
    window = _window(seen.files, seconds, LONGEST_SOUND if preset else LONGEST)
    return _data(path, seen, ENCODED if preset else rate, [("seconds", window, WINDOW)], folds=folds)


def _machine(preset: Preset | None) -> str:
    """The section model of a kernel machine."""
    if preset is None:
        return section("model", [("name", "kernel", "on statistics of cepstra, fitted at once; or ds_cnn, pretrained")])
    return section("model", [("name", "kernel", "fitted at once; or ds_cnn, which trains, or pretrained"),
                             ("preset", preset.handle, "statistics of its layers stand beside those of cepstra")])


def _reason(seen: Seen) -> str:
    """Why these recordings gain by a pretrained encoder; empty where they do not, or validation has not shown it: texts of many words in
    other languages than English."""
    if _few(seen):
        return f"since {len(seen.files):,} recordings are few: it has heard many"
    return "since it writes English without training" if _sentences(seen) else ""


def _few(seen: Seen) -> bool:
    """Whether there are few recordings, of classes or of few words."""
    return (seen.texts is None or _unit(seen) == "words") and len(seen.files) < LARGE


def _sentences(seen: Seen) -> bool:
    """Whether the transcripts are English of many words."""
    return seen.texts is not None and _unit(seen) != "words" and are_english(seen.texts)


def _writes(preset: Preset) -> bool:
    """Whether a preset's decoder writes English: each of Whisper's does."""
    return preset.backbone == WHISPER and (preset.folder / "tokenizer.json").is_file()


def _unit(seen: Seen) -> str:
    """What an output step of a transcription represents."""
    words = {word for text in seen.texts or () for word in text.lower().split()}
    return "words" if len(words) <= MOST_WORDS else "characters" if len(seen.files) < 20_000 else "subwords"


def _contents(seen: Seen) -> str:
    if seen.texts is None:
        names = list(seen.classes)
        return f"; {', '.join(names[:8])}" + (f", ... ({len(names)} in all)" if len(names) > 8 else "")
    return f"; {len({word for text in seen.texts for word in text.lower().split()}):,} different words"


def _data(path: Path, seen: Seen, rate: int, task: list[Entry], *, folds: bool = False, why: str = FOLDS_CHOOSE) -> list[Entry]:
    """The section data; `folds`: groups or other parts held out of train choose what validation would, so that all are learned from;
    `why`: what the file says of that."""
    entries: list[Entry] = [("source", seen.source, ""), ("path", str(path), "" if path.is_absolute() else "from the current directory"),
                            ("rate", rate, "Hz; recordings of another are resampled"), *task]
    entries += [(key, name, COMMENTS.get(key, "")) for key, name in seen.columns.items()]
    if seen.pattern:
        entries.append(("speaker_pattern", seen.pattern, "matches the speaker in a name"))
    # with the data's own test split the groups still say which parts of train choose
    grouped = (seen.speakers or seen.group) and ("test" not in seen.splits or seen.apart)
    if grouped and seen.speakers:
        entries.append(("group_by", "speaker", "no speaker in two splits; null to divide recording by recording"))
    elif grouped:
        entries.append(("group_by", seen.group, "all recordings of one stay in one split; null to divide one by one"))
    none = (0, why.replace("parts", "groups") if grouped else why)
    validation: tuple[float, str] = none if folds else (VALIDATION, "share of train")
    for name, share, meaning in (("validation", *validation), ("test", TEST, "share of all; judged once, at the end")):
        entries.append((name, seen.splits.get(name, share), "the data's own" if name in seen.splits else meaning))
    return entries


def _commands(path: Path, seen: Seen, rate: int, seconds: list[float], preset: Preset | None, frozen: bool | None = None, *,
              blend: bool = False) -> str:
    count, most = len(seen.files), max(seen.classes.values()) / min(seen.classes.values())
    if preset and preset.backbone == YAMNET:
        return _kernel(path, seen, rate, seconds, preset)
    window = _window(seen.files, seconds)
    if preset:
        return "\n".join([
            "task: speech.classification",
            section("data", _data(path, seen, ENCODED, [("seconds", window, WINDOW)], folds=True)),
            section("model", [("name", "pretrained", "or ds_cnn, which is small and trains from scratch"),
                              ("preset", preset.handle, "quartet encoders lists others"),
                              ("blend", "kernel", BLENDED) if blend else
                              ("finetune", {"name": "frozen"}, "the last layer is fitted at once; or last, whole")]),
        ])
    small = count < LARGE
    batch = 16 if count < 1000 else 32 if small else 128
    augment: list[Entry] = [("shift", 0.1, "s"), ("speed", 0.2 if small else 0.1, "share"),
                            ("noise", 0.3, "share; noise_folder takes noise of your own"), ("frequency_masks", 2, "")]
    if small:  # augmentation stands in for more voices: see configs/speech/spoken_digit_new_speaker.yaml
        augment += [("warp", 0.1, "longer and shorter throats"), ("time_masks", 1, ""), ("time_width", 0.1, "s")]
    sections = [
        "task: speech.classification",
        section("data", _data(path, seen, rate, [("seconds", window, WINDOW)])),
        section("frontend", [("normalize", "recording", "removes the colour of microphone and voice")]),
        section("model", [("name", "ds_cnn" if small else "broadcast", "or broadcast" if small else "or ds_cnn, which is faster")]),
        section("augment", augment),
        section("train", _train(_kept(seen), batch, COMMAND_STEPS, most=300, peak=0.004, ema=0.995)),
    ]
    if most >= 5:
        why = f"the largest class has {most:.0f} times the smallest; balanced finds more of the small ones, and costs accuracy"
        sections.append(section("loss", [("class_weights", "none", why)]))
    return "\n".join(sections)


def _kept(seen: Seen) -> float:
    """Recordings left for training after the held-out ones."""
    return len(seen.files) * (1.0 if "test" in seen.splits else 1 - TEST) * (1.0 if "validation" in seen.splits else 1 - VALIDATION)


def _encoded(path: Path, seen: Seen, tokens: list[Entry], preset: Preset, frozen: bool | None) -> str:
    """A transcription by a pretrained encoder: frozen, or with its last blocks training (docs/pretrained.md)."""
    kept = _kept(seen)
    frozen = kept < FROZEN_BELOW if frozen is None else frozen
    way: dict[str, object] = {"name": "frozen"} if frozen else {"name": "last", "blocks": 2, "learning_rate": 0.0002, "head": "new"}
    layers: list[Entry] = [("layers", 3, "beside one another: lower ones know sounds, the last one English words")]
    sections = [
        "task: speech.transcription",
        section("data", _data(path, seen, ENCODED, [], folds=frozen)),
        section("model", [("name", "pretrained", "or quartz, which trains from scratch"),
                          ("preset", preset.handle, "quartet encoders lists others"),
                          *(layers if frozen and preset.backbone == WHISPER else []),
                          ("finetune", way, "the last layer is fitted at once" if frozen else "or whole; frozen with fewer recordings")]),
        section("tokens", tokens),
    ]
    if not frozen:
        batch = 8
        epochs = max(4, round(ENCODED_STEPS * batch / kept))
        sections += [section("augment", [("speed", 0.15, "share")]), section("train", [
            ("epochs", epochs, ""), ("batch_size", batch, ""), ("learning_rate", {"peak": 0.005, "schedule": "cosine", "warmup": 0.1}, ""),
            ("clip", {"global_norm": 5.0}, ""), ("keep", "last", "validation is too small to choose an epoch by")])]
    return "\n".join(sections)


def _written(path: Path, seen: Seen, preset: Preset) -> str:
    """Whisper whole, as it is; the same file has its further training and its frozen encoder, to be judged on the same recordings."""
    signs = {sign for text in seen.texts or () for sign in text}
    tokens: list[Entry] = [] if signs & set(SIGNS) else [("remove", SIGNS, "not in the transcripts, so not scored")]
    frozen = f"{{name: pretrained, preset: {inline(preset.handle)}, layers: 3, finetune: {{name: frozen}}}}"
    return "\n".join([
        "task: speech.transcription",
        section("data", _data(path, seen, ENCODED, [], folds=True, why="none: nothing is chosen")),
        section("model", [("name", "whisper", "its decoder writes; normalized_wer leaves out capitals, signs and how numbers are written"),
                          ("preset", preset.handle, "quartet encoders lists others; larger ones write better"),
                          ("trains", "nothing", "used as it is; decoder or whole: trained further, as the section train says")]),
        *([section("tokens", tokens)] if tokens else []),
        section("train", [("epochs", 3, "only where model.trains is decoder or whole"), ("batch_size", 8, ""),
                          ("learning_rate", {"peak": 1e-5, "schedule": "cosine", "warmup": 0.1}, ""),
                          ("keep", "last", "there is no validation to choose an epoch by")]),
        "# Its encoder alone, frozen, under the transcripts' own letters (for words that it does not know), judged on the same test:",
        f"#   model: {frozen}",
    ])


def _train(count: float, batch: int, steps: int, *, most: int, peak: float, ema: float) -> list[Entry]:
    """Epochs by number of steps: the fewer the recordings, the more epochs. A small validation split chooses nothing."""
    each = max(1, round(count / batch))
    epochs = min(most, max(30, round(steps / each)))
    entries: list[Entry] = [
        ("epochs", epochs, f"about {epochs * each:,} steps; new voices need long training"),
        ("batch_size", batch, ""),
        ("learning_rate", {"peak": peak, "schedule": "cosine", "warmup": 0.1}, ""),
        ("ema", ema, "the average of the weights is judged and saved"),
    ]
    if epochs > 40:
        entries.append(("validate_every", epochs // 30, "epochs"))
    if count < LARGE:
        entries.append(("keep", "last", "validation is too small to choose an epoch by"))
    return entries


def _window(files: list[Path], seconds: list[float], longest: float = LONGEST) -> float:
    """Seconds that hold what is loud in nearly all recordings of a sample; at most `longest`, and the length of nearly all."""
    whole = seconds[int(0.98 * (len(seconds) - 1))] + 0.1
    spans = []
    for file in files[:: max(1, -(-len(files) // LISTENED))]:
        try:
            spans.append(audio.loud_span(file))
        except DataError:
            continue
    span = sorted(spans)[int(0.95 * (len(spans) - 1))] + 0.3 if spans else whole
    return min(longest, max(0.5, round(min(span, whole), 1)))


def _transcription(path: Path, seen: Seen, rate: int, seconds: list[float], preset: Preset | None, frozen: bool | None = None) -> str:
    unit = _unit(seen)
    long = median(seconds) > 8
    count = len(seen.files)
    batch = 6 if count < 300 else 8 if count < 1000 else 16 if count < 20_000 else 32
    composed = {sign for text in seen.texts or () for sign in unicodedata.normalize("NFC", text)}
    # punctuation and symbols; marks that combine with letters, as of Hindi, are parts of words
    signs = "".join(sorted(sign for sign in composed if unicodedata.category(sign)[0] in "PS" and sign not in "'-"))
    tokens: list[Entry] = [("unit", unit, "characters, subwords or words")]
    if signs:
        tokens.append(("remove", signs, "neither learned nor scored"))
    if preset:
        return _encoded(path, seen, tokens, preset, frozen)
    name = "conformer" if long and count >= 1000 else "quartz"
    model: list[Entry] = [("name", name, "quartz is faster, conformer better on long sentences")]
    augment: list[Entry] = [("speed", 0.1, ""), ("frequency_masks", 2, ""), ("time_masks", 2, "")]
    if unit == "words" and count < 1000:  # a word lasts 0.3 s: a network with a longer view memorises phrases
        model += [("width", 64, ""), ("kernels", [5, 7], "frames"), ("stride", 4, "frames")]
        augment += [("time_width", 0.06, "s; longer ones would hide whole words"), ("noise", 0.5, "share")]
    sections = [
        "task: speech.transcription",
        section("data", _data(path, seen, rate, [])),
        section("frontend", [("mels", 40 if rate == 8000 else 80, ""), ("normalize", "recording", "")]),
        section("model", model),
        section("tokens", tokens),
        section("augment", augment),
        section("train", [*_train(_kept(seen), batch, TEXT_STEPS, most=120, peak=0.001 if name == "conformer" else 0.004, ema=0.98),
                          ("clip", {"global_norm": 5.0}, "")]),
    ]
    return "\n".join(sections)

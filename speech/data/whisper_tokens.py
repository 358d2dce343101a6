"""Whisper's tokens: pieces of bytes and marks, which decoding begins and ends with, and which it never writes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pipelines.base.errors import ConfigError
from pipelines.encoders import presets
from pipelines.encoders.presets import hub
from speech.data.tokens import Alphabet, Encoder

# what is no speech: annotations, music and lists (openai/whisper, tokenizer.py, non_speech_tokens)
SIGNS = [*'"#()*+/:;<=>@[\\]^_`{|}~「」『』', "<<", ">>", "<<<", ">>>", "--", "---", "-(", "-[", "('", '("', "((", "))", "(((", ")))", "[[",
         "]]", "{{", "}}", "♪♪", "♪♪♪"]
MUSIC = "♩♪♫♬♭♮♯"
NEVER = ("<|translate|>", "<|transcribe|>", "<|startoftranscript|>", "<|startofprev|>", "<|startoflm|>")
NO_SPEECH = ("<|nospeech|>", "<|nocaptions|>")  # by version
BEFORE = "<|startofprev|>"  # of what was said before
MOST_BEFORE = 64  # tokens of it
DIGITS = {"en": dict(zip("0123456789", ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]))}  # as said
START, END, UNTIMED, TASK = "<|startoftranscript|>", "<|endoftext|>", "<|notimestamps|>", "<|transcribe|>"


def learn(name: str, language: str | None, times: bool = False, *, key: str = "model.language") -> dict[str, Any]:
    """The facts `tokens`, `merges` and `marks` of a preset's tokenizer.

    Args:
        name: of the preset.
        language: such as "en"; None for a preset of English alone, or to have it recognised.
        times: time stamps are to be written.
        key: the setting that named the language, for messages.

    Raises:
        ConfigError: the preset has no tokenizer of Whisper's, does not know the language, or has no time stamps.
    """
    preset = presets.find(name, domain="speech")
    preset.require_tokenizer()
    tokenizer = hub().tokenizers.Tokenizer.from_preset(str(preset.folder))
    special: dict[str, int] = {**tokenizer._special_token_dict, **(tokenizer.language_tokens or {})}
    several = {mark[2:-2]: number for mark, number in (tokenizer.language_tokens or {}).items()}
    if language is not None and language not in (several or {"en": 0}):
        raise ConfigError(f"{key}: {name} knows no {language!r}; it knows {', '.join(sorted(several)) or 'English alone (en)'}")
    numbers = {**tokenizer.vocabulary, **special}
    tokens = [f"<|{number}|>" for number in range(max(max(numbers.values()) + 1, preset.config["config"]["vocabulary_size"]))]
    for token, number in numbers.items():
        tokens[number] = token
    begin = [special[START]]
    if several:
        begin += [several[language] if language else -1, special[TASK]]
    if times and special[UNTIMED] + 1 >= len(tokens):
        raise ConfigError(f"model.times: {name} has no tokens of times behind {UNTIMED}; leave the setting out")
    untimed = special[UNTIMED]
    suppressed = {*_suppressed(numbers), *([untimed] if times else [])}
    marks = {"prompt": begin if times else [*begin, untimed], "times": untimed + 1 if times else None, "end": special[END],
             "languages": sorted(several.values()) if not language else [], "suppressed": sorted(suppressed),
             "suppressed_first": [*_first(numbers, " "), special[END]]}
    return {"tokens": tokens, "merges": list(tokenizer.merges), "marks": marks}


def names(name: str, language: str, classes: Sequence[str]) -> dict[str, Any]:
    """The fact `names` of a preset, to score the classes' names as the first word.

    Returns:
        `prompt`: all names in words, as what was said before, where they are few, and the marks that decoding begins with; `first`: the
        first token of each name as it stands.

    Raises:
        ConfigError: as `learn`, or the preset is no Whisper.
    """
    preset = presets.find(name, domain="speech")
    if preset.backbone != "WhisperBackbone":
        raise ConfigError(f"model.names: {name} is a {preset.backbone}; of Whisper's presets alone the decoder is used here; leave it out")
    known = learn(name, language, key="model.names")
    tokens = WhisperTokens(known)
    plain = [one.replace("_", " ") for one in classes]
    spoken = tokens.encode(" ".join(DIGITS.get(language, {}).get(one, one) for one in plain))
    room = min(MOST_BEFORE, preset.config["config"]["max_decoder_sequence_length"] - len(known["marks"]["prompt"]) - 1)
    before = [known["tokens"].index(BEFORE), *spoken] if BEFORE in known["tokens"] and len(spoken) <= room else []
    return {"prompt": [*before, *known["marks"]["prompt"]], "first": [tokens.encode(one)[0] for one in plain]}


def _suppressed(numbers: Mapping[str, int]) -> list[int]:
    never = {numbers[mark] for mark in (*NEVER, *NO_SPEECH) if mark in numbers}
    for sign in SIGNS:
        never.update(_first(numbers, sign) + _first(numbers, " " + sign))
    for sign in (" -", " '", *MUSIC, *(" " + sign for sign in MUSIC)):
        for size in range(len(_written(sign)), 0, -1):  # the first piece of it, which is no speech either
            if _written(sign)[:size] in numbers:
                never.add(numbers[_written(sign)[:size]])
                break
    return sorted(never)


def _first(numbers: Mapping[str, int], text: str) -> list[int]:
    """The number of a text that is one token; none where it is several."""
    return [numbers[_written(text)]] if _written(text) in numbers else []


@cache
def _letters() -> dict[int, str]:
    """The character by which byte-level BPE writes each byte (Radford et al. 2019)."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    rest = [byte for byte in range(256) if byte not in plain]
    return {**{byte: chr(byte) for byte in plain}, **{byte: chr(256 + place) for place, byte in enumerate(rest)}}


def _written(text: str) -> str:
    return "".join(_letters()[byte] for byte in text.encode())


def pieces(tokens: Sequence[str]) -> list[bytes]:
    """What each token writes; marks write nothing."""
    byte = {letter: number for number, letter in _letters().items()}
    return [b"" if token.startswith("<|") and token.endswith("|>") else bytes(byte[letter] for letter in token if letter in byte)
            for token in tokens]


@dataclass(frozen=True)
class WhisperAlphabet(Alphabet):
    """Token numbers, from 0, as text. `pieces`: the bytes that each token writes."""

    pieces: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, tokens: Sequence[str]) -> "WhisperAlphabet":
        return cls("pieces", tuple(tokens), tuple(pieces(tokens)))

    def text(self, numbers: Sequence[int]) -> str:
        return b"".join(self.pieces[number] for number in numbers).decode("utf-8", "ignore").strip()


class WhisperTokens(Encoder):
    """Texts to token numbers, from the facts."""

    def __init__(self, facts: Mapping[str, Any]):
        super().__init__(WhisperAlphabet.of(facts["tokens"]))
        self.facts = facts
        self._tokenizer: Any = None

    def encode(self, text: str) -> list[int]:
        """Numbers of the tokens of a text, which begins with a blank as all that Whisper writes."""
        if self._tokenizer is None:
            tokens = self.facts["tokens"]
            special = {token: number for number, token in enumerate(tokens) if token.startswith("<|") and token.endswith("|>")}
            kind = hub().tokenizers.WhisperTokenizer
            self._tokenizer = kind(vocabulary={token: number for number, token in enumerate(tokens) if token not in special},
                                   merges=list(self.facts["merges"]), special_tokens=special)
        return [int(number) for number in self._tokenizer(f" {text}")] if text else []

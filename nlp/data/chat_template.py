"""Dialogues as the text that a language model was trained with: a Jinja template, as presets bring it. Imports no TensorFlow."""

import json
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from pipelines.base.errors import ConfigError, DataError
from pipelines.base.json_text import parse_json
from pipelines.config.messages import listed, show

Message = dict[str, str]  # "role" and "content"
ROLES = ("system", "user", "assistant")
NAMES = {"human": "user", "gpt": "assistant", "bot": "assistant", "model": "assistant", "chatgpt": "assistant", "developer": "system"}
COLUMNS = ("messages", "conversations", "conversation", "dialogue", "dialog")  # of tables
FILES = "chat_template.jinja", "tokenizer_config.json"
WRITTEN = "\ue002"  # stands before a text that a template wrote, in which marks are marks; no message has it
JOINER = "\u2060"  # stands in a message's text where it would else be a mark
MOST = 100_000  # characters of a template
# methods and filters that make any number of characters
PADDING = frozenset(("batch", "center", "expandtabs", "format", "format_map", "indent", "ljust", "rjust", "slice", "zfill"))


class ChatTemplate:
    """Writes dialogues.

    Args:
        text: Jinja, as transformers reads it; without `range`, products of texts and what pads them, so that it ends soon.
        begin, end: the names of the tokens that it may ask for: bos_token, eos_token.
        marks: names of tokens that are no text.
    """

    def __init__(self, text: str, begin: str, end: str, marks: Iterable[str]):
        self.text, self.begin, self.stop = text, begin, end
        self.marks = sorted(filter(None, marks), key=lambda mark: (-len(mark), mark))

    @cached_property
    def _template(self) -> Any:
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        class Environment(ImmutableSandboxedEnvironment):
            intercepted_binops = frozenset(["*", "**", "%"])

            def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
                if operator == "**" or not all(isinstance(one, (int, float)) for one in (left, right)):
                    raise TemplateError(f"{operator} of these values is not computed in a template")
                return super().call_binop(context, operator, left, right)

            def wrap_str_format(self, value: Any) -> None:
                """`format` is looked at as other methods are."""

            def is_safe_attribute(self, obj: Any, attribute: str, value: Any) -> bool:
                return attribute not in PADDING and super().is_safe_attribute(obj, attribute, value)

        def refuse(text: str) -> None:
            raise TemplateError(text)

        def refuse_padding(*_: Any, **__: Any) -> None:
            raise TemplateError(f"none of {', '.join(sorted(PADDING))} is computed in a template")

        environment = Environment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
        environment.globals = {"raise_exception": refuse, "namespace": environment.globals["namespace"]}
        environment.filters |= dict.fromkeys(PADDING & set(environment.filters), refuse_padding)
        environment.filters["tojson"] = lambda value, indent=0: json.dumps(value, ensure_ascii=False, indent=min(indent, 8) or None)
        return environment.from_string(self.text)

    def plain(self, text: str) -> str:
        """A message's text without marks: a joiner that nobody sees stands in each."""
        text = text.replace(WRITTEN, "")
        for mark in self.marks:
            text = text.replace(mark, mark[0] + JOINER + mark[1:])
        return text

    def write(self, messages: Sequence[Message], *, ask: bool) -> str:
        """The text of a dialogue. Raises DataError where the template refuses it.

        Args:
            ask: what stands before the next answer follows.
        """
        from jinja2 import TemplateError

        own = [{"role": one["role"], "content": self.plain(one["content"])} for one in messages]
        try:
            more = {"bos_token": self.begin, "eos_token": self.stop, "tools": None}
            return str(self._template.render(messages=own, add_generation_prompt=ask, **more))
        except (TemplateError, TypeError, ValueError, KeyError, RecursionError, ZeroDivisionError, OverflowError, AttributeError) as error:
            raise DataError(f"the chat template does not write it: {error}") from None

    def parts(self, messages: Sequence[Message]) -> list[tuple[str, bool]]:
        """The text of a dialogue in parts, and whether each is an answer with the mark of its end. What follows the last answer is left
        out. Raises DataError."""
        found, done = [], 0
        for number, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            before, whole = self.write(messages[:number], ask=True), self.write(messages[:number + 1], ask=False)
            answer = whole[len(before):]
            if not whole.startswith(before) or self.end not in answer:
                raise DataError("the chat template does not write answers behind what asks for them; give one that does (template: FILE)")
            answer = answer[:answer.index(self.end) + len(self.end)]
            found += [(before[done:], False), (answer, True)]
            done = len(before) + len(answer)
        return found

    @cached_property
    def trims(self) -> bool:
        """Whether blanks around a message are left out."""
        return "\ue003 " not in self.write([{"role": "user", "content": "\ue003 "}], ask=True)

    @cached_property
    def end(self) -> str:
        """The mark behind an answer. Raises DataError where there is none."""
        asked, answer = {"role": "user", "content": "?"}, "\ue003"
        text = self.write([asked, {"role": "assistant", "content": answer}], ask=False)
        behind = text[text.rfind(answer) + 1:]
        found = min(((behind.index(mark), mark) for mark in self.marks if mark in behind), default=None)
        if answer not in text or found is None:
            raise DataError("the chat template writes no mark behind an answer, so none would end; give one that does (template: FILE)")
        return found[1]

    def around(self, system: str | None) -> tuple[str, str]:
        """What stands before and behind a single message of the user. Raises DataError."""
        text = self.write([*first(system), {"role": "user", "content": "\ue003"}], ask=True)
        before, found, behind = text.partition("\ue003")
        if not found or "\ue003" in behind:
            raise DataError("the chat template does not write a message as it is, once; give one that does (template: FILE)")
        return before, behind


def first(system: str | None) -> list[Message]:
    return [{"role": "system", "content": system}] if system else []


def opened(messages: Sequence[Message], system: str | None) -> list[Message]:
    """With the system's first message, where there is none."""
    return list(messages) if messages and messages[0]["role"] == "system" else [*first(system), *messages]


def without_oldest(messages: list[Message], fits: Callable[[list[Message]], bool]) -> list[Message]:
    """Without as many of the oldest questions and their answers as do not fit; at least the last question stays. What the system said
    before the first one stays, too.

    Args:
        fits: of fewer messages wherever of more. Asked for each halving, so that a dialogue of many messages takes no longer than its text.
    """
    asked = [number for number, one in enumerate(messages) if one["role"] == "user"]
    first = messages[:asked[0]] if asked else []

    def later(number: int) -> list[Message]:
        return [*(one for one in first if one["role"] == "system"), *messages[asked[number]:]] if number else messages

    low, high = 0, max(0, len(asked) - 1)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(later(middle)) else (middle + 1, high)
    return later(low)


def of_preset(folder: Path, name: str) -> str:
    """A preset's own template. Raises ConfigError where it has none."""
    plain, config = (folder / file for file in FILES)
    if plain.is_file():
        return read(plain)
    found: Any = None
    if config.is_file():
        try:
            found = parse_json(config.read_bytes()).get("chat_template")
        except (OSError, ValueError, AttributeError) as error:
            raise ConfigError(f"{config}: cannot be read ({error}); copy the preset again") from None
    if isinstance(found, list):  # of several, the usual one
        found = next((one.get("template") for one in found if isinstance(one, dict) and one.get("name") == "default"), None)
    if not isinstance(found, str):
        raise ConfigError(f"model.preset: {name} has no chat template ({listed(list(FILES), 'or')} in {folder}): it was not trained for "
                          "dialogues, or the file is missing; copy it, or give one: template: FILE")
    return found


def read(path: Path) -> str:
    """A template's file. Raises ConfigError."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error})") from None
    if len(text) > MOST:
        raise ConfigError(f"{path}: has {len(text):,} characters; a chat template has at most {MOST:,}")
    return text


def messages_of(value: Any) -> list[Message]:
    """The messages of a dialogue, in OpenAI's or ShareGPT's form; a text is one of the user. Raises DataError."""
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    if isinstance(value, dict):
        value = next((value[key] for key in ("messages", "conversations") if key in value), value)
    if not isinstance(value, (list, tuple)) or not len(value):
        raise DataError(f"{show(value)} is no list of messages, each with role and content")
    return [_message(one) for one in value]


def _message(one: Any) -> Message:
    if not isinstance(one, dict):
        raise DataError(f"{show(one)} is no message: it has no role and content")
    role, content = one.get("role", one.get("from")), one.get("content", one.get("value"))
    role = NAMES.get(role, role) if isinstance(role, str) else role
    if role not in ROLES:
        raise DataError(f"{show(role)} is no role that is known: {listed(list(ROLES), 'and')}")
    if isinstance(content, list):  # OpenAI's parts
        if not all(isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str) for part in content):
            raise DataError("a message has other parts than texts, which are not read")
        content = "".join(part["text"] for part in content)
    if not isinstance(content, str):
        raise DataError(f"{show(content)} is no text of a message")
    return {"role": role, "content": content}

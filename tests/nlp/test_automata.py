"""Forms of written texts: exactly those token sequences are allowed that write a text of the form."""

import importlib.util
import itertools
import json
import os
import re
from datetime import datetime

import jsonschema
import numpy as np
import pytest

from nlp.settings.language import TextForm
from pipelines.base.errors import DataError
from pipelines.outputs import automata, json_schemas
from pipelines.outputs.automata import TokenTrie, compile_form

needs_forms = pytest.mark.skipif(
    importlib.util.find_spec("outlines_core") is None and not os.environ.get("QUARTET_REQUIRE_EXTRAS"),
    reason="needs the extra `constrained`")
pytestmark = needs_forms

WORDS = [b"a", b"b", b"ab", b"ba", b"abc", "\u00e9".encode(), b"\xc3", b"\xa9", b"1", b""]
PARTS = ['{"', '": "', '", "', "true", " a", '"}', "12"]
BYTES = [b"", b"", *(bytes([number]) for number in range(256)), *(part.encode() for part in PARTS), b""]


def texts_of(form, words, most):
    """Every sequence of tokens that the automaton lets through, of at most `most`."""
    automaton, found = compile_form(form, TokenTrie([*words, b""]), len(words)), set()

    def follow(state, ids):
        allowed = np.flatnonzero(automaton.allowed(state, most - len(ids))) if len(ids) < most else []
        assert len(ids) == most or len(allowed), ids  # no way leads to where nothing may follow
        if len(words) in allowed or (len(ids) == most and automaton.left[state] == 0):
            found.add(ids)
        assert len(ids) < most or automaton.left[state] == 0
        for token in allowed:
            if token < len(words):
                follow(automaton.behind(state, token), (*ids, int(token)))

    follow(0, ())
    return found


@pytest.mark.parametrize("regex", [
    "a|ab", "(ab|a)*c?1?", "[^1]{1,3}", "(a|b)*a(a|b)", "\u00e9+1?", r"\d\d|ba", "(?:ab){2}|a*", "ab*?|abba"])
def test_the_allowed_tokens_are_those_that_write_a_text_of_the_form(regex):
    expected = set()
    for length in range(5):
        for ids in itertools.product(range(len(WORDS) - 1), repeat=length):
            try:
                text = b"".join(WORDS[one] for one in ids).decode()
            except UnicodeDecodeError:
                continue
            if re.fullmatch(regex, text, re.ASCII):
                expected.add(ids)
    assert texts_of({"regex": regex}, WORDS, 4) == expected and expected


def test_choices_are_texts_and_not_expressions():
    words = [b"a", b"a.", b".", b"*", b"b", b"\n"]
    found = texts_of({"choice": ["a.*", "a", "b\n"]}, words, 3)
    assert {b"".join(words[one] for one in ids) for ids in found} == {b"a.*", b"a", b"b\n"} and (1, 3) in found and (0, 2, 3) in found


SCHEMAS = [
    {"type": "object", "properties": {"intent": {"enum": ["book", "book flight", 3, None]}, "words": {"type": "integer"}},
     "required": ["intent"]},
    {"type": "object", "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 6},
        "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-c]+$"}, "minItems": 1, "maxItems": 3},
        'a "q.': {"const": None}},
     "required": ["name", "tags"], "additionalProperties": False},
    {"anyOf": [{"type": "number"}, {"type": "boolean"}, {"$ref": "#/$defs/day"}], "$defs": {"day": {"type": "string", "format": "date"}}},
    *({"type": "string", "format": name} for name in json_schemas.FORMATS), {"type": "string", "pattern": "a|[b-d]\\d$"},
    {"type": "integer", "enum": [1, 12, -3]}, {"enum": ['a"b*\\', {"x": None}]}, {"type": "array"}, {},
    {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]}, "maxItems": 2, "$defs": {"a": {"type": "boolean"}}},
    {"type": ["string", "null"], "title": "noted"}, {"const": {"a": [1, 2]}}, {"type": "object"}]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_what_is_drawn_by_a_schema_keeps_to_it(schema):
    trie, draw, whole = TokenTrie(BYTES), np.random.default_rng(0), set()
    automaton = compile_form({"json_schema": schema}, trie, len(BYTES) - 1)
    for number in range(200):
        most, state, ids = int(automaton.left[0]) + number % 40, 0, []
        while len(ids) < most:
            token = int(draw.choice(np.flatnonzero(automaton.allowed(state, most - len(ids)))))
            if token == len(BYTES) - 1:
                break
            state = automaton.behind(state, token)
            ids.append(token)
        text = b"".join(BYTES[one] for one in ids).decode()
        value = json.loads(text)
        jsonschema.validate(value, schema, format_checker=jsonschema.FormatChecker(["date", "uuid"]))
        if schema.get("format") in ("time", "date-time"):  # of which jsonschema knows another one, or none
            datetime.fromisoformat(f"{'2026-11-29T' if schema['format'] == 'time' else ''}{value}".replace("Z", "+00:00"))
        whole.add(text)
    assert len(whole) > 1 or "const" in schema


def schema(**parts):
    return {"json_schema": {name.replace("ref", "$ref").replace("defs", "$defs"): value for name, value in parts.items()}}


@pytest.mark.parametrize("form, words", [
    ({"regex": "("}, "syntax is that of Rust"), ({"regex": "a(?=b)"}, "syntax is that of Rust"), ({"regex": "z"}, "no text of this form"),
    ({"regex": ".{200000}"}, "can be followed|too large"), (schema(type="number", minimum=3), "minimum beside type cannot be kept to"),
    (schema(type="object", properties={"a": {"type": "array", "items": {"allOf": []}}}), "/properties/a/items: allOf without a type"),
    (schema(type="object", properties={"a": {}}, required=["b"]), "'b' is none of the properties"),
    (schema(type="string", format="iban"), "format: 'iban'"), (schema(type="array", items=3), "/items: 3 is no JSON schema"),
    (schema(type="string", pattern="a", maxLength=3), "maxLength beside pattern"), (schema(type="cat"), "type: 'cat' is none of"),
    (schema(anyOf=[3]), "/anyOf/0: 3 is no JSON schema"), (schema(required=3), "required: 3 is no list"),
    (schema(const={1, 2}), "no JSON: "),
    (json.loads('{"json_schema": ' + '{"type": "array", "items": ' * 90 + "{}" + "}" * 91), "more than 64"),
    (schema(ref="#/defs/a", defs={"a": {"type": "null"}}), "none of the schema's"), (schema(ref="#"), "none of the schema's"),
    (schema(ref="#/$defs/a", defs={"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}), "holds itself"),
    (schema(ref="#/$defs/a", maxLength=3, defs={"a": {"type": "string"}}), "maxLength beside .ref"),
    (schema(type="string", enum=["a", 1]), "enum: 1 is not of type string"),
    (schema(type="integer", const=True), "True is not of type integer"),
    (schema(type="string", anyOf=[{"type": "null"}]), "type beside anyOf"),
    (schema(type=["string", "null"], maxLength=3), "maxLength beside type"),
    (schema(type="integer", maxLength=3), "maxLength beside type"), (schema(maxLength=3), "maxLength without a type"),
    (schema(type="string", pattern=".+"), "lets quotes, backslashes"), (schema(type="string", pattern="[^x]"), "lets quotes, backslashes")])
def test_what_is_no_form_is_said(form, words):
    with pytest.raises(DataError, match=words):
        compile_form(form, TokenTrie([*WORDS, b""]), len(WORDS))


@pytest.mark.slow(seconds=20)
@pytest.mark.parametrize("form", [{"regex": "(a|b)*a(a|b){24}"}, {"json_schema": {"type": "string", "maxLength": 10 ** 9}}])
def test_a_form_without_bounds_ends_soon(form):
    with pytest.raises(DataError, match="too large"):
        compile_form(form, TokenTrie([*WORDS, b""]), len(WORDS))


def test_equal_columns_alone_share_a_kind():
    table = np.random.default_rng(0).integers(0, 3, [4, 200]).astype(np.int16)
    kinds, columns = automata._kinds(table)
    np.testing.assert_array_equal(table[:, columns][:, kinds], table)
    assert len(columns) == len(np.unique(table, axis=1).T)


def test_one_kind_of_form_is_given():
    assert not TextForm(choice=["a"]).problems() and TextForm(regex="a", choice=["a"]).problems() and TextForm().problems()
    assert TextForm(choice=[]).problems()

"""Scalars are YAML 1.2's; every value knows its line; nothing but data is read."""

import math

import pytest

from pipelines.base.errors import ConfigError
from pipelines.config.problems import Place
from pipelines.config.yaml_text import inline, parse, scalar, to_yaml

SCALARS = {
    "1e-3": 1e-3, "1E3": 1000.0, "1.": 1.0, ".5": 0.5, "-1.5e+2": -150.0, "+3": 3, "007": 7, "0o17": 15, "0x1F": 31, "12": 12,
    "true": True, "True": True, "FALSE": False, "null": None, "~": None, "": None, "Null": None,
    "yes": "yes", "no": "no", "on": "on", "off": "off", "y": "y", "N": "N", "1_000": "1_000", "1,000": "1,000", "0b1": "0b1",
    "12:30:45": "12:30:45", "2024-01-01": "2024-01-01", "1e": "1e", "e3": "e3", ".": ".", "-": "-", "0x": "0x", "tRUE": "tRUE",
    "1.2.3": "1.2.3",
}
TEXTS = [
    "yes", "no", "on", "true", "null", "~", "", "1", "1e-3", "1.0", ".5", "012", "0o17", "1_000", "2024-01-01", "12:30", "NaN", ".nan",
    "a,b", " a", "a ", "a: b", "a #b", "- a", "*a", "&a", "!a", "%a", "@a", "`a`", "'", '"', "it's", "a\nb", "a\tb", "[a]", "{a}", "ü",
    "日本", "<<", "=", "?", "|", ">", "\\", "C:\\data", "x" * 300,
]


@pytest.mark.parametrize("text", SCALARS, ids=repr)
def test_scalar(text: str) -> None:
    value = scalar(text)
    assert value == SCALARS[text]
    assert type(value) is type(SCALARS[text])


def test_not_a_number() -> None:
    assert math.isnan(scalar(".nan"))
    assert scalar("-.inf") == -math.inf


def test_quotes_make_text() -> None:
    assert parse("a: '1'\nb: \"true\"\nc: !!str 1\nd: !!float 1", "x").values == {"a": "1", "b": "true", "c": "1", "d": 1.0}


def test_keys_are_text() -> None:
    assert parse("1: a\nyes: b\nnull: c\n1.50: d", "x").values == {"1": "a", "yes": "b", "null": "c", "1.50": "d"}


def test_lines() -> None:
    document = parse("# top\na: 1\nb:\n  c:\n    - 1\n    - {d: 2,\n       e: 3}\n  f: |\n    text\n", "x.yaml")
    lines = {route: place.line for route, place in document.places.items()}
    assert lines == {(): 2, ("a",): 2, ("b",): 3, ("b", "c"): 4, ("b", "c", 0): 5, ("b", "c", 1): 6, ("b", "c", 1, "d"): 6,
                     ("b", "c", 1, "e"): 7, ("b", "f"): 8}
    assert document.place(("b", "c", 1, "missing", "deeper")) == Place("x.yaml", 6)
    assert document.header == "top"


def test_aliases_are_copied() -> None:
    values = parse("a: &x [1, 2]\nb: *x", "x").values
    assert values == {"a": [1, 2], "b": [1, 2]}
    assert values["a"] is not values["b"]


def test_aliases_cannot_explode() -> None:
    text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    for level in range(1, 12):
        text += f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n"
    with pytest.raises(ConfigError, match="grows without end"):
        parse(text, "x")


@pytest.mark.parametrize("text", ["[" * 5000, "a: " * 5000, "{a: " * 5000])
def test_depth_is_no_crash(text: str) -> None:
    with pytest.raises(ConfigError):
        parse(text, "x")


@pytest.mark.parametrize("text", TEXTS, ids=repr)
def test_text_is_written_so_that_it_is_read_again(text: str) -> None:
    values = {"a": text, "b": [text], "c": {text or "k": text}}
    assert parse(to_yaml(values), "x").values == values
    assert parse(f"a: {inline(text)}\nb: {inline({'k': [text]})}", "x").values == {"a": text, "b": {"k": [text]}}


@pytest.mark.parametrize("number", [1e-5, 1e300, 0.1, 1 / 9, 1.0, -0.0, 123456789.123, 5e-324])
def test_numbers_are_written_whole(number: float) -> None:
    value = parse(to_yaml({"a": number}), "x").values["a"]
    assert value == number and type(value) is float


def test_bytes_that_are_no_text(tmp_path) -> None:
    from pipelines.config.load import load

    path = tmp_path / "mine.yaml"
    path.write_bytes(b"task: x\n# caf\xe9\n")
    with pytest.raises(ConfigError, match=r"mine\.yaml:2: byte 0xe9 is not UTF-8"):
        load(path)
    path.write_bytes(b"\xef\xbb\xbftask: vision.classification\r\ndata: {source: digits}\r\nmodel: {name: cnn}\r\n")
    assert load(path).experiment.task == "vision.classification"

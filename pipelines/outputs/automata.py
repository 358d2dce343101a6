"""The form of a written text - one of some texts, a regular expression, JSON by a schema - as an automaton over a model's tokens.

outlines-core makes an automaton over bytes of it (`regex_process`); each token is then followed through it, byte by byte. Imports no
TensorFlow.
"""

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipelines.base.errors import ConfigError, DataError
from pipelines.outputs.json_schemas import kept_to, patterns_of
from pipelines.task.writer import NEVER, Automaton

SECONDS = 30  # of a process that makes an automaton
MOST = 1 << 28  # states times tokens
STATES = 20_000
AT_ONCE = 32  # states


class TokenTrie:
    """What tokens write, as a tree of bytes: of tokens with the same beginning it is followed once.

    Args:
        written: bytes of each token; one that writes nothing stands in no form.
    """

    def __init__(self, written: Sequence[bytes]):
        places, self.levels = {b"": 0}, list[tuple[int, np.ndarray, np.ndarray]]()
        for length in range(1, max(map(len, written), default=0) + 1):
            begun = sorted({one[:length] for one in written if len(one) >= length})
            parents = np.array([places[one[:-1]] for one in begun])
            self.levels.append((len(places), parents, np.array([one[-1] for one in begun])))
            places.update({one: len(places) + number for number, one in enumerate(begun)})
        self.nodes, self.tokens = len(places), np.array([places[one] for one in written])

    def behind(self, table: np.ndarray, states: np.ndarray) -> np.ndarray:
        """The state behind each token from some states, [states, tokens] int16, by that behind each byte, [all states, 256] int16."""
        found = np.empty([self.nodes, len(states)], np.int16)
        found[0] = states
        for start, parents, last in self.levels:
            found[start:start + len(parents)] = table[found[parents], last[:, None]]
        found[0] = len(table) - 1
        return found[self.tokens].T


def compile_form(form: Mapping[str, Any], trie: TokenTrie, end: int) -> Automaton:
    """The automaton of a form.

    Args:
        form: {"choice": texts}, {"regex": TEXT}, in the syntax of Rust's regex, or {"json_schema": OBJECT}.
        end: the token that ends a text.

    Raises:
        ConfigError: there is no outlines-core.
        DataError: it is no form; it is too large; or these tokens write no text of it.
    """
    table, final = _of_bytes(form, MOST // len(trie.tokens))
    states, dead = len(table), len(table) - 1
    whole = np.empty([states, len(trie.tokens)], np.int16)
    for start in range(0, states, AT_ONCE):
        whole[start:start + AT_ONCE] = trie.behind(table, np.arange(start, min(start + AT_ONCE, states)))
    whole[:, end] = np.where(final, np.arange(states), dead)
    kinds, columns = _kinds(whole)
    table = np.ascontiguousarray(whole[:, columns])
    left = _left(table, final)
    if left[0] >= NEVER:
        raise DataError("no text of this form can be written with the tokens of this model")
    return Automaton(table, kinds, left)


def _kinds(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(of each column a number that equal columns share, of each number a column), by sums that others have once in 2 ** 47."""
    marks = np.random.default_rng(0).integers(0, 1 << 63, len(table), np.uint64)
    sums = np.zeros(table.shape[1], np.uint64)
    for mark, row in zip(marks, table):
        sums += mark * row.astype(np.uint64)
    _, columns, kinds = np.unique(sums, return_index=True, return_inverse=True)
    return kinds.reshape(-1).astype(np.int32), columns


def _left(table: np.ndarray, final: np.ndarray) -> np.ndarray:
    """Fewest tokens from each state to an end, [states] int32: by breadth, backwards."""
    edges = [np.unique(row) for row in table]
    source = np.repeat(np.arange(len(table)), [len(one) for one in edges])
    target = np.concatenate(edges)
    order = np.argsort(target, kind="stable")
    source, starts = source[order], np.searchsorted(target[order], np.arange(len(table) + 1))
    left = np.where(final, 0, NEVER).astype(np.int32)
    front, length = np.flatnonzero(final), 0
    while len(front):
        length += 1
        before = np.unique(np.concatenate([source[starts[one]:starts[one + 1]] for one in front]))
        front = before[left[before] == NEVER]
        left[front] = length
    return left


def _of_bytes(form: Mapping[str, Any], most: int) -> tuple[np.ndarray, np.ndarray]:
    """(the state behind each byte, [states, 256] int16, whether a text may end in a state): the first one is the beginning, the last a dead
    end."""
    asked = _asked(form)
    if importlib.util.find_spec("outlines_core") is None:
        raise ConfigError("a form of written texts needs the extra `constrained`: pip install 'keras-quartet[constrained]'")
    most = min(most, STATES)
    try:
        done = subprocess.run([sys.executable, "-m", "pipelines.outputs.regex_process"], input=json.dumps({**asked, "states": most}),
                              capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        done = None
    if done is not None and done.returncode > 0 and "MemoryError" not in done.stderr:
        raise DataError(f"no form that can be followed: {(done.stderr.strip().splitlines() or [''])[-1]:.300}")
    if done is None or done.returncode != 0:
        raise DataError("this form is too large to be followed: lower what is repeated (maxLength, maxItems, {1000}), or nest less")
    found = json.loads(done.stdout)
    if "error" in found:
        raise DataError(f"no form that can be followed: {_said_of(form.get('regex'), found['error'])}")
    number = np.arange(found["states"])
    number[0], number[found["first"]] = found["first"], 0
    table = np.full([found["states"] + 1, 256], found["states"], np.int16)
    state, byte, after = np.array(found["edges"]).reshape(-1, 3).T
    table[number[state], byte] = number[after]
    final = np.zeros(len(table), bool)
    final[number[found["final"]]] = True
    return table, final


def _said_of(regex: str | None, error: str) -> str:
    """What is wrong with a regular expression, by Python where it knows, which names the place."""
    if regex is None:
        return error
    try:
        re.compile(regex)
    except (re.error, OverflowError, RecursionError) as known:
        error = str(known)
    return f"{error}; the syntax is that of Rust's regex: no look-around, no references to groups"


def _asked(form: Mapping[str, Any]) -> dict[str, Any]:
    """What the process is asked. Raises DataError."""
    (kind, value), = form.items()
    if kind == "choice":
        return {"regex": "|".join(map(re.escape, value))}
    if kind == "regex":
        return {"regex": value}
    schema = kept_to(value)
    try:
        json.dumps(schema)
    except TypeError as error:
        raise DataError(f"no JSON: {error}") from None
    return {"json_schema": schema, "patterns": patterns_of(schema)}

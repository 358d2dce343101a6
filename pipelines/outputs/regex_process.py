"""A regular expression, or a JSON schema, as a finite automaton over bytes: in a process of its own, since some are exponentially large.

stdin: {"regex": TEXT} or {"json_schema": OBJECT, "patterns": its patterns}, and "states": how many there may be. stdout: {"error": TEXT},
or {"states": N, "first": S, "final": [S], "edges": [[state, byte, next state], ...]} of a deterministic automaton in which a missing edge
is a dead end.
"""

import json
import re
import resource
import sys
from typing import Any

BEGIN = "\x00"  # stands before what is asked for; else the library also follows texts that begin anywhere, of which there are 2 ** length
END = r"\z"  # else an alternative hides longer ones behind it: of a|ab the second
DIGIT = re.compile(r"(\\\\)|\\d")  # a digit of any script; 0 to 9 are meant
UNQUOTED = {*range(1, 32), *b'"\\'}  # what a text of JSON has only in another form
MEMORY, SECONDS = 1 << 30, 5  # bytes, and of processor time


def automaton(regex: str) -> Any:
    """Over bytes, with 256 for an end. Raises ValueError."""
    from outlines_core import Index, Vocabulary

    regex = DIGIT.sub(lambda match: match[1] or "[0-9]", regex)
    return Index(f"{BEGIN}(?:{regex}){END}", Vocabulary(256, {bytes([byte]): [byte] for byte in range(256)}))


def compiled(asked: dict[str, Any]) -> dict[str, Any]:
    """See above."""
    from outlines_core.json_schema import build_regex_from_schema

    try:
        for pattern in asked.get("patterns", ()):
            if any(byte in UNQUOTED for behind in automaton(pattern).get_transitions().values() for byte in behind):
                return {"error": f"pattern: {pattern:.100} lets quotes, backslashes or ends of lines stand in a text, as . and [^a] "
                        "do; name the characters, as in [a-z ], or leave these out"}
        index = automaton(asked["regex"] if "regex" in asked else build_regex_from_schema(json.dumps(asked["json_schema"])))
    except ValueError as error:
        return {"error": str(error).split("\n")[0].strip()[:300]}
    edges, final = index.get_transitions(), index.get_final_states()
    if len(edges) > asked["states"]:
        return {"error": f"it has {len(edges):,} states, and {asked['states']:,} can be followed"}
    numbers = {state: number for number, state in enumerate(edges)}
    return {"states": len(edges), "first": numbers[edges[index.get_initial_state()][0]], "final": [numbers[one] for one in final],
            "edges": [(numbers[state], byte, numbers[after]) for state, behind in edges.items() for byte, after in behind.items()
                      if byte < 256 and after in numbers]}


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    print(json.dumps(compiled(json.load(sys.stdin))))

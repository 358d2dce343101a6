"""The meeting of hosts before a training: all are there, and agree on what they train.

TensorFlow waits without end for a host that never comes, deaf to signals and timeouts; so the hosts meet here first, with a deadline. The
chief listens on its own address, which TensorFlow uses afterwards. Imports no TensorFlow.
"""

import contextlib
import json
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import ndiff
from typing import Any

from extensions.cluster.hosts import Hosts
from pipelines.base.errors import ConfigError, HostLost
from pipelines.base.json_text import parse_json

DEADLINE = 120.0  # s
_LONGEST = 1 << 24  # bytes of a greeting
_GREETING = 5.0  # s in which a host that connected says who it is
_WORDS, _HEARTBEATS = "quartet training", "quartet heartbeats"  # what a connection is for
Connections = dict[int, socket.socket]  # by number: those to all followers at the chief, that to the chief at a follower


@dataclass(frozen=True)
class Met:
    """Two connections between the chief and each follower: for what they say to each other, and for heartbeats alone."""

    words: Connections
    heartbeats: Connections


def meet(hosts: Hosts, facts: Mapping[str, str], *, deadline: float = DEADLINE) -> Met:
    """Waits until all hosts are there.

    Args:
        hosts: who.
        facts: name -> text that must be the same on all of them.
        deadline: s.

    Raises:
        ConfigError: the facts differ, or this host's port is in use.
        HostLost: a host did not come.
    """
    until = time.monotonic() + deadline
    with _listening(hosts) as own:
        if hosts.number == 0:
            return _as_chief(hosts, facts, own, until, deadline)
    return _as_follower(hosts, facts, until, deadline)


def _listening(hosts: Hosts) -> socket.socket:
    """A socket on this host's port. A follower's is only tried, so that a port in use is an error before TensorFlow begins."""
    port = _address(hosts, hosts.number)[1]
    try:
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=2 * len(hosts.addresses))
        return socket.create_server(("", port), backlog=2 * len(hosts.addresses))
    except OSError as error:
        raise ConfigError(f"{_title(hosts, hosts.number)}: the port {port}: {error.strerror or error}; does another training run here?"
                          ) from error


def _as_chief(hosts: Hosts, facts: Mapping[str, str], listener: socket.socket, until: float, deadline: float) -> Met:
    words: Connections = {}
    heartbeats: Connections = {}
    theirs: dict[int, Mapping[str, str]] = {}
    followers = range(1, len(hosts.addresses))
    try:
        while len(words) + len(heartbeats) < 2 * len(followers):
            number, purpose, connection, greeting = _greeted(hosts, listener, until)
            if purpose == _WORDS:
                for before in (words.pop(number, None), heartbeats.pop(number, None)):  # it was started again meanwhile
                    if before is not None:
                        before.close()
                theirs[number] = greeting["facts"]
            (words if purpose == _WORDS else heartbeats)[number] = connection
    except TimeoutError:
        missing = ", ".join(_title(hosts, number) for number in followers if number not in heartbeats)
        text = f"{missing} did not come within {deadline:.0f} s"
        _refuse(words, HostLost.exit_status, text)
        raise HostLost(f"{text}; start the same command on all hosts") from None
    for number in followers:
        differs = _difference(hosts, number, facts, theirs[number])
        if differs:
            _refuse(words, ConfigError.exit_status, differs)
            raise ConfigError(differs)
    for connection in words.values():
        _say(connection, {"welcome": True})
    for connection in (*words.values(), *heartbeats.values()):
        connection.settimeout(None)
    return Met(words, heartbeats)


def _greeted(hosts: Hosts, listener: socket.socket, until: float) -> tuple[int, str, socket.socket, dict[str, Any]]:
    """(number, purpose, connection, greeting) of the next follower that connects. Raises TimeoutError."""
    while True:
        listener.settimeout(max(0.01, until - time.monotonic()))
        connection, _ = listener.accept()
        greeting = _heard(connection, min(_GREETING, max(0.1, until - time.monotonic())))
        number, purpose = greeting.get("number"), greeting.get("purpose")
        if purpose in (_WORDS, _HEARTBEATS) and isinstance(number, int) and 0 < number < len(hosts.addresses):
            return number, purpose, connection, greeting
        connection.close()  # a stranger


def _as_follower(hosts: Hosts, facts: Mapping[str, str], until: float, deadline: float) -> Met:
    why = "no answer"
    while time.monotonic() < until:
        with contextlib.ExitStack() as unwelcome:
            try:
                words, beats = (unwelcome.enter_context(socket.create_connection(_address(hosts, 0), timeout=2.0)) for _ in range(2))
            except OSError as error:
                why = error.strerror or str(error)
                time.sleep(0.2)
                continue
            _say(words, {"purpose": _WORDS, "number": hosts.number, "facts": dict(facts)})
            _say(beats, {"purpose": _HEARTBEATS, "number": hosts.number})
            answer = _heard(words, deadline + _GREETING)  # the chief may have come later, and waits as long
            if answer.get("welcome"):
                unwelcome.pop_all()
                for connection in (words, beats):
                    connection.settimeout(None)
                return Met({0: words}, {0: beats})
        if answer:
            kind = ConfigError if answer.get("status") == ConfigError.exit_status else HostLost
            raise kind(str(answer.get("text", "")))
        why = "it closed the connection"
        time.sleep(0.2)
    raise HostLost(f"{_title(hosts, 0)}, where the hosts meet, did not come within {deadline:.0f} s ({why}); start the same command on all "
                   "hosts")


def _difference(hosts: Hosts, number: int, own: Mapping[str, str], theirs: Mapping[str, str]) -> str | None:
    """What differs first between the facts of the chief and of another host, in one line."""
    for name, text in own.items():
        other = str(theirs.get(name, ""))
        if other != text:
            changed = [line for line in ndiff(text.splitlines(), other.splitlines()) if line[:1] in "+-"]
            here = next((line[2:].strip() for line in changed if line.startswith("-")), "nothing")
            there = next((line[2:].strip() for line in changed if line.startswith("+")), "nothing")
            return f"{_title(hosts, number)} differs in {name}: {there} there, {here} on host 0; start the same command on all hosts"
    return None


def _refuse(words: Connections, status: int, text: str) -> None:
    for connection in words.values():
        _say(connection, {"status": status, "text": text})
        connection.close()


def _say(connection: socket.socket, message: object) -> None:
    data = json.dumps(message).encode()
    with contextlib.suppress(OSError):  # whoever listens next learns it
        connection.sendall(len(data).to_bytes(4, "big") + data)


def _heard(connection: socket.socket, seconds: float) -> dict[str, Any]:
    """A message; empty where none comes in time, or one of another kind."""
    connection.settimeout(seconds)
    try:
        length = int.from_bytes(_exactly(connection, 4), "big")
        message = parse_json(_exactly(connection, length)) if length <= _LONGEST else None
    except (OSError, EOFError, ValueError):
        return {}
    return message if isinstance(message, dict) and isinstance(message.setdefault("facts", {}), dict) else {}


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def _address(hosts: Hosts, number: int) -> tuple[str, int]:
    host, _, port = hosts.addresses[number].rpartition(":")
    return host.strip("[]"), int(port)


def _title(hosts: Hosts, number: int) -> str:
    return f"host {number} ({hosts.addresses[number]})"

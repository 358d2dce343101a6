"""The meeting of hosts before a training: all are there, and agree on what they train.

TensorFlow waits without end for a host that never comes, deaf to signals and timeouts; so the hosts meet here first, with a deadline. The
chief listens on its own address, which TensorFlow uses afterwards. Imports no TensorFlow.
"""

import contextlib
import json
import socket
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import ndiff
from typing import Any

from extensions.cluster.hosts import Hosts
from pipelines.base.errors import ConfigError, HostLost
from pipelines.base.json_text import parse_json

DEADLINE = 120.0  # s
_LONGEST = 1 << 24  # bytes of a greeting
_GREETING = 5.0  # s in which a host that connected says who it is
_PURPOSE, _LIFE = "quartet training", "quartet signs of life"
Connections = dict[int, socket.socket]  # by number: those to all followers at the chief, that to the chief at a follower


@dataclass(frozen=True)
class Met:
    """Two connections between the chief and each follower: for what they say to each other, and for signs of life alone."""

    words: Connections
    life: Connections


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
            words = _received(hosts, facts, own, until, deadline)
            return Met(words, _received_for_life(hosts, own, words, until))
    words = {0: _joined(hosts, facts, until, deadline)}
    return Met(words, {0: _joined_for_life(hosts, until)})


def _listening(hosts: Hosts) -> socket.socket:
    """A socket on this host's port. A follower's is only tried, so that a port in use is an error before TensorFlow begins."""
    port = _split(hosts.addresses[hosts.number])[1]
    try:
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=len(hosts.addresses))
        return socket.create_server(("", port), backlog=len(hosts.addresses))
    except OSError as error:
        raise ConfigError(f"{_title(hosts, hosts.number)}: the port {port}: {error.strerror or error}; does another training run here?"
                          ) from error


def _received(hosts: Hosts, facts: Mapping[str, str], listener: socket.socket, until: float, deadline: float) -> Connections:
    """The chief's part."""
    came: dict[int, tuple[socket.socket, Mapping[str, str]]] = {}
    try:
        while len(came) < len(hosts.addresses) - 1:
            number, connection, greeting = _greeted(hosts, listener, _PURPOSE, until)
            if number in came:  # it was started again meanwhile
                came[number][0].close()
            came[number] = connection, greeting["facts"]
    except TimeoutError:
        text = f"{_missing(hosts, came)} did not come within {deadline:.0f} s"
        _refuse(came, HostLost.exit_status, text)
        raise HostLost(f"{text}; start the same command on all hosts") from None
    for number, (_, theirs) in sorted(came.items()):
        differs = _difference(hosts, number, facts, theirs)
        if differs:
            _refuse(came, ConfigError.exit_status, differs)
            raise ConfigError(differs)
    for connection, _ in came.values():
        _say(connection, {"welcome": True})
        connection.settimeout(None)
    return {number: connection for number, (connection, _) in came.items()}


def _received_for_life(hosts: Hosts, listener: socket.socket, words: Connections, until: float) -> Connections:
    """The chief's part, once all are welcome: their second connections."""
    came: Connections = {}
    try:
        while len(came) < len(words):
            number, connection, _ = _greeted(hosts, listener, _LIFE, until + _GREETING)
            connection.settimeout(None)
            came[number] = connection
    except TimeoutError:
        for connection in (*words.values(), *came.values()):
            connection.close()
        raise HostLost(f"{_missing(hosts, came)} was lost while the hosts met; start the same command on all hosts") from None
    return came


def _greeted(hosts: Hosts, listener: socket.socket, purpose: str, until: float) -> tuple[int, socket.socket, dict[str, Any]]:
    """(number, connection, greeting) of the next follower that connects for this purpose. Raises TimeoutError."""
    while True:
        listener.settimeout(max(0.01, until - time.monotonic()))
        connection, _ = listener.accept()
        greeting = _heard(connection, min(_GREETING, max(0.1, until - time.monotonic())))
        number = greeting.get("number")
        if greeting.get("purpose") == purpose and isinstance(number, int) and 0 < number < len(hosts.addresses):
            return number, connection, greeting
        connection.close()  # a stranger


def _missing(hosts: Hosts, came: Collection[int]) -> str:
    return ", ".join(_title(hosts, number) for number in range(1, len(hosts.addresses)) if number not in came)


def _joined(hosts: Hosts, facts: Mapping[str, str], until: float, deadline: float) -> socket.socket:
    """A follower's part."""
    chief, why = _title(hosts, 0), "no answer"
    while time.monotonic() < until:
        try:
            connection = socket.create_connection(_split(hosts.addresses[0]), timeout=2.0)
        except OSError as error:
            why = error.strerror or str(error)
            time.sleep(0.2)
            continue
        _say(connection, {"purpose": _PURPOSE, "number": hosts.number, "facts": dict(facts)})
        answer = _heard(connection, deadline + _GREETING)  # the chief may have come later, and waits as long
        if answer.get("welcome"):
            connection.settimeout(None)
            return connection
        connection.close()
        if answer:
            kind = ConfigError if answer.get("status") == ConfigError.exit_status else HostLost
            raise kind(str(answer.get("text", "")))
        why = "it closed the connection"
        time.sleep(0.2)
    raise HostLost(f"{chief}, where the hosts meet, did not come within {deadline:.0f} s ({why}); start the same command on all hosts")


def _joined_for_life(hosts: Hosts, until: float) -> socket.socket:
    """A follower's part, once it is welcome."""
    try:
        connection = socket.create_connection(_split(hosts.addresses[0]), timeout=max(_GREETING, until - time.monotonic()))
    except OSError as error:
        raise HostLost(f"{_title(hosts, 0)} was lost while the hosts met ({error.strerror or error}); start the same command on all hosts"
                       ) from error
    _say(connection, {"purpose": _LIFE, "number": hosts.number})
    connection.settimeout(None)
    return connection


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


def _refuse(came: Mapping[int, tuple[socket.socket, Mapping[str, str]]], status: int, text: str) -> None:
    for connection, _ in came.values():
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


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _title(hosts: Hosts, number: int) -> str:
    return f"host {number} ({hosts.addresses[number]})"

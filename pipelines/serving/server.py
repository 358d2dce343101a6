"""`quartet serve`: runs and exported models behind HTTP, answered with the same functions as `predict`. Needs the extra `serve`."""

import gc
import ipaddress
import os
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.base.errors import ConfigError
from pipelines.serving import apart
from pipelines.serving.options import Options, Source
from pipelines.serving.protocol import ServerProtocol

if TYPE_CHECKING:
    from pipelines.serving.answerer import Answerer

NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")  # of a model, in addresses
EXTRA = ("httptools", "orjson", "prometheus_client", "python_multipart", "starlette", "uvicorn")
BACKLOG = 2048  # connections that may wait to be accepted, as uvicorn has it


def require_extra() -> None:
    """Raises ConfigError where the extra `serve` is not installed."""
    missing = [name for name in EXTRA if not find_spec(name)]
    if missing:
        raise ConfigError(f"quartet serve needs the extra: pip install 'keras-quartet[serve]' (there is no {missing[0]})")


def source(given: str, find: Callable[[str], Path]) -> Source:
    """From [NAME=]RUN|EXPORT|FOLDER; without a name, the experiment's or the folder's.

    Args:
        find: the folder of a run that a person names. Raises ConfigError.

    Raises:
        ConfigError: there is no such thing, or the name is none for an address.
    """
    name, equals, place = given.partition("=")
    if not equals or _is_run(given, find):  # which may be called by its settings: runs/vision/digits/epochs=3
        name, place = "", given
    path = Path(place).expanduser()
    if any((path / name).is_file() for name in ("saved_model.pb", "manifest.json")):
        folder, versions, usual = path, False, path.absolute().name
        if usual == "export" or usual.startswith("export-") or usual.isdecimal():
            usual = path.absolute().parent.name
    elif path.is_dir() and any(one.name.isdecimal() and one.is_dir() for one in path.iterdir()):
        folder, versions, usual = path, True, path.absolute().name
    else:
        folder, versions = find(place), False
        usual = folder.absolute().parent.name
    if not NAME.fullmatch(name or usual):
        raise ConfigError(f"{given}: {name or usual!r} is no name for a model; give one of letters, digits, _ . and -, as NAME={place}")
    return Source(name or usual, folder, versions)


def _is_run(given: str, find: Callable[[str], Path]) -> bool:
    try:
        return Path(given).expanduser().exists() or ("/" in given.partition("=")[0] and bool(find(given)))
    except (ConfigError, OSError):
        return False


def serve(sources: Sequence[Source], load: "Callable[[Path], Answerer]", options: Options, protocols: Sequence[ServerProtocol] = (), *,
          say: Callable[[str], None]) -> None:
    """Answers until a signal comes. `say` gets the address once the server is warm; port 0 takes any.

    Args:
        sources: the models; the first answers where a request names none.
        load: a run or an exported model; raises ConfigError.
        protocols: with `options` as `pipelines.serving.protocol.prepared` gives them.

    Raises:
        ConfigError: other machines could ask, and nobody said that they may; a model cannot be loaded, two have one name, the port is in
            use, the address is not of this machine, or the extra `serve` is not installed.
    """
    inside = apart.Inside.this()
    if inside is not None:
        return inside.run(load)
    require_extra()
    from pipelines.serving.http.app import Server, make_site
    from pipelines.serving.http.hosting import versions_in

    if not (options.open or loopback(options.host)):
        raise ConfigError(f"--host {options.host}: other machines could ask; give --open to let everybody")
    twice = next((one.name for place, one in enumerate(sources) if one.name in [other.name for other in sources[:place]]), None)
    if twice is not None:
        raise ConfigError(f"two models have the name {twice}; give one another, as NAME=...")

    def warm(folder: Path) -> "Answerer":
        model = load(folder)
        model.warm_up()
        return model

    with refusing_port(options.host, options.port):
        bound = bind(options.host, options.port, shared=options.shared)
    with bound:
        site = make_site(options, sources, warm, say)
        for one in sources:
            found = versions_in(one.folder) if one.versions else {1: one.folder}
            for version in sorted(found)[-options.versions:]:
                site.models.add(one.name, version, warm(found[version]), found[version])

        def started() -> None:
            if not options.shared:
                say(f"serving      {options.address(bound.getsockname()[1], options.scheme)}")

        server = Server(site, protocols, started)
        with refusing_port(options.host, options.port):
            bound.listen(BACKLOG)
        gc.collect()
        gc.freeze()  # what is there now stays: no collection has to look at it again
        server.run(sockets=[bound])


def loopback(host: str) -> bool:
    """Whether only this machine can reach that address. An address that is none counts as reachable."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return all(ipaddress.ip_address(str(one[4][0]).partition("%")[0]).is_loopback for one in found)


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A socket at that address, which does not listen yet; port 0 takes a free one; `shared` with other processes.

    Answers go out at once: asyncio switches Nagle's algorithm off only for a socket that names its protocol, which socket.create_server
    leaves out, and then a small answer waits for the client's delayed acknowledgement, some 40 ms.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)[0]
    bound = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":  # on Windows it would let two servers share a port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


@contextmanager
def refusing_port(host: str, port: int, option: str = "--port") -> Iterator[None]:
    """Where an address cannot be used, a ConfigError that names the options."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"--host {host} {option} {port}: {error.strerror or error}; name another") from None

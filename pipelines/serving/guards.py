"""Who may ask a server, how often, and over what: as the command line says it. Needs no extra."""

import ipaddress
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from pipelines.base.errors import ConfigError


@dataclass(frozen=True)
class Guards:
    """Attributes:
    tokens: a file of names and hashed tokens; None: no token is asked for.
    rate: requests a second of one client, for long; None: any number.
    origins: whose pages a browser may let read answers.
    audit: a file that gets a line for each request: who, when, which model and version; no payload.
    certificate, key: of the server, PEM; None: no TLS.
    client_ca: certificates of the authorities that clients' certificates must come from; None: none are asked for.
    open: anybody may ask, also from other machines.
    """

    tokens: Path | None = None
    rate: float | None = None
    origins: tuple[str, ...] = ()
    audit: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    open: bool = False

    def check(self, host: str) -> None:
        """Raises ConfigError where the server would stand open unasked, or the files of TLS cannot be used."""
        if not (self.open or self.tokens or self.client_ca or loopback(host)):
            raise ConfigError(f"--host {host}: other machines could ask, and nothing says who may: give --tokens FILE or --client-ca FILE "
                              "(docs/serving.md), or --open to let everybody")
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("--tls-cert and --tls-key: give both, or neither")
        if self.client_ca is not None and self.certificate is None:
            raise ConfigError("--client-ca: clients show their certificates over TLS: give --tls-cert and --tls-key, too")
        for origin in self.origins:
            if "://" not in origin or origin.endswith("/"):
                raise ConfigError(f"--cors: {origin!r} is no origin such as https://example.org")
        if self.certificate is not None and self.key is not None:
            self._check_tls(self.certificate, self.key)

    def _check_tls(self, certificate: Path, key: Path) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(certificate, key, password=lambda: "")
        except (OSError, ValueError) as error:
            raise ConfigError(f"--tls-cert {certificate} --tls-key {key}: cannot be used ({_why(error)}); both are PEM, and the "
                              "key belongs to the certificate and is not encrypted") from None
        if self.client_ca is not None:
            try:
                context.load_verify_locations(self.client_ca)
            except (OSError, ValueError) as error:
                raise ConfigError(f"--client-ca {self.client_ca}: cannot be used ({_why(error)}); it is PEM") from None

    @property
    def scheme(self) -> str:
        return "http" if self.certificate is None else "https"


def loopback(host: str) -> bool:
    """Whether only this machine can reach that address. An address that is none counts as reachable."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return all(ipaddress.ip_address(str(one[4][0]).partition("%")[0]).is_loopback for one in found)


def _why(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error) or type(error).__name__

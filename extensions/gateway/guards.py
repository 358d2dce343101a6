"""Who may ask a server, how often, and over what: tokens, certificates, rates, and origins of browsers."""

import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

from extensions.gateway.options import ServeOptions, chosen
from pipelines.base.errors import ConfigError
from pipelines.serving.options import Options
from pipelines.serving.protocol import ServerProtocol, Site
from pipelines.serving.server import loopback

HEADERS = ["Authorization", "Content-Type", "X-Request-ID", "inference-header-content-length"]  # that a page of another origin may send


class Guards(ServerProtocol):
    """Refuses who may not ask, before anything of a request is read."""

    def prepare(self, options: Options) -> Options:
        asked = chosen()
        check(asked, options)
        more: dict[str, Any] = {}
        if asked.tls_cert is not None:
            more |= {"ssl_certfile": str(asked.tls_cert), "ssl_keyfile": str(asked.tls_key)}
        if asked.client_ca is not None:
            more |= {"ssl_ca_certs": str(asked.client_ca), "ssl_cert_reqs": ssl.CERT_REQUIRED}
        return replace(options, open=True, delay=asked.delay / 1000, each=asked.per_client, long=asked.long, drain=asked.drain,
                       versions=asked.versions, uvicorn={**options.uvicorn, **more})

    def wrap(self, app: Any, site: Site) -> Any:
        from starlette.middleware.cors import CORSMiddleware

        from extensions.gateway.access import Guarded, access_of

        asked = chosen()
        app = Guarded(app, access_of(asked))
        if asked.cors:  # outermost: a browser asks first whether it may, without a token
            app = CORSMiddleware(app, allow_origins=asked.cors, allow_methods=["GET", "POST"], allow_headers=HEADERS,
                                 expose_headers=["X-Request-ID", "Retry-After", "inference-header-content-length"])
        return app


def check(asked: ServeOptions, options: Options) -> None:
    """Raises ConfigError where the server would stand open unasked, or the files of TLS cannot be used."""
    if not (options.open or asked.tokens or asked.client_ca or loopback(options.host)):
        raise ConfigError(f"--host {options.host}: other machines could ask, and nothing says who may: give --tokens FILE or --client-ca "
                          "FILE (docs/serving.md), or --open to let everybody")
    if (asked.tls_cert is None) != (asked.tls_key is None):
        raise ConfigError("--tls-cert and --tls-key: give both, or neither")
    if asked.client_ca is not None and asked.tls_cert is None:
        raise ConfigError("--client-ca: clients show their certificates over TLS: give --tls-cert and --tls-key, too")
    for origin in asked.cors or ():
        if "://" not in origin or origin.endswith("/"):
            raise ConfigError(f"--cors: {origin!r} is no origin such as https://example.org")
    if asked.tls_cert is not None and asked.tls_key is not None:
        _check_tls(asked.tls_cert, asked.tls_key, asked.client_ca)


def _check_tls(certificate: Path, key: Path, client_ca: Path | None) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError) as error:
        raise ConfigError(f"--tls-cert {certificate} --tls-key {key}: cannot be used ({_why(error)}); both are PEM, and the "
                          "key belongs to the certificate and is not encrypted") from None
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except (OSError, ValueError) as error:
            raise ConfigError(f"--client-ca {client_ca}: cannot be used ({_why(error)}); it is PEM") from None


def _why(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error) or type(error).__name__

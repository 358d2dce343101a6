"""A gRPC server beside the one of HTTP: in the same loop, for the same models, with their batches, queues and metrics."""

import asyncio
from typing import Any

import grpc

from extensions.gateway.access import access_of
from extensions.gateway.grpc import open_inference, tensorflow_serving
from extensions.gateway.grpc.calls import service
from extensions.gateway.options import chosen
from pipelines.serving.http.app import GRACE, MEMORY
from pipelines.serving.http.bodies import Memory
from pipelines.serving.protocol import Site

IDLE_MS = 300_000  # without an RPC, after which a connection ends
PING_MS = 30_000  # between two looks whether a silent client is still there, which has PONG_MS to answer
PONG_MS = 10_000
SHARE = 4  # of all calls that one connection may have
HANDSHAKE_MS = 10_000  # of TLS and HTTP/2


class RpcServer:
    """Listens from `start` to `stop`, which are called in the loop."""

    def __init__(self, port: int, site: Site):
        options, asked = site.options, chosen()
        self._address, self._calls, self._asked = options.address(port), options.connections, asked
        self._options = [("grpc.max_receive_message_length", options.limit), ("grpc.max_send_message_length", -1),
                         ("grpc.so_reuseport", int(options.shared)), ("grpc.max_connection_idle_ms", IDLE_MS),
                         ("grpc.keepalive_time_ms", PING_MS), ("grpc.keepalive_timeout_ms", PONG_MS),
                         ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
                         ("grpc.max_concurrent_streams", max(1, options.connections // SHARE))]
        memory, access = Memory(MEMORY * options.limit), access_of(asked)
        self._services = [service(name, methods, site.models, site.observed, memory, access) for name, methods in (
            (open_inference.NAME, open_inference.METHODS), (tensorflow_serving.PREDICTION, tensorflow_serving.PREDICTIONS),
            (tensorflow_serving.MODEL, tensorflow_serving.MODELS))]
        self._server: Any

    async def start(self) -> None:
        """Raises RuntimeError where the port has been taken in the meantime."""
        self._server = grpc.aio.server(handlers=self._services, options=self._options, maximum_concurrent_rpcs=self._calls)
        asked = self._asked
        if asked.tls_cert is None or asked.tls_key is None:
            self._server.add_insecure_port(self._address)
        else:
            authorities = asked.client_ca.read_bytes() if asked.client_ca else None
            self._server.add_secure_port(self._address, grpc.ssl_server_credentials(
                [(asked.tls_key.read_bytes(), asked.tls_cert.read_bytes())], authorities, authorities is not None))
        await self._server.start()

    async def stop(self, seconds: float) -> None:
        """Answers what has been asked, for that long at most; after a moment, in which clients learn of it, nothing more is taken in."""
        await asyncio.sleep(min(GRACE, seconds))
        await self._server.stop(max(0.0, seconds - GRACE))

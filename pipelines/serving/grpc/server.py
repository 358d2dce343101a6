"""A gRPC server beside the one of HTTP: in the same loop, for the same models, with their batches, queues and metrics."""

import asyncio
from typing import Any

import grpc

from pipelines.serving.grpc import open_inference, tensorflow_serving
from pipelines.serving.grpc.calls import service
from pipelines.serving.http.access import Access
from pipelines.serving.http.app import MEMORY
from pipelines.serving.http.bodies import Memory
from pipelines.serving.http.connections import GRACE, Tls
from pipelines.serving.http.models import Models
from pipelines.serving.http.observing import Observed

IDLE_MS = 300_000  # without an RPC, after which a connection ends
PING_MS = 30_000  # between two looks whether a silent client is still there, which has PONG_MS to answer
PONG_MS = 10_000
SHARE = 4  # of all calls that one connection may have
HANDSHAKE_MS = 10_000  # of TLS and HTTP/2


class RpcServer:
    """Listens from `start` to `stop`, which are called in the loop."""

    def __init__(self, host: str, port: int, models: Models, observed: Observed, *, limit: int, calls: int, shared: bool = False,
                 access: Access | None = None, tls: Tls | None = None):
        """
        Args:
            limit: bytes of a message.
            calls: RPCs at the same time; more are refused with RESOURCE_EXHAUSTED.
            shared: other processes may listen at the port, too.
            access: who may ask; None: everybody.
            tls: of the server of HTTP; None: no encryption.
        """
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._calls = calls
        self._options = [("grpc.max_receive_message_length", limit), ("grpc.max_send_message_length", -1),
                         ("grpc.so_reuseport", int(shared)), ("grpc.max_connection_idle_ms", IDLE_MS), ("grpc.keepalive_time_ms", PING_MS),
                         ("grpc.keepalive_timeout_ms", PONG_MS), ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
                         ("grpc.max_concurrent_streams", max(1, calls // SHARE))]
        memory = Memory(MEMORY * limit)
        self._services = [service(name, methods, models, observed, memory, access) for name, methods in (
            (open_inference.NAME, open_inference.METHODS), (tensorflow_serving.PREDICTION, tensorflow_serving.PREDICTIONS),
            (tensorflow_serving.MODEL, tensorflow_serving.MODELS))]
        self._tls = tls
        self._server: Any

    async def start(self) -> None:
        """Raises RuntimeError where the port has been taken in the meantime."""
        self._server = grpc.aio.server(handlers=self._services, options=self._options, maximum_concurrent_rpcs=self._calls)
        if self._tls is None:
            self._server.add_insecure_port(self._address)
        else:
            authorities = self._tls.client_ca.read_bytes() if self._tls.client_ca else None
            self._server.add_secure_port(self._address, grpc.ssl_server_credentials(
                [(self._tls.key.read_bytes(), self._tls.certificate.read_bytes())], authorities, authorities is not None))
        await self._server.start()

    async def stop(self, seconds: float) -> None:
        """Answers what has been asked, for that long at most; after a moment, in which clients learn of it, nothing more is taken in."""
        await asyncio.sleep(min(GRACE, seconds))
        await self._server.stop(max(0.0, seconds - GRACE))

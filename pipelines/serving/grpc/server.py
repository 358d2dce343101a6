"""A gRPC server beside the one of HTTP: in the same loop, for the same models, with their batches, queues and metrics."""

import asyncio
from typing import Any

import grpc

from pipelines.serving.grpc import open_inference, tensorflow_serving
from pipelines.serving.grpc.calls import service
from pipelines.serving.http.app import MEMORY
from pipelines.serving.http.bodies import Memory
from pipelines.serving.http.connections import GRACE
from pipelines.serving.http.models import Models
from pipelines.serving.http.observing import Observed

IDLE_MS = 300_000  # without an RPC, after which a connection ends
PING_MS = 30_000  # between two looks whether a silent client is still there


class RpcServer:
    """Listens from `start` to `stop`, which are called in the loop."""

    def __init__(self, host: str, port: int, models: Models, observed: Observed, *, limit: int, calls: int, shared: bool = False):
        """
        Args:
            limit: bytes of a message.
            calls: RPCs at the same time; more are refused with RESOURCE_EXHAUSTED.
            shared: other processes may listen at the port, too.
        """
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._calls = calls
        self._options = [("grpc.max_receive_message_length", limit), ("grpc.max_send_message_length", -1),
                         ("grpc.so_reuseport", int(shared)), ("grpc.max_connection_idle_ms", IDLE_MS), ("grpc.keepalive_time_ms", PING_MS)]
        memory = Memory(MEMORY * limit)
        self._services = [service(name, methods, models, observed, memory) for name, methods in (
            (open_inference.NAME, open_inference.METHODS), (tensorflow_serving.PREDICTION, tensorflow_serving.PREDICTIONS),
            (tensorflow_serving.MODEL, tensorflow_serving.MODELS))]
        self._server: Any

    async def start(self) -> None:
        """Raises RuntimeError where the port has been taken in the meantime."""
        self._server = grpc.aio.server(handlers=self._services, options=self._options, maximum_concurrent_rpcs=self._calls)
        self._server.add_insecure_port(self._address)
        await self._server.start()

    async def stop(self, seconds: float) -> None:
        """Answers what has been asked, for that long at most; after a moment, in which clients learn of it, nothing more is taken in."""
        await asyncio.sleep(min(GRACE, seconds))
        await self._server.stop(max(0.0, seconds - GRACE))

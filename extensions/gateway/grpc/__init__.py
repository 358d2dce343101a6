"""Models behind gRPC: TensorFlow Serving's services and the Open Inference Protocol's. Needs the extra `grpc`."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from extensions.gateway.options import chosen
from extensions.gateway.workers import Worker, free_port
from pipelines.base.errors import ConfigError
from pipelines.serving.options import Options
from pipelines.serving.protocol import ServerProtocol, Site

if TYPE_CHECKING:
    from extensions.gateway.grpc.server import RpcServer


class Grpc(ServerProtocol):
    """A server of gRPC beside that of HTTP, where --grpc asks for it."""

    server: "RpcServer | None" = None

    def prepare(self, options: Options) -> Options:
        asked, worker = chosen().grpc, Worker.this()
        if asked is not None and not all(find_spec(name) for name in ("grpc", "tritonclient", "tensorflow_serving")):
            raise ConfigError("--grpc needs the extra: pip install 'keras-quartet[serve,grpc]'")
        if worker is not None:
            self.port = worker.grpc
        else:
            self.port = None if asked is None else free_port(options.host, asked, "--grpc")
        return options

    async def start(self, site: Site) -> None:
        if self.port is not None:
            from extensions.gateway.grpc.server import RpcServer

            self.server = RpcServer(self.port, site)
            await self.server.start()
            if not site.options.shared:
                site.say(f"gRPC         {site.options.address(self.port)}")

    async def stop(self, seconds: float) -> None:
        if self.server is not None:
            await self.server.stop(seconds)

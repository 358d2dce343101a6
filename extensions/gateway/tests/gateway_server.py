"""A server in this process with all that the gateway adds, as tests/serving/toy_server.py has one without."""

from contextlib import contextmanager

from extensions.gateway.connections import SlowClients
from extensions.gateway.grpc import Grpc
from extensions.gateway.options import ServeOptions
from pipelines.config import doors, registry
from tests.serving import toy_server


@contextmanager
def running(model=None, *, log=None, limit=1 << 20, deadline=30.0, loop=None, **options):
    """`options` are those of the command line; `log` is a file that gets what --log writes."""
    registry.import_extensions()
    protocols = [entry.load()() for entry in doors.PROTOCOLS.entries()]
    with (ServeOptions(**{"connections": 200, "drain": 5.0} | options),
          toy_server.running(model, protocols=protocols, limit=limit, deadline=deadline, loop=loop) as server):
        if log is not None:
            from extensions.gateway.records import Log

            server.observed.recorders.append(Log(log))
        server.rpc_port = next(one.port for one in protocols if isinstance(one, Grpc))
        server.connections = lambda: list(next(one for one in protocols if isinstance(one, SlowClients)).connections.values())
        yield server

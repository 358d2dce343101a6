"""More ways into a server and out of it: TensorFlow Serving's REST, the Open Inference Protocol, gRPC, OpenAPI, traces, a log and an audit,
tokens, TLS, rates, origins, several processes, new versions of models, and an end for clients that are slow. docs/serving.md shows each.

Needs the extra `serve`; `grpc` and `trace` where those are asked for. Imports neither until a server starts.
"""

from pipelines.config.doors import OPTIONS, PROTOCOLS

OPTIONS.add("gateway", "extensions.gateway.options:ServeOptions", commands=("serve",))
PROTOCOLS.add("TensorFlow Serving", "extensions.gateway.tensorflow_rest:TensorFlowServing")
PROTOCOLS.add("Open Inference", "extensions.gateway.open_inference:OpenInference")
PROTOCOLS.add("OpenAPI", "extensions.gateway.openapi:OpenApi")
PROTOCOLS.add("versions", "extensions.gateway.versions:Watching")
PROTOCOLS.add("guards", "extensions.gateway.guards:Guards")
PROTOCOLS.add("connections", "extensions.gateway.connections:SlowClients")  # around the guards: it knows the client's certificate
PROTOCOLS.add("records", "extensions.gateway.records:Records")
PROTOCOLS.add("traces", "extensions.gateway.tracing:Traces")
PROTOCOLS.add("gRPC", "extensions.gateway.grpc:Grpc")
PROTOCOLS.add("workers", "extensions.gateway.workers:Workers")  # last: its first process starts others in its place

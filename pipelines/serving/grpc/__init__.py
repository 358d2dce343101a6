"""Models behind gRPC: TensorFlow Serving's services and the Open Inference Protocol's. Needs the extra `grpc`."""

"""The name of Triton's gRPC service, and the options of the channels over which a run asks it what is not measured."""

from __future__ import annotations

SERVICE = "/inference.GRPCInferenceService"
OPTIONS = (
    ("grpc.max_receive_message_length", 32 * 2**20),  # of a model's configuration
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # a separate connection for every channel
)

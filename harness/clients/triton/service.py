"""The name of Triton's gRPC service, and the channels over which a run asks it what is not measured."""

from __future__ import annotations

from collections.abc import Sequence

import grpc

from harness.clients.transport.certificates import client_pem, trusted_roots
from harness.clients.transport.url import parse_grpc

SERVICE = "/inference.GRPCInferenceService"
_OPTIONS = (
    ("grpc.max_receive_message_length", 32 * 2**20),  # of a model's configuration
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # a separate connection for every channel
)


def open_channel(address: str, options: Sequence[tuple[str, int]] = _OPTIONS) -> grpc.Channel:
    """A channel to ``address`` (``parse_grpc``); an encrypted one trusts what the run's own connections trust."""
    origin = parse_grpc(address)
    if origin.is_encrypted:
        own = client_pem()
        return grpc.secure_channel(origin.address, grpc.ssl_channel_credentials(trusted_roots(), own, own), options)
    return grpc.insecure_channel(origin.address, options)

"""All clients as one tagged union, by which a file of a run encodes its client.

A client is a frozen ``msgspec.Struct`` with a unique tag and plain values, so that decoding a file executes nothing that the
file contains. A new client is one more member here.
"""

from __future__ import annotations

from msgspec.structs import replace

from harness.clients.openai_chat import OpenAIChatClient
from harness.clients.triton.grpc import TritonGrpcClient
from harness.clients.triton.http import TritonHttpClient

KnownClient = TritonGrpcClient | TritonHttpClient | OpenAIChatClient


def for_decoding(client: KnownClient) -> KnownClient:
    """The client without the fields that only sending needs: headers, query and body fields may hold secrets."""
    match client:
        case TritonGrpcClient():
            return client
        case TritonHttpClient():
            return replace(client, headers={}, secrets=())
        case OpenAIChatClient():
            return replace(client, headers={}, extra={}, secrets=(), path=client.path.partition("?")[0])

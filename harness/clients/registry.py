"""The clients that a run can be made with, as one type: what is written down of a run names its client by the tag.

A client is a frozen ``msgspec.Struct`` with a tag of its own, made of plain values, so that it can be made again from a file
without running anything that the file holds. A new client is one more member here.
"""

from __future__ import annotations

from msgspec.structs import replace

from harness.clients.openai_chat import OpenAIChatClient
from harness.clients.triton.grpc import TritonGrpcClient
from harness.clients.triton.http import TritonHttpClient

KnownClient = TritonGrpcClient | TritonHttpClient | OpenAIChatClient


def for_decoding(client: KnownClient) -> KnownClient:
    """The client without what only sending needs: headers and bodies of a user's own may hold secrets."""
    match client:
        case TritonGrpcClient():
            return client
        case TritonHttpClient():
            return replace(client, headers={})
        case OpenAIChatClient():
            return replace(client, headers={}, extra={})

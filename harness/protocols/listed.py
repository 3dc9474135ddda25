"""The list of protocols. A new one is a file of its own, and an entry here.

Each is imported when it is needed: their transports take longer to import than the command line to answer ``--help``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.protocols.protocol import ServingProtocol


@dataclass(frozen=True)
class Listed:
    """``title`` is the protocol in the help of ``-i``."""

    title: str
    load: Callable[[], ServingProtocol]


def _triton_grpc() -> ServingProtocol:
    from harness.protocols.triton_grpc import TritonGrpc

    return TritonGrpc()


def _triton_http() -> ServingProtocol:
    from harness.protocols.triton_http import TritonHttp

    return TritonHttp()


def _openai_chat() -> ServingProtocol:
    from harness.protocols.openai_chat import OpenAIChat

    return OpenAIChat()


def _openai_completions() -> ServingProtocol:
    from harness.protocols.openai_completions import OpenAICompletions

    return OpenAICompletions()


PROTOCOLS: Mapping[str, Listed] = {
    "grpc": Listed("Triton's gRPC", _triton_grpc),
    "http": Listed("its generate extension over HTTP", _triton_http),
    "openai": Listed("OpenAI's chat completions", _openai_chat),
    "openai_completions": Listed("OpenAI's completions", _openai_completions),
}

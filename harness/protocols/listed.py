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


def _triton_http_infer() -> ServingProtocol:
    from harness.protocols.triton_http_infer import TritonHttpInfer

    return TritonHttpInfer()


def _openai_chat() -> ServingProtocol:
    from harness.protocols.openai_chat import OpenAIChat

    return OpenAIChat()


def _openai_completions() -> ServingProtocol:
    from harness.protocols.openai_completions import OpenAICompletions

    return OpenAICompletions()


def _openai_responses() -> ServingProtocol:
    from harness.protocols.openai_responses import OpenAIResponses

    return OpenAIResponses()


def _vllm_tokens() -> ServingProtocol:
    from harness.protocols.vllm_tokens import VllmTokens

    return VllmTokens()


PROTOCOLS: Mapping[str, Listed] = {
    "grpc": Listed("Triton's gRPC", _triton_grpc),
    "http": Listed("generate over HTTP", _triton_http),
    "http_infer": Listed("infer", _triton_http_infer),
    "openai": Listed("OpenAI's chats", _openai_chat),
    "openai_completions": Listed("completions", _openai_completions),
    "openai_responses": Listed("Responses", _openai_responses),
    "vllm_tokens": Listed("vLLM's token ids", _vllm_tokens),
}

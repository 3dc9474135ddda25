"""vLLM's tokens in and out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from harness.clients.openai_client import OpenAIClient
from harness.clients.openai_server import BASE, VLLM_TOKENS
from harness.clients.vllm_tokens import VllmTokensClient
from harness.protocols.openai import OpenAIProtocol
from harness.protocols.protocol import ClientSettings, MeasuredModel


class VllmTokens(OpenAIProtocol):
    """Token ids both ways, beside the base path of OpenAI's protocols."""

    name: ClassVar[str] = "vllm_tokens"
    client_type: ClassVar[type[OpenAIClient]] = VllmTokensClient
    endpoint: ClassVar[str] = VLLM_TOKENS
    supports_ignore_eos: ClassVar[bool] = True

    def model(self, name: str, settings: ClientSettings) -> MeasuredModel:
        return MeasuredModel(name, takes_token_ids=True, supports_ignore_eos=self.supports_ignore_eos, returns_text=False)

    def path_of(self, base: str) -> str:
        return f"{base.removesuffix(BASE)}{self.endpoint}"

    def times_fields(self, owner: str | None) -> Mapping[str, Any]:
        return {}

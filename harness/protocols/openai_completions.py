"""OpenAI's completions."""

from __future__ import annotations

from typing import ClassVar

from msgspec.structs import replace

from harness.clients.openai_client import OpenAIClient
from harness.clients.openai_completions import OpenAICompletionsClient
from harness.clients.openai_server import COMPLETIONS
from harness.clients.transport.url import HttpUrl
from harness.protocols.openai import OpenAIProtocol
from harness.protocols.protocol import ClientSettings, EmbeddedPort, MeasuredModel


class OpenAICompletions(OpenAIProtocol):
    """A prompt is continued as it is, without a chat template; it is text, or token ids."""

    name: ClassVar[str] = "openai_completions"
    client_type: ClassVar[type[OpenAIClient]] = OpenAICompletionsClient
    embedded_port: ClassVar[EmbeddedPort | None] = "openai"
    endpoint: ClassVar[str] = COMPLETIONS
    takes_ids_or_text: ClassVar[bool] = True

    def model(self, name: str, settings: ClientSettings) -> MeasuredModel:
        return MeasuredModel(name, takes_token_ids=settings.token_ids, supports_ignore_eos=self.supports_ignore_eos)

    def client(self, address: HttpUrl, name: str, settings: ClientSettings) -> OpenAIClient:
        return replace(super().client(address, name, settings), token_ids=settings.token_ids)

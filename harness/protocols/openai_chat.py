"""OpenAI's chat completions."""

from __future__ import annotations

from typing import ClassVar

from harness.clients.openai_chat import OpenAIChatClient
from harness.clients.openai_client import OpenAIClient
from harness.clients.openai_server import CHAT
from harness.protocols.openai import OpenAIProtocol
from harness.protocols.protocol import ClientSettings, EmbeddedPort, MeasuredModel


class OpenAIChat(OpenAIProtocol):
    """A prompt is the message of a user, which the server puts into its chat template."""

    name: ClassVar[str] = "openai"
    client_type: ClassVar[type[OpenAIClient]] = OpenAIChatClient
    embedded_port: ClassVar[EmbeddedPort | None] = "openai"
    endpoint: ClassVar[str] = CHAT
    takes_messages: ClassVar[bool] = True

    def model(self, name: str, settings: ClientSettings) -> MeasuredModel:
        return MeasuredModel(name, takes_token_ids=False, supports_ignore_eos=self.supports_ignore_eos, takes_messages=True)

"""OpenAI's Responses."""

from __future__ import annotations

from typing import ClassVar

from harness.clients.openai_client import OpenAIClient
from harness.clients.openai_responses import OpenAIResponsesClient
from harness.clients.openai_server import RESPONSES
from harness.protocols.openai import OpenAIProtocol
from harness.protocols.protocol import ClientSettings, MeasuredModel


class OpenAIResponses(OpenAIProtocol):
    """A prompt is the input of a response, which the server puts into its chat template."""

    name: ClassVar[str] = "openai_responses"
    client_type: ClassVar[type[OpenAIClient]] = OpenAIResponsesClient
    endpoint: ClassVar[str] = RESPONSES
    takes_messages: ClassVar[bool] = True

    def model(self, name: str, settings: ClientSettings) -> MeasuredModel:
        return MeasuredModel(name, takes_token_ids=False, supports_ignore_eos=self.supports_ignore_eos, takes_messages=True)

"""OpenAI's completions, which continue a prompt without a chat template: what base models need.

https://platform.openai.com/docs/api-reference/completions; ``openai_client.py`` has what it shares with the chat completions. A
prompt is text, to which a server may add special tokens, or a list of token ids, to which it adds none: such a prompt has its
exact length on any server that takes it. Every chunk with a choice has a ``text``. Some servers end an answer with an empty one
that carries no token (llama.cpp), others name the finish_reason with the last token (vLLM).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from harness.clients.openai_client import Choice, Chunk, ChunkReader, OpenAIClient, encodable
from harness.clients.openai_server import BASE, COMPLETIONS
from harness.clients.protocol import Response
from workloads.elements.request import Request

DEFAULT_PATH = f"{BASE}{COMPLETIONS}"


class _Choice(Choice, gc=False):
    text: str | None = None


class OpenAICompletionsClient(OpenAIClient, frozen=True, tag="openai_completions"):
    """A Client for one model of a server that continues prompts: their token ids (``token_ids``), or their text."""

    path: str = DEFAULT_PATH
    token_ids: bool = False

    def prompt_sent(self, request: Request) -> str | Sequence[int]:
        if self.token_ids:
            if request.input_ids is None:
                raise ValueError("prompts are sent as token ids, and this request has none")
            return list(request.input_ids)
        if request.prompt is None:
            raise ValueError("prompts are sent as text, and this request has none")
        return encodable(request.prompt)

    def prompt_fields(self, request: Request) -> Mapping[str, object]:
        return {"prompt": self.prompt_sent(request)}

    def decode(self, body: bytes) -> Response:
        return _READER.read(body)


def _texts(choice: _Choice) -> tuple[str, str] | None:
    return None if choice.text is None else ("", choice.text)


def _opens_nothing(choice: _Choice) -> bool:
    return False


_READER = ChunkReader("completion", msgspec.json.Decoder(Chunk[_Choice]).decode, _texts, _opens_nothing)

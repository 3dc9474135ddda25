"""OpenAI's chat completions: what vLLM, trtllm-serve, SGLang and NVIDIA NIM serve.

https://platform.openai.com/docs/api-reference/chat; ``openai_client.py`` has what it shares with the completions. The first
chunk often names the role alone, and carries no token.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from harness.clients.openai_client import Choice, Chunk, ChunkReader, OpenAIClient, encodable, text_prompt
from harness.clients.openai_server import BASE, CHAT
from harness.clients.protocol import Response
from workloads.elements.request import Message, Request

DEFAULT_PATH = f"{BASE}{CHAT}"
_CALL = ("name", "arguments")
_ABSENT = (None,) * 4


class _Content(msgspec.Struct, gc=False):
    """A ``delta`` or a ``message``. Servers name the reasoning in one of two ways, some in both, or send it among the parts of
    a content that is a list (Mistral). ``function_call`` is the older form of ``tool_calls``.
    """

    role: str | None = None
    content: str | list[Any] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: Any = None  # no server's oddity here may fail a request
    tool_calls: Any = None
    function_call: Any = None


class _Choice(Choice, gc=False):
    delta: _Content | None = None
    message: _Content | None = None


class OpenAIChatClient(OpenAIClient, frozen=True, tag="openai_chat"):
    """A Client for one model of a server that takes the messages of a chat."""

    path: str = DEFAULT_PATH

    def prompt_sent(self, request: Request) -> str:
        return text_prompt(request, "a chat")

    def prompt_fields(self, request: Request) -> Mapping[str, object]:
        messages = [*request.history, Message("user", self.prompt_sent(request))]
        return {"messages": [{"role": message.role, "content": encodable(message.content)} for message in messages]}

    def decode(self, body: bytes) -> Response:
        return _READER.read(body)


def _texts(choice: _Choice) -> tuple[str, str] | None:
    """Reasoning and answer of a chunk, "" where empty; None where it has neither, as one that ends an answer."""
    content = choice.delta or choice.message
    if content is None:
        return None
    thought, said = _of_parts(content.content) if isinstance(content.content, list) else ("", content.content)
    reasoning, answer = content.reasoning_content or content.reasoning or thought, said or ""
    if content.tool_calls or content.refusal or content.function_call:
        answer += "".join(_pieces_beside(content))
    if reasoning:
        return reasoning, answer
    fields = (content.content, content.role, content.reasoning_content, content.reasoning)
    return ("", answer) if answer or fields != _ABSENT else None


def _of_parts(parts: Sequence[Any]) -> tuple[str, str]:
    """The reasoning and the answer in the parts of a content, of which those of type ``thinking`` have parts of their own."""
    thoughts = (part.get("thinking") for part in parts if isinstance(part, dict))
    reasoning = (thought if isinstance(thought, str) else _text_of(thought) for thought in thoughts)
    return "".join(reasoning), _text_of(parts)


def _text_of(parts: Any) -> str:
    texts = (part.get("text") for part in parts if isinstance(part, dict)) if isinstance(parts, list) else ()
    return "".join(text for text in texts if isinstance(text, str))


def _pieces_beside(content: _Content) -> Iterator[str]:
    """The generated texts beside the content: a refusal, and the name and the arguments of each tool that is called."""
    calls = content.tool_calls if isinstance(content.tool_calls, list) else []
    functions = [*(call.get("function") for call in calls if isinstance(call, dict)), content.function_call]
    of_calls = (function.get(name) for function in functions if isinstance(function, dict) for name in _CALL)
    return (text for text in (content.refusal, *of_calls) if isinstance(text, str))


def _names_role(choice: _Choice) -> bool:
    return choice.delta is not None and choice.delta.role is not None


_READER = ChunkReader("chat completion", msgspec.json.Decoder(Chunk[_Choice]).decode, _texts, _names_role)

"""Token ids of the prompts of a request."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving.front_end.api_error import ApiError
from serving.front_end.bodies import ChatBody, ChatMessage, CompletionBody
from serving.text.chat_template import ChatTemplate, load_chat_template
from serving.text.tokenizer import load_tokenizer


@dataclass(frozen=True)
class Prompt:
    """One prompt as the model gets it. ``text`` is what the client sent, "" where it sent ids."""

    token_ids: list[int]
    text: str = ""


@dataclass(frozen=True)
class PromptReader:
    """``template`` None: the contents of a chat's messages are joined by line ends, as for a model without a chat format."""

    tokenizer: Any
    template: ChatTemplate | None

    def chat(self, body: ChatBody) -> Prompt:
        """The conversation through the chat template. Raises ApiError."""
        messages = [{"role": message.role, "content": _content(message)} for message in body.messages]
        if self.template is None:
            text = "\n".join(message["content"] for message in messages)
            return self._encoded(text, body.add_special_tokens is not False, "messages")
        try:
            text = self.template.render(messages, body.add_generation_prompt is not False, **(body.chat_template_kwargs or {}))
        except ValueError as error:
            raise ApiError(f"The chat template refuses these messages: {error}", param="messages") from error
        return self._encoded(text, bool(body.add_special_tokens), "messages")

    def completion(self, body: CompletionBody) -> list[Prompt]:
        """The prompts of a completion. Raises ApiError."""
        prompt = body.prompt
        adds_special = body.add_special_tokens is not False
        if isinstance(prompt, str):
            return [self._encoded(prompt, adds_special, "prompt")]
        if prompt and all(isinstance(part, int) for part in prompt):
            return [_of_ids(prompt)]
        if prompt and all(isinstance(part, str) for part in prompt):
            return [self._encoded(str(part), adds_special, "prompt") for part in prompt]
        if prompt and all(isinstance(part, list) for part in prompt):
            return [_of_ids(part) for part in prompt]
        raise ApiError(
            "Invalid 'prompt': expected a string, an array of strings, an array of token ids, or an array of those.",
            param="prompt",
        )

    def _encoded(self, text: str, adds_special_tokens: bool, param: str) -> Prompt:
        ids = self.tokenizer.encode(text, add_special_tokens=adds_special_tokens)
        if not ids:
            raise ApiError(f"Invalid '{param}': the prompt is empty.", param=param)
        return Prompt(ids, text)


def open_prompt_reader(tokenizer_dir: Path) -> PromptReader:
    """The reader with the tokenizer and the chat template of a folder. Raises ValueError."""
    return PromptReader(load_tokenizer(tokenizer_dir), load_chat_template(tokenizer_dir))


def _of_ids(ids: Any) -> Prompt:
    if not ids or min(ids) < 0 or max(ids) > 2**31 - 1:
        raise ApiError("Invalid 'prompt': an array of token ids needs at least one, and none below 0.", param="prompt")
    return Prompt(ids)


def _content(message: ChatMessage) -> str:
    if message.tool_calls or message.function_call:
        raise ApiError(
            "Unsupported parameter: a message with 'tool_calls' is not supported with this model.",
            param="messages",
            code="unsupported_parameter",
        )
    if message.content is None or isinstance(message.content, str):
        return message.content or ""
    for part in message.content:
        if part.type != "text" or part.text is None:
            raise ApiError(
                f"Invalid content type '{part.type}': this model takes text.", param="messages", code="invalid_value"
            )
    return "\n".join(part.text or "" for part in message.content)

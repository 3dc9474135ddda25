"""The JSON of a request. A field that is unknown is refused, as OpenAI does; one that cannot be served is refused by name.

Beside OpenAI's fields these are vLLM's: ``top_k``, ``min_tokens``, ``ignore_eos``, ``repetition_penalty``, ``stop_token_ids``,
``skip_special_tokens``, ``add_special_tokens``, ``add_generation_prompt``, ``chat_template_kwargs``, ``return_token_ids``,
``include_metrics`` and ``stream_options.continuous_usage_stats``. Routers (vllm-router 0.1.17, sglang-router 0.3.2) parse a
request and send every field that they know, those of SGLang too, whether or not the client did: such fields are served at the
values that routers add.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from serving.front_end.api_error import ApiError, unreadable

_Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Positive = Annotated[int, Meta(ge=1, le=2**31 - 1)]
_Penalty = Annotated[float, Meta(ge=-2, le=2)]
MOST_TOP_LOGPROBS = 20
_SERVED_AS_DEFAULT: dict[str, tuple[Any, ...]] = {  # fields that have no effect at these values, and are refused at others
    "logit_bias": (None, {}),
    "suffix": (None, ""),
    "use_beam_search": (None, False),
    "tools": (None, []),
    "tool_choice": (None, "none", "auto"),
    "functions": (None, []),
    "function_call": (None, "none", "auto"),
    "modalities": (None, ["text"]),
    "audio": (None,),
    "prediction": (None,),
    "web_search_options": (None,),
    "no_stop_trim": (None, False),
    "continue_final_message": (None, False),
    "return_hidden_states": (None, False),
}


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """``continuous_usage_stats``: each chunk has a running count of tokens, as vLLM sends it."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None  # of OpenAI; here there is none


class ResponseFormat(msgspec.Struct):
    """``type`` is text, json_object or json_schema."""

    type: str
    json_schema: dict[str, Any] | None = None


class Body(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The fields that chats and completions share; None and absence are the same."""

    model: str | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    seed: int | None = None
    presence_penalty: _Penalty | None = None
    frequency_penalty: _Penalty | None = None
    repetition_penalty: Annotated[float, Meta(gt=0)] | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[_Count] | None = None
    ignore_eos: bool | None = None
    max_tokens: _Positive | None = None
    min_tokens: _Count | None = None
    skip_special_tokens: bool | None = None
    add_special_tokens: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    include_metrics: bool | None = None
    response_format: ResponseFormat | None = None
    logit_bias: Any = None
    use_beam_search: Any = None
    no_stop_trim: Any = None
    continue_final_message: Any = None
    return_hidden_states: Any = None
    # accepted without effect
    user: Any = None
    request_id: Any = None
    metadata: Any = None
    store: Any = None
    service_tier: Any = None
    safety_identifier: Any = None
    prompt_cache_key: Any = None
    priority: Any = None
    separate_reasoning: Any = None  # no model here reasons in a field of its own
    stream_reasoning: Any = None
    include_reasoning: Any = None


class TextPart(msgspec.Struct):
    """A part of a message's content; only those of ``type`` text are served."""

    type: str
    text: str | None = None


class ChatMessage(msgspec.Struct):
    """A message; other fields, such as a refusal, are ignored. Calls of tools, a part of the prompt, are refused."""

    role: str
    content: str | list[TextPart] | None = None
    name: str | None = None
    tool_calls: Any = None
    function_call: Any = None


class ChatBody(Body, forbid_unknown_fields=True, kw_only=True):
    """A chat. ``max_completion_tokens`` is the newer name of ``max_tokens``."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    max_completion_tokens: _Positive | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=MOST_TOP_LOGPROBS)] | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: Any = None
    tool_choice: Any = None
    parallel_tool_calls: Any = None
    functions: Any = None
    function_call: Any = None
    modalities: Any = None
    audio: Any = None
    prediction: Any = None
    web_search_options: Any = None


class CompletionBody(Body, forbid_unknown_fields=True, kw_only=True):
    """A completion. A prompt is text or token ids, alone or several in a list."""

    prompt: str | list[str | int | list[int]]
    logprobs: Annotated[int, Meta(ge=0, le=MOST_TOP_LOGPROBS)] | None = None
    echo: bool | None = None
    best_of: int | None = None
    suffix: Any = None


AnyBody = TypeVar("AnyBody", ChatBody, CompletionBody)


def read_body(text: bytes, kind: type[AnyBody]) -> AnyBody:
    """The body of a request. Raises ApiError."""
    try:
        body = msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise unreadable(error) from error
    for name, values in _SERVED_AS_DEFAULT.items():
        if getattr(body, name, None) not in values:
            raise ApiError(
                f"Unsupported parameter: '{name}' is not supported with this model.", param=name, code="unsupported_parameter"
            )
    if body.model is None:
        raise ApiError("you must provide a model parameter", param="model")
    return body

"""What a request requests of the model, for either endpoint: the sampling, and what the answer has."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from serving.front_end.api_error import ApiError
from serving.front_end.bodies import Body, ChatBody, CompletionBody, ResponseFormat

DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's; a chat without a limit has what the context leaves


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen. ``greedy`` overrides ``temperature``, ``top_p`` and ``top_k`` (0: no limit).

    ``seed`` None: a new one for each request. ``guide`` is a type and text of guided decoding.
    """

    greedy: bool = False
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    guide: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Generation:
    """What to generate for each prompt: ``n`` sequences of ``min_tokens`` to ``max_tokens`` (None: the default) tokens.

    After ``min_tokens`` a sequence ends before one of the texts ``stop``, and with one of the tokens ``stop_token_ids`` or,
    unless ``ignore_eos``, the model's own end. ``top_logprobs`` None: no log probabilities; else that many alternatives beside
    each token's.
    ``include_metrics``: the engine's times of the request.
    """

    sampling: Sampling = Sampling()
    n: int = 1
    max_tokens: int | None = None
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    top_logprobs: int | None = None
    skip_special_tokens: bool = True
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    return_token_ids: bool = False
    include_metrics: bool = False
    echo: bool = False


def chat_generation(body: ChatBody) -> Generation:
    """Raises ApiError."""
    if body.max_tokens is not None and body.max_completion_tokens not in (None, body.max_tokens):
        raise ApiError("Set only one of 'max_tokens' and 'max_completion_tokens'.", param="max_tokens")
    if body.top_logprobs and not body.logprobs:
        raise ApiError("The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled.", param="top_logprobs")
    max_tokens = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    return _generation(body, max_tokens, (body.top_logprobs or 0) if body.logprobs else None)


def completion_generation(body: CompletionBody) -> Generation:
    """Raises ApiError."""
    if body.best_of not in (None, 1, body.n):
        raise ApiError("'best_of' is not supported: it must be 1, or equal to 'n'.", param="best_of")
    if body.echo and body.logprobs is not None:
        raise ApiError("'echo' cannot be combined with 'logprobs'.", param="echo")
    max_tokens = DEFAULT_COMPLETION_TOKENS if body.max_tokens is None else body.max_tokens
    return replace(_generation(body, max_tokens, body.logprobs), echo=bool(body.echo))


def _generation(body: Body, max_tokens: int | None, top_logprobs: int | None) -> Generation:
    options = body.stream_options
    if options is not None and not body.stream:
        raise ApiError("The 'stream_options' parameter is only allowed when 'stream' is enabled.", param="stream_options")
    if max_tokens is not None and (body.min_tokens or 0) > max_tokens:
        raise ApiError(f"'min_tokens' is {body.min_tokens}, more than 'max_tokens', which is {max_tokens}.", param="min_tokens")
    stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    return Generation(
        sampling=_sampling(body),
        n=body.n or 1,
        max_tokens=max_tokens,
        min_tokens=body.min_tokens or 0,
        stop=tuple(filter(None, stop)),
        stop_token_ids=tuple(body.stop_token_ids or ()),
        ignore_eos=bool(body.ignore_eos),
        top_logprobs=top_logprobs,
        skip_special_tokens=body.skip_special_tokens is not False,
        stream=bool(body.stream),
        include_usage=bool(options and options.include_usage),
        continuous_usage=bool(options and options.continuous_usage_stats),
        return_token_ids=bool(body.return_token_ids),
        include_metrics=bool(body.include_metrics),
    )


def _sampling(body: Body) -> Sampling:
    temperature = 1.0 if body.temperature is None else body.temperature
    top_p = 1.0 if body.top_p is None else body.top_p
    top_k = max(body.top_k or 0, 0)  # vLLM's -1 is no limit
    return Sampling(
        greedy=temperature == 0 or top_p == 0 or top_k == 1,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        seed=body.seed,
        presence_penalty=body.presence_penalty or 0.0,
        frequency_penalty=body.frequency_penalty or 0.0,
        repetition_penalty=1.0 if body.repetition_penalty is None else body.repetition_penalty,
        guide=_guide(body.response_format),
    )


def _guide(form: ResponseFormat | None) -> tuple[str, str] | None:
    """Type and text of ``guided_decoding_guide``. Raises ApiError."""
    match form:
        case None | ResponseFormat(type="text"):
            return None
        case ResponseFormat(type="json_object"):  # the guide json has arrays, too
            return "json_schema", '{"type":"object"}'
        case ResponseFormat(type="json_schema", json_schema={"schema": schema}):
            return "json_schema", msgspec.json.encode(schema).decode()
    raise ApiError("Invalid 'response_format': use text, json_object, or json_schema with a schema.", param="response_format")

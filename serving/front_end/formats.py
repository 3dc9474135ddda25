"""The two forms of an answer, of chats and of completions, streamed in chunks or whole.

https://platform.openai.com/docs/api-reference/chat/object and …/chat/streaming, …/completions/object
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
from msgspec import UNSET, UnsetType

from serving.front_end.choices import Piece, TokenLogProb
from serving.front_end.request_times import Metrics

DONE = b"data: [DONE]\n\n"
_encode = msgspec.json.Encoder().encode


class Usage(msgspec.Struct):
    """Tokens of all prompts, and of all choices."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


def usage_of(prompt_tokens: int, completion_tokens: int) -> Usage:
    return Usage(prompt_tokens, completion_tokens, prompt_tokens + completion_tokens)


class _Message(msgspec.Struct):
    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET


class _TokenProbability(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int]


class _ChatToken(_TokenProbability):
    top_logprobs: list[_TokenProbability]


class _ChatLogProbs(msgspec.Struct):
    content: list[_ChatToken]
    refusal: None = None


class _TextLogProbs(msgspec.Struct):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class _ChatChoice(msgspec.Struct):
    index: int
    delta: _Message | UnsetType = UNSET
    message: _Message | UnsetType = UNSET
    logprobs: _ChatLogProbs | None = None
    finish_reason: str | None = None
    token_ids: Sequence[int] | UnsetType = UNSET


class _TextChoice(msgspec.Struct):
    index: int
    text: str
    logprobs: _TextLogProbs | None = None
    finish_reason: str | None = None
    token_ids: Sequence[int] | UnsetType = UNSET
    prompt_token_ids: Sequence[int] | UnsetType = UNSET


AnyChoice = _ChatChoice | _TextChoice


class _Answer(msgspec.Struct):
    """A whole answer, or a chunk of it."""

    id: str
    object: str
    created: int
    model: str
    choices: Sequence[AnyChoice]
    usage: Usage | UnsetType | None = UNSET
    prompt_token_ids: Sequence[int] | UnsetType = UNSET
    metrics: Metrics | UnsetType = UNSET


class _Model(msgspec.Struct):
    """A model of ``/v1/models``; ``max_model_len`` is vLLM's field."""

    id: str
    object: str
    created: int
    owned_by: str
    max_model_len: int | UnsetType = UNSET


class _Models(msgspec.Struct):
    object: str
    data: list[_Model]


class Format(Protocol):
    """The form of the answers of one endpoint."""

    id_prefix: str
    chunk_object: str
    whole_object: str

    def opening(self, index: int) -> AnyChoice | None:
        """What a stream has before the first piece of a choice."""
        ...

    def streamed(self, piece: Piece, returns_ids: bool, prompt: Sequence[int] | None = None) -> AnyChoice:
        """A piece of a choice; ``prompt``: the token ids that the first one of a completion returns."""
        ...

    def whole(self, pieces: Sequence[Piece], prefix: str, returned: Sequence[int] | None) -> AnyChoice:
        """A choice of which ``pieces`` are all; ``prefix`` comes before its text, and ``returned`` is its prompt."""
        ...


class ChatFormat:
    """The form of a chat: the first chunk of a choice names the role."""

    id_prefix = "chatcmpl-"
    chunk_object = "chat.completion.chunk"
    whole_object = "chat.completion"

    def opening(self, index: int) -> AnyChoice | None:
        return _ChatChoice(index, delta=_Message("assistant", ""))

    def streamed(self, piece: Piece, returns_ids: bool, prompt: Sequence[int] | None = None) -> AnyChoice:
        return _ChatChoice(
            piece.index,
            delta=_Message(content=piece.text),
            logprobs=_chat_log_probs(piece.log_probs),
            finish_reason=piece.finish_reason,
            token_ids=piece.token_ids if returns_ids else UNSET,
        )

    def whole(self, pieces: Sequence[Piece], prefix: str, returned: Sequence[int] | None) -> AnyChoice:
        return _ChatChoice(
            pieces[-1].index,
            message=_Message("assistant", prefix + "".join(piece.text for piece in pieces)),
            logprobs=_chat_log_probs(_joined_log_probs(pieces)),
            finish_reason=pieces[-1].finish_reason,
            token_ids=UNSET if returned is None else _joined_ids(pieces),
        )


class CompletionFormat:
    """The form of a completion."""

    id_prefix = "cmpl-"
    chunk_object = "text_completion"
    whole_object = "text_completion"

    def opening(self, index: int) -> AnyChoice | None:
        return None

    def streamed(self, piece: Piece, returns_ids: bool, prompt: Sequence[int] | None = None) -> AnyChoice:
        return _TextChoice(
            piece.index,
            piece.text,
            logprobs=_text_log_probs(piece.log_probs),
            finish_reason=piece.finish_reason,
            token_ids=piece.token_ids if returns_ids else UNSET,
            prompt_token_ids=UNSET if prompt is None else prompt,
        )

    def whole(self, pieces: Sequence[Piece], prefix: str, returned: Sequence[int] | None) -> AnyChoice:
        return _TextChoice(
            pieces[-1].index,
            prefix + "".join(piece.text for piece in pieces),
            logprobs=_text_log_probs(_joined_log_probs(pieces)),
            finish_reason=pieces[-1].finish_reason,
            token_ids=UNSET if returned is None else _joined_ids(pieces),
            prompt_token_ids=UNSET if returned is None else returned,
        )


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """What every chunk of an answer has. ``has_usage``: each has the field, null but in the last."""

    format: Format
    request_id: str
    created: int  # s since the epoch
    model: str
    has_usage: bool = False

    def chunk(self, choices: Sequence[AnyChoice], usage: Usage | None = None, prompt: Sequence[int] | None = None) -> bytes:
        """One server-sent event; ``prompt``: the token ids of a chat's prompt, which its first chunk may have."""
        answer = self._answer(self.format.chunk_object, choices)
        if usage is not None or self.has_usage:
            answer.usage = usage
        if prompt is not None:
            answer.prompt_token_ids = prompt
        return _event(answer)

    def last_chunk(self, usage: Usage, metrics: Metrics | None = None) -> bytes:
        """The event after the choices, with what is known of the whole answer."""
        answer = self._answer(self.format.chunk_object, ())
        answer.usage = usage
        answer.metrics = UNSET if metrics is None else metrics
        return _event(answer)

    def whole(
        self,
        choices: Sequence[AnyChoice],
        usage: Usage,
        prompt: Sequence[int] | None = None,
        metrics: Metrics | None = None,
    ) -> bytes:
        answer = self._answer(self.format.whole_object, choices)
        answer.usage = usage
        answer.metrics = UNSET if metrics is None else metrics
        if prompt is not None:
            answer.prompt_token_ids = prompt
        return _encode(answer)

    def _answer(self, kind: str, choices: Sequence[AnyChoice]) -> _Answer:
        return _Answer(self.format.id_prefix + self.request_id, kind, self.created, self.model, choices)


def _event(answer: _Answer) -> bytes:
    return b"data: " + _encode(answer) + b"\n\n"


def models_body(model: str, created: int, context_tokens: int | None) -> bytes:
    """The answer of ``/v1/models``."""
    return _encode(_Models("list", [_model(model, created, context_tokens)]))


def model_body(model: str, created: int, context_tokens: int | None) -> bytes:
    """The answer of ``/v1/models/NAME``."""
    return _encode(_model(model, created, context_tokens))


def _model(model: str, created: int, context_tokens: int | None) -> _Model:
    return _Model(model, "model", created, "inflight-bench", UNSET if context_tokens is None else context_tokens)


def _joined_ids(pieces: Sequence[Piece]) -> list[int]:
    return [token for piece in pieces for token in piece.token_ids]


def _joined_log_probs(pieces: Sequence[Piece]) -> list[TokenLogProb] | None:
    if any(piece.log_probs is None for piece in pieces):
        return None
    return [token for piece in pieces for token in piece.log_probs or ()]


def _chat_log_probs(tokens: Sequence[TokenLogProb] | None) -> _ChatLogProbs | None:
    return None if tokens is None else _ChatLogProbs([_chat_token(token) for token in tokens])


def _chat_token(token: TokenLogProb) -> _ChatToken:
    top = [_TokenProbability(likely.text, likely.log_prob, list(likely.utf8)) for likely in token.top]
    return _ChatToken(token.text, token.log_prob, list(token.utf8), top)


def _top(token: TokenLogProb) -> dict[str, float]:
    """The likeliest tokens by their texts, and the token itself, as OpenAI has it; of equal texts the likelier one."""
    top: dict[str, float] = {}
    for likely in (*token.top, token):
        top.setdefault(likely.text, likely.log_prob)
    return top


def _text_log_probs(tokens: Sequence[TokenLogProb] | None) -> _TextLogProbs | None:
    if tokens is None:
        return None
    return _TextLogProbs(
        tokens=[token.text for token in tokens],
        token_logprobs=[token.log_prob for token in tokens],
        top_logprobs=[_top(token) if token.top else None for token in tokens],
        text_offset=[token.offset for token in tokens],
    )

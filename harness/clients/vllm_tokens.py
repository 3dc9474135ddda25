"""vLLM's tokens in and out: ``POST /inference/v1/generate`` takes the token ids of a prompt and returns those of its answer.

Source: ``vllm/entrypoints/scale_out/token_in_token_out`` of vLLM 0.32. The server neither tokenizes nor detokenizes, and adds
no template: prompts and answers have their exact lengths. ``max_tokens`` and all that sets the sampling are fields of
``sampling_params``; so are the user's own fields, except those of the request itself, since the server ignores others beside
it. A stream has a chunk a step with its ids, a last one with the usage alone, and then ``[DONE]``, as OpenAI's do. The server
sends none of its times of the request. ``openai_client.py`` has what it shares with OpenAI's protocols.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from harness.clients.openai_client import Choice, Chunk, ChunkReader, OpenAIClient
from harness.clients.openai_server import VLLM_TOKENS
from harness.clients.protocol import Response, TokenId
from workloads.elements.request import Request

_OF_THE_REQUEST = frozenset(
    {"cache_salt", "ec_transfer_params", "kv_transfer_params", "output_mode", "priority", "reasoning_ended", "return_token_ids"}
)


class _Choice(Choice, gc=False):
    token_ids: list[TokenId] | None = None


class VllmTokensClient(OpenAIClient, frozen=True, tag="vllm_tokens"):
    """A Client for one model of a vLLM server that takes and returns token ids."""

    path: str = VLLM_TOKENS

    def prompt_sent(self, request: Request) -> Sequence[int]:
        if request.input_ids is None:
            raise ValueError("prompts are sent as token ids, and this request has none")
        return list(request.input_ids)

    def prompt_fields(self, request: Request) -> Mapping[str, object]:
        return {"token_ids": self.prompt_sent(request)}

    def fields_of(self, request: Request) -> Mapping[str, object]:
        beside = {name: value for name, value in self.extra.items() if name in _OF_THE_REQUEST}
        sampling = {name: value for name, value in self.extra.items() if name not in _OF_THE_REQUEST}
        ends = {"ignore_eos": True} if request.ignore_eos else {}
        return {
            "model": self.model_of(request),
            **self.prompt_fields(request),
            "sampling_params": {**sampling, "max_tokens": request.output_tokens, **ends},
            **self.stream_fields(),
            **beside,
        }

    def decode(self, body: bytes) -> Response:
        return _READER.read(body)


def _no_texts(choice: _Choice) -> tuple[str, str] | None:
    return None


def _opens_nothing(choice: _Choice) -> bool:
    return False


def _ids(choice: _Choice) -> Sequence[int]:
    return choice.token_ids or ()


_READER = ChunkReader("generation of token ids", msgspec.json.Decoder(Chunk[_Choice]).decode, _no_texts, _opens_nothing, _ids)

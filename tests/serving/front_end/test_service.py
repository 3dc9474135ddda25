"""Answers of the OpenAI front end to faults that no real server has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from serving.client.request import GenerationRequest
from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.front_end.choices import Choice
from serving.front_end.core_response import CoreResponse
from serving.front_end.generation import Generation
from serving.front_end.service import OpenAIService, Vocabulary
from serving.text.tokenizer import load_tokenizer

_WAIT_S = 30.0
_TOKENIZER = load_tokenizer(DEMO_ENGINE_DIR)
_STOP, _END = 300, 2


class _BrokenCore:
    async def generate(self, request: GenerationRequest) -> AsyncGenerator[CoreResponse, None]:
        raise ValueError("tensors that nobody understands")
        yield


@pytest.mark.parametrize("prompts", [1, 2])
def test_an_answer_that_cannot_be_read_ends_its_request(prompts: int) -> None:
    nothing = cast("Any", None)
    service = OpenAIService(nothing, nothing, Vocabulary(frozenset(), ()), cast("Any", _BrokenCore()), nothing)
    job = SimpleNamespace(
        prompts=[None] * prompts, requests=[None] * prompts, choices=[None] * prompts, generation=Generation()
    )

    async def read() -> None:
        async for _ in service._pieces(cast("Any", job)):
            pass

    with pytest.raises(ValueError, match="nobody understands"):
        asyncio.run(asyncio.wait_for(read(), _WAIT_S))


class _CutThenEnded:
    """Two sequences: the first is cut by a stop text, the second ends by itself, and the first would go on at the engine."""

    read = 0

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[CoreResponse, None]:
        for index, token in ((0, _STOP), (1, 5), (1, _END), (0, 6), (0, 7)):
            self.read += 1
            yield CoreResponse(index, [token], [], None, is_final=False)


def test_an_answer_ends_with_its_last_sequence_where_another_was_cut_before() -> None:
    nothing, core = cast("Any", None), _CutThenEnded()
    service = OpenAIService(nothing, nothing, Vocabulary(frozenset(), (_END,)), cast("Any", core), nothing)
    generation = Generation(n=2, max_tokens=9, stop=(_TOKENIZER.decode([_STOP]),))
    choices = [Choice(index, generation, _TOKENIZER, frozenset(), (_END,)) for index in range(2)]
    job = SimpleNamespace(prompts=[None], requests=[None], choices=choices, generation=generation)

    async def read() -> list[str | None]:
        return [piece.finish_reason async for piece in service._pieces(cast("Any", job))]

    assert asyncio.run(asyncio.wait_for(read(), _WAIT_S)) == ["stop", None, "stop"]
    assert core.read == 3

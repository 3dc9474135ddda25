"""Answers of the OpenAI front end to faults that no real server has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from serving.client.request import GenerationRequest
from serving.front_end.core_response import CoreResponse
from serving.front_end.generation import Generation
from serving.front_end.service import OpenAIService, Vocabulary

_WAIT_S = 30.0


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

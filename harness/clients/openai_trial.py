"""One completion before the warm-up, to find what a server sends: token counts, and a finish_reason.

Servers disagree on ``stream_options.continuous_usage_stats``: vLLM sends a running count in each chunk, others ignore the
field, and some refuse it. And the server counts the tokens that it adds to a prompt, of a chat template or special ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from harness.clients.openai_client import OpenAIClient
from harness.clients.protocol import ExchangeFailedError, MalformedResponseError, Response
from workloads.elements.request import Request

_BYTE_LEVEL_A = 64  # "a" in byte-level vocabularies, of which GPT-2's is the first; an ordinary token in others
TRIAL = Request(  # of enough tokens that a model ends it only by chance before two chunks
    output_tokens=16, prompt="a", input_ids=(_BYTE_LEVEL_A,)
)


@dataclass(frozen=True, slots=True)
class OpenAITrial:
    """``continuous_usage``: chunks carry running counts on request.

    ``prompt_tokens`` is the server's count of the prompt of the trial with what it adds; None where it sent none or failed.
    ``finish_reason``: the answer had one.
    """

    continuous_usage: bool
    prompt_tokens: int | None
    finish_reason: bool = False


def try_openai(client: OpenAIClient, left_s: Callable[[], float]) -> OpenAITrial:
    """Send the request with running counts and, where that is refused, without. A server that fails both is for the warm-up.

    ``left_s`` returns the seconds that are left for both.
    """
    for with_counts in (True, False):
        responses = asyncio.run(_responses(replace(client, continuous_usage=with_counts), left_s()))
        if responses:
            prompt_tokens = next((r.server_input_tokens for r in responses if r.server_input_tokens is not None), None)
            has_reason = any(response.finish_reasons for response in responses)
            return OpenAITrial(with_counts and _counts_run(responses), prompt_tokens, has_reason)
    return OpenAITrial(False, None)


async def _responses(client: OpenAIClient, timeout_s: float) -> list[Response]:
    """The responses to the trial; none where it failed."""
    bodies: list[bytes] = []
    try:
        connection = await client.connect(timeout_s)
        try:
            await connection.exchange(client.encode(0, TRIAL), lambda _, new: bodies.extend(new), timeout_s)
            responses = list(map(client.decode, bodies))
        finally:
            await connection.close()
    except (ExchangeFailedError, MalformedResponseError):
        return []
    return [] if any(response.error is not None for response in responses) else responses


def _counts_run(responses: list[Response]) -> bool:
    """Whether every piece of the answer, which may have no text, has a count, and the counts rise."""
    counts = [response.server_tokens_so_far for response in responses if response.text is not None and not response.opening]
    return len(counts) > 1 and None not in counts and counts[0] != counts[-1]

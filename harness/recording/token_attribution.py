"""Attribution of generated tokens to the chunks of a text stream (OpenAI's chat completions, Triton's text models).

A chunk of text holds no count of its tokens. It can hold several (a front end that joins what it could not send at once), or
one whose text is empty (a character of several tokens, as yet unfinished). Which is which follows from counts that the server
sends: a running count in each chunk (``stream_options.continuous_usage_stats``), or the total at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from harness.clients.protocol import Response


@dataclass(frozen=True, slots=True)
class Attribution:
    """``carries_tokens`` of each response; ``counts`` are the tokens of those that do, in order, None where unknown."""

    carries_tokens: tuple[bool, ...]
    counts: tuple[int, ...] | None


def attribute_tokens(responses: Sequence[Response], texts: Sequence[str], total: int | None, hidden: int = 0) -> Attribution:
    """Attribute ``total`` tokens (None: the server gave no count) to ``responses``, whose own text is ``texts``, echo removed.
    The ``hidden`` ones among them, which were generated before the others and not sent, count with the first response.

    By the first rule that fits: the running counts where every message has one; one token a message (all but the opening one,
    which names the role) where they are as many as the tokens; one token a text where those are. Else the responses with text
    carry tokens, and how many is unknown.
    """
    if total is not None:
        for attribution in (_running_counts(responses, total), _one_each(are_messages(responses), total, hidden)):
            if attribution is not None:
                return attribution
    with_text = tuple(map(bool, texts))
    return (None if total is None else _one_each(with_text, total, hidden)) or Attribution(with_text, None)


def attribute_each(counts: Sequence[int]) -> Attribution:
    """The attribution of known ``counts``, one of each response."""
    return Attribution(tuple(count > 0 for count in counts), tuple(count for count in counts if count))


def count_text_chunks(responses: Sequence[Response], total: int | None) -> tuple[int, int]:
    """The number of messages, and how many within the answer have no text. An empty one that ends the answer counts only if the
    ``total`` tokens (None: the server gave no count) are as many as the messages with it. It may be the token that ends the
    answer, and shows nothing of the empty ones within.
    """
    of_answer = [response for response, is_message in zip(responses, are_messages(responses), strict=True) if is_message]
    with_text = sum(bool(response.text) for response in of_answer)
    ends = sum(not response.text and bool(response.finish_reasons) for response in of_answer)
    within = len(of_answer) - ends
    return len(of_answer) if len(of_answer) == total else within, within - with_text


def _running_counts(responses: Sequence[Response], total: int) -> Attribution | None:
    """By differences of the running counts; None where a message lacks one, or they do not rise to ``total``."""
    messages = are_messages(responses)
    if True not in messages:  # the usage alone, as of a call of tools: its tokens came at unknown times
        return None
    counts_so_far: list[int] = [0]
    for response, is_message in zip(responses, messages, strict=True):
        count = response.server_tokens_so_far
        if is_message and count is None:
            return None
        counts_so_far.append(counts_so_far[-1] if count is None else count)
    counts = [later - earlier for earlier, later in pairwise(counts_so_far)]
    if counts_so_far[-1] != total or min(counts) < 0 or _has_uncounted_text(responses, counts_so_far[1:]):
        return None
    if _stand_still(responses, counts_so_far[1:]):
        return None
    return attribute_each(counts)


def _has_uncounted_text(responses: Sequence[Response], counts_so_far: Sequence[int]) -> bool:
    """Whether text comes while the count is still 0: then the count is not a running one."""
    return any(response.text and not count for response, count in zip(responses, counts_so_far, strict=True))


def _stand_still(responses: Sequence[Response], counts_so_far: Sequence[int]) -> bool:
    """Whether several texts have one and the same count: then it is each chunk's own, or that of the whole answer."""
    of_texts = [count for response, count in zip(responses, counts_so_far, strict=True) if response.text]
    return len(of_texts) > 1 and len(set(of_texts)) == 1


def are_messages(responses: Sequence[Response]) -> tuple[bool, ...]:
    """The responses that hold a piece of the answer, if an empty one: neither a leading role chunk nor usage alone.

    Some servers name the role in every chunk, so only chunks before the first piece can be role chunks.
    """
    first = next((number for number, response in enumerate(responses) if response.text is not None and not response.opening), 0)
    return tuple(response.text is not None and (number >= first) for number, response in enumerate(responses))


def _one_each(carriers: tuple[bool, ...], total: int, hidden: int) -> Attribution | None:
    count = sum(carriers)
    if count != total - hidden or (hidden and not count):
        return None
    return Attribution(carriers, (1 + hidden, *(1,) * (count - 1)) if count else ())

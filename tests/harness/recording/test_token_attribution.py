"""Which chunks of a text stream carry tokens, and how many: exact where the server's counts allow it, else unknown."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.clients.protocol import Response
from harness.recording.token_attribution import Attribution, attribute_tokens, count_text_chunks

_ROLE = Response(text="", opening=True)


def _attribute(responses: list[Response], total: int | None) -> Attribution:
    return attribute_tokens(responses, [response.text or "" for response in responses], total)


def _plain(*texts: str) -> list[Response]:
    return [Response(text=text) for text in texts]


def _usage(total: int) -> Response:
    return Response(server_tokens_so_far=total)


def _running(*counts: int) -> list[Response]:
    return [Response(text="a", server_tokens_so_far=count) for count in counts]


@pytest.mark.parametrize(
    ("responses", "total", "carries", "counts"),
    [
        ([_ROLE, *_plain("a", "b"), _usage(2)], 2, (0, 1, 1, 0), (1, 1)),
        ([_ROLE, *_plain("a", "", "c"), _usage(3)], 3, (0, 1, 1, 1, 0), (1, 1, 1)),  # an incomplete character in between
        ([_ROLE, *_plain("", "b", "c"), _usage(3)], 3, (0, 1, 1, 1, 0), (1, 1, 1)),  # and as the first token
        ([*_plain("a", "b", ""), _usage(2)], 2, (1, 1, 0, 0), (1, 1)),  # a closing chunk that carries nothing
        ([_ROLE, *_plain("a", "bc"), _usage(3)], 3, (0, 1, 1, 0), None),  # a front end joined two tokens
        (_plain("a", "b"), None, (1, 1), None),
        ([Response(text="", server_tokens_so_far=0, opening=True), Response(text="ab", server_tokens_so_far=2),
          Response(text="", server_tokens_so_far=3), Response(text="d", server_tokens_so_far=4), _usage(4)],
         4, (0, 1, 1, 1, 0), (2, 1, 1)),
        ([_ROLE, Response(text="a", server_tokens_so_far=1), Response(text="b")], 2, (0, 1, 1), (1, 1)),
        ([Response(text="a", opening=False), Response(text="", opening=True), Response(text="c")], 3, (1, 1, 1), (1, 1, 1)),
        ([_usage(5)], 5, (0,), None),  # a call of tools, whose tokens came at unknown times
        ([Response(text="", opening=True), _usage(1)], 1, (1, 0), (1,)),  # one unfinished character, with the role
        (_running(2, 3), 3, (1, 1), (2, 1)),  # and no usage alone
        (_running(3, 2), 2, (1, 1), (1, 1)),  # a count that falls is no running one
        (_running(0, 2), 2, (1, 1), (1, 1)),  # nor one that is 0 beside text
        (_running(1, 2), 3, (1, 1), None),  # nor one that stops before the end
        ([*_running(3, 3, 3), _usage(3)], 3, (1, 1, 1, 0), (1, 1, 1)),  # nor the total in every chunk
        ([*_running(5, 5, 5), _usage(5)], 5, (1, 1, 1, 0), None),
        ([*_running(2, 2), _usage(2)], 2, (1, 1, 0), (1, 1)),  # nor in both of two
        ([*_running(5, 5), _usage(5)], 5, (1, 1, 0), None),
        ([*_running(1, 1, 1), _usage(3)], 3, (1, 1, 1, 0), (1, 1, 1)),  # nor each chunk's own count
        ([Response(text="abc", server_tokens_so_far=3), Response(text="", server_tokens_so_far=3), _usage(3)],
         3, (1, 0, 0), (3,)),  # one text alone can have all
        ([Response(text="a", server_tokens_so_far=1), Response(text="", server_tokens_so_far=3),
          Response(text="c", server_tokens_so_far=3)], 3, (1, 1, 0), (1, 2)),  # one that rises with a text that is empty
        ([*_running(1, 2), _usage(3)], 3, (1, 1, 1), (1, 1, 1)),  # an end token that is counted with the usage
    ],
)  # fmt: skip
def test_chunks_of_every_kind(
    responses: list[Response], total: int | None, carries: tuple[int, ...], counts: tuple[int, ...] | None
) -> None:
    assert _attribute(responses, total) == Attribution(tuple(map(bool, carries)), counts)


@pytest.mark.parametrize(
    ("responses", "total", "hidden", "carries", "counts"),
    [
        ([_ROLE, *_plain("a", "b"), _usage(5)], 5, 3, (0, 1, 1, 0), (4, 1)),  # they came before the first text
        ([*_plain("a", "", "c"), _usage(5)], 5, 2, (1, 1, 1, 0), (3, 1, 1)),
        ([*_plain("a", "", "c"), _usage(5)], 5, 3, (1, 0, 1, 0), (4, 1)),  # the empty one is no token
        (_plain("a"), 4, 3, (1,), (4,)),
        ([_ROLE, *_plain("a", "b"), _usage(5)], 5, 2, (0, 1, 1, 0), None),  # two texts and three tokens
        ([_ROLE, *_plain("a", "b"), _usage(5)], 5, 4, (0, 1, 1, 0), None),
        ([_usage(3)], 3, 3, (0,), None),  # nothing came with which they could count
        ([_usage(0)], 0, 0, (0,), ()),
    ],
)
def test_tokens_that_were_not_sent_count_with_the_first_response(
    responses: list[Response], total: int, hidden: int, carries: tuple[int, ...], counts: tuple[int, ...] | None
) -> None:
    attribution = attribute_tokens(responses, [response.text or "" for response in responses], total, hidden)
    assert attribution == Attribution(tuple(map(bool, carries)), counts)


_END = Response(text="", finish_reasons=("length",))


@pytest.mark.parametrize(
    ("responses", "total", "chunks"),
    [
        ([_ROLE, *_plain("a", "b"), _usage(2)], 2, (2, 0)),
        ([_ROLE, *_plain("a", "", "c")], None, (3, 1)),
        ([_ROLE, *_plain("a", "", "c"), _usage(2)], 2, (3, 1)),
        ([*_plain("a", "b"), _END, _usage(2)], 2, (2, 0)),
        ([*_plain("a", "b"), _END], None, (2, 0)),
        ([*_plain("a", "b"), _END, _usage(3)], 3, (3, 0)),  # the end token, or that of a character that was not finished
        ([*_plain("a", "", "b"), _END, _usage(4)], 4, (4, 1)),
        ([*_plain("a", "", "b"), _END, _usage(2)], 2, (3, 1)),
        ([*_plain("a", "b"), Response(text="c", finish_reasons=("length",))], None, (3, 0)),
        ([_usage(5)], 5, (0, 0)),
    ],
)
def test_chunks_and_those_without_text(responses: list[Response], total: int | None, chunks: tuple[int, int]) -> None:
    assert count_text_chunks(responses, total) == chunks


_CHUNKS = st.lists(st.tuples(st.sampled_from(["", "a", "bcd"]), st.integers(0, 5)), min_size=1, max_size=30).filter(
    lambda chunks: sum(count for _, count in chunks) > 0 and (chunks[0][1] > 0 or not chunks[0][0]) and not _stand_still(chunks)
)


def _stand_still(chunks: list[tuple[str, int]]) -> bool:
    """Whether several texts have the same count."""
    so_far = list(accumulate(count for _, count in chunks))
    of_texts = [count for (text, _), count in zip(chunks, so_far, strict=True) if text and count]
    return len(of_texts) > 1 and len(set(of_texts)) == 1


@given(_CHUNKS, st.booleans())
def test_running_counts_are_recovered_exactly(chunks: list[tuple[str, int]], with_role: bool) -> None:
    so_far = list(accumulate(count for _, count in chunks))
    texts = [text if count else "" for (text, _), count in zip(chunks, so_far, strict=True)]
    responses = [Response(text=text, server_tokens_so_far=count) for text, count in zip(texts, so_far, strict=True)]
    role = [_ROLE] if with_role else []
    attribution = _attribute([*role, *responses, _usage(so_far[-1])], so_far[-1])
    assert attribution.counts == tuple(count for _, count in chunks if count)
    assert attribution.carries_tokens == (*(False for _ in role), *(count > 0 for _, count in chunks), False)


@given(st.lists(st.sampled_from(["", "a", "bc"]), max_size=30), st.integers(0, 40), st.booleans())
def test_counts_that_are_given_add_up_to_the_total(texts: list[str], total: int, with_role: bool) -> None:
    attribution = _attribute([*([_ROLE] if with_role else []), *_plain(*texts), _usage(total)], total)
    if attribution.counts is not None:
        assert sum(attribution.counts) == total
        assert len(attribution.counts) == sum(attribution.carries_tokens)
    else:
        assert sum(attribution.carries_tokens) == len(texts) - texts.count("")

"""How much of a workload repeats itself."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.elements.request import Message, Request
from workloads.table.prefixes import (
    PrefixRepetition,
    infinite_cache_share,
    longest_shared_prefixes,
    most_repeated_share,
    prefix_repetition,
    prompt_blocks,
)


def _ids(*ids: int) -> Request:
    return Request(output_tokens=1, input_ids=ids)


def _repeated(*prompts: Sequence[int], block_tokens: int = 2) -> PrefixRepetition:
    return prefix_repetition([_ids(*prompt) for prompt in prompts], block_tokens)


def test_a_block_counts_where_all_before_it_was_sent_too() -> None:
    assert _repeated([1, 2, 3, 4], [1, 2, 3, 9]).repeated == 2
    assert _repeated([1, 2, 3, 4], [9, 2, 3, 4]).repeated == 0  # the same block under another beginning is another
    assert _repeated([1, 2, 3, 4], [1, 2, 3, 4, 5]).repeated == 4  # what fills no block is never kept
    assert _repeated([1, 1, 1, 1]).repeated == 0


def test_the_account_is_of_the_order_of_sending() -> None:
    found = _repeated([1, 2], [1, 2, 3, 4], [1, 2, 3, 4])
    assert (found.repeated, found.total, found.unit) == (2 + 4, 10, "tokens")
    assert (found.repeated_prompts, found.prompts) == (1, 3)
    assert found.share == 0.6
    assert (type(found.repeated), type(found.total)) == (int, int)  # counts, also as they are printed


def test_ids_below_0_are_ids_as_others() -> None:
    assert _repeated([-1, -2], [-1, -2]).repeated == 2


def test_texts_are_counted_in_bytes() -> None:
    text = "é" * 400  # two bytes each
    requests = [Request(output_tokens=1, prompt=text), Request(output_tokens=1, prompt=text + "!"), _ids(1, 2)]
    found = prefix_repetition(requests)
    assert (found.unit, found.total, found.repeated) == ("bytes", 1601, 800 // 128 * 128)


def test_a_text_a_byte_short_of_a_block_is_never_kept() -> None:
    one_short = Request(output_tokens=1, prompt="a" * 127)
    assert prefix_repetition([one_short, one_short]).repeated == 0


def test_a_text_that_is_no_unicode_is_no_error() -> None:
    assert prefix_repetition([Request(output_tokens=1, prompt="\ud800" * 50)]).repeated == 0


@pytest.mark.parametrize("requests", [[], [_ids()]])
def test_nothing_repeats_in_nothing(requests: list[Request]) -> None:
    assert prefix_repetition(requests).share == 0.0


@given(st.lists(st.lists(st.integers(0, 1), max_size=12), max_size=8), st.integers(1, 4))
def test_the_account_is_that_of_a_cache_of_prefixes(prompts: list[list[int]], block_tokens: int) -> None:
    kept: set[tuple[int, ...]] = set()
    expected = 0
    for prompt in prompts:
        whole_blocks = range(block_tokens, len(prompt) + 1, block_tokens)
        expected += block_tokens * sum(tuple(prompt[:end]) in kept for end in whole_blocks)
        kept |= {tuple(prompt[:end]) for end in whole_blocks}
    found = _repeated(*prompts, block_tokens=block_tokens)
    assert (found.repeated, found.total) == (expected, sum(map(len, prompts)))
    assert found.repeated_prompts == len(prompts) - len({tuple(prompt) for prompt in prompts})


@given(st.lists(st.lists(st.integers(0, 2), max_size=6), max_size=14))
def test_an_infinite_cache_has_the_longest_prefix_of_any_earlier_prompt(prompts: list[list[int]]) -> None:
    def common(prompt: list[int], other: list[int]) -> int:
        return next((k for k, (a, b) in enumerate(zip(prompt, other, strict=False)) if a != b), min(len(prompt), len(other)))

    expected = [max((common(prompt, other) for other in prompts[:k]), default=0) for k, prompt in enumerate(prompts)]
    assert longest_shared_prefixes([bytes(prompt) for prompt in prompts]) == expected
    total = sum(map(len, prompts))
    assert infinite_cache_share(prompts) == (sum(expected) / total if total else 0.0)


def test_no_block_size_finds_more_than_an_infinite_cache_of_single_tokens() -> None:
    prompts = [[1, 2, 3, 4, 5], [1, 2, 3, 9], [1, 2, 3, 4, 5, 6], [7]]
    assert infinite_cache_share(prompts) == (3 + 5) / 16
    assert _repeated(*prompts, block_tokens=1).share == (3 + 5) / 16
    assert _repeated(*prompts, block_tokens=2).share == (2 + 4) / 16


def test_the_most_that_can_repeat_is_of_ids_where_all_have_them_and_else_of_bytes() -> None:
    texts = [Request(1, prompt=prompt) for prompt in ("abcd", "abxy", "é\ud800", "é")]  # 4, 4, 5 and 2 bytes
    assert most_repeated_share([_ids(1, 2, 3), _ids(1, 2, 9, 9)]) == 2 / 7
    assert most_repeated_share(texts) == (2 + 2) / 15
    assert most_repeated_share([_ids(1, 2, 3), _ids(1, 2, 3), *texts[:2]]) == 2 / 8  # without a text there are no bytes
    behind = Request(1, prompt="c", history=(Message("user", "ab"),))
    assert most_repeated_share([texts[0], behind]) == 2 / 8  # "abcd" and "ab", a line's end, "c"
    assert most_repeated_share([]) == 0.0


def test_ids_that_are_alike_in_some_of_their_bytes_are_others() -> None:
    """Hashes have 8 bytes each: 1 and 257 begin with the same one, and 2^40 and 2^41 with five."""
    assert infinite_cache_share([[1], [257]]) == 0.0
    assert infinite_cache_share([[7, 2**40], [7, 2**41]]) == 1 / 4


def test_blocks_of_ids_have_one_number_where_they_and_all_before_them_are_equal() -> None:
    requests = [Request(1, input_ids=ids, input_tokens=99) for ids in ((1, 2, 3, 4, 5), (1, 2, 9, 9), (3, 4), ())]
    assert prompt_blocks(requests, 2) == [((0, 1), 2), ((0, 2), 2), ((3,), 2), ((), 2)]


def test_blocks_of_text_have_the_tokens_of_an_average() -> None:
    """A block of two tokens is one of 8 bytes: 8 of 20 bytes with 10 tokens have 4, and 8 of 16 with 4 have 2."""
    requests = [
        Request(1, prompt="a" * 20, input_tokens=10),
        Request(1, prompt="a" * 8 + "b" * 8, input_tokens=4, input_ids=(1, 2, 3, 4)),
        Request(1, prompt="b" * 9),
        Request(1, prompt="a", input_tokens=1),
        Request(1, prompt="", input_tokens=0),
    ]
    assert prompt_blocks(requests, 2) == [((0, 1), 4.0), ((0, 2), 2.0), ((3,), 2), ((), 8.0), ((), 0.0)]

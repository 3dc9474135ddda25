"""Shared prefixes: their groups, their exact lengths in ids and in text, and the reuse that they allow."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from tokenizers import Tokenizer, models

from workloads.elements.errors import WorkloadError
from workloads.elements.random_streams import Stream, generator
from workloads.elements.request import LONGEST_TOKENS, LengthLimits, Request
from workloads.lengths.families import Normal
from workloads.lengths.samples import Independent
from workloads.prompts.drawn import Drawn
from workloads.prompts.exact_text import TextCodec
from workloads.prompts.shared_prefixes import (
    MOST_PROMPTS,
    GroupPrefix,
    PrefixReuse,
    PrefixTexts,
    PromptText,
    SharedPrefixes,
    common_tokens,
    prefix_reuse,
    text_after,
)
from workloads.prompts.token_norm_dist import TokenNormDist
from workloads.prompts.vocabulary import Vocabulary
from workloads.table.prefixes import prefix_repetition

_INPUTS, _OUTPUTS = Normal(8, 2), Normal(3, 0)
_DEMO = Path(__file__).parents[3] / "serving" / "demo_engine" / "tokenizer.json"
_LETTERS = "abcdefghij"


def _drawn(
    shared: SharedPrefixes | None,
    count: int,
    inputs: Normal = _INPUTS,
    seed: int = 0,
    codec: TextCodec | None = None,
    ids: range = range(5_000),
    limits: LengthLimits | None = None,
) -> Drawn:
    return TokenNormDist(Independent(inputs, _OUTPUTS), ids, seed, limits or LengthLimits(), codec, shared=shared).draw(count)


def _codec(tokenizer: Tokenizer) -> TextCodec:
    return TextCodec(lambda ids: tokenizer.decode(list(ids)), lambda text: tokenizer.encode(text, add_special_tokens=False).ids)


@cache
def _demo() -> Tokenizer:
    return Tokenizer.from_file(str(_DEMO))


@cache
def _merging() -> Tokenizer:
    """One token a letter, and one for the same letter twice: a seam between equal letters merges."""
    vocabulary = {letter: number for number, letter in enumerate(_LETTERS)}
    vocabulary |= {2 * letter: len(vocabulary) + number for number, letter in enumerate(_LETTERS)}
    return Tokenizer(models.BPE(vocabulary, [(letter, letter) for letter in _LETTERS]))


@st.composite
def _prefixes(draw: st.DrawFn) -> SharedPrefixes:
    groups, system = draw(st.integers(1, 6)), draw(st.integers(0, 12))
    per_group = draw(st.none() | st.integers(4, 9))
    zipf = None if per_group is not None else draw(st.none() | st.floats(0, 4))
    return SharedPrefixes(groups, draw(st.integers(0 if system else 1, 40)), system, per_group, zipf)


# ---- ids


@given(_prefixes(), st.integers(1, 4), st.integers(0, 2**64))
def test_a_prompt_is_the_system_prompt_its_groups_prefix_and_what_it_would_be_without(
    shared: SharedPrefixes, count: int, seed: int
) -> None:
    made, alone = _drawn(shared, count, seed=seed), _drawn(None, count, seed=seed)
    by_group: dict[int, set[tuple[int, ...]]] = {}
    for request, own, prefix in zip(made.requests, alone.requests, made.prefixes, strict=True):
        assert request.input_ids is not None
        assert request.input_ids == (*prefix.prompt.ids, *(own.input_ids or ()))
        assert len(prefix.prompt.ids) == shared.tokens
        assert request.input_tokens == len(request.input_ids)
        assert request.output_tokens == own.output_tokens
        by_group.setdefault(prefix.group, set()).add(tuple(prefix.prompt.ids))
    assert all(len(prefixes) == 1 for prefixes in by_group.values())
    assert len({ids[: shared.system_tokens] for prefixes in by_group.values() for ids in prefixes}) == 1
    assert len({ids for prefixes in by_group.values() for ids in prefixes}) == (
        len(by_group) if shared.prefix_tokens > 3 else 1
    ) or (shared.prefix_tokens <= 3)


def test_without_shared_prefixes_there_are_none() -> None:
    assert _drawn(None, 3).prefixes == ()


def test_prefixes_follow_from_the_seed() -> None:
    shared = SharedPrefixes(3, 10, 5)
    assert _drawn(shared, 20, seed=1) == _drawn(shared, 20, seed=1)
    assert _drawn(shared, 20, seed=1).prefixes != _drawn(shared, 20, seed=2).prefixes


def test_limits_are_of_the_whole_prompt_and_drop_its_prefix_too() -> None:
    made = _drawn(SharedPrefixes(3, 20), 200, limits=LengthLimits(max_input_len=28))
    alone = _drawn(None, 200, limits=LengthLimits(max_input_len=8))
    assert 0 < made.dropped_too_long == alone.dropped_too_long
    assert [(r.input_ids or ())[20:] for r in made.requests] == [r.input_ids for r in alone.requests]
    assert len(made.prefixes) == len(made.requests)
    assert all((r.input_ids or ())[:20] == p.prompt.ids for r, p in zip(made.requests, made.prefixes, strict=True))


# ---- groups


@given(_prefixes(), st.integers(0, 4), st.integers(0, 4), st.integers(0, 2**64))
def test_more_requests_only_add_to_the_groups(shared: SharedPrefixes, count: int, more: int, seed: int) -> None:
    count, most = (min(n, shared.prompts or n) for n in (count, count + more))
    assert shared.groups_of(count, seed).tolist() == shared.groups_of(most, seed).tolist()[:count]


@pytest.mark.parametrize("zipf", [None, 0.0, 0.8, 1.5])
def test_groups_have_the_frequencies_of_their_law(zipf: float | None) -> None:
    found = np.bincount(SharedPrefixes(12, 4, zipf_exponent=zipf).groups_of(60_000, 3), minlength=12)
    weights = np.arange(1, 13) ** -(zipf or 0.0)
    assert chisquare(found, weights / weights.sum() * 60_000).pvalue > 0.001


def test_another_law_is_found_to_be_another() -> None:
    found = np.bincount(SharedPrefixes(12, 4, zipf_exponent=0.8).groups_of(60_000, 3), minlength=12)
    weights = np.arange(1, 13) ** -0.9
    assert chisquare(found, weights / weights.sum() * 60_000).pvalue < 1e-6


def test_groups_of_a_given_size_are_complete_and_shuffled() -> None:
    found = SharedPrefixes(7, 4, prompts_per_group=30).groups_of(210, 5).tolist()
    assert Counter(found) == dict.fromkeys(range(7), 30)
    assert 100 < sum(group != other for group, other in pairwise(found)) < 210
    with pytest.raises(WorkloadError, match=r"^prompts_per_group 30: the groups have no 211 prompts$"):
        SharedPrefixes(7, 4, prompts_per_group=30).groups_of(211, 5)


@pytest.mark.parametrize(
    ("shared", "problem"),
    [
        (SharedPrefixes(1, 9_000_000, 1_000_001), "prefix_len and system_prompt_len: together at most 10,000,000 tokens"),
        (
            SharedPrefixes(10_001, 1, 0, 1_000),
            "prompts_per_group: 10,001,000 prompts of all groups are too many; at most 10,000,000",
        ),
    ],
)
def test_what_no_memory_holds_is_refused(shared: SharedPrefixes, problem: str) -> None:
    with pytest.raises(WorkloadError) as refused:
        shared.check()
    assert str(refused.value) == problem


def test_as_many_prompts_as_a_run_can_have_are_allowed() -> None:
    SharedPrefixes(10_000, 1, 0, MOST_PROMPTS // 10_000).check()
    SharedPrefixes(1, LONGEST_TOKENS // 2, LONGEST_TOKENS - LONGEST_TOKENS // 2).check()
    SharedPrefixes(10**9, 1).check()  # of no given number of prompts


@pytest.mark.parametrize(
    ("shared", "text"),
    [
        (SharedPrefixes(1, 0, 1_000), "a system prompt of 1,000 tokens"),
        (SharedPrefixes(1, 2_000), "a prefix of 2,000 tokens, one of 1 group"),
        (SharedPrefixes(1_200, 20), "a prefix of 20 tokens, one of 1,200 groups"),
        (SharedPrefixes(4, 20, 8), "a system prompt of 8 tokens and a prefix of 20 tokens, one of 4 groups"),
        (SharedPrefixes(4, 20, 0, 1_000), "a prefix of 20 tokens, one of 4 groups of 1,000 prompts"),
        (SharedPrefixes(4, 20, 0, None, 1.25), "a prefix of 20 tokens, one of 4 groups by Zipf(1.25)"),
    ],
)
def test_shared_prefixes_in_words(shared: SharedPrefixes, text: str) -> None:
    assert str(shared) == text


# ---- text


@pytest.mark.parametrize("seed", range(4))
def test_texts_have_the_exact_lengths_and_begin_with_the_prefixs_tokens_when_encoded_as_a_whole(seed: int) -> None:
    codec, shared = _codec(_demo()), SharedPrefixes(4, 37, 21)
    ids = range(300, 1_500)
    made = _drawn(shared, 40, Normal(12, 4), seed, codec, ids)
    alone = _drawn(None, 40, Normal(12, 4), seed, codec, ids)
    same_text = 0
    for request, prefix, own in zip(made.requests, made.prefixes, alone.requests, strict=True):
        assert request.prompt is not None
        assert prefix.prompt.text is not None
        assert tuple(codec.encode(request.prompt)) == request.input_ids
        assert request.prompt.startswith(prefix.prompt.text)
        assert len(prefix.prompt.ids) == 58
        assert common_tokens(prefix.prompt.ids, request.input_ids or ()) == 58
        assert len(request.input_ids or ()) == 58 + len(own.input_ids or ())
        same_text += request.prompt == prefix.prompt.text + (own.prompt or "")
    assert same_text >= 38  # of those, the part of a prompt without a prefix follows it as it is
    assert len({prefix.prompt.text for prefix in made.prefixes}) == 4


@pytest.mark.parametrize("tokens", [1, 2, 5, 24])
def test_prefixes_of_every_token_that_a_vocabulary_has_are_of_the_exact_length(tokens: int) -> None:
    codec, vocabulary = _codec(_demo()), Vocabulary(range(300, _demo().get_vocab_size()))
    for seed in range(20):
        texts = PrefixTexts(SharedPrefixes(4, tokens, 3), vocabulary, seed, codec)
        for group in range(4):
            made = texts.of_group(group)
            assert made.text is not None
            assert tuple(codec.encode(made.text)) == made.ids
            assert len(made.ids) == 3 + tokens
            assert made.ids[:3] == texts.of_group(0).ids[:3]


def test_a_seam_that_merges_is_drawn_again() -> None:
    codec = _codec(_merging())
    prefix = PromptText(tuple(codec.encode("abc")), "abc")
    letters = iter("dcbdddaebf" * 20)
    made = codec.make(
        text_after(prefix, tuple(codec.encode("cab")), lambda n: [_LETTERS.index(next(letters)) for _ in range(n)])
    )
    assert made.text is not None
    assert made.text.startswith("abc")
    assert made.text[3] != "c"
    assert (len(made.ids), made.ids[:3]) == (6, prefix.ids)


def test_a_seam_that_merges_without_a_change_of_length_is_drawn_again() -> None:
    vocabulary = {token: number for number, token in enumerate(["x", "a", "b", "c", "d", "bc", "ab"])}
    codec = _codec(Tokenizer(models.BPE(vocabulary, [("b", "c"), ("a", "b")])))
    prefix = PromptText(tuple(codec.encode("xab")), "xab")
    assert len(codec.encode("xabc")) == len(prefix.ids) + 1  # x, a, bc instead of x, ab, c
    assert codec.make(text_after(prefix, (3,), lambda n: [4] * n)) == PromptText((0, 6, 4), "xabd")


def test_a_seam_that_always_merges_is_left_and_seen_in_the_common_share() -> None:
    codec = _codec(_merging())
    prefix = PromptText(tuple(codec.encode("abc")), "abc")
    made = codec.make(text_after(prefix, (2,), lambda n: [2] * n))
    assert common_tokens(prefix.ids, made.ids) == 2
    reuse = prefix_reuse([made.ids] * 2, [GroupPrefix(0, prefix)] * 2, 0)
    assert (reuse.common_share, reuse.reused_tokens) == (pytest.approx(2 / 3), 2)


# ---- reuse


@given(_prefixes(), st.integers(1, 4), st.integers(1, 40), st.integers(0, 2**64))
def test_the_reuse_is_that_of_a_cache_that_keeps_everything(
    shared: SharedPrefixes, count: int, block_tokens: int, seed: int
) -> None:
    made = _drawn(shared, count, seed=seed, ids=range(2**31 - 1))  # no token is drawn twice
    prompts = [request.input_ids or () for request in made.requests]
    reuse = prefix_reuse(prompts, made.prefixes, shared.system_tokens, block_tokens)
    by_blocks = prefix_repetition([Request(1, input_ids=ids) for ids in prompts], block_tokens)
    assert (reuse.reused_tokens, reuse.total_tokens) == (by_blocks.repeated, by_blocks.total)
    assert reuse.common_share == 1.0


def test_the_first_of_a_group_reuses_the_system_prompt_alone() -> None:
    prompts = [(1, 2, 3, 9), (1, 2, 4, 9), (1, 2, 3, 8)]
    prefixes = [GroupPrefix(group, PromptText(ids[:3], None)) for group, ids in zip((0, 1, 0), prompts, strict=True)]
    assert prefix_reuse(prompts, prefixes, 2) == PrefixReuse(0 + 2 + 3, 12, 9, 9)
    assert prefix_reuse(prompts, prefixes, 2, block_tokens=3).reused_tokens == 3


def test_a_group_reuses_the_longest_beginning_that_it_has_had() -> None:
    prefix = [GroupPrefix(0, PromptText((1, 2, 3), None))] * 3
    assert prefix_reuse([(1, 2, 3), (1, 2, 9), (1, 2, 3)], prefix, 0).reused_tokens == 0 + 2 + 3
    assert prefix_reuse([(9, 9, 9), (1, 2, 3), (1, 2, 3)], prefix, 0).reused_tokens == 0 + 0 + 3


def test_a_prompt_shorter_than_the_prefix_has_its_own_tokens_in_common() -> None:
    assert common_tokens((1, 2, 3), (1, 2)) == 2
    assert common_tokens((1, 2), (1, 2, 3)) == 2
    assert common_tokens((1, 2, 3), (1, 9, 3)) == 1


def test_a_prefix_is_made_once_and_from_the_seed() -> None:
    texts = [PrefixTexts(SharedPrefixes(3, 10), Vocabulary(range(5_000)), seed, None) for seed in (1, 2)]
    assert texts[0].of_group(2) is texts[0].of_group(2)
    assert texts[0].of_group(2) != texts[1].of_group(2)


def test_prefixes_are_drawn_from_a_stream_of_their_own() -> None:
    """The system prompt has number 0, the groups the numbers from 1 on."""
    vocabulary = Vocabulary(range(5_000))
    texts = PrefixTexts(SharedPrefixes(3, 10, 4), vocabulary, 7, None)
    parts = [(generator(7, Stream.PREFIXES, 0), 4), (generator(7, Stream.PREFIXES, 3), 10)]
    assert texts.of_group(2).ids == tuple(token for drawn, count in parts for token in vocabulary.draw(drawn, count))


def test_a_seed_keeps_its_prefixes() -> None:
    """Group 1 of seed 6, of which two tokens were drawn again, is that of the first version."""
    texts = PrefixTexts(SharedPrefixes(8, 5, 3), Vocabulary(range(300, _demo().get_vocab_size())), 6, _codec(_demo()))
    assert texts.of_group(1).ids == (321, 1_881, 201, 69, 393, 2_704, 2_943, 201)


def test_shares_of_nothing_are_unknown() -> None:
    assert (PrefixReuse(0, 0, 0, 0).share, PrefixReuse(0, 0, 0, 0).common_share) == (None, None)

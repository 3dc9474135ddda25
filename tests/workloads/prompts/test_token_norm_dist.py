"""The token_norm_dist workload: normal lengths, ids uniform over the vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare, norm

from workloads.elements.errors import WorkloadError
from workloads.elements.random_streams import Stream, generator
from workloads.elements.request import LengthLimits
from workloads.lengths.families import Normal
from workloads.lengths.samples import Independent
from workloads.prompts.exact_text import TextCodec
from workloads.prompts.shared_prefixes import GroupPrefix, PrefixTexts, SharedPrefixes
from workloads.prompts.token_norm_dist import TokenNormDist
from workloads.prompts.vocabulary import Vocabulary


def test_lengths_have_the_distribution_that_upstream_draws() -> None:
    count, mean, stdev = 40_000, 128, 5
    lengths = Normal(mean, stdev).draw(count, 0, Stream.INPUT_LENGTHS)
    assert lengths.mean() == pytest.approx(mean + 0.5, abs=4 * stdev / np.sqrt(count))  # rounded up: half a token more
    assert lengths.std() == pytest.approx(stdev, rel=0.02)
    # P(length ≤ k) is the normal's at k, since lengths are rounded up
    for k in (120, 128, 135):
        assert (lengths <= k).mean() == pytest.approx(norm.cdf(k, mean, stdev), abs=0.01)


@pytest.mark.parametrize(("mean", "length"), [(1, 1), (20, 20), (20.0, 20), (20.2, 21), (19.999, 20)])
def test_a_deviation_of_zero_is_constant_and_rounded_up(mean: float, length: int) -> None:
    assert Normal(mean, 0).draw(50, 3, Stream.OUTPUT_LENGTHS).tolist() == [length] * 50


def test_no_length_is_below_one() -> None:
    lengths = Normal(1, 100).draw(2_000, 0, Stream.INPUT_LENGTHS)
    assert lengths.min() == 1
    assert lengths.max() > 100


def test_the_same_seed_gives_the_same_requests_and_another_seed_others() -> None:
    def draw(seed: int) -> Any:
        return TokenNormDist(Independent(Normal(20, 4), Normal(10, 2)), range(50), seed).draw(30).requests

    assert draw(5) == draw(5)
    assert draw(5) != draw(6)


def test_each_drawn_prompt_is_counted_dropped_ones_too() -> None:
    counted: list[int] = []
    lengths = Independent(Normal(20, 4), Normal(10, 2))
    made = TokenNormDist(lengths, range(50), 5, LengthLimits(20), on_drawn=counted.append).draw(30)
    assert made.dropped_too_long
    assert counted == list(range(1, 31))


@given(
    st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=30, unique=True),
    st.floats(1, 40),
    st.floats(0, 20),
    st.integers(1, 20),
    st.integers(0, 2**64),
)
def test_ids_are_inside_the_vocabulary(vocabulary: list[int], mean: float, stdev: float, count: int, seed: int) -> None:
    made = TokenNormDist(Independent(Normal(mean, stdev), Normal(mean, stdev)), vocabulary, seed).draw(count)
    assert len(made.requests) == count
    for request in made.requests:
        assert request.input_ids
        assert set(request.input_ids) <= set(vocabulary)
        assert all(type(token) is int for token in request.input_ids)
        assert request.input_tokens == len(request.input_ids)
        assert request.output_tokens >= 1
        assert request.prompt is None
        assert request.ignore_eos


def test_ids_are_uniform_over_the_vocabulary_and_leave_nothing_out() -> None:
    vocabulary = [3, *range(10, 40)]  # without special tokens, so with holes
    made = TokenNormDist(Independent(Normal(100, 0), Normal(1, 0)), vocabulary, 1).draw(300)
    ids, counts = np.unique([token for request in made.requests for token in request.input_ids or ()], return_counts=True)
    assert ids.tolist() == vocabulary
    assert chisquare(counts).pvalue > 0.001


def test_no_two_prompts_are_alike() -> None:
    made = TokenNormDist(Independent(Normal(20, 0), Normal(1, 0)), range(3_000), 0).draw(500)
    assert len({request.input_ids for request in made.requests}) == 500


def test_prompts_longer_than_max_input_len_are_dropped_and_counted() -> None:
    everything = TokenNormDist(Independent(Normal(20, 5), Normal(10, 0)), range(50), 0).draw(200)
    made = TokenNormDist(Independent(Normal(20, 5), Normal(10, 0)), range(50), 0, LengthLimits(max_input_len=20)).draw(200)
    short = [request for request in everything.requests if request.input_tokens is not None and request.input_tokens <= 20]
    assert 50 < len(short) < 150
    assert list(made.requests) == short  # what stays is what it was without the limit, id for id
    assert made.dropped_too_long == 200 - len(short)


def test_prompts_that_overflow_the_context_with_their_output_are_dropped() -> None:
    made = TokenNormDist(Independent(Normal(20, 5), Normal(10, 5)), range(50), 0, LengthLimits(context_tokens=30)).draw(200)
    assert all((request.input_tokens or 0) + request.output_tokens <= 30 for request in made.requests)
    assert max((request.input_tokens or 0) + request.output_tokens for request in made.requests) == 30
    assert made.dropped_too_long == 200 - len(made.requests) > 0


def test_a_limit_that_is_just_met_drops_nothing() -> None:
    made = TokenNormDist(
        Independent(Normal(20, 0), Normal(10, 0)), range(50), 0, LengthLimits(max_input_len=20, context_tokens=30)
    ).draw(5)
    assert (len(made.requests), made.dropped_too_long) == (5, 0)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (LengthLimits(max_input_len=19), "max_input_len 19"),
        (LengthLimits(context_tokens=29), "the context of 29 tokens"),
        (LengthLimits(25, 29), "max_input_len 25 or the context of 29 tokens"),
    ],
)
def test_nothing_left_to_send_is_an_error_that_names_the_limits(limits: LengthLimits, words: str) -> None:
    with pytest.raises(WorkloadError, match=f"^every prompt is longer than {words} allows; request shorter ones$"):
        TokenNormDist(Independent(Normal(20, 0), Normal(10, 0)), range(50), 0, limits).draw(5)


def _decode(ids: Sequence[int]) -> str:
    return "".join("zz" if token == 26 else chr(97 + token) for token in ids)


# Letters, and a token that decodes to two letters, so that random ids encode to more tokens.
_CODEC = TextCodec(_decode, lambda text: [ord(letter) - 97 for letter in text])


def test_with_a_codec_prompts_carry_text_of_their_length() -> None:
    inputs, outputs = Normal(6, 2), Normal(3, 0)
    made = TokenNormDist(Independent(inputs, outputs), range(27), 0, codec=_CODEC, ignore_eos=False).draw(50)
    as_drawn = TokenNormDist(Independent(inputs, outputs), range(27), 0).draw(50)
    assert {26} & {token for request in as_drawn.requests for token in request.input_ids or ()}
    for request, drawn in zip(made.requests, as_drawn.requests, strict=True):
        assert request.prompt == _decode(request.input_ids or ())
        assert request.input_tokens == len(request.prompt) == drawn.input_tokens
        assert not request.ignore_eos


def test_a_limit_does_not_change_the_texts_that_it_leaves() -> None:
    inputs, outputs, limits = Normal(6, 2), Normal(3, 0), LengthLimits(max_input_len=6)
    every = TokenNormDist(Independent(inputs, outputs), range(27), 0, codec=_CODEC).draw(40)
    short = TokenNormDist(Independent(inputs, outputs), range(27), 0, limits, _CODEC).draw(40)
    assert short.requests == tuple(request for request in every.requests if (request.input_tokens or 0) <= 6)


def test_a_prompt_without_a_text_of_its_length_keeps_the_length_that_was_asked_for() -> None:
    """Each character is two tokens: an odd length cannot be had."""
    codec = TextCodec(lambda ids: "a" * ((len(ids) + 1) // 2), lambda text: [1, 2] * len(text))
    for shared, tokens in ((None, 7), (SharedPrefixes(groups=1, prefix_tokens=4), 11)):
        made = TokenNormDist(Independent(Normal(7, 0), Normal(3, 0)), range(3), 0, codec=codec, shared=shared).draw(3)
        for request in made.requests:
            assert request.requested_input_tokens == tokens
            assert request.input_tokens == len(request.input_ids or ()) != tokens


def test_an_empty_vocabulary_is_refused() -> None:
    with pytest.raises(WorkloadError, match=r"^the vocabulary has no token to draw from; give vocab_size$"):
        TokenNormDist(Independent(Normal(5, 1), Normal(5, 1)), [], 0).draw(3)


def test_random_prompts_need_a_number_for_they_have_no_end() -> None:
    with pytest.raises(WorkloadError, match=r"^random prompts have no end; give num_requests$"):
        TokenNormDist(Independent(Normal(5, 1), Normal(5, 1)), range(9), 0).draw(None)


def test_what_a_text_lacks_is_drawn_from_the_stream_of_its_request() -> None:
    """Token 1 has no text, so half of each prompt is drawn again, in order, from seed, stream and the request's number."""
    codec = TextCodec(
        lambda ids: "".join(" abc"[token] for token in ids if token != 1), lambda text: [" abc".index(c) for c in text]
    )
    token_ids = [3, 1, 2, 1]  # positions count, not ids
    made = TokenNormDist(Independent(Normal(12, 0), Normal(3, 0)), token_ids, 5, codec=codec).draw(6)
    drawn = TokenNormDist(Independent(Normal(12, 0), Normal(3, 0)), token_ids, 5).draw(6)
    for number, (request, first) in enumerate(zip(made.requests, drawn.requests, strict=True)):
        again = [token_ids[position] for position in generator(5, Stream.TEXTS, number).integers(0, 4, 200).tolist()]
        with_text = [token for token in [*(first.input_ids or ()), *again] if token != 1]
        assert request.input_ids == tuple(with_text[:12])


def test_a_range_of_ids_may_be_larger_than_the_memory() -> None:
    made = TokenNormDist(Independent(Normal(4, 0), Normal(1, 0)), range(2**60), 0).draw(3)
    assert len({token for request in made.requests for token in request.input_ids or ()}) == 12


# ---- shared prefixes


_LINES = TextCodec(lambda ids: "".join(map(chr, ids)), lambda text: [ord(letter) for letter in text])


@pytest.mark.parametrize("codec", [None, _LINES])
def test_requests_begin_with_the_prefix_of_the_group_that_the_seed_gives_them(codec: TextCodec | None) -> None:
    shared, lengths = SharedPrefixes(3, 10, 5), Independent(Normal(6, 0), Normal(3, 0))
    made = TokenNormDist(lengths, range(97, 123), 4, codec=codec, shared=shared).draw(20)
    texts = PrefixTexts(shared, Vocabulary(range(97, 123)), 4, codec)
    groups = shared.groups_of(20, 4).tolist()
    assert made.prefixes == tuple(GroupPrefix(group, texts.of_group(group)) for group in groups)
    for request, prefix in zip(made.requests, made.prefixes, strict=True):
        assert tuple(request.input_ids or ())[:15] == tuple(prefix.prompt.ids)
        assert request.input_tokens == 15 + 6
        assert (request.prompt is None) is (codec is None)
        assert (request.prompt or "").startswith(prefix.prompt.text or "")


def test_a_shared_prefix_counts_against_the_limit_and_what_is_left_keeps_its_own() -> None:
    shared, lengths = SharedPrefixes(3, 10, 5), Independent(Normal(6, 2), Normal(3, 0))
    every = TokenNormDist(lengths, range(50), 4, shared=shared).draw(40)
    short = TokenNormDist(lengths, range(50), 4, LengthLimits(max_input_len=21), shared=shared).draw(40)
    kept = [number for number, request in enumerate(every.requests) if (request.input_tokens or 0) <= 21]
    assert 5 < len(kept) < 35
    assert short.requests == tuple(every.requests[number] for number in kept)
    assert (short.kept, every.kept) == (tuple(kept), tuple(range(40)))
    assert short.prefixes == tuple(every.prefixes[number] for number in kept)
    assert TokenNormDist(lengths, range(50), 4).draw(40).prefixes == ()


@pytest.mark.parametrize("shared", [None, SharedPrefixes(3, 10, 5)])
def test_where_nothing_is_left_the_prefix_is_named_if_there_is_one(shared: SharedPrefixes | None) -> None:
    with pytest.raises(WorkloadError) as raised:
        TokenNormDist(Independent(Normal(20, 0), Normal(1, 0)), range(50), 0, LengthLimits(19), shared=shared).draw(5)
    advice = "" if shared is None else "lower prefix_len or system_prompt_len, or "
    assert str(raised.value) == f"every prompt is longer than max_input_len 19 allows; {advice}request shorter ones"

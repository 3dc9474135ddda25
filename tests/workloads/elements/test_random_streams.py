"""Random streams: one seed, one stream for each purpose, none of which can shift another."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from workloads.arrivals.processes import Exponential
from workloads.elements.random_streams import Stream, generator
from workloads.lengths.families import Normal
from workloads.lengths.samples import Independent
from workloads.prompts.token_norm_dist import TokenNormDist


def test_a_generator_depends_on_seed_and_stream_alone() -> None:
    generator(5, Stream.ARRIVALS).random(1_000)  # a draw elsewhere must not matter
    assert generator(5, Stream.ARRIVALS).random(10).tolist() == generator(5, Stream.ARRIVALS).random(10).tolist()


def test_streams_of_one_seed_do_not_correlate() -> None:
    draws = {stream: generator(0, stream).random(20_000) for stream in Stream}
    for first, other in combinations(Stream, 2):
        assert abs(np.corrcoef(draws[first], draws[other])[0, 1]) < 4 / np.sqrt(20_000), (first, other)


def test_neighbouring_seeds_do_not_correlate() -> None:
    draws = [generator(seed, Stream.TOKEN_IDS).random(20_000) for seed in range(6)]
    for first, other in combinations(draws, 2):
        assert abs(np.corrcoef(first, other)[0, 1]) < 4 / np.sqrt(20_000)


def test_seed_and_stream_are_not_interchangeable() -> None:
    assert generator(1, Stream(2)).random(4).tolist() != generator(2, Stream(1)).random(4).tolist()


@pytest.mark.parametrize("seed", [2**32, 2**32 + 1, 2**64, 2**130])
def test_large_seeds_are_seeds_of_their_own(seed: int) -> None:
    small = [generator(low, stream).random(4).tolist() for low in (0, 1, 2) for stream in Stream]
    assert generator(seed, Stream.ARRIVALS).random(4).tolist() not in small


def test_what_a_seed_means_never_changes() -> None:
    assert {stream.name: stream.value for stream in Stream} == {
        "ARRIVALS": 1,
        "INPUT_LENGTHS": 2,
        "OUTPUT_LENGTHS": 3,
        "TOKEN_IDS": 4,
        "WARM_UP": 5,
        "TEXTS": 6,
        "BLOCKS": 7,
        "TICKS": 8,
        "PREFIX_GROUPS": 9,
        "PREFIXES": 10,
        "PIECES": 11,
        "CLIENT_PROFILES": 31,
        "LENGTH_PAIRS": 41,
        "TRAFFIC_CLASSES": 51,
        "CANCELLATIONS": 52,
        "PROBES": 53,
        "TARGETS": 61,
    }
    # Offsets in ns and ids that seed 0 gave when the streams were laid down; a run repeated years later needs them again.
    assert Exponential(10.0).offsets_ns(4, seed=0).tolist() == [0, 247125496, 335386806, 403729656]
    made = TokenNormDist(Independent(Normal(4, 1), Normal(20, 5)), range(100, 200), 0).draw(2)
    assert [(request.input_ids, request.output_tokens) for request in made.requests] == [
        ((145, 188, 146, 122), 19),
        ((180, 141, 160, 144), 23),
    ]


def test_more_output_tokens_move_neither_prompts_nor_arrivals() -> None:
    inputs = Normal(30, 10)
    short = TokenNormDist(Independent(inputs, Normal(5, 0)), range(500), 3).draw(40)
    long = TokenNormDist(Independent(inputs, Normal(200, 90)), range(500), 3).draw(40)
    assert [r.input_ids for r in short.requests] == [r.input_ids for r in long.requests]


def test_longer_prompts_do_not_move_output_lengths() -> None:
    outputs = Normal(50, 20)
    short = TokenNormDist(Independent(Normal(5, 1), outputs), range(500), 3).draw(40)
    long = TokenNormDist(Independent(Normal(300, 50), outputs), range(500), 3).draw(40)
    assert [r.output_tokens for r in short.requests] == [r.output_tokens for r in long.requests]


def test_another_rate_scales_the_same_arrivals() -> None:
    slow, fast = Exponential(1.0).offsets_ns(100, seed=9), Exponential(100.0).offsets_ns(100, seed=9)
    assert np.allclose(slow, fast * 100, atol=100)

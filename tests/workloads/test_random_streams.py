"""Random streams: independent streams per purpose from one seed."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from workloads.arrivals import Exponential
from workloads.random_streams import Stream, generator
from workloads.token_norm_dist import NormalLengths, NormalWorkload


def test_generator_depends_only_on_seed_and_stream() -> None:
    generator(5, Stream.ARRIVALS).random(1_000)  # a draw elsewhere must not matter
    assert generator(5, Stream.ARRIVALS).random(10).tolist() == generator(5, Stream.ARRIVALS).random(10).tolist()


def test_streams_of_one_seed_do_not_correlate() -> None:
    draws = {stream: generator(0, stream).random(20_000) for stream in Stream}
    for one, other in combinations(Stream, 2):
        assert abs(np.corrcoef(draws[one], draws[other])[0, 1]) < 4 / np.sqrt(20_000), (one, other)


def test_neighbouring_seeds_do_not_correlate() -> None:
    draws = [generator(seed, Stream.TOKEN_IDS).random(20_000) for seed in range(6)]
    for one, other in combinations(draws, 2):
        assert abs(np.corrcoef(one, other)[0, 1]) < 4 / np.sqrt(20_000)


def test_seed_and_stream_are_not_interchangeable() -> None:
    assert generator(1, Stream(2)).random(4).tolist() != generator(2, Stream(1)).random(4).tolist()


@pytest.mark.parametrize("seed", [2**32, 2**32 + 1, 2**64, 2**130])
def test_large_seeds_are_distinct(seed: int) -> None:
    small = [generator(low, stream).random(4).tolist() for low in (0, 1, 2) for stream in Stream]
    assert generator(seed, Stream.ARRIVALS).random(4).tolist() not in small


def test_draws_of_a_seed_are_stable_across_releases() -> None:
    assert {stream.name: stream.value for stream in Stream} == {
        "ARRIVALS": 1,
        "INPUT_LENGTHS": 2,
        "OUTPUT_LENGTHS": 3,
        "TOKEN_IDS": 4,
        "WARM_UP": 5,
    }
    # Offsets in ns and ids of seed 0 in the first release with streams: a run repeated years later must get them again.
    assert Exponential(10.0).offsets_ns(4, seed=0).tolist() == [0, 247125496, 335386806, 403729656]
    made = NormalWorkload(NormalLengths(4, 1), NormalLengths(20, 5), range(100, 200)).requests(2, 0)
    assert [(request.input_ids, request.output_tokens) for request in made.requests] == [
        ((145, 188, 146, 122), 19),
        ((180, 141, 160, 144), 23),
    ]


def test_output_lengths_do_not_affect_prompts() -> None:
    inputs = NormalLengths(30, 10)
    short = NormalWorkload(inputs, NormalLengths(5, 0), range(500)).requests(40, 3)
    long = NormalWorkload(inputs, NormalLengths(200, 90), range(500)).requests(40, 3)
    assert [r.input_ids for r in short.requests] == [r.input_ids for r in long.requests]


def test_prompt_lengths_do_not_affect_output_lengths() -> None:
    outputs = NormalLengths(50, 20)
    short = NormalWorkload(NormalLengths(5, 1), outputs, range(500)).requests(40, 3)
    long = NormalWorkload(NormalLengths(300, 50), outputs, range(500)).requests(40, 3)
    assert [r.output_tokens for r in short.requests] == [r.output_tokens for r in long.requests]


def test_another_rate_scales_the_same_arrivals() -> None:
    slow, fast = Exponential(1.0).offsets_ns(100, seed=9), Exponential(100.0).offsets_ns(100, seed=9)
    assert np.allclose(slow, fast * 100, atol=100)

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.engines.openvino.token_choice import choose, ends_with_stop_word, log_softmax, next_top_p, shape_logits
from serving.engines.protocol import Sampling

_LOGITS = np.array([1.0, 3.0, 2.0, -1.0], dtype=np.float32)


def _random(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(seed))


def test_log_softmax_sums_to_one() -> None:
    assert np.exp(log_softmax(np.array([[1e4, 0.0], [3.0, 3.0]], dtype=np.float32))).sum(axis=-1) == pytest.approx([1.0, 1.0])


def test_bias_is_added() -> None:
    bias = np.array([0, 0, 5, 0], dtype=np.float32)
    assert shape_logits(_LOGITS, Sampling(9, embedding_bias=bias.tobytes()), [0], []).tolist() == [1.0, 3.0, 7.0, -1.0]


def test_penalties_apply_to_generated_tokens() -> None:
    assert shape_logits(_LOGITS, Sampling(9, repetition_penalty=2.0), [0, 3], [1]).tolist() == [0.5, 1.5, 2.0, -2.0]
    assert shape_logits(_LOGITS, Sampling(9, presence_penalty=0.5), [0], [1, 1]).tolist() == [1.0, 2.5, 2.0, -1.0]
    assert shape_logits(_LOGITS, Sampling(9, frequency_penalty=0.5), [0], [1, 1]).tolist() == [1.0, 2.0, 2.0, -1.0]


@pytest.mark.parametrize(
    ("words", "prompt", "output", "banned"),
    [
        (((1,),), [0], [], {1}),
        (((2, 1),), [0], [2], {1}),
        (((2, 1),), [2], [], {1}),  # a bad word may start in the prompt
        (((2, 1),), [0], [0], set()),
        (((0, 2, 1), (3,)), [0], [0, 2], {1, 3}),
        (((0, 2, 1),), [2], [], set()),
    ],
)
def test_only_the_last_token_of_a_bad_word_is_banned(
    words: tuple[tuple[int, ...], ...], prompt: list[int], output: list[int], banned: set[int]
) -> None:
    shaped = shape_logits(_LOGITS, Sampling(9, bad_words=words), prompt, output)
    assert set(np.flatnonzero(np.isneginf(shaped)).tolist()) == banned


def test_end_token_is_banned_before_min_tokens() -> None:
    sampling = Sampling(9, end_id=1, min_tokens=2)
    assert np.isneginf(shape_logits(_LOGITS, sampling, [0], [3])[1])
    assert not np.isneginf(shape_logits(_LOGITS, sampling, [0], [3, 3])[1])


def test_top_k_and_top_p_limit_the_sampled_tokens() -> None:
    def drawn(**how: float) -> set[int]:
        sampling = Sampling(9, greedy=False, **how)  # type: ignore[arg-type]
        return {choose(_LOGITS.astype(np.float64), sampling, sampling.top_p, _random(seed)) for seed in range(300)}

    assert drawn() == {0, 1, 2, 3}
    assert drawn(top_k=2) == {1, 2}
    assert drawn(top_p=0.6) == {1}
    assert drawn(top_p=0.7) == {1, 2}
    assert drawn(temperature=0.01) == {1}


def test_sampling_frequencies_match_probabilities() -> None:
    shaped = np.log(np.array([0.1, 0.2, 0.7]))
    random = _random()
    counts = np.bincount([choose(shaped, Sampling(9, greedy=False), 1.0, random) for _ in range(20_000)]) / 20_000
    assert counts == pytest.approx([0.1, 0.2, 0.7], abs=0.015)


def test_banned_token_is_never_sampled() -> None:
    shaped = np.array([0.0, -np.inf, 0.0])
    assert {choose(shaped, Sampling(9, greedy=False), 1.0, _random(seed)) for seed in range(100)} == {0, 2}


def test_top_p_decays_to_its_minimum_and_is_reset() -> None:
    sampling = Sampling(9, top_p=0.8, top_p_decay=0.5, top_p_min=0.3, top_p_reset_id=7)
    assert next_top_p(0.8, 1, sampling) == pytest.approx(0.4)
    assert next_top_p(0.4, 1, sampling) == pytest.approx(0.3)
    assert next_top_p(0.3, 7, sampling) == pytest.approx(0.8)


@given(st.lists(st.integers(0, 3), max_size=12), st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3), max_size=4))
def test_stop_word_matches_only_at_the_end(output: list[int], words: list[list[int]]) -> None:
    text = "".join(map(str, output))
    assert ends_with_stop_word(output, words) == any(text.endswith("".join(map(str, word))) for word in words)

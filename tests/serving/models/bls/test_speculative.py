"""Speculative decoding: for any draft model, the text is that of the target."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.serving.models.fake_pipeline import TOKENIZER, Bls, FakeCore

_WORDS = TOKENIZER.encode(" the sea king and queen road light machine paper river stone", add_special_tokens=False)
_EOS = TOKENIZER.eos_token_id


def _next(sequence: list[int]) -> int:
    """A synthetic network: the next token depends on the last one, on one in the middle and on the length."""
    return _WORDS[(sequence[-1] * 7 + sequence[len(sequence) // 2] * 3 + len(sequence)) % len(_WORDS)]


def _often_wrong(every: int) -> Any:
    return lambda sequence: _WORDS[0] if len(sequence) % every == 0 else _next(sequence)


def _deployed(backend: ModuleType, draft: Any, target: Any = _next) -> Bls:
    return Bls(
        backend,
        {"tensorrt_llm": FakeCore(target), "tensorrt_llm_draft": FakeCore(draft)},
        tensorrt_llm_draft_model_name="tensorrt_llm_draft",
    )


@pytest.fixture
def bls(backend: ModuleType) -> Iterator[Bls]:
    deployed = _deployed(backend, _often_wrong(3))
    yield deployed
    deployed.model.finalize()


@pytest.fixture(scope="module")
def shared(backend: ModuleType) -> Iterator[Bls]:
    deployed = _deployed(backend, _often_wrong(3))
    yield deployed
    deployed.model.finalize()


@settings(max_examples=40)
@given(
    request=st.fixed_dictionaries(
        {
            "prompt": st.sampled_from(["the sea", "a king and a queen", "x"]),
            "max_tokens": st.integers(1, 40),
            "min_tokens": st.integers(0, 1),
            "stop_words": st.lists(st.sampled_from(["king", " sea", "d m", "e", "nowhere"]), max_size=2).map(
                lambda w: w or [""]
            ),
        }
    ),
    num_draft_tokens=st.integers(1, 12),
    wrong_every=st.integers(1, 9),
)
def test_text_is_that_of_the_target(shared: Bls, request: dict[str, Any], num_draft_tokens: int, wrong_every: int) -> None:
    shared.cores["tensorrt_llm_draft"]._next = _often_wrong(wrong_every)
    [expected] = shared.ask(**request).texts
    [text] = shared.ask(**request, num_draft_tokens=num_draft_tokens).texts
    assert text == expected


def test_good_draft_saves_rounds_and_bad_draft_costs_only_time(backend: ModuleType) -> None:
    outputs = ["total_draft_tokens", "total_accepted_draft_tokens", "acceptance_rate", "num_output_tokens"]
    request: dict[str, Any] = {"max_tokens": 30, "num_draft_tokens": 5, "return_perf_metrics": True}
    seen = []
    for draft in (_next, lambda sequence: 3):
        bls = _deployed(backend, draft)
        [response] = bls.ask(outputs, return_num_output_tokens=True, **request).responses
        bls.model.finalize()
        seen.append([len(bls.cores["tensorrt_llm"].requests), *(response.tensors[name].item() for name in outputs)])
    assert seen[0] == [5, 25, 25, 1.0, 30]
    assert seen[1][0] == seen[1][4] == 30
    assert seen[1][2:4] == [0, 0.0]


def test_end_token_ends_the_sequence_anywhere_in_a_round(backend: ModuleType) -> None:
    for ends_at in range(1, 9):
        length = len(TOKENIZER.encode("the sea")) + ends_at
        bls = _deployed(backend, _next, lambda sequence, length=length: _EOS if len(sequence) >= length else _next(sequence))
        plain = bls.ask(max_tokens=30)
        speculative = bls.ask(
            ["text_output", "num_output_tokens"], max_tokens=30, num_draft_tokens=3, return_num_output_tokens=True
        )
        bls.model.finalize()
        assert speculative.texts == plain.texts
        assert speculative.responses[0].tensors["num_output_tokens"].item() == ends_at + 1


def test_stop_word_that_is_a_special_token_ends_the_sequence(backend: ModuleType) -> None:
    (bos,) = TOKENIZER.encode("<s>")
    bls = _deployed(backend, _next, lambda sequence: bos if len(sequence) == 9 else _next(sequence))
    sender = bls.ask(["num_output_tokens", "text_output"], max_tokens=30, num_draft_tokens=4, stop_words=["<s>"],
                     return_num_output_tokens=True)  # fmt: skip
    bls.model.finalize()
    assert sender.responses[0].tensors["num_output_tokens"].item() == 10 - len(TOKENIZER.encode("the sea"))


def test_prompt_precedes_the_text_unless_excluded(bls: Bls) -> None:
    [whole] = bls.ask(num_draft_tokens=3, exclude_input_in_output=False).texts
    [text] = bls.ask(num_draft_tokens=3).texts
    assert whole == "the sea" + text


def test_target_outputs_are_joined_over_the_rounds(bls: Bls) -> None:
    def more(tokens: list[int]) -> dict[str, Any]:
        return {
            "output_log_probs": np.full((1, 1, len(tokens)), -0.5, np.float32),
            "cum_log_probs": np.full((1, 1), -0.5 * len(tokens), np.float32),
            "kv_cache_reused_blocks": np.int32([[2]]),
            "arrival_time_ns": np.int64([[1000 + len(bls.cores["tensorrt_llm"].requests)]]),
            "last_token_time_ns": np.int64([[1000 + len(bls.cores["tensorrt_llm"].requests)]]),
        }

    bls.cores["tensorrt_llm"].more = more
    outputs = ["output_log_probs", "cum_log_probs", "kv_cache_reused_blocks", "arrival_time_ns", "last_token_time_ns"]
    sender = bls.ask(outputs, max_tokens=20, num_draft_tokens=4, return_log_probs=True, return_perf_metrics=True)
    tensors = sender.responses[0].tensors
    rounds = len(bls.cores["tensorrt_llm"].requests)
    assert rounds > 2
    assert tensors["output_log_probs"].shape == (1, 1, 20)
    assert tensors["cum_log_probs"].item() == -10.0
    assert tensors["kv_cache_reused_blocks"].item() == 2 * rounds
    assert (tensors["arrival_time_ns"].item(), tensors["last_token_time_ns"].item()) == (1001, 1000 + rounds)


def test_draft_logits_are_sent_to_the_target(bls: Bls) -> None:
    bls.cores["tensorrt_llm_draft"].more = lambda tokens: {"generation_logits": np.ones((1, 1, len(tokens), 7), np.float32)}
    bls.ask(max_tokens=9, num_draft_tokens=4, use_draft_logits=True)
    first = bls.cores["tensorrt_llm"].requests[0]
    assert first["draft_input_ids"].shape == (1, 4)
    assert first["draft_logits"].shape == (1, 4, 7)
    assert bls.cores["tensorrt_llm_draft"].requests[0]["return_generation_logits"].all()


@pytest.mark.parametrize("name", ["min_tokens", "min_length"])
def test_each_round_has_the_rest_of_min_tokens(bls: Bls, name: str) -> None:
    bls.cores["tensorrt_llm_draft"]._next = _next
    bls.ask(max_tokens=12, num_draft_tokens=3, **{name: 6})
    rounds = bls.cores["tensorrt_llm"].requests
    assert [request[name].item() for request in rounds] == [4, 2, 0]
    assert {"min_tokens", "min_length"} & set(rounds[0]) == {name}  # older core models have the old name only


def test_adapters_are_sent_to_the_target_only(bls: Bls) -> None:
    bls.ask(max_tokens=9, num_draft_tokens=4, lora_task_id=np.uint64([[5]]))
    assert "lora_task_id" in bls.cores["tensorrt_llm"].requests[0]
    assert "lora_task_id" not in bls.cores["tensorrt_llm_draft"].requests[0]


def test_cancellation_by_the_client_ends_the_rounds(backend: ModuleType) -> None:
    import time

    from tests.serving.models.fake_pipeline import request_of

    bls = _deployed(backend, _often_wrong(1))
    for core in bls.cores.values():
        core._token_s = 0.002
    sender = bls.send(request_of(max_tokens=2000, num_draft_tokens=4))
    time.sleep(0.1)
    sender.cancelled = True
    assert sender.ended.wait(120)
    bls.model.finalize()
    assert bls.cores["tensorrt_llm"].generated < 1000
    assert not sender.queried_too_late


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"stream": True}, "stream"),
        ({"return_context_logits": True}, "return_context_logits"),
        ({"prompt": ["a", "b"]}, "a batch size above 1"),
        ({"beam_width": 2}, "a beam_width above 1"),
        ({"num_return_sequences": 2}, "num_return_sequences above 1"),
        ({"top_k": 5}, "sampling"),
        ({"top_p": 0.5}, "sampling"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"guided_decoding_guide_type": ["json"], "guided_decoding_guide": [""]}, "guided_decoding_guide_type"),
    ],
)
def test_unsupported_combination_is_rejected(bls: Bls, inputs: dict[str, Any], message: str) -> None:
    error = bls.ask(num_draft_tokens=3, **inputs).error
    assert error.message == f"num_draft_tokens: speculative decoding cannot be combined with {message}" + (
        " (top_k, top_p)" if message == "sampling" else ""
    )


@pytest.mark.parametrize("more", [{"top_k": 1}, {"top_k": 5, "temperature": 0.0}, {"presence_penalty": 0.0}])
def test_explicit_greedy_decoding_is_accepted(bls: Bls, more: dict[str, Any]) -> None:
    assert bls.ask(num_draft_tokens=3, **more).texts == bls.ask(**more).texts

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from serving.engines.protocol import EngineLimits, Sampling
from serving.errors import RequestError

_LIMITS = EngineLimits(vocabulary_size=100, context_tokens=50)


@pytest.fixture
def parse(backend: ModuleType) -> Any:
    """Function that parses a request of three tokens in and five out, with tensors changed, added or (None) omitted."""
    from serving.models.core.request import Deployment, parse_request

    def parse(
        decoupled: bool = True,
        exclude_input: bool = False,
        limits: EngineLimits = _LIMITS,
        wraps_ids: bool = False,
        **changes: Any,
    ) -> Any:
        tensors: dict[str, Any] = {
            "input_ids": np.array([[5, 6, 7]], dtype=np.int32),
            "input_lengths": np.array([3], dtype=np.int32),
            "request_output_len": np.array([5], dtype=np.int32),
            **changes,
        }
        sent = {name: np.asarray(values) for name, values in tensors.items() if values is not None}
        deployment = Deployment(limits, decoupled, exclude_input, max_beam_width=4, wraps_ids=wraps_ids)
        parsed = parse_request(backend.Request(sent, ["output_ids"]), deployment)
        return parsed[0] if parsed and len(parsed) == 1 else parsed

    return parse


def test_minimal_request_is_greedy_without_end_token(parse: Any) -> None:
    parsed = parse()
    assert (parsed.input_ids, parsed.sampling) == ([5, 6, 7], Sampling(max_tokens=5))
    assert (parsed.streaming, parsed.exclude_input, parsed.wanted_outputs) == (False, False, frozenset({"output_ids"}))


def test_padding_after_the_length_is_not_read(parse: Any) -> None:
    assert parse(input_ids=[[5, 6, 0, 0]], input_lengths=[[2]]).input_ids == [5, 6]


@given(ids=st.lists(st.integers(0, 2**31 - 1), min_size=3, max_size=3))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_wrapped_ids_are_in_the_vocabulary_and_echoed_as_sent(parse: Any, ids: list[int]) -> None:
    parsed = parse(wraps_ids=True, input_ids=np.array([ids], np.int32))
    assert parsed.input_ids == [token % _LIMITS.vocabulary_size for token in ids]
    assert parsed.echoed_ids == ids


@pytest.mark.parametrize(("wraps_ids", "ids"), [(False, [5, 100, 7]), (False, [5, -1, 7]), (True, [5, -1, 100])])
def test_ids_outside_of_the_vocabulary_are_refused(parse: Any, wraps_ids: bool, ids: list[int]) -> None:
    with pytest.raises(RequestError, match="outside the vocabulary") as caught:
        parse(wraps_ids=wraps_ids, input_ids=[ids])
    assert ("--out_of_vocabulary_ids wrap" in str(caught.value)) == (min(ids) >= 0)


@pytest.mark.parametrize(
    ("top_k", "top_p", "temperature", "greedy"),
    [
        (None, None, None, True),  # TensorRT-LLM's rule: greedy without a limit
        (1, None, None, True),
        (1, 0.9, None, True),
        (0, 0.0, None, True),
        (5, 0.0, None, False),
        (0, 0.9, None, False),
        (5, 0.9, 0.0, True),
    ],
)
def test_when_sampling_is_greedy(
    parse: Any, top_k: int | None, top_p: float | None, temperature: float | None, greedy: bool
) -> None:
    def tensor(value: float | None) -> Any:
        return None if value is None else [value]

    sampling = parse(runtime_top_k=tensor(top_k), runtime_top_p=tensor(top_p), temperature=tensor(temperature)).sampling
    assert sampling.greedy is greedy


def test_old_names_are_accepted_and_new_names_take_precedence(parse: Any) -> None:
    assert (parse(min_length=[2]).sampling.min_tokens, parse(min_tokens=[2]).sampling.min_tokens) == (2, 2)
    assert (parse(random_seed=[9]).sampling.seed, parse(seed=[8], random_seed=[9]).sampling.seed) == (9, 8)


def test_request_overrides_the_deployments_exclusion_of_the_prompt(parse: Any) -> None:
    assert parse(exclude_input=True).exclude_input is True
    assert parse(exclude_input=True, exclude_input_in_output=[False]).exclude_input is False
    assert parse(exclude_input_in_output=[True]).exclude_input is True
    assert parse(streaming=[True], exclude_input_in_output=[False]).exclude_input is True  # a stream never repeats the prompt


def test_end_id_of_minus_one_is_no_end_token(parse: Any) -> None:
    assert (parse(end_id=[-1]).sampling.end_id, parse(end_id=[0]).sampling.end_id) == (None, 0)


def test_stop_is_not_parsed_as_a_request(parse: Any) -> None:
    assert parse(stop=[True], input_ids=None, request_output_len=[0]) is None


def test_context_may_be_filled_but_not_exceeded(parse: Any) -> None:
    assert parse(request_output_len=[47]).sampling.max_tokens == 47
    with pytest.raises(RequestError, match="context length of 50"):
        parse(request_output_len=[48])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_ids": None}, "input_ids is missing"),
        ({"input_ids": [5, 6, 7]}, "input_ids must have shape"),
        ({"input_ids": [[5, 6, 7]] * 2}, "input_lengths must hold one value for each of the 2 rows"),
        ({"input_lengths": [0]}, "input_lengths is 0"),
        ({"input_lengths": [4]}, "input_lengths is 4"),
        ({"input_lengths": [3, 3]}, "input_lengths must hold one value"),
        ({"input_ids": [[5, 100, 7]]}, "input_ids holds 100"),
        ({"input_ids": [[5, -1, 7]]}, "input_ids holds -1"),
        ({"request_output_len": [0]}, "request_output_len must be at least 1, not 0"),
        ({"request_output_len": [-5]}, "request_output_len"),
        ({"end_id": [100]}, "end_id is 100"),
        ({"end_id": [-2]}, "end_id is -2"),
        ({"min_tokens": [6]}, "min_tokens"),
        ({"min_tokens": [-1]}, "min_tokens"),
        ({"runtime_top_k": [-1]}, "runtime_top_k"),
        ({"runtime_top_p": [1.1]}, "runtime_top_p"),
        ({"runtime_top_p": [float("nan")]}, "runtime_top_p"),
        ({"temperature": [-0.1]}, "temperature"),
        ({"temperature": [float("nan")]}, "temperature"),
        ({"repetition_penalty": [0.0]}, "repetition_penalty"),
        ({"presence_penalty": [2.5]}, "presence_penalty"),
        ({"frequency_penalty": [-2.5]}, "frequency_penalty"),
        ({"beam_width": [5]}, "beam_width must be between 1 and 4, not 5"),
        ({"beam_width": [0]}, "beam_width"),
        ({"beam_width": [2], "streaming": [True]}, "streaming: the beams of a beam search are known at its end"),
        ({"beam_width": [2], "stop_words_list": [[[5], [1]]]}, "stop_words_list: .* beam_width 2"),
        ({"beam_width": [2], "beam_search_diversity_rate": [0.5]}, "beam_search_diversity_rate"),
        ({"beam_width": [2], "num_return_sequences": [3]}, "num_return_sequences must be between 1 and 2"),
        ({"num_return_sequences": [0]}, "num_return_sequences"),
        ({"num_return_sequences": [2], "decoupled": False}, "num_return_sequences is 2: .* decoupled mode"),
        ({"input_ids": [[5, 6, 7]] * 2, "input_lengths": [3, 3], "decoupled": False}, "2 rows: .* decoupled mode"),
        ({"stop_words_list": [[[5], [2]]]}, "stop_words_list: word ends"),
        ({"stop_words_list": [[[5, 6], [2, 1]]]}, "stop_words_list: word ends"),
        ({"stop_words_list": [[[100], [1]]]}, "stop_words_list holds 100"),
        ({"bad_words_list": [[5, 1]]}, "bad_words_list must have shape"),
        ({"embedding_bias": [[1.0] * 101]}, "embedding_bias must hold 100 values"),
        ({"beam_width": [[2]], "runtime_top_p": [[0.9]], "runtime_top_p_decay": [[0.5]]}, "runtime_top_p_decay: the embedded"),
        ({"embedding_bias": [[float("inf")] * 100]}, "embedding_bias must be finite"),
        ({"runtime_top_p_decay": [0.0]}, "runtime_top_p_decay"),
        ({"runtime_top_p_min": [-0.5]}, "runtime_top_p_min"),
        ({"runtime_top_p_reset_ids": [100]}, "runtime_top_p_reset_ids"),
        ({"len_penalty": [float("nan")]}, "len_penalty"),
        ({"repetition_penalty": [float("inf")]}, "repetition_penalty"),
        ({"guided_decoding_guide_type": [b"prose"]}, "guided_decoding_guide_type is 'prose'; known: json, json_schema"),
        ({"guided_decoding_guide_type": [b"regex"]}, "guided_decoding_guide_type regex needs guided_decoding_guide"),
        ({"guided_decoding_guide_type": [b"\xff"]}, "guided_decoding_guide_type is not UTF-8"),
        ({"guided_decoding_guide": [b"a"]}, "guided_decoding_guide was sent without"),
        ({"draft_input_ids": [[5, 100]]}, "draft_input_ids holds 100"),
        ({"draft_input_ids": [[5]], "runtime_top_p": [0.9]}, "draft_input_ids needs greedy decoding"),
        ({"draft_input_ids": [[5]], "draft_acceptance_threshold": [0.5]}, "draft_acceptance_threshold"),
        ({"draft_input_ids": [[5]], "draft_logits": [[[1.0]]]}, "draft_logits must have a row of 100"),
        ({"lora_weights": [[[1.0]]]}, "lora_weights and lora_config go together"),
        ({"lora_weights": [[[1.0]]], "lora_config": [[[1, 0, 1]]]}, "lora_weights needs a lora_task_id"),
        ({"prompt_embedding_table": [[[1.0]]]}, "prompt_embedding_table: the embedded engine does not support it"),
        ({"encoder_input_features": [[[1.0]]]}, "encoder_input_features: the embedded engine does not support it"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value.replace(" ", "_"),
)
def test_impossible_request_error_names_the_tensor(parse: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        parse(**changes)


def test_unsupported_inputs_may_be_empty_or_false(parse: Any) -> None:
    empty = {"stop_words_list": np.zeros((1, 2, 0), np.int32), "embedding_bias": np.zeros((1, 0), np.float32)}
    off = {"return_log_probs": [False], "beam_width": [1], "num_return_sequences": [1]}
    assert parse(**empty, **off).input_ids == [5, 6, 7]


def test_streaming_needs_a_decoupled_model(parse: Any) -> None:
    with pytest.raises(RequestError, match="Streaming is only supported if model is deployed using decoupled mode"):
        parse(decoupled=False, streaming=[True])


def test_batch_becomes_one_request_per_row(parse: Any) -> None:
    rows = parse(
        input_ids=[[5, 6, 7], [8, 9, 0]],
        input_lengths=[3, 2],
        request_output_len=[5, 6],
        end_id=[2, -1],
        streaming=[True, True],
    )
    assert [row.input_ids for row in rows] == [[5, 6, 7], [8, 9]]
    assert [(row.batch_index, row.sequence_index) for row in rows] == [(0, None), (1, None)]
    assert [(row.sampling.max_tokens, row.sampling.end_id) for row in rows] == [(5, 2), (6, None)]


def test_sequences_have_distinct_seeds_and_the_first_has_the_clients(parse: Any) -> None:
    sequences = parse(num_return_sequences=[3], seed=[7], runtime_top_p=[0.9])
    assert [sequence.sequence_index for sequence in sequences] == [0, 1, 2]
    seeds = [sequence.sampling.seed for sequence in sequences]
    assert seeds[0] == 7
    assert len(set(seeds)) == 3
    assert seeds == [sequence.sampling.seed for sequence in parse(num_return_sequences=[3], seed=[7], runtime_top_p=[0.9])]


def test_word_lists_are_read_as_upstream_writes_them(parse: Any) -> None:
    sampling = parse(stop_words_list=[[[5, 6, 7, 0], [2, 3, -1, -1]]], bad_words_list=[[[9], [1]]]).sampling
    assert (sampling.stop_words, sampling.bad_words) == (((5, 6), (7,)), ((9,),))


def test_a_beam_search_stops_early_by_default_as_upstream_s(parse: Any) -> None:
    assert parse(beam_width=[3]).sampling.early_stopping is True
    assert parse(beam_width=[3], early_stopping=[True]).sampling.early_stopping is True
    assert parse(beam_width=[3], early_stopping=[False]).sampling.early_stopping is False


def test_num_return_sequences_of_a_beam_search_is_its_returned_beams(parse: Any) -> None:
    assert parse(beam_width=[3]).sampling.return_beams == 3
    assert parse(beam_width=[3], num_return_sequences=[2]).sampling.return_beams == 2


def test_greedy_request_ignores_a_decaying_top_p(parse: Any) -> None:
    assert parse(runtime_top_p_decay=[0.5]).sampling.top_p_decay == 1.0
    assert parse(runtime_top_p_decay=[0.5], runtime_top_p=[0.9]).sampling.top_p_decay == 0.5


def test_zero_bias_is_no_bias(parse: Any) -> None:
    assert parse(embedding_bias=np.zeros((1, 100), np.float32)).sampling.embedding_bias == b""
    assert (
        parse(embedding_bias=np.ones((1, 1), np.float32)).sampling.embedding_bias == np.eye(1, 100, dtype=np.float32).tobytes()
    )
    assert parse(embedding_bias=np.ones((1, 100), np.float32)).sampling.embedding_bias == np.ones(100, np.float32).tobytes()


_SHAPES = arrays.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4)
_IDS = st.one_of(
    arrays.arrays(np.int32, _SHAPES),
    arrays.arrays(np.int32, arrays.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=3), elements=st.integers(-1, 9)),
)
_REALS = arrays.arrays(np.float32, _SHAPES)
_FLAGS = arrays.arrays(np.bool_, arrays.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=2))
_STRINGS = st.binary(max_size=8).map(lambda value: np.array([[value]], dtype=np.object_))
_SENT = {  # Triton checks the types; shapes and values are free
    **dict.fromkeys(
        ("input_ids", "input_lengths", "request_output_len", "num_return_sequences", "draft_input_ids", "end_id", "pad_id"),
        _IDS,
    ),
    **dict.fromkeys(("stop_words_list", "bad_words_list", "beam_width", "runtime_top_k", "min_tokens", "lora_config"), _IDS),
    **dict.fromkeys(("draft_logits", "embedding_bias", "temperature", "runtime_top_p", "len_penalty", "lora_weights"), _REALS),
    **dict.fromkeys(("runtime_top_p_decay", "repetition_penalty", "presence_penalty", "draft_acceptance_threshold"), _REALS),
    **dict.fromkeys(("early_stopping", "streaming", "return_log_probs", "exclude_input_in_output", "stop"), _FLAGS),
    **dict.fromkeys(("guided_decoding_guide_type", "guided_decoding_guide"), _STRINGS),
    "lora_task_id": arrays.arrays(np.uint64, _SHAPES),
    "seed": arrays.arrays(np.uint64, _SHAPES),
}


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.lists(st.sampled_from(sorted(_SENT)), max_size=4, unique=True).flatmap(
        lambda names: st.fixed_dictionaries({name: _SENT[name] for name in names})
    ),
    decoupled=st.booleans(),
)
def test_arbitrary_tensors_cause_at_most_a_rejected_request(parse: Any, changes: dict[str, Any], decoupled: bool) -> None:
    try:
        parsed = parse(decoupled=decoupled, **changes)
    except RequestError:
        return
    for sequence in parsed if isinstance(parsed, list) else [parsed]:
        assert sequence is None or len(sequence.input_ids) + sequence.sampling.max_tokens <= _LIMITS.context_tokens

"""Upstream's clients of release 0.11 against a server of that release, in both modes: they must work unchanged.

Sources: ``end_to_end_grpc_client.py``, ``end_to_end_test.py`` and ``benchmark_core_model.py`` of v0.11. Their requests name no
outputs, which asks for all, and they read ``as_numpy(name)[0]`` and index logits without a check.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient

from serving.launch.server import Server
from tests.end_to_end.test_upstream_clients import benchmark_inputs, boolean, f32, i32, stream, tensor, text

BOTH_MODES = pytest.mark.parametrize("mode", ["decoupled_server_0_11", "plain_server_0_11"])
TEXT_MODELS = pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls"])
_VOCABULARY = 3072
_PROMPT = "What is machine learning?"
_ZEROS = {"cum_log_probs": 2, "output_log_probs": 3, "context_logits": 3, "generation_logits": 4}
_PASSED = ("CUM_LOG_PROBS", "OUTPUT_LOG_PROBS", "CONTEXT_LOGITS", "GENERATION_LOGITS")


def _text_inputs(streaming: bool, returned: bool = False) -> list[grpcclient.InferInput]:
    """``end_to_end_grpc_client.py``: word lists of one empty word, and the names of that release."""
    return [
        tensor("text_input", text(_PROMPT)),
        tensor("max_tokens", i32(12)),
        tensor("bad_words", text("")),
        tensor("stop_words", text("")),
        tensor("stream", boolean(streaming)),
        tensor("beam_width", i32(1)),
        tensor("temperature", f32(1.0)),
        tensor("return_log_probs", boolean(returned)),
        tensor("return_context_logits", boolean(returned)),
        tensor("return_generation_logits", boolean(returned)),
        tensor("min_length", i32(1)),
        tensor("random_seed", np.array([[7]], np.uint64)),
    ]


def _answers(server: Server, model: str, inputs: list[grpcclient.InferInput]) -> list[Any]:
    with stream(server) as (client, answers):
        client.async_stream_infer(model, inputs, request_id="1")
    return [answers.get_nowait() for _ in range(answers.qsize())]


@BOTH_MODES
@TEXT_MODELS
def test_the_text_client_reads_the_first_string(request: pytest.FixtureRequest, mode: str, model: str) -> None:
    server: Server = request.getfixturevalue(mode)
    [answer] = _answers(server, model, _text_inputs(streaming=False))
    assert answer.as_numpy("text_output").shape == (1,)
    assert answer.as_numpy("text_output")[0].decode().startswith(_PROMPT)


@TEXT_MODELS
def test_the_text_client_reads_the_first_string_of_each_piece(decoupled_server_0_11: Server, model: str) -> None:
    [whole] = _answers(decoupled_server_0_11, model, _text_inputs(streaming=False))
    pieces = _answers(decoupled_server_0_11, model, _text_inputs(streaming=True))
    assert len(pieces) > 1
    joined = "".join(piece.as_numpy("text_output")[0].decode() for piece in pieces)
    assert _PROMPT + joined == whole.as_numpy("text_output")[0].decode()


@BOTH_MODES
@pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls", "tensorrt_llm"])
def test_what_was_not_enabled_is_answered_with_zeros(request: pytest.FixtureRequest, mode: str, model: str) -> None:
    server: Server = request.getfixturevalue(mode)
    inputs = benchmark_inputs(range(10, 20), 5) if model == "tensorrt_llm" else _text_inputs(streaming=False)
    [answer] = _answers(server, model, inputs)
    for name, dimensions in _ZEROS.items():
        zeros = answer.as_numpy(name)
        assert zeros.dtype == np.float32
        assert (zeros.shape, zeros.any()) == ((1,) * dimensions, False)


@BOTH_MODES
@TEXT_MODELS
def test_what_was_enabled_is_answered_in_full(request: pytest.FixtureRequest, mode: str, model: str) -> None:
    server: Server = request.getfixturevalue(mode)
    [answer] = _answers(server, model, _text_inputs(streaming=False, returned=True))
    context, generation = answer.as_numpy("context_logits"), answer.as_numpy("generation_logits")
    assert context.shape[::2] == (1, _VOCABULARY)
    assert generation.shape == (1, 1, 12, _VOCABULARY)
    assert context.any()
    assert generation.any()
    assert answer.as_numpy("cum_log_probs")[0, 0] == pytest.approx(answer.as_numpy("output_log_probs")[0, 0].sum(), abs=1e-3)


@TEXT_MODELS
def test_what_another_piece_of_a_stream_has_is_zero_in_this_one(decoupled_server_0_11: Server, model: str) -> None:
    pieces = _answers(decoupled_server_0_11, model, _text_inputs(streaming=True, returned=True))
    assert len(pieces) > 1
    assert [piece.as_numpy("context_logits").any() for piece in pieces] == [True] + [False] * (len(pieces) - 1)
    assert all(piece.as_numpy("text_output").shape == (1,) for piece in pieces)


@BOTH_MODES
@pytest.mark.parametrize("returned", [False, True])
def test_the_steps_one_by_one_and_the_ensemble_are_equal(request: pytest.FixtureRequest, mode: str, returned: bool) -> None:
    """``end_to_end_test.py``, which passes log probabilities and logits through ``postprocessing``."""
    server: Server = request.getfixturevalue(mode)
    with grpcclient.InferenceServerClient(server.addresses.grpc) as client:
        before = client.infer("preprocessing", [tensor("QUERY", text(_PROMPT)), tensor("REQUEST_OUTPUT_LEN", i32(12))])
        renamed = {"input_ids": "INPUT_ID", "input_lengths": "REQUEST_INPUT_LEN", "request_output_len": "REQUEST_OUTPUT_LEN"}
        core = [tensor(name, before.as_numpy(source)) for name, source in renamed.items()]
        flags = ("return_log_probs", "return_context_logits", "return_generation_logits")
        core += [tensor(name, boolean(returned)) for name in flags]
        [made] = _answers(server, "tensorrt_llm", core)
        passed = {name: made.as_numpy(name.lower()) for name in _PASSED}
        after = client.infer(
            "postprocessing",
            [
                tensor("TOKENS_BATCH", made.as_numpy("output_ids")),
                tensor("SEQUENCE_LENGTH", made.as_numpy("sequence_length")),
                *(tensor(name, values) for name, values in passed.items()),
            ],
        )
    for name, values in passed.items():
        assert np.array_equal(after.as_numpy(f"OUT_{name}"), values)
    inputs = [tensor("text_input", text(_PROMPT)), tensor("max_tokens", i32(12))]
    inputs += [tensor(name, boolean(returned)) for name in flags]
    [ensemble] = _answers(server, "ensemble", inputs)
    assert after.as_numpy("OUTPUT")[0].decode() == ensemble.as_numpy("text_output")[0].decode()
    for name, values in passed.items():
        assert np.allclose(ensemble.as_numpy(name.lower()), values, rtol=1e-2, atol=1e-2)


# ---- ids beyond the vocabulary, as benchmark_core_model.py draws them


_RANDOM_IDS = [2**31 - 2, 5, _VOCABULARY, 7, 1_234_567_890]


@BOTH_MODES
def test_random_ids_beyond_the_vocabulary_are_wrapped_and_echoed_as_sent(request: pytest.FixtureRequest, mode: str) -> None:
    server: Server = request.getfixturevalue(mode)
    wrapped = [token % _VOCABULARY for token in _RANDOM_IDS]
    answers = [_answers(server, "tensorrt_llm", benchmark_inputs(ids, 8))[0] for ids in (_RANDOM_IDS, wrapped)]
    sent, inside = (answer.as_numpy("output_ids")[0, 0].tolist() for answer in answers)
    assert sent[: len(_RANDOM_IDS)] == _RANDOM_IDS
    assert sent[len(_RANDOM_IDS) :] == inside[len(wrapped) :]


def test_random_ids_beyond_the_vocabulary_are_refused_with_the_option_to_take_them(decoupled_server: Server) -> None:
    [error] = _answers(decoupled_server, "tensorrt_llm", benchmark_inputs(_RANDOM_IDS, 8))
    assert "input_ids holds 2147483646, which is outside the vocabulary [0, 3072)" in str(error)
    assert "bench serve --out_of_vocabulary_ids wrap" in str(error)

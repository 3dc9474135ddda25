"""The five models on the real server."""

import json
import queue
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from serving.launch.server import Server
from tests.end_to_end.triton_calls import (
    core_inputs,
    flag,
    generate,
    generated_tokens,
    ids_of,
    infer,
    int32,
    settled,
    stream,
    text,
    text_of,
    value_of,
    wait_until_busy,
    wait_until_idle,
    wire,
)

PROMPTS = (
    "What is machine learning?",
    "Übersetze: «Guten Morgen» 🌅 — naïve café, 漢字かな交じり文",
    "def add(a, b):\n    return a + b\n",
    "x",
)
MODES = ("decoupled_server", "plain_server")
TEXT_MODELS = ("ensemble", "tensorrt_llm_bls")


@pytest.fixture(params=MODES)
def server(request: pytest.FixtureRequest) -> Server:
    deployed: Server = request.getfixturevalue(request.param)
    return deployed


def ask(server: Server, model: str, prompt: str, **more: np.ndarray) -> str:
    """Unstreamed text, over the stream API, which works for decoupled and other models."""
    inputs = {"text_input": text(prompt), "max_tokens": int32(24), "exclude_input_in_output": flag(True), **more}
    [answers] = stream(server, model, [inputs])
    assert len(answers) == 1
    return text_of(answers)


def by_hand(server: Server, prompt: str) -> str:
    before = infer(server, "preprocessing", {"QUERY": text(prompt), "REQUEST_OUTPUT_LEN": int32(24)})
    [answers] = stream(
        server,
        "tensorrt_llm",
        [
            {
                "input_ids": before.as_numpy("INPUT_ID"),
                "input_lengths": before.as_numpy("REQUEST_INPUT_LEN"),
                "request_output_len": before.as_numpy("REQUEST_OUTPUT_LEN"),
                "end_id": before.as_numpy("OUT_END_ID"),
                "pad_id": before.as_numpy("OUT_PAD_ID"),
                "exclude_input_in_output": flag(True),
            }
        ],
    )
    after = infer(
        server,
        "postprocessing",
        {
            "TOKENS_BATCH": answers[0].as_numpy("output_ids"),
            "SEQUENCE_LENGTH": answers[0].as_numpy("sequence_length"),
        },
    )
    return str(after.as_numpy("OUTPUT").reshape(-1)[0].decode())


@pytest.mark.parametrize("prompt", PROMPTS)
def test_manual_pipeline_ensemble_and_bls_give_the_same_text(server: Server, prompt: str) -> None:
    expected = by_hand(server, prompt)
    assert len(expected) > 24
    assert [ask(server, model, prompt) for model in TEXT_MODELS] == [expected, expected]


@pytest.mark.parametrize("model", TEXT_MODELS)
@pytest.mark.parametrize("prompt", PROMPTS)
def test_streamed_pieces_join_to_the_unstreamed_text(decoupled_server: Server, model: str, prompt: str) -> None:
    inputs = {"text_input": text(prompt), "max_tokens": int32(200), "exclude_input_in_output": flag(True)}
    [[whole], pieces] = stream(decoupled_server, model, [inputs, {**inputs, "stream": flag(True)}])
    assert len(pieces) > 20
    assert text_of(pieces) == text_of([whole])


def test_streamed_tokens_join_to_the_unstreamed_tokens(decoupled_server: Server) -> None:
    inputs = core_inputs(range(10, 60), 64)
    [[whole], pieces] = stream(decoupled_server, "tensorrt_llm", [inputs, {**inputs, "streaming": flag(True)}])
    assert len(pieces) > 10
    assert ids_of(pieces) == ids_of([whole])
    assert len(ids_of([whole])) == 64


def test_64_concurrent_requests_overlap_in_the_engine(decoupled_server: Server) -> None:
    def counters() -> tuple[float, float]:
        page = settled(decoupled_server)
        return (
            value_of(page, "inflight_bench_engine_scheduled_requests"),
            value_of(page, "inflight_bench_engine_iterations"),
        )

    scheduled_before, iterations_before = counters()
    alone = [ids_of(a) for a in stream(decoupled_server, "tensorrt_llm", [core_inputs(range(20, 90), 32)])]
    requests = [core_inputs(range(20 + k, 90 + k), 32) for k in range(64)]
    together = [ids_of(answers) for answers in stream(decoupled_server, "tensorrt_llm", requests)]
    scheduled, iterations = (
        after - before for after, before in zip(counters(), (scheduled_before, iterations_before), strict=True)
    )
    assert scheduled / iterations > 8
    assert iterations < 33 * 32  # sequential requests would take 65 · 32 steps
    assert together[0] == alone[0]  # the batch does not affect the output


@pytest.mark.parametrize("model", TEXT_MODELS)
def test_generate_matches_upstreams_readme(server: Server, model: str) -> None:
    body = {"text_input": "What is machine learning?", "max_tokens": 20, "bad_words": "", "stop_words": ""}
    status, answer = generate(server, model, body)
    assert status == 200
    text_output = json.loads(answer)["text_output"]
    assert text_output.startswith("What is machine learning?")  # includes the prompt unless excluded
    assert len(text_output) > 45


@pytest.mark.parametrize("model", TEXT_MODELS)
def test_generate_stream_sends_one_event_per_token(decoupled_server: Server, model: str) -> None:
    body = {"text_input": "What is machine learning?", "max_tokens": 100, "stream": True}
    status, answer = generate(decoupled_server, model, body, "generate_stream")
    events = [json.loads(line.removeprefix("data: ")) for line in answer.splitlines() if line]
    assert status == 200
    assert len(events) > 5
    _, whole = generate(decoupled_server, model, {**body, "stream": False, "exclude_input_in_output": True})
    assert "".join(event["text_output"] for event in events) == json.loads(whole)["text_output"]


def test_streaming_is_rejected_unless_the_model_is_decoupled(plain_server: Server) -> None:
    with pytest.raises(InferenceServerException, match="Streaming is only supported if model is deployed using decoupled mode"):
        infer(plain_server, "tensorrt_llm", core_inputs([5, 6], 4, streaming=flag(True)))


def test_the_prompt_is_repeated_unless_excluded(plain_server: Server) -> None:
    inputs = core_inputs([5, 6, 700], 4)
    excluded = ids_of([infer(plain_server, "tensorrt_llm", inputs)])
    del inputs["exclude_input_in_output"]
    assert ids_of([infer(plain_server, "tensorrt_llm", inputs)]) == [5, 6, 700, *excluded]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (core_inputs([5, 3072], 4), r"input_ids holds 3072, which is outside the vocabulary \[0, 3072\)"),
        (core_inputs([5, -1], 4), "input_ids holds -1"),
        ({**core_inputs([5], 4), "input_lengths": int32(0)}, "input_lengths is 0"),
        ({**core_inputs([5], 4), "input_lengths": int32(9)}, "input_lengths is 9"),
        (core_inputs([5] * 4000, 97), "more than the context length of 4096 tokens"),
        (core_inputs([5], 0), "request_output_len must be at least 1, not 0"),
        (core_inputs([5], 4, temperature=np.float32([[-1]])), "temperature must be at least 0, not -1"),
        (core_inputs([5], 4, temperature=np.float32([[np.nan]])), "temperature must be at least 0, not nan"),
        (core_inputs([5], 4, runtime_top_p=np.float32([[1.5]])), "runtime_top_p must be between 0 and 1, not 1.5"),
        (core_inputs([5], 4, end_id=int32(5000)), "end_id is 5000"),
        (core_inputs([5], 4, beam_width=int32(99)), "beam_width must be between 1 and 16, not 99"),
        (core_inputs([5], 4, num_return_sequences=int32(2)), r"num_return_sequences is 2: .* decoupled mode"),
        (core_inputs([5], 4, prompt_vocab_size=int32(9)), "prompt_vocab_size: the embedded engine does not support it"),
        (core_inputs([5], 4, min_tokens=int32(5)), "min_tokens must lie in"),
    ],
)
def test_bad_request_error_names_the_input_and_others_are_unaffected(
    plain_server: Server, inputs: dict[str, np.ndarray], message: str
) -> None:
    good = core_inputs(range(10, 20), 8)
    expected = ids_of([infer(plain_server, "tensorrt_llm", good)])
    with pytest.raises(InferenceServerException, match=message):
        infer(plain_server, "tensorrt_llm", inputs)
    assert ids_of([infer(plain_server, "tensorrt_llm", good)]) == expected


@pytest.mark.parametrize("model", TEXT_MODELS)
@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"text_input": ""}, "the prompt is empty"),
        ({"text_input": "a " * 5000}, "more than the context length"),
        (
            {"max_tokens": 0},
            "request_output_len must be at least 1, not 0 (in a request of ensemble or tensorrt_llm_bls, "
            "request_output_len is max_tokens)",
        ),
        ({"top_p": 1.5}, "runtime_top_p is top_p)"),
        ({"temperature": -2.0}, "temperature must be at least 0, not -2"),
    ],
)
def test_bad_text_request_gets_an_error_message(server: Server, model: str, more: dict[str, object], message: str) -> None:
    status, answer = generate(server, model, {"text_input": "Hello there", "max_tokens": 4, **more})
    assert status == 400
    assert message in json.loads(answer)["error"]
    assert "Traceback" not in answer


def test_end_id_ends_the_sequence(decoupled_server: Server) -> None:
    [[free]] = stream(decoupled_server, "tensorrt_llm", [core_inputs(range(30, 50), 32)])
    fifth = ids_of([free])[4]
    [[ended]] = stream(decoupled_server, "tensorrt_llm", [core_inputs(range(30, 50), 32, end_id=int32(fifth))])
    assert ids_of([ended]) == ids_of([free])[: ids_of([free]).index(fifth) + 1]


def test_samples_are_determined_by_the_seed(decoupled_server: Server) -> None:
    def sample(seed: int) -> dict[str, np.ndarray]:
        more = {"runtime_top_k": int32(50), "temperature": np.float32([[1.0]]), "seed": np.array([[seed]], dtype=np.uint64)}
        return core_inputs(range(30, 50), 24, **more)

    one, same, other = (ids_of(a) for a in stream(decoupled_server, "tensorrt_llm", [sample(7), sample(7), sample(8)]))
    assert one == same
    assert one != other


STOP = {"input_ids": int32(0), "input_lengths": int32(0), "request_output_len": int32(0), "stop": flag(True)}


def test_stop_with_an_unknown_id_is_no_error(decoupled_server: Server) -> None:
    assert stream(decoupled_server, "tensorrt_llm", [STOP], ["unknown"]) == [[]]


def test_stop_ends_the_request_of_that_id(decoupled_server: Server) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    tokens = finals = 0
    with grpcclient.InferenceServerClient(decoupled_server.addresses.grpc) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        long = core_inputs(range(30, 50), 2000, streaming=flag(True))
        client.async_stream_infer("tensorrt_llm", wire(long), request_id="stop me", enable_empty_final_response=True)
        while finals < 2:  # the long request's, and the stop request's own
            result, error = answers.get(timeout=120)
            assert error is None
            if result.get_response().outputs:
                if tokens == 0:
                    client.async_stream_infer(
                        "tensorrt_llm", wire(STOP), request_id="stop me", enable_empty_final_response=True
                    )
                tokens += len(ids_of([result]))
            finals += result.get_response().parameters["triton_final_response"].bool_param
        client.stop_stream()
    assert 0 < tokens < 1000


def test_cancelled_request_frees_the_engine(decoupled_server: Server) -> None:
    before = generated_tokens(wait_until_idle(decoupled_server))
    with grpcclient.InferenceServerClient(decoupled_server.addresses.grpc) as client:
        client.start_stream(lambda result, error: None)
        client.async_stream_infer("tensorrt_llm", wire(core_inputs(range(30, 50), 4000, streaming=flag(True))))
        wait_until_busy(decoupled_server)
        client.stop_stream(cancel_requests=True)
    assert generated_tokens(wait_until_idle(decoupled_server)) - before < 2000

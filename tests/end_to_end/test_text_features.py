"""Features of the text models on the real server: words, batches, sequences, stop words, drafts."""

import itertools
import queue
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.engines.protocol import EngineOptions
from serving.launch.addresses import choose_addresses
from serving.launch.embedded import deploy
from serving.launch.server import Server
from serving.repository.pipeline import RepositorySpec
from tests.end_to_end.triton_calls import (
    flag,
    generated_tokens,
    int32,
    stream,
    text,
    text_of,
    wait_until_busy,
    wait_until_idle,
    wire,
)

TEXT_MODELS = ("ensemble", "tensorrt_llm_bls")
PROMPT = "What is machine learning?"


def words(*values: str) -> np.ndarray:
    return np.array([[value.encode() for value in values]], dtype=np.object_)


def ask(server: Server, model: str = "tensorrt_llm_bls", **more: Any) -> list[Any]:
    """All responses to one request of a text model."""
    inputs = {"text_input": text(PROMPT), "max_tokens": int32(24), "exclude_input_in_output": flag(True), **more}
    [answers] = stream(server, model, [inputs])
    return answers


@pytest.fixture(scope="module")
def drafting_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A pipeline with the target as its own draft model, accumulated streamed text and beam search."""
    options = EngineOptions(max_beam_width=3)
    spec = RepositorySpec(
        DEMO_ENGINE_DIR, DEMO_ENGINE_DIR, draft_engine_dir=DEMO_ENGINE_DIR, accumulate_tokens=True, engine_options=options
    )
    with deploy(spec, choose_addresses(), tmp_path_factory.mktemp("drafting") / "server.log") as server:
        yield server


@pytest.mark.parametrize("streaming", [True, False])
def test_bls_text_ends_before_a_stop_word_for_any_split(decoupled_server: Server, streaming: bool) -> None:
    free = text_of(ask(decoupled_server, max_tokens=int32(200)))
    for start in (5, 60, 200):
        stop = free[start : start + 4]
        answers = ask(decoupled_server, max_tokens=int32(200), stop_words=words(stop), stream=flag(streaming))
        assert text_of(answers) == free[: free.index(stop)]


def test_stop_word_ends_generation_in_the_core_model(decoupled_server: Server) -> None:
    free = text_of(ask(decoupled_server, max_tokens=int32(64)))
    before = generated_tokens(wait_until_idle(decoupled_server))
    ask(decoupled_server, max_tokens=int32(3000), stop_words=words(free[30:34]), stream=flag(True))
    assert generated_tokens(wait_until_idle(decoupled_server)) - before < 1000


@pytest.mark.parametrize("streaming", [True, False])
def test_rows_of_a_batch_have_an_index_and_the_text_of_single_requests(decoupled_server: Server, streaming: bool) -> None:
    prompts = ["What is machine learning?", "x", "The king and the queen"]
    single = [text_of(ask(decoupled_server, text_input=text(prompt))) for prompt in prompts]
    answers = ask(
        decoupled_server,
        text_input=np.array([[prompt.encode()] for prompt in prompts], dtype=np.object_),
        max_tokens=np.full((3, 1), 24, np.int32),
        exclude_input_in_output=np.full((3, 1), True),
        stream=np.full((3, 1), streaming),
    )
    rows: dict[int, str] = {}
    for answer in answers:
        row = int(answer.as_numpy("batch_index").item())
        rows[row] = rows.get(row, "") + text_of([answer])
    assert [rows[row] for row in range(3)] == single


@pytest.mark.parametrize("model", TEXT_MODELS)
def test_returned_sequences_have_an_index(decoupled_server: Server, model: str) -> None:
    sampling = {"top_k": int32(50), "seed": np.uint64([[3]])}
    answers = ask(decoupled_server, model, num_return_sequences=int32(3), **sampling)
    texts = {answer.as_numpy("sequence_index").item(): text_of([answer]) for answer in answers}
    assert sorted(texts) == [0, 1, 2]
    assert len(set(texts.values())) > 1


@pytest.mark.parametrize("streaming", [True, False])
def test_bls_passes_on_the_same_outputs_as_the_ensemble(decoupled_server: Server, streaming: bool) -> None:
    asked = {
        name: flag(True)
        for name in ("return_log_probs", "return_perf_metrics", "return_num_input_tokens", "return_num_output_tokens")
    }
    ensemble, bls = (ask(decoupled_server, model, stream=flag(streaming), **asked) for model in TEXT_MODELS)
    assert text_of(bls) == text_of(ensemble)

    def joined(answers: list[Any], name: str) -> Any:
        values = [values for answer in answers if (values := answer.as_numpy(name)) is not None]
        return np.concatenate([value.reshape(-1) for value in values])

    np.testing.assert_allclose(joined(bls, "output_log_probs"), joined(ensemble, "output_log_probs"), rtol=1e-4)
    assert joined(bls, "num_output_tokens").sum() == joined(ensemble, "num_output_tokens").sum() == 24
    assert joined(bls, "num_input_tokens")[0] == joined(ensemble, "num_input_tokens")[0]
    for name in ("kv_cache_alloc_total_blocks", "total_draft_tokens"):
        assert joined(bls, name)[-1] == joined(ensemble, name)[-1]
    assert 0 < joined(bls, "arrival_time_ns")[-1] < joined(bls, "last_token_time_ns")[-1]


@pytest.mark.parametrize("model", TEXT_MODELS)
def test_word_bias_changes_the_text(decoupled_server: Server, model: str) -> None:
    biased = {"embedding_bias_words": words(" sea"), "embedding_bias_weights": np.float32([[1000.0]])}
    assert text_of(ask(decoupled_server, model, max_tokens=int32(4), **biased)).count("sea") == 4


def test_cancelling_an_unstreamed_bls_request_ends_generation(decoupled_server: Server) -> None:
    before = generated_tokens(wait_until_idle(decoupled_server))
    with grpcclient.InferenceServerClient(decoupled_server.addresses.grpc) as client:
        client.start_stream(lambda result, error: None)
        inputs = {"text_input": text(PROMPT), "max_tokens": int32(4000)}
        client.async_stream_infer("tensorrt_llm_bls", wire(inputs))
        wait_until_busy(decoupled_server)
        client.stop_stream(cancel_requests=True)
    assert generated_tokens(wait_until_idle(decoupled_server)) - before < 2000


def test_final_flag_is_sent_once_with_the_last_text(decoupled_server: Server) -> None:
    marks: list[bool] = []
    ended: queue.Queue[Any] = queue.Queue()

    def note(result: Any, error: Any) -> None:
        assert error is None
        marks.append(result.get_response().parameters["triton_final_response"].bool_param)
        if marks[-1]:
            ended.put(result)

    with grpcclient.InferenceServerClient(decoupled_server.addresses.grpc) as client:
        client.start_stream(note)
        inputs = {"text_input": text(PROMPT), "max_tokens": int32(12), "end_id": int32(-1), "stream": flag(True)}
        client.async_stream_infer("tensorrt_llm_bls", wire(inputs))
        assert ended.get(timeout=120).as_numpy("text_output") is not None
        client.stop_stream()
    assert marks == [*[False] * (len(marks) - 1), True]


def test_drafted_text_is_that_of_the_target(drafting_server: Server) -> None:
    plain = ask(drafting_server, max_tokens=int32(40))
    for drafted in (1, 4, 7):
        answers = ask(drafting_server, max_tokens=int32(40), num_draft_tokens=int32(drafted), return_perf_metrics=flag(True))
        assert text_of(answers) == text_of(plain)
        assert answers[0].as_numpy("acceptance_rate").item() == 1.0  # the draft model is the target
        assert answers[0].as_numpy("total_accepted_draft_tokens").item() == 40 - -(-40 // (drafted + 1))


def test_drafted_text_ends_before_its_stop_word_and_may_use_the_drafts_logits(drafting_server: Server) -> None:
    plain = text_of(ask(drafting_server, max_tokens=int32(40)))
    stop = words(plain[50:54])
    for more in ({}, {"use_draft_logits": flag(True)}):
        answers = ask(drafting_server, max_tokens=int32(40), num_draft_tokens=int32(5), stop_words=stop, **more)
        assert text_of(answers) == plain[: plain.index(plain[50:54])]


def test_accumulated_pieces_contain_all_text_so_far(drafting_server: Server) -> None:
    whole = text_of(ask(drafting_server))
    pieces = [text_of([answer]) for answer in ask(drafting_server, stream=flag(True))]
    assert pieces[-1] == whole
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(pieces))


def test_each_beam_has_its_text_in_both_text_models(drafting_server: Server) -> None:
    asked = {"beam_width": int32(3), "return_log_probs": flag(True)}
    [[ensemble], [bls]] = (ask(drafting_server, model, **asked) for model in TEXT_MODELS)
    beams = bls.as_numpy("text_output")
    assert beams.shape == (3,)
    assert len(set(beams)) == 3
    assert (beams == ensemble.as_numpy("text_output")).all()
    assert (bls.as_numpy("cum_log_probs") == ensemble.as_numpy("cum_log_probs")).all()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"num_draft_tokens": int32(3)}, "tensorrt_llm_draft_model_name of tensorrt_llm_bls is not set"),
        ({"image_url_input": text("http://nowhere")}, "image_url_input: the embedded pipeline"),
        ({"stop_words": np.array([[b"\xff"]], dtype=np.object_)}, "STOP_WORDS_DICT is not valid UTF-8"),
        ({"stream": flag(True), "beam_width": int32(2)}, "stream: not supported with a beam_width of 2"),
        ({"embedding_bias_words": words("a")}, "one weight per word"),
    ],
    ids=["draft", "image", "utf8", "beams", "bias"],
)
def test_bls_rejects_with_a_message(decoupled_server: Server, more: Any, message: str) -> None:
    with pytest.raises(InferenceServerException, match=message) as caught:
        ask(decoupled_server, **more)
    assert "Traceback" not in str(caught.value)

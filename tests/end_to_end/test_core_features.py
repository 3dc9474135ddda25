"""Features of core model requests on the real server. Logits are compared with those of the network in this process."""

import itertools
import json
import queue
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from numpy.typing import NDArray
from tritonclient.utils import InferenceServerException

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.engines.openvino.logits import LogitsModel
from serving.engines.openvino.token_choice import log_softmax
from serving.launch.server import Server
from serving.text.tokenizer import load_tokenizer
from tests.end_to_end.triton_calls import (
    core_inputs,
    flag,
    generated_tokens,
    ids_of,
    infer,
    int32,
    stream,
    text,
    wait_until_idle,
    wire,
)

PROMPT = list(range(10, 60))
VOCABULARY = 3072
MODES = ("decoupled_server", "plain_server")


@pytest.fixture(params=MODES)
def server(request: pytest.FixtureRequest) -> Server:
    deployed: Server = request.getfixturevalue(request.param)
    return deployed


@pytest.fixture(scope="module")
def logits_of() -> Callable[[list[int]], NDArray[np.float32]]:
    """Logits [tokens, vocabulary] of a token sequence, computed in this process."""
    model = LogitsModel.read(DEMO_ENGINE_DIR)

    def compute(ids: list[int]) -> NDArray[np.float32]:
        session = model.session()
        logits = session.extend(ids)
        session.close()
        return logits

    return compute


def fp32(*values: float) -> NDArray[np.float32]:
    return np.array([values], dtype=np.float32)


def words(*sequences: list[int]) -> NDArray[np.int32]:
    """A word list [1, 2, n] in the layout of upstream's preprocessing."""
    ids = [token for word in sequences for token in word]
    ends = list(itertools.accumulate(len(word) for word in sequences))
    return np.array([[ids, ends + [-1] * (len(ids) - len(ends))]], dtype=np.int32)


def one(server: Server, **more: NDArray[Any]) -> grpcclient.InferResult:
    """The single response to the prompt, over the stream API, which works in both modes."""
    [[answer]] = stream(server, "tensorrt_llm", [{**core_inputs(PROMPT, 20), **more}])
    return answer


def pieces(server: Server, **more: NDArray[Any]) -> list[grpcclient.InferResult]:
    [answers] = stream(server, "tensorrt_llm", [{**core_inputs(PROMPT, 20), "streaming": flag(True), **more}])
    return answers


# ---- logits and log probabilities


def test_log_probs_and_logits_are_those_of_the_network(server: Server, logits_of: Any) -> None:
    asked = {name: flag(True) for name in ("return_log_probs", "return_context_logits", "return_generation_logits")}
    answer = one(server, **asked)
    tokens = ids_of([answer])
    expected = logits_of(PROMPT + tokens[:-1])
    log_probs = log_softmax(expected[len(PROMPT) - 1 :])[np.arange(20), tokens]
    assert answer.as_numpy("context_logits").shape == (1, len(PROMPT), VOCABULARY)
    assert answer.as_numpy("generation_logits").shape == (1, 1, 20, VOCABULARY)
    np.testing.assert_allclose(answer.as_numpy("context_logits")[0], expected[: len(PROMPT)], atol=1e-3)
    np.testing.assert_allclose(answer.as_numpy("generation_logits")[0, 0], expected[len(PROMPT) - 1 :], atol=1e-3)
    assert answer.as_numpy("output_log_probs").shape == (1, 1, 20)
    np.testing.assert_allclose(answer.as_numpy("output_log_probs")[0, 0], log_probs, atol=1e-3)
    np.testing.assert_allclose(answer.as_numpy("cum_log_probs"), [[log_probs.sum()]], atol=1e-2)
    assert answer.as_numpy("generation_logits")[0, 0].argmax(axis=-1).tolist() == tokens  # greedy


def test_logits_do_not_change_tokens_and_are_absent_unless_requested(server: Server) -> None:
    sampled = {"runtime_top_p": fp32(0.9), "seed": np.array([[3]], dtype=np.uint64)}
    plain, rich = one(server, **sampled), one(server, **sampled, return_generation_logits=flag(True))
    assert ids_of([plain]) == ids_of([rich])
    assert plain.as_numpy("generation_logits") is None
    assert plain.as_numpy("cum_log_probs") is None
    assert rich.as_numpy("context_logits") is None


def test_streamed_logits_and_log_probs_join_to_the_unstreamed(decoupled_server: Server) -> None:
    asked = {name: flag(True) for name in ("return_log_probs", "return_context_logits", "return_generation_logits")}
    more = {**asked, "request_output_len": int32(100)}  # a busy sender joins up to 4 tokens, and more where it has no core
    whole, parts = one(decoupled_server, **more), pieces(decoupled_server, **more)
    assert len(parts) > 5
    for part in parts:
        assert part.as_numpy("generation_logits").shape[2] == len(ids_of([part])) == part.as_numpy("output_log_probs").shape[2]
    joined = np.concatenate([part.as_numpy("generation_logits") for part in parts], axis=2)
    np.testing.assert_allclose(joined, whole.as_numpy("generation_logits"), atol=1e-3)
    np.testing.assert_allclose(parts[-1].as_numpy("cum_log_probs"), whole.as_numpy("cum_log_probs"), atol=1e-2)
    contexts = [part.as_numpy("context_logits") for part in parts if part.as_numpy("context_logits") is not None]
    assert [context.shape for context in contexts] == [(1, len(PROMPT), VOCABULARY)]


# ---- beams and sequences


def test_beam_search_returns_beams_best_first(server: Server, logits_of: Any) -> None:
    asked = {"beam_width": int32(3), "return_log_probs": flag(True), "return_generation_logits": flag(True)}
    answer = one(server, **asked, return_num_output_tokens=flag(True))
    assert answer.as_numpy("output_ids").shape == (1, 3, 20)
    assert answer.as_numpy("sequence_length").tolist() == [[20, 20, 20]]
    assert answer.as_numpy("num_output_tokens").item() == 60
    assert answer.as_numpy("generation_logits").shape == (1, 3, 20, VOCABULARY)
    scores = answer.as_numpy("cum_log_probs")[0]
    assert sorted(scores, reverse=True) == scores.tolist()
    for beam, score in zip(answer.as_numpy("output_ids")[0].tolist(), scores, strict=True):
        rows = log_softmax(logits_of(PROMPT + beam[:-1])[len(PROMPT) - 1 :])
        np.testing.assert_allclose(rows[np.arange(20), beam].sum(), score, atol=1e-2)
    greedy = one(server, return_log_probs=flag(True)).as_numpy("cum_log_probs").item()
    assert scores[0] > greedy  # a wider search finds a more likely sequence


def test_shorter_beams_are_padded_with_the_pad_id(server: Server) -> None:
    free = one(server, beam_width=int32(3)).as_numpy("output_ids")[0].tolist()
    end = free[0][8]
    answer = one(server, beam_width=int32(3), end_id=int32(end), pad_id=int32(9), len_penalty=fp32(0.0))
    lengths = answer.as_numpy("sequence_length")[0].tolist()
    assert len(set(lengths)) > 1
    for beam, length in zip(answer.as_numpy("output_ids")[0].tolist(), lengths, strict=True):
        assert beam[length:] == [9] * (len(beam) - length)


def test_beams_repeat_the_prompt_unless_excluded(server: Server) -> None:
    answer = one(server, beam_width=int32(2), exclude_input_in_output=flag(False))
    assert answer.as_numpy("output_ids").shape == (1, 2, len(PROMPT) + 20)
    assert (answer.as_numpy("output_ids")[0, :, : len(PROMPT)] == PROMPT).all()


def test_length_penalty_affects_the_length_of_beams(server: Server) -> None:
    free = one(server, beam_width=int32(3)).as_numpy("output_ids")[0, 0].tolist()
    asked = {"beam_width": int32(3), "end_id": int32(free[6]), "num_return_sequences": int32(1)}
    short = one(server, **asked, len_penalty=fp32(0.0), early_stopping=flag(False)).as_numpy("sequence_length")
    long = one(server, **asked, len_penalty=fp32(5.0), early_stopping=flag(False)).as_numpy("sequence_length")
    assert short.shape == long.shape == (1, 1)
    assert short.item() < long.item()


def test_text_of_each_beam_is_returned(server: Server) -> None:
    inputs = {"text_input": text("What is machine learning?"), "max_tokens": int32(8), "beam_width": int32(2)}
    [[answer]] = stream(server, "ensemble", [inputs])
    texts = answer.as_numpy("text_output").reshape(-1).tolist()
    assert len(set(texts)) == 2
    assert all(text.startswith(b"What is machine learning?") for text in texts)


@pytest.mark.parametrize("streaming", [False, True])
def test_sequences_are_identified_by_index_and_follow_the_seed(decoupled_server: Server, streaming: bool) -> None:
    def sequences() -> dict[int, list[int]]:
        sampled = {"runtime_top_p": fp32(0.95), "seed": np.array([[5]], dtype=np.uint64)}
        inputs = core_inputs(PROMPT, 20, num_return_sequences=int32(3), streaming=flag(streaming), **sampled)
        [answers] = stream(decoupled_server, "tensorrt_llm", [inputs])
        found: dict[int, list[int]] = {}
        for answer in answers:
            assert answer.as_numpy("batch_index") is None
            found.setdefault(answer.as_numpy("sequence_index").item(), []).extend(ids_of([answer]))
        return found

    first = sequences()
    assert sorted(first) == [0, 1, 2]
    assert all(len(tokens) == 20 for tokens in first.values())
    assert len({tuple(tokens) for tokens in first.values()}) == 3
    assert sequences() == first


@pytest.mark.parametrize("streaming", [False, True])
def test_rows_of_a_batch_are_identified_by_index(decoupled_server: Server, streaming: bool) -> None:
    prompts = [PROMPT, PROMPT[:7], PROMPT[3:30]]
    lengths = [20, 5, 11]
    alone = [
        ids_of(answers)
        for answers in stream(
            decoupled_server,
            "tensorrt_llm",
            [core_inputs(prompt, length) for prompt, length in zip(prompts, lengths, strict=True)],
        )
    ]
    ids = np.zeros((3, len(PROMPT)), dtype=np.int32)
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt)] = prompt
    inputs = {
        "input_ids": ids,
        "input_lengths": np.array([[len(prompt)] for prompt in prompts], dtype=np.int32),
        "request_output_len": np.array([[length] for length in lengths], dtype=np.int32),
        "exclude_input_in_output": np.ones((3, 1), dtype=np.bool_),
        "streaming": np.full((3, 1), streaming),
    }
    [answers] = stream(decoupled_server, "tensorrt_llm", [inputs])
    together: dict[int, list[int]] = {}
    for answer in answers:
        together.setdefault(answer.as_numpy("batch_index").item(), []).extend(ids_of([answer]))
    assert [together[row] for row in range(3)] == alone


def test_a_batch_in_one_request_needs_a_decoupled_model(plain_server: Server) -> None:
    inputs = {name: np.concatenate([value, value]) for name, value in core_inputs(PROMPT, 4).items()}
    with pytest.raises(InferenceServerException, match=r"2 rows: .* decoupled mode"):
        infer(plain_server, "tensorrt_llm", inputs)


# ---- constraints on tokens


@pytest.mark.parametrize("streaming", [False, True])
def test_sequence_ends_after_its_first_stop_word(decoupled_server: Server, streaming: bool) -> None:
    free = ids_of([one(decoupled_server)])
    listed = words(free[4:7], [VOCABULARY - 1], free[9:10])
    ask = pieces if streaming else lambda *args, **kwargs: [one(*args, **kwargs)]
    assert ids_of(ask(decoupled_server, stop_words_list=listed)) == free[:7]


def test_a_stop_word_frees_the_engine(decoupled_server: Server) -> None:
    free = ids_of([one(decoupled_server)])
    before = generated_tokens(wait_until_idle(decoupled_server))
    one(decoupled_server, stop_words_list=words(free[:2]), request_output_len=int32(4000))
    assert generated_tokens(wait_until_idle(decoupled_server)) - before < 1000


def test_only_bad_words_are_excluded(server: Server) -> None:
    free = ids_of([one(server)])
    pair = one(server, bad_words_list=words(free[2:4]))
    assert ids_of([pair])[:3] == free[:3]  # its first token on its own is allowed
    assert ids_of([pair])[3] != free[3]
    single = ids_of([one(server, bad_words_list=words([free[0]], [free[5]]))])
    assert free[0] not in single
    assert free[5] not in single


def test_embedding_bias_is_added_to_the_logits(server: Server, logits_of: Any) -> None:
    bias = np.zeros((1, VOCABULARY), dtype=np.float32)
    bias[0, [100, 200]] = 4.0
    tokens = ids_of([one(server, embedding_bias=bias)])
    logits = logits_of(PROMPT + tokens[:-1])[len(PROMPT) - 1 :]
    assert (logits + bias).argmax(axis=-1).tolist() == tokens
    assert logits.argmax(axis=-1).tolist() != tokens


@pytest.mark.parametrize(
    "penalty", [{"repetition_penalty": 1.4}, {"presence_penalty": 1.5}, {"frequency_penalty": 1.5}], ids=lambda p: next(iter(p))
)
def test_penalties_make_tokens_rarer(server: Server, penalty: dict[str, float]) -> None:
    bias = np.zeros((1, VOCABULARY), dtype=np.float32)
    bias[0, :40] = 3.0  # so that greedy text repeats itself
    asked = {"embedding_bias": bias, "request_output_len": int32(60)}
    free = ids_of([one(server, **asked)])
    penalised = ids_of([one(server, **asked, **{name: fp32(value) for name, value in penalty.items()})])
    assert len(set(penalised)) > len(set(free))


def test_sequence_does_not_end_before_min_tokens(server: Server) -> None:
    fourth = ids_of([one(server)])[3]
    assert len(ids_of([one(server, end_id=int32(fourth))])) <= 4
    assert len(ids_of([one(server, end_id=int32(fourth), min_tokens=int32(9))])) >= 9


def test_decaying_top_p_becomes_greedy(server: Server, logits_of: Any) -> None:
    sampled = {"runtime_top_p": fp32(0.99), "seed": np.array([[1]], dtype=np.uint64), "runtime_top_p_decay": fp32(0.01)}
    tokens = ids_of([one(server, **sampled)])
    greedy = logits_of(PROMPT + tokens[:-1])[len(PROMPT) - 1 :].argmax(axis=-1).tolist()
    assert tokens[0] != greedy[0]  # the first token is sampled with full top-p
    assert tokens[2:] == greedy[2:]  # 0.99 · 0.01² allows only the most likely token
    kept_up = ids_of([one(server, **sampled, runtime_top_p_min=fp32(0.99))])
    assert kept_up[2:] != logits_of(PROMPT + kept_up[:-1])[len(PROMPT) - 1 :].argmax(axis=-1).tolist()[2:]


@pytest.mark.parametrize("way", [{}, {"bad_words_list": words([VOCABULARY - 1])}], ids=["pipeline", "exact"])
def test_output_of_a_seed_is_independent_of_the_batch(decoupled_server: Server, way: dict[str, NDArray[Any]]) -> None:
    sampled = {"runtime_top_k": int32(50), "runtime_top_p": fp32(0.9), "temperature": fp32(1.2)}
    mine = core_inputs(PROMPT, 24, **sampled, **way, seed=np.array([[7]], dtype=np.uint64))
    [alone] = stream(decoupled_server, "tensorrt_llm", [mine])
    others = [
        core_inputs(range(20 + k, 60 + 3 * k), 30, **sampled, seed=np.array([[7 + k % 3]], dtype=np.uint64)) for k in range(24)
    ]
    together = stream(decoupled_server, "tensorrt_llm", [*others[:12], mine, *others[12:]])
    assert ids_of(together[12]) == ids_of(alone)


# ---- guides, LoRA, drafts


@pytest.fixture(scope="module")
def decode() -> Callable[[list[int]], str]:
    tokenizer = load_tokenizer(DEMO_ENGINE_DIR)
    return lambda ids: str(tokenizer.decode(ids, skip_special_tokens=True))


def guide(kind: str, shape: str = "") -> dict[str, NDArray[Any]]:
    tensors = {"guided_decoding_guide_type": text(kind), "request_output_len": int32(120), "end_id": int32(2)}
    return tensors | ({"guided_decoding_guide": text(shape)} if shape else {})


def test_guided_text_follows_its_guide(server: Server, decode: Callable[[list[int]], str]) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    assert json.loads(decode(ids_of([one(server, **guide("json_schema", json.dumps(schema)))])))["a"] in (1, 2)
    assert decode(ids_of([one(server, **guide("regex", "[0-9]{3}-[a-f]{2}"))]))[3] == "-"
    assert decode(ids_of([one(server, **guide("ebnf_grammar", 'root ::= "yes" | "no"'))])) in ("yes", "no")
    assert decode(ids_of([one(server, **guide("json"))])).lstrip()[0] in "[{"


@pytest.mark.parametrize(
    ("kind", "shape"),
    [("json_schema", "{nope"), ("regex", "[0-9"), ("ebnf_grammar", "no root here")],
    ids=["json", "regex", "ebnf"],
)
def test_invalid_guide_fails_only_its_own_request(decoupled_server: Server, kind: str, shape: str) -> None:
    expected = ids_of([one(decoupled_server)])
    with pytest.raises(InferenceServerException, match=f"guided_decoding_guide is not a usable {kind}"):
        one(decoupled_server, **guide(kind, shape))
    assert ids_of([one(decoupled_server)]) == expected


def adapter(seed: int, rank: int = 4) -> dict[str, NDArray[Any]]:
    """A LoRA adapter of the query projections, in upstream's layout."""
    random = np.random.default_rng(seed)
    rows = [np.concatenate([random.normal(size=rank * 256), random.normal(size=256 * rank) * 0.3]) for _ in range(4)]
    return {
        "lora_weights": np.array([rows], dtype=np.float16),
        "lora_config": np.array([[(1, layer, rank) for layer in range(4)]], dtype=np.int32),
    }


def task(number: int) -> dict[str, NDArray[Any]]:
    return {"lora_task_id": np.array([[number]], dtype=np.uint64)}


def test_adapter_is_cached_by_its_task(decoupled_server: Server) -> None:
    base = ids_of([one(decoupled_server)])
    first = ids_of([one(decoupled_server, **task(41), **adapter(0))])
    assert first != base
    assert ids_of([one(decoupled_server, **task(41))]) == first
    assert ids_of([one(decoupled_server, **task(42), **adapter(1))]) not in (first, base)
    assert ids_of([one(decoupled_server)]) == base


def test_unknown_task_and_unsuitable_adapter_are_rejected(decoupled_server: Server) -> None:
    with pytest.raises(InferenceServerException, match="LoRA task 99 not found in cache"):
        one(decoupled_server, **task(99))
    wrong = adapter(0)
    wrong["lora_config"][0, 0, 1] = 77
    with pytest.raises(InferenceServerException, match=r"the network has no layers\.77\.self_attn\.q_proj"):
        one(decoupled_server, **task(43), **wrong)


def test_drafts_do_not_change_tokens_and_report_acceptance(server: Server) -> None:
    free = ids_of([one(server)])
    for draft, accepted in ((free[:4], 4), ([*free[:2], 0, 0], 2), ([0, 1], 0)):
        inputs = {"draft_input_ids": int32(*draft), "return_perf_metrics": flag(True)}
        answer = one(server, **inputs, request_output_len=int32(len(draft) + 1))
        assert ids_of([answer]) == free[: len(draft) + 1]
        assert answer.as_numpy("total_draft_tokens").item() == len(draft)
        assert answer.as_numpy("total_accepted_draft_tokens").item() == accepted
        assert answer.as_numpy("acceptance_rate").item() == pytest.approx(accepted / len(draft))


# ---- through the ensemble


def test_the_ensemble_passes_on_what_the_core_model_returns(server: Server) -> None:
    asked = ("return_log_probs", "return_context_logits", "return_generation_logits", "return_perf_metrics")
    counts = ("return_num_input_tokens", "return_num_output_tokens")
    inputs = {"text_input": text("A prompt that the cache has not seen"), "max_tokens": int32(8)}
    [[answer]] = stream(server, "ensemble", [{**inputs, **{name: flag(True) for name in (*asked, *counts)}}])
    prompt_tokens = answer.as_numpy("num_input_tokens").item()
    generated = answer.as_numpy("num_output_tokens").item()
    assert generated == 8
    assert answer.as_numpy("context_logits").shape == (1, prompt_tokens, VOCABULARY)
    assert answer.as_numpy("generation_logits").shape == (1, 1, generated, VOCABULARY)
    assert answer.as_numpy("output_log_probs").sum() == pytest.approx(answer.as_numpy("cum_log_probs").item(), abs=1e-3)
    assert answer.as_numpy("kv_cache_alloc_total_blocks").item() >= 1
    assert answer.as_numpy("last_token_time_ns").item() > answer.as_numpy("arrival_time_ns").item() > 0


def test_guided_decoding_through_the_ensemble(server: Server) -> None:
    inputs = {"text_input": text("yes or no?"), "max_tokens": int32(8), "exclude_input_in_output": flag(True)}
    [[answer]] = stream(server, "ensemble", [{**inputs, **guide_inputs("ebnf_grammar", 'root ::= "yes" | "no"')}])
    assert answer.as_numpy("text_output").reshape(-1)[0] in (b"yes", b"no")


def guide_inputs(kind: str, shape: str) -> dict[str, NDArray[Any]]:
    return {"guided_decoding_guide_type": text(kind), "guided_decoding_guide": text(shape)}


def test_failed_row_does_not_affect_other_rows(decoupled_server: Server) -> None:
    two = {name: np.concatenate([value, value]) for name, value in core_inputs(PROMPT, 6).items()}
    two["lora_task_id"] = np.array([[0], [77]], dtype=np.uint64)
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    with grpcclient.InferenceServerClient(decoupled_server.addresses.grpc) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        client.async_stream_infer("tensorrt_llm", wire(two), request_id="two")
        got = [answers.get(timeout=120) for _ in range(2)]
        client.stop_stream()
    [error] = [str(error) for _, error in got if error is not None]
    [row] = [result for result, error in got if error is None]
    assert "LoRA task 77 not found in cache" in error
    assert row.as_numpy("batch_index").item() == 0
    assert len(ids_of([row])) == 6


@pytest.mark.parametrize("streaming", [False, True])
def test_ensemble_returns_text_of_sequences_and_rows(decoupled_server: Server, streaming: bool) -> None:
    prompts = ["What is machine learning?", "x"]
    inputs = {
        "text_input": np.array([[prompt.encode()] for prompt in prompts], dtype=np.object_),
        "max_tokens": np.full((2, 1), 12, dtype=np.int32),
        "exclude_input_in_output": np.ones((2, 1), dtype=np.bool_),
        "stream": np.full((2, 1), streaming),
        "num_return_sequences": np.full((2, 1), 2, dtype=np.int32),
        "top_p": np.full((2, 1), 0.9, dtype=np.float32),
    }
    [answers] = stream(decoupled_server, "ensemble", [inputs])
    texts: dict[tuple[int, int], str] = {}
    for answer in answers:
        key = (answer.as_numpy("batch_index").item(), answer.as_numpy("sequence_index").item())
        texts[key] = texts.get(key, "") + answer.as_numpy("text_output").reshape(-1)[0].decode()
    assert sorted(texts) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert len(set(texts.values())) == 4


def test_the_ensemble_serves_adapters(decoupled_server: Server) -> None:
    inputs = {"text_input": text("Hello there"), "max_tokens": int32(8), "exclude_input_in_output": flag(True)}
    [[base], [adapted]] = [
        stream(decoupled_server, "ensemble", [{**inputs, **more}])[0] for more in ({}, {**task(51), **adapter(3)})
    ]
    [[known]] = stream(decoupled_server, "ensemble", [{**inputs, **task(51)}])
    assert adapted.as_numpy("text_output").item() == known.as_numpy("text_output").item()
    assert adapted.as_numpy("text_output").item() != base.as_numpy("text_output").item()

"""``tensorrt_llm_bls`` with a core model whose tokens are known."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.text.detokenization import decode
from tests.serving.models.fake_pipeline import TOKENIZER, Bls, FakeCore, Sender, request_of

_SENTENCE = " the king and the queen went to the 海 and END sat there all night"
_IDS: list[int] = TOKENIZER.encode(_SENTENCE, add_special_tokens=False)


def _recite(sequence: list[int]) -> int:
    """The next token of the sentence after the prompt "the sea", repeated endlessly."""
    return _IDS[(len(sequence) - len(TOKENIZER.encode("the sea"))) % len(_IDS)]


def _recited(tokens: int) -> str:
    return decode(TOKENIZER, (_IDS * 5)[:tokens], True)


@pytest.fixture
def core() -> FakeCore:
    return FakeCore(_recite)


@pytest.fixture
def bls(backend: ModuleType, core: FakeCore) -> Iterator[Bls]:
    deployed = Bls(backend, {"tensorrt_llm": core})
    yield deployed
    deployed.model.finalize()


@pytest.mark.parametrize("stream", [True, False])
def test_text_of_the_tokens_with_or_without_streaming(bls: Bls, stream: bool) -> None:
    sender = bls.ask(max_tokens=len(_IDS), stream=stream)
    assert "".join(sender.texts) == _SENTENCE
    assert sender.finals == 1
    assert not any("\ufffd" in text for text in sender.texts)


def test_tokens_that_accumulate_while_sending_are_joined(bls: Bls) -> None:
    sender = bls.send(
        request_of(max_tokens=40, stream=True, return_num_output_tokens=True),
        ["text_output", "num_output_tokens"],
        delay_s=0.05,
    )
    assert sender.ended.wait(120)
    assert "".join(sender.texts) == _recited(40)
    assert len(sender.texts) < 10
    assert sum(response.tensors["num_output_tokens"].item() for response in sender.responses) == 40


def test_last_text_carries_the_final_flag(bls: Bls) -> None:
    sender = bls.ask(max_tokens=1, stream=True)
    assert len(sender.responses) == sender.finals == 1


def test_prompt_precedes_the_text_unless_excluded(bls: Bls) -> None:
    for more in ({"stop_words": ["END"]}, {}):
        sender = bls.ask(max_tokens=4, exclude_input_in_output=False, **more)
        assert sender.texts == ["the sea" + _recited(4)]
    streamed = bls.ask(max_tokens=4, exclude_input_in_output=False, stream=True)
    assert streamed.texts[0].startswith(decode(TOKENIZER, _IDS[:1], True))  # and more where tokens were joined


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("word", ["END", "queen went", "E", " the 海", "ight"])
def test_stop_word_ends_the_text_and_the_generation(bls: Bls, core: FakeCore, stream: bool, word: str) -> None:
    core._token_s = 0.002
    sender = bls.ask(max_tokens=2000, stream=stream, stop_words=["nowhere", word])
    assert "".join(sender.texts) == _SENTENCE[: _SENTENCE.index(word)]
    assert core.generated < 1900
    assert core.requests[0]["id"] in core.stopped


@settings(max_examples=25)
@given(words=st.lists(st.sampled_from([_SENTENCE[k : k + n] for k in range(0, 60, 3) for n in (1, 4, 9)]), max_size=3))
@pytest.mark.parametrize("stream", [True, False])
def test_streamed_and_unstreamed_texts_end_alike(shared_bls: Bls, stream: bool, words: list[str]) -> None:
    from serving.text.stop_words import StopWordScan

    words = words or [""]
    sender = shared_bls.ask(max_tokens=50, stream=stream, stop_words=words)
    assert "".join(sender.texts) == StopWordScan(words).add(_recited(50), is_last=True)


@pytest.fixture(scope="module")
def shared_bls(backend: ModuleType) -> Iterator[Bls]:
    deployed = Bls(backend, {"tensorrt_llm": FakeCore(_recite)})
    yield deployed
    deployed.model.finalize()


def test_stop_words_in_the_prompt_stop_nothing(bls: Bls) -> None:
    assert bls.ask(max_tokens=3, exclude_input_in_output=False, stop_words=["sea"]).texts == ["the sea" + _recited(3)]


def test_accumulated_pieces_each_hold_the_whole_text(backend: ModuleType, core: FakeCore) -> None:
    bls = Bls(backend, {"tensorrt_llm": core}, accumulate_tokens="true")
    sender = bls.ask(max_tokens=len(_IDS), stream=True)
    bls.model.finalize()
    assert sender.texts[-1] == _SENTENCE
    assert all(_SENTENCE.startswith(text) for text in sender.texts)
    assert sender.texts == sorted(sender.texts, key=len)


@pytest.mark.parametrize("stream", [True, False])
def test_rows_and_sequences_of_a_batch_are_separate(bls: Bls, stream: bool) -> None:
    prompts = ["the sea", "the sea the sea"]
    outputs = ["text_output", "batch_index", "sequence_index", "num_input_tokens", "num_output_tokens"]
    counts = {"return_num_input_tokens": True, "return_num_output_tokens": True}
    sender = bls.ask(outputs, prompt=prompts, max_tokens=6, num_return_sequences=2, stream=stream, **counts)
    texts: dict[tuple[int, int], str] = {}
    tokens: dict[tuple[int, int], int] = {}
    for response in sender.responses:
        key = response.tensors["batch_index"].item(), response.tensors["sequence_index"].item()
        texts[key] = texts.get(key, "") + response.tensors["text_output"].item().decode()
        tokens[key] = tokens.get(key, 0) + response.tensors["num_output_tokens"].item()
        assert response.tensors["num_input_tokens"].item() == len(TOKENIZER.encode(prompts[key[0]]))
    assert sender.finals == 1
    assert tokens == dict.fromkeys([(0, 0), (0, 1), (1, 0), (1, 1)], 6)
    skipped = len(TOKENIZER.encode(prompts[1])) - len(TOKENIZER.encode(prompts[0]))
    assert texts[0, 0] == _recited(6)
    assert texts[1, 0] == decode(TOKENIZER, (_IDS * 2)[skipped : skipped + 6], True)
    assert texts[0, 1] == decode(TOKENIZER, [token + 1 for token in _IDS[:6]], True)


def test_indices_are_left_out_where_there_is_one_sequence(bls: Bls) -> None:
    sender = bls.ask(["text_output", "batch_index", "sequence_index"], max_tokens=2)
    assert set(sender.responses[0].tensors) == {"text_output"}


def test_each_beam_has_its_text(bls: Bls) -> None:
    sender = bls.ask(max_tokens=6, beam_width=3)
    texts = sender.responses[0].tensors["text_output"]
    assert [text.decode() for text in texts] == [_recited(6), _recited(5), _recited(4)]


_METRICS = {"arrival_time_ns": np.int64([[5]]), "acceptance_rate": np.float32([[0.0]])}
_LOGS = {"cum_log_probs": np.float32([[-3.0]]), "output_log_probs": np.float32([[[-1.0]]])}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("flag", "values"),
    [
        ("return_perf_metrics", _METRICS),
        ("return_log_probs", _LOGS),
        ("return_context_logits", {"context_logits": np.zeros((1, 2, 3), np.float32)}),
        ("return_generation_logits", {"generation_logits": np.zeros((1, 1, 1, 3), np.float32)}),
    ],
)
def test_enabled_outputs_are_passed_on(bls: Bls, core: FakeCore, stream: bool, flag: str, values: dict[str, Any]) -> None:
    core.more = lambda tokens: {**_METRICS, **_LOGS, **values}
    sender = bls.ask(["text_output", *values], max_tokens=3, stream=stream, **{flag: True})
    assert "".join(sender.texts) == _recited(3)
    assert len(sender.responses) == (3 if stream else 1)  # pieces with further outputs are not joined
    for response in sender.responses:
        assert set(response.tensors) == {"text_output", *values}
        assert all((response.tensors[name] == value).all() for name, value in values.items())


def test_outputs_after_the_last_token_are_passed_on(bls: Bls, core: FakeCore) -> None:
    core.trailing_outputs = _METRICS
    sender = bls.ask(["text_output", *_METRICS], max_tokens=3, stream=True, return_perf_metrics=True)
    assert "".join(sender.texts) == _recited(3)
    assert [name in sender.responses[-1].tensors for name in _METRICS] == [True, True]


@pytest.mark.parametrize("stream", [True, False])
def test_only_requested_outputs_are_requested_from_the_core_and_sent(bls: Bls, core: FakeCore, stream: bool) -> None:
    core.more = lambda tokens: {**_METRICS, **_LOGS}
    flags = {"return_perf_metrics": True, "return_log_probs": True, "return_num_output_tokens": True}
    sender = bls.ask(["cum_log_probs"], max_tokens=3, stream=stream, **flags)
    assert {name for response in sender.responses for name in response.tensors} == {"cum_log_probs"}
    assert core.requests[0]["outputs"] == ["output_ids", "cum_log_probs"]


@pytest.mark.parametrize("stream", [True, False])
def test_cancellation_by_the_client_ends_generation(bls: Bls, core: FakeCore, stream: bool) -> None:
    core._token_s = 0.005
    sender = bls.send(request_of(max_tokens=2000, stream=stream))
    time.sleep(0.1)
    sender.cancelled = True
    assert sender.ended.wait(120)
    assert core.generated < 1500
    assert not sender.queried_too_late


def test_a_check_that_fails_ends_no_later_check(bls: Bls, core: FakeCore, monkeypatch: pytest.MonkeyPatch) -> None:
    core._token_s = 0.005
    failed = threading.Event()

    def fail(running: Any) -> bool:
        monkeypatch.undo()
        failed.set()
        raise RuntimeError("shared memory is full")

    monkeypatch.setattr(bls.model, "_stop_abandoned", fail)
    sender = bls.send(request_of(max_tokens=4000, stream=True))
    assert failed.wait(120)
    sender.cancelled = True
    assert sender.ended.wait(120)
    assert core.generated < 3500


def test_hundreds_of_simultaneous_cancellations_end_all_generation(bls: Bls, core: FakeCore) -> None:
    core._token_s = 0.05  # 4,000 tokens would take 200 s
    senders = [bls.send(request_of(max_tokens=4000, stream=number % 2 == 0)) for number in range(300)]  # more than threads
    time.sleep(0.2)
    for sender in senders:
        sender.cancelled = True
    assert all(sender.ended.wait(120) for sender in senders)
    assert not any(sender.queried_too_late for sender in senders)
    assert len(core.requests) < 300  # requests that waited for a thread never reached the core model


def test_300_requests_at_once_are_all_answered(bls: Bls, core: FakeCore) -> None:
    core._token_s = 0.001
    senders = [bls.send(request_of(max_tokens=8, stream=number % 2 == 0)) for number in range(300)]
    for sender in senders:
        assert sender.ended.wait(120)
        assert "".join(sender.texts) == _recited(8)


@pytest.mark.parametrize("stream", [True, False])
def test_core_model_error_keeps_its_message_and_code(bls: Bls, core: FakeCore, stream: bool) -> None:
    core.fail_after = 3 if stream else 0
    sender = bls.ask(max_tokens=9, stream=stream)
    assert (sender.error.message, sender.error.code) == ("the engine broke", 13)
    assert sender.finals == 1
    assert core.requests[0]["id"] in core.stopped  # otherwise the other rows of a batch would continue


def test_internal_error_becomes_a_message(bls: Bls, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(bls.model, "_answer_whole", broken)
    error = bls.ask().error
    assert error.message == "server error: the BLS model failed: division by zero"
    assert error.code == "internal"


def test_error_on_the_sending_thread_ends_one_reply_only(bls: Bls, core: FakeCore, monkeypatch: pytest.MonkeyPatch) -> None:
    from serving.models.bls import reply as bls_reply

    core._token_s = 0.002
    real = bls_reply.texts
    monkeypatch.setattr(bls_reply, "texts", lambda values: 1 / 0)
    failed = bls.ask(max_tokens=4000, stream=True)
    assert failed.error.message == "server error: the BLS model failed: division by zero"
    monkeypatch.setattr(bls_reply, "texts", real)
    assert "".join(bls.ask(max_tokens=5, stream=True).texts) == _recited(5)
    assert core.generated < 3000


_UNSUPPORTED = {
    "image_input": np.zeros((1, 1, 3, 1, 1), np.float16),
    "image_bytes_input": np.zeros((1, 1, 1, 1, 1), np.uint8),
    "image_url_input": ["u"],
    "image_sizes_input": np.zeros((1, 1, 2), np.int64),
    "video_bytes_input": np.zeros((1, 1, 1, 1, 1), np.uint8),
    "decoder_text_input": ["d"],
    "prompt_table_extra_id": np.uint64([[1]]),
}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        *[({name: value}, f"{name}: the embedded pipeline") for name, value in _UNSUPPORTED.items()],
        ({"prompt": ""}, "the prompt is empty"),
        ({"text_input": None}, "text_input is missing"),
        ({"max_tokens": None}, "max_tokens is missing"),
        ({"stream": True, "beam_width": 2}, "stream: not supported with a beam_width of 2"),
        ({"num_draft_tokens": 3}, "tensorrt_llm_draft_model_name of tensorrt_llm_bls is not set"),
        ({"use_draft_logits": True}, "use_draft_logits needs num_draft_tokens"),
        ({"num_draft_tokens": -1}, "num_draft_tokens must be at least 1, not -1"),
        ({"prompt": ["a", "b"], "beam_width": np.int32([[1], [2]])}, "beam_width must be the same in every row"),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(value),
)
def test_invalid_request_is_rejected_with_a_message(bls: Bls, inputs: dict[str, Any], message: str) -> None:
    error = bls.ask(**inputs).error
    assert message in error.message
    assert "Traceback" not in error.message
    assert bls.cores["tensorrt_llm"].requests == []


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"stream": True}, "Streaming is only supported if model is deployed using decoupled mode."),
        ({"prompt": ["a", "b"]}, "decoupled mode"),
        ({"num_return_sequences": 2}, "decoupled mode"),
    ],
    ids=["stream", "batch", "sequences"],
)
def test_several_responses_need_a_decoupled_model(backend: ModuleType, core: FakeCore, inputs: Any, message: str) -> None:
    bls = Bls(backend, {"tensorrt_llm": core}, decoupled=False)
    assert message in bls.ask(**inputs).error.message
    sender: Sender = bls.ask(max_tokens=40, stop_words=["queen"])
    assert sender.texts == [_SENTENCE[: _SENTENCE.index("queen")]]
    bls.model.finalize()

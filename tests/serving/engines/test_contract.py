"""Contract of all engines: OpenVINO's with the real library, TensorRT-LLM's and vLLM's with fake ones.

`make test-vllm` runs it with the real vLLM.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from serving.engines import ENGINE_NAMES, open_engine
from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.engines.protocol import Engine, EngineOptions, FinishReason, Increment, Sampling
from serving.errors import EngineError
from tests.serving.engines import fake_tensorrt_llm
from tests.serving.engines.vllm_python import ARGUMENTS, checkpoint, vllm_python

_WAIT_S = 60.0
_PROMPT = list(range(10, 40))
_IDS = itertools.count(1)
_CACHE_TOKENS = 131_071  # of vLLM: less than the default, for which it takes what the memory holds


def _open(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    if name == "vllm":
        options = EngineOptions(_CACHE_TOKENS, engine_python=vllm_python(folder), engine_arg=ARGUMENTS)
        return open_engine(name, checkpoint(folder), options)
    return open_engine(name, _engine_dir(name, folder, monkeypatch), EngineOptions())


def _engine_dir(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if name == "openvino":
        return DEMO_ENGINE_DIR
    for module, fake in fake_tensorrt_llm.modules().items():
        monkeypatch.setitem(sys.modules, module, fake)
    (folder / "config.json").write_text(json.dumps({"vocab_size": 3072, "max_position_embeddings": 4096}))
    return folder


@pytest.fixture(params=ENGINE_NAMES, scope="module")
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        opened = _open(request.param, tmp_path_factory.mktemp("engine"), monkeypatch)
        yield opened
        opened.close()


@pytest.fixture(params=ENGINE_NAMES)
def own_engine(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """An engine that the test may close."""
    opened = _open(request.param, tmp_path, monkeypatch)
    yield opened
    opened.close()


class _Answer:
    def __init__(self) -> None:
        self.increments: list[Increment] = []
        self.first = threading.Event()
        self._ended = threading.Event()

    def deliver(self, increment: Increment) -> None:
        self.increments.append(increment)
        self.first.set()
        if increment.is_last:
            self._ended.set()

    def last(self) -> Increment:
        assert self._ended.wait(_WAIT_S)
        return next(increment for increment in self.increments if increment.is_last)

    def tokens(self) -> list[int]:
        assert self.last().error is None
        return [token for increment in self.increments for token in increment.token_ids]


def _submit(engine: Engine, prompt: Sequence[int], sampling: Sampling, streaming: bool = False) -> tuple[int, _Answer]:
    answer, request_id = _Answer(), next(_IDS)
    engine.submit(request_id, prompt, sampling, answer.deliver, streaming=streaming)
    return request_id, answer


@pytest.mark.parametrize("streaming", [True, False])
def test_exactly_one_increment_is_the_last_and_comes_last(engine: Engine, streaming: bool) -> None:
    answers = [_submit(engine, _PROMPT[k:], Sampling(5 + k), streaming)[1] for k in range(8)]
    for asked, answer in enumerate(answers, 5):
        assert len(answer.tokens()) == asked
        assert answer.last().finish is FinishReason.LENGTH
    time.sleep(0.1)  # time for any further increment to arrive
    for answer in answers:
        assert [increment.is_last for increment in answer.increments] == [False] * (len(answer.increments) - 1) + [True]


def test_streamed_increments_join_to_the_single_unstreamed_one(engine: Engine) -> None:
    whole = _submit(engine, _PROMPT, Sampling(30))[1]
    streamed = _submit(engine, _PROMPT, Sampling(30), streaming=True)[1]
    assert streamed.tokens() == whole.tokens()
    assert len(whole.increments) == 1
    assert len(streamed.increments) > 5


def test_prompt_is_not_echoed_and_tokens_are_in_the_vocabulary(engine: Engine) -> None:
    tokens = _submit(engine, _PROMPT, Sampling(12))[1].tokens()
    assert len(tokens) == 12
    assert all(0 <= token < engine.limits.vocabulary_size for token in tokens)


def test_end_token_ends_the_sequence_but_not_before_min_tokens(engine: Engine) -> None:
    free = _submit(engine, _PROMPT, Sampling(20))[1].tokens()
    end = free[7]
    answer = _submit(engine, _PROMPT, Sampling(20, end_id=end))[1]
    assert answer.last().finish is FinishReason.STOP
    assert answer.tokens() in (free[: free.index(end) + 1], free[: free.index(end)])
    assert len(_submit(engine, _PROMPT, Sampling(20, end_id=free[0], min_tokens=6))[1].tokens()) >= 6


@pytest.mark.parametrize("streaming", [True, False])
def test_cancelled_request_ends_and_others_continue(engine: Engine, streaming: bool) -> None:
    _, neighbour = _submit(engine, _PROMPT, Sampling(100), streaming=True)
    request_id, cancelled = _submit(engine, _PROMPT, Sampling(3000), streaming)
    assert neighbour.first.wait(_WAIT_S)
    engine.cancel(request_id)
    engine.cancel(request_id)
    assert cancelled.last().finish is FinishReason.CANCELLED
    assert len(cancelled.tokens()) < 3000
    assert len(neighbour.tokens()) == 100


def test_immediate_cancellation_ends_the_request(engine: Engine) -> None:
    request_id, answer = _submit(engine, _PROMPT, Sampling(3000))
    engine.cancel(request_id)
    assert answer.last().finish is FinishReason.CANCELLED


def test_cancelling_unknown_or_ended_requests_has_no_effect(engine: Engine) -> None:
    request_id, answer = _submit(engine, _PROMPT, Sampling(2))
    answer.last()
    engine.cancel(request_id)
    engine.cancel(10**12)
    assert len(_submit(engine, _PROMPT, Sampling(3))[1].tokens()) == 3
    assert len(answer.increments) == 1


def test_rejected_request_ends_with_an_error_and_others_continue(engine: Engine) -> None:
    refused = _submit(engine, [], Sampling(4))[1]
    other = _submit(engine, _PROMPT, Sampling(4))[1]
    assert "rejected the request" in (refused.last().error or "")
    assert len(refused.increments) == 1
    assert len(other.tokens()) == 4


def test_stats_count_tokens_and_iterations_and_become_idle(engine: Engine) -> None:
    before = engine.stats()
    answers = [_submit(engine, _PROMPT, Sampling(200), k % 2 == 0)[1] for k in range(8)]
    deadline = time.monotonic() + _WAIT_S
    while not 1 <= engine.stats().active_requests <= 8:  # updated periodically
        assert time.monotonic() < deadline
        time.sleep(0.005)
    for answer in answers:
        answer.tokens()
    while engine.stats().iterations_total < before.iterations_total + 200 or engine.stats().active_requests:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    after = engine.stats()
    assert after.generated_tokens_total - before.generated_tokens_total == 8 * 200
    assert after.prompt_tokens_total - before.prompt_tokens_total == 8 * len(_PROMPT)
    assert after.scheduled_requests_total > before.scheduled_requests_total
    assert (after.scheduled_requests, after.kv_cache_used_fraction) == (0, 0.0)
    assert (after.max_requests, after.kv_cache_blocks, after.kv_cache_tokens_per_block) == (256, 4096, 32)


@pytest.mark.parametrize("streaming", [True, False])
def test_closing_ends_requests_in_flight_and_later_ones(own_engine: Engine, streaming: bool) -> None:
    first = _submit(own_engine, _PROMPT, Sampling(3000), streaming=True)[1]
    others = [_submit(own_engine, _PROMPT, Sampling(3000), streaming)[1] for _ in range(3)]
    assert first.first.wait(_WAIT_S)
    just_before = _submit(own_engine, _PROMPT, Sampling(3000))[1]
    own_engine.close()
    own_engine.close()
    late = _submit(own_engine, _PROMPT, Sampling(4))[1]
    own_engine.cancel(1)
    for answer in (first, *others, just_before, late):
        assert answer.last().error == "the engine was closed before this request ended"
        assert sum(increment.is_last for increment in answer.increments) == 1


@pytest.mark.parametrize("own_engine", ["openvino", "vllm"], indirect=True)
def test_an_emptied_prefix_cache_reuses_nothing_of_before(own_engine: Engine) -> None:
    prompt = list(range(100, 196))
    _, first = _submit(own_engine, prompt, Sampling(2))
    tokens = first.tokens()
    _, running = _submit(own_engine, prompt, Sampling(200), streaming=True)
    assert running.first.wait(_WAIT_S)
    with pytest.raises(EngineError, match="1 requests are in flight"):
        own_engine.reset_prefix_cache()
    running.last()
    before = own_engine.stats()
    assert before.kv_reused_blocks_total > 0
    own_engine.reset_prefix_cache()
    _, again = _submit(own_engine, prompt, Sampling(2))
    assert again.tokens() == tokens
    after = own_engine.stats()
    assert after.kv_reused_blocks_total == before.kv_reused_blocks_total
    assert after.kv_prompt_blocks_total > before.kv_prompt_blocks_total


@pytest.mark.parametrize("own_engine", ["tensorrt_llm"], indirect=True)
def test_an_engine_that_cannot_empty_its_cache_has_a_reason(own_engine: Engine) -> None:
    with pytest.raises(EngineError, match="no call that empties the prefix cache"):
        own_engine.reset_prefix_cache()


@pytest.mark.parametrize("own_engine", ["openvino", "vllm"], indirect=True)
def test_a_closed_engine_is_not_waited_for(own_engine: Engine) -> None:
    own_engine.close()
    with pytest.raises(EngineError):
        own_engine.reset_prefix_cache()

"""The parts of a request's time that a server measures, beside the client's whole: which are shown, and their means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from bench_records.record import Outcome, Record
from reports.metrics.configuration import ConfiguredTarget
from reports.metrics.model_statistics import ModelWork
from reports.metrics.phases import ENGINE_E2E, ENGINE_TTFT, Phase, phases
from reports.metrics.requests import Requests
from reports.metrics.server_load import EngineTimes, ServerLoad

Make = Callable[..., Record]
MakeRequests = Callable[[Sequence[Record]], Requests]

_WORK = ModelWork("core", succeeded=2, failed=0, executions=2, queue_ms=5.0, compute_ms=40.0, request_ms=50.0)
_TARGET = ConfiguredTarget("core", "grpc", streaming=True, embedded=False, address=None)
_TIMES = EngineTimes(requests=2.0, queue_ms=6.0, ttft_ms=20.0, e2e_ms=44.0)


def _server(*works: ModelWork, times: EngineTimes = _TIMES) -> ServerLoad:
    unknown = dict.fromkeys(
        (
            "active_requests", "scheduled_requests", "waiting_requests", "batch_limit", "kv_cache_used_fraction",
            "gpu_utilization", "cpu_utilization", "metrics_requests", "finished_requests", "generated_tokens", "prompt_tokens",
            "cache_reuse",
        )
    )  # fmt: skip
    return ServerLoad(readings=2, until_end=True, times=times, models=works, **unknown)  # type: ignore[arg-type]


@pytest.fixture
def two(make_requests: MakeRequests, answered: Make) -> Requests:
    """Two requests sent 5 ms late: first tokens 30 ms after the send, last ones 50 ms, ends 60 ms, on average."""
    return make_requests(
        [
            answered(0, 0, 5, [(25, 1), (50, 1)], done=60),
            answered(1, 10, 15, [(55, 1), (70, 1)], done=80),
        ]
    )


def _by_name(found: tuple[Phase, ...]) -> dict[str, Phase]:
    return {phase.name: phase for phase in found}


def test_the_wait_in_the_engine_s_queue_is_a_part_of_the_time_to_the_first_token(two: Requests) -> None:
    queue = _by_name(phases(two, _server(_WORK), _TARGET))["Queue, by the engine"]
    assert (queue.server_ms, queue.client_ms, queue.whole_ms) == (6.0, None, 30.0)


def test_all_phases_in_the_order_in_which_a_request_meets_the_clocks(two: Requests) -> None:
    assert phases(two, _server(_WORK), _TARGET) == (
        Phase("Queue and compute, by Triton", 45.0, None, 60.0),
        Phase("Whole, by Triton", 50.0, 60.0, 60.0),
        Phase("Queue, by the engine", 6.0, None, 30.0),
        Phase("TTFT, by the engine", 20.0, 30.0, 30.0),
        Phase("E2E, by the engine", 44.0, 50.0, 50.0),
    )


def test_triton_s_time_that_ends_with_the_first_token_is_a_whole_and_a_shorter_one_is_not(two: Requests) -> None:
    equal, shorter = (_by_name(phases(two, _server(replace(_WORK, request_ms=ms)), _TARGET)) for ms in (20.0, 19.0))
    assert "Whole, by Triton" in equal
    assert "Whole, by Triton" not in shorter
    assert shorter["Taking it in, by Triton"] == Phase("Taking it in, by Triton", 19.0, None, 60.0)


@pytest.mark.parametrize("unknown", ["queue_ms", "compute_ms"])
def test_a_sum_of_which_a_part_is_unknown_is_unknown(two: Requests, unknown: str) -> None:
    found = _by_name(phases(two, _server(replace(_WORK, **{unknown: None})), _TARGET))  # type: ignore[arg-type]
    assert "Queue and compute, by Triton" not in found
    assert "Whole, by Triton" in found


def test_an_answer_without_tokens_leaves_the_mean_time_to_the_first_token_unknown(
    make_requests: MakeRequests, answered: Make
) -> None:
    requests = make_requests([answered(0, 0, 0, [(25, 1)], done=60), answered(1, 10, 10, [], done=40)])
    found = _by_name(phases(requests, _server(_WORK), _TARGET))
    assert ENGINE_TTFT not in found
    assert found["Whole, by Triton"].client_ms == 45.0


def test_an_engine_that_counted_other_requests_is_not_compared(two: Requests) -> None:
    assert phases(two, _server(_WORK, times=replace(_TIMES, requests=3.0)), _TARGET) == ()
    assert phases(two, _server(replace(_WORK, succeeded=3)), _TARGET) == ()
    assert phases(two, _server(times=replace(_TIMES, requests=None)), _TARGET) == ()
    assert phases(two, None, _TARGET) == ()


def test_other_models_may_have_other_requests(two: Requests) -> None:
    other = replace(_WORK, name="other", succeeded=5, request_ms=1.0)
    assert phases(two, _server(other, _WORK), _TARGET) == phases(two, _server(_WORK), _TARGET)


def test_an_engine_without_triton_s_statistics_has_its_own_phases(two: Requests) -> None:
    for server in (_server(), _server(replace(_WORK, request_ms=None))):
        assert list(_by_name(phases(two, server, _TARGET))) == ["Queue, by the engine", ENGINE_TTFT, ENGINE_E2E]


def test_a_failure_that_the_server_counts_as_a_success_is_not_compared(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    requests = make_requests([answered(0, 0, 0, [(25, 1)]), failed(1, 0, Outcome.TIMEOUT, 0, 90, token_times_ns=(50_000_000,))])
    assert phases(requests, _server(_WORK), _TARGET) == ()


def test_the_whole_of_an_unstreamed_answer_is_held_against_the_engine_s_whole_and_not_against_its_first_token(
    make_requests: MakeRequests, answered: Make
) -> None:
    requests = make_requests([answered(k, 0, 0, [(100, 20)]) for k in range(2)])
    unstreamed = replace(_TARGET, streaming=False)
    found = _by_name(phases(requests, _server(times=replace(_TIMES, ttft_ms=18.0, e2e_ms=97.0)), unstreamed))
    assert found[ENGINE_TTFT] == Phase(ENGINE_TTFT, 18.0, None, 100.0)
    assert found[ENGINE_E2E].unexplained_ms == 3.0
    assert ENGINE_E2E not in _by_name(phases(requests, _server(times=replace(_TIMES, e2e_ms=None)), unstreamed))


@pytest.mark.parametrize(("whole", "client_ms"), [(0, 10.0), (2, 55.0), (3, None), (4, None)])
def test_the_engine_s_first_token_is_not_compared_with_answers_that_a_proxy_sends_on_whole(
    make_requests: MakeRequests, answered: Make, whole: int, client_ms: float | None
) -> None:
    """Four streamed answers: ``whole`` come in one response after 100 ms, the others begin after 10 ms."""
    requests = make_requests([answered(k, 0, 0, [(100, 20)] if k < whole else [(10, 1), (100, 19)]) for k in range(4)])
    server = _server(times=EngineTimes(requests=4.0, queue_ms=None, ttft_ms=9.0, e2e_ms=97.0))
    found = _by_name(phases(requests, server, _TARGET))
    assert found[ENGINE_TTFT].client_ms == client_ms
    assert found[ENGINE_E2E].unexplained_ms == 3.0


def test_answers_of_one_token_come_in_one_response(make_requests: MakeRequests, answered: Make) -> None:
    requests = make_requests([answered(k, 0, 0, [(10, 1)]) for k in range(2)])
    found = _by_name(phases(requests, _server(times=replace(_TIMES, ttft_ms=9.0)), _TARGET))
    assert found[ENGINE_TTFT].unexplained_ms == 1.0


def test_two_tokens_in_one_response_did_not_come_in_pieces(make_requests: MakeRequests, answered: Make) -> None:
    requests = make_requests([answered(k, 0, 0, [(10, 2)]) for k in range(2)])
    found = _by_name(phases(requests, _server(times=replace(_TIMES, ttft_ms=9.0)), _TARGET))
    assert found[ENGINE_TTFT] == Phase(ENGINE_TTFT, 9.0, None, 10.0)


def test_prefill_and_decode_are_parts_of_the_whole_exchange(two: Requests) -> None:
    found = _by_name(phases(two, _server(times=replace(_TIMES, prefill_ms=12.0, decode_ms=25.0)), _TARGET))
    assert list(found) == [
        "Queue, by the engine", "Prefill, by the engine", ENGINE_TTFT, "Decode, by the engine", ENGINE_E2E,
    ]  # fmt: skip
    assert found["Prefill, by the engine"] == Phase("Prefill, by the engine", 12.0, None, 60.0)
    assert found["Decode, by the engine"] == Phase("Decode, by the engine", 25.0, None, 60.0)

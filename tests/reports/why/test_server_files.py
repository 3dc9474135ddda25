"""Times that a server wrote to a file: read, and joined with the requests of a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from bench_records.record import Record
from reports.errors import ServerTimesError
from reports.metrics.requests import Requests
from reports.why.joined_times import Stamps, joined
from reports.why.server_files import of_perf_metrics, of_triton_trace, read_server_times

Make = Callable[..., Record]
MakeRequests = Callable[[Sequence[Record]], Requests]

_RECORDED = (
    Path(__file__).parent / "triton_trace.json"
)  # of the embedded pipeline: a warm-up, a request, and one to the ensemble
_START_NS = 50_000_000_000_000


def _ns(ms: float) -> int:
    return round(ms * 1e6)


def _stamps(sent: float, *, way: float = 3.0, queue: float = 20.0, prefill: float = 40.0, decode: float = 30.0) -> Stamps:
    arrival = _START_NS + _ns(sent + way)
    return Stamps(arrival, arrival + _ns(queue), arrival + _ns(queue + prefill), arrival + _ns(queue + prefill + decode))


def _answered(make: Make, index: int, sent: float, *, queue: float = 20.0) -> Record:
    """3 ms on the way to the server, 2 ms on the way back."""
    first = sent + 3 + queue + 40 + 2
    return make(index, sent, sent, [(first, 1), (first + 30, 1)])


def test_a_recorded_trace_of_triton_has_the_times_of_the_core_model() -> None:
    warm_up, sent = read_server_times(_RECORDED, "tensorrt_llm")
    assert (warm_up.name, sent.name) == ("0", "0")
    assert sent == Stamps(43512126022250, 43512126137621, 43512133935688, 43512140564694, "0")
    [text] = read_server_times(_RECORDED, "ensemble")
    assert text == Stamps(43516863021526, 43516864115435, 43516927499014, 43516942947268, "5")


def test_an_answer_of_perf_metrics_has_the_stamps_of_the_engine() -> None:
    """A sample written from the documented schema of trtllm-serve; not recorded from a server."""
    timing = {
        "server_arrival_time": 812.001,
        "arrival_time": 812.004,
        "first_scheduled_time": 812.024,
        "first_token_time": 812.064,
        "server_first_token_time": 812.065,
        "last_token_time": 812.364,
    }
    entry = {
        "request_id": 7,
        "perf_metrics": {"first_iter": 3, "last_iter": 12, "timing_metrics": timing, "kv_cache_metrics": {}},
    }
    others = [
        {"perf_metrics": {"timing_metrics": timing | {"first_token_time": None}}},
        {"perf_metrics": {"timing_metrics": timing | {"first_token_time": 811.0}}},
        {"perf_metrics": {"timing_metrics": timing | {"last_token_time": 1e300}}},
        {"perf_metrics": {"timing_metrics": timing | {"arrival_time": -1e300}}},
        {"perf_metrics": {}},
        7,
    ]
    found = of_perf_metrics([msgspec.Raw(json.dumps(each).encode()) for each in (*others, entry)])
    assert found == (Stamps(812_004_000_000, 812_024_000_000, 812_064_000_000, 812_364_000_000),)


def test_an_answer_of_perf_metrics_may_be_of_a_host_that_has_run_for_a_year() -> None:
    year_s = 365 * 86_400.0
    names = ("arrival_time", "first_scheduled_time", "first_token_time", "last_token_time")
    timing = {name: year_s + k for k, name in enumerate(names)}
    year_ns = round(year_s * 1e9)
    assert of_perf_metrics([{"perf_metrics": {"timing_metrics": timing}}]) == (
        Stamps(year_ns, year_ns + 10**9, year_ns + 2 * 10**9, year_ns + 3 * 10**9),
    )


@pytest.mark.parametrize(
    "entries",
    [
        [{"id": "x"}, {"id": 1, "model_name": "m"}, {"id": 1, "timestamps": [None, {"name": "QUEUE_START"}]}],
        [{"id": 1, "model_name": "m", "request_id": "0"}, {"id": 1, "timestamps": [{"name": "QUEUE_START", "ns": 5}]}],
    ],
)
def test_what_a_trace_lacks_is_left_out(entries: list[dict[str, Any]]) -> None:
    assert of_triton_trace(entries, "m") == ()


def test_a_request_is_joined_by_its_name_and_a_warm_up_of_that_name_is_not(make_requests: MakeRequests, answered: Make) -> None:
    requests = make_requests([_answered(answered, k, 1_000.0 * k) for k in range(3)])
    named = [Stamps(*_fields(_stamps(1_000.0 * k)), name=str(k)) for k in range(2)]
    warm_up, later = (Stamps(*_fields(_stamps(at, queue=1.0)), name="0") for at in (-5_000.0, 9_000.0))
    found = joined(requests, [later, *named, warm_up], _START_NS)
    assert found.server_queue_ns[:2].tolist() == [_ns(20), _ns(20)]
    assert (found.server_prefill_ns[0], found.server_decode_ns[0]) == (_ns(40), _ns(30))
    assert found.server_arrival_ns[0] == _START_NS + _ns(3)
    assert np.isnan(found.server_queue_ns[2])
    elsewhere = joined(requests, [*named, warm_up], None)  # on another clock the last one of a name counts
    assert elsewhere.server_queue_ns[0] == _ns(20)


def test_requests_without_a_name_are_joined_by_their_stamps(make_requests: MakeRequests, answered: Make) -> None:
    """They overlap, and the times come in another order; one of another client belongs to none."""
    queues = np.random.default_rng(5).exponential(60.0, 50).tolist()
    records = [_answered(answered, k, 37.0 * k, queue=queue) for k, queue in enumerate(queues)]
    times = [_stamps(37.0 * k, queue=queue) for k, queue in enumerate(queues)]
    times = [times[k] for k in np.random.default_rng(1).permutation(50)]
    found = joined(make_requests(records), [*times, _stamps(5_000.0)], _START_NS)
    assert found.server_queue_ns.tolist() == pytest.approx([_ns(queue) for queue in queues], abs=1.0)


@pytest.mark.parametrize("start_ns", [None, _START_NS + 10**15])
def test_stamps_of_another_clock_are_refused(make_requests: MakeRequests, answered: Make, start_ns: int | None) -> None:
    requests = make_requests([_answered(answered, 0, 0.0)])
    with pytest.raises(ServerTimesError, match="the server has another clock"):
        joined(requests, [_stamps(0.0)], start_ns)


@pytest.mark.parametrize(
    "write",
    [
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        lambda text: text.encode("utf-16"),
        lambda text: text.replace("{}", '{"hit": NaN}').encode(),
        lambda text: text.replace("{}", '{"text": "\\ud800"}').encode(),
    ],
    ids=["byte order mark", "UTF-16", "NaN", "lone surrogate"],
)
def test_json_of_other_writers_is_read(tmp_path: Path, write: Callable[[str], bytes]) -> None:
    timing = {"arrival_time": 1.0, "first_scheduled_time": 2.0, "first_token_time": 3.0, "last_token_time": 4.0}
    path = tmp_path / "file"
    path.write_bytes(write(json.dumps([{"perf_metrics": {"timing_metrics": timing, "kv_cache_metrics": {}}}])))
    assert read_server_times(path, "") == (Stamps(10**9, 2 * 10**9, 3 * 10**9, 4 * 10**9),)


_OTHERS = ("", "{}", "[]", "[1, {}]", '[{"id": 1, "model_name": "m"}]', '[{"id": 3, "timestamps": 5}]', "[" * 100_000)


@pytest.mark.parametrize("text", _OTHERS)
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(ServerTimesError):
        read_server_times(path, "m")


def _fields(stamps: Stamps) -> tuple[int, int, int, int]:
    return stamps.arrival_ns, stamps.started_ns, stamps.first_ns, stamps.last_ns

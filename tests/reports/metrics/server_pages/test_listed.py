"""Pages of servers, written from their documentation, through the parser to the numbers of the report."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench_records.server_table import MetricSample, read_server_table, write_server_table
from harness.observation.prometheus_text import ExpositionReader
from reports.metrics.engine_latencies import Between
from reports.metrics.requests import Requests
from reports.metrics.server_load import ServerLoad, server_load
from reports.metrics.server_pages.listed import PAGES, names_of
from reports.metrics.server_series import telemetry_of
from tests.reports.metrics.test_phases import _TARGET as TARGET

_SGLANG = """\
sglang:num_running_reqs{model_name="m"} 7.0
sglang:num_queue_reqs{model_name="m"} 3.0
sglang:token_usage{model_name="m"} 0.28
sglang:generation_tokens_total{model_name="m"} 200.0
sglang:prompt_tokens_total{model_name="m"} 1280.0
sglang:queue_time_seconds_sum{model_name="m"} 0.1
sglang:queue_time_seconds_count{model_name="m"} 10.0
sglang:time_to_first_token_seconds_sum{model_name="m"} 2.0
sglang:time_to_first_token_seconds_count{model_name="m"} 10.0
sglang:time_to_first_token_seconds_bucket{le="0.1",model_name="m"} 4.0
sglang:time_to_first_token_seconds_bucket{le="0.4",model_name="m"} 10.0
sglang:time_to_first_token_seconds_bucket{le="+Inf",model_name="m"} 10.0
sglang:e2e_request_latency_seconds_sum{model_name="m"} 5.0
sglang:e2e_request_latency_seconds_count{model_name="m"} 10.0
"""
_DYNAMO = """\
dynamo_frontend_inflight_requests{model="m"} 12
dynamo_frontend_queued_requests{model="m"} 5
dynamo_frontend_output_tokens_total{model="m"} 200
dynamo_frontend_input_sequence_tokens_sum{model="m"} 1280
dynamo_frontend_time_to_first_token_seconds_sum{model="m"} 2.0
dynamo_frontend_time_to_first_token_seconds_count{model="m"} 10
dynamo_frontend_time_to_first_token_seconds_bucket{model="m",le="0.1"} 4
dynamo_frontend_time_to_first_token_seconds_bucket{model="m",le="0.4"} 10
dynamo_frontend_time_to_first_token_seconds_bucket{model="m",le="+Inf"} 10
dynamo_frontend_request_duration_seconds_sum{model="m"} 5.0
dynamo_frontend_request_duration_seconds_count{model="m"} 10
"""
_TGI = """\
tgi_batch_current_size 7
tgi_queue_size 3
tgi_request_success{kind="stream"} 10
tgi_request_generated_tokens_sum 200
tgi_request_input_length_sum 1280
tgi_request_queue_duration_sum 0.1
tgi_request_queue_duration_count 10
tgi_request_duration_sum 5.0
tgi_request_duration_count 10
tgi_request_duration_bucket{le="0.4"} 4
tgi_request_duration_bucket{le="0.8"} 10
tgi_request_duration_bucket{le="+Inf"} 10
"""
_LLAMA_CPP = """\
llamacpp:requests_processing 7
llamacpp:requests_deferred 3
llamacpp:kv_cache_usage_ratio 0.28
llamacpp:tokens_predicted_total 200
llamacpp:prompt_tokens_total 1280
"""


def _samples(page: str) -> Iterator[MetricSample]:
    """The page at the end of a run, and before it with every number at 0."""
    reader = ExpositionReader()
    for time_ns, text in ((-1, re.sub(r" [0-9.]+$", " 0", page, flags=re.MULTILINE)), (10**9, page)):
        for (name, labels), value in reader.read(text):
            yield MetricSample(time_ns, 1, name, labels, value)


@pytest.fixture
def load_of(tmp_path: Path, make_requests, answered):  # type: ignore[no-untyped-def]
    requests: Requests = make_requests([answered(0, 0, 0, [(25, 1)], done=2_000)])

    def load(page: str) -> ServerLoad:
        write_server_table(_samples(page), tmp_path / "server.parquet")
        found = server_load(telemetry_of(read_server_table(tmp_path / "server.parquet")), requests, TARGET, ())
        assert found is not None
        return found

    return load


@pytest.mark.parametrize("page", [_SGLANG, _DYNAMO, _TGI, _LLAMA_CPP], ids=["SGLang", "Dynamo", "TGI", "llama.cpp"])
def test_tokens_and_requests_of_each_server(load_of, page: str) -> None:  # type: ignore[no-untyped-def]
    load = load_of(page)
    assert (load.generated_tokens, load.prompt_tokens) == (200.0, 1280.0)
    if page is _DYNAMO:
        assert (load.active_requests.mean, load.scheduled_requests, load.waiting_requests) == (12.0, None, None)
    else:
        assert (load.scheduled_requests.mean, load.waiting_requests.mean) == (7.0, 3.0)


def test_times_of_each_server(load_of) -> None:  # type: ignore[no-untyped-def]
    sglang, dynamo, tgi = (load_of(page) for page in (_SGLANG, _DYNAMO, _TGI))
    for load in (sglang, dynamo):
        assert (load.times.requests, load.times.ttft_ms, load.times.e2e_ms) == (10.0, 200.0, 500.0)
        assert load.latencies[0].p50 == Between(100.0, 400.0)
    assert (sglang.times.queue_ms, dynamo.times.queue_ms, tgi.times.queue_ms) == (10.0, None, 10.0)
    assert (tgi.times.ttft_ms, tgi.times.e2e_ms, tgi.finished_requests) == (None, 500.0, 10.0)
    (e2e,) = tgi.latencies
    assert (e2e.metric, e2e.p99) == ("e2e", Between(400.0, 800.0))


def test_the_share_of_the_kv_cache(load_of) -> None:  # type: ignore[no-untyped-def]
    assert load_of(_SGLANG).kv_cache_used_fraction.mean == load_of(_LLAMA_CPP).kv_cache_used_fraction.mean == 0.28


def test_each_name_is_kept_by_the_parser_and_belongs_to_one_page() -> None:
    parts = [field for field in PAGES[0].__dataclass_fields__ if field not in ("title", "source", "reuse")]
    names = [(part, name) for part in parts for name in names_of(part)]
    assert len(names) == len(set(names))
    for part, name in names:
        series = f"{name}_sum" if part in ("queue_time", "prefill_time", "decode_time", "ttft", "tpot", "itl", "e2e") else name
        assert list(ExpositionReader().read(f"{series} 1\n")), name
    for part in ("ttft", "tpot", "itl", "e2e"):
        for name in names_of(part):
            assert list(ExpositionReader().read(f'{name}_bucket{{le="1"}} 1\n')), name

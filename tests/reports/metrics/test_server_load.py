"""How the server fared, by its own numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench_records.manifest import Manifest, manifest_of
from bench_records.record import Outcome, Record
from bench_records.server_table import MetricSample, read_server_table, write_server_table
from reports.metrics.configuration import ConfiguredTarget
from reports.metrics.engine_latencies import EngineLatency
from reports.metrics.model_statistics import ModelWork, counted_requests, failed_requests, model_work
from reports.metrics.phases import Phase
from reports.metrics.requests import Requests
from reports.metrics.server_load import CacheReuse, EngineTimes, ServerLoad, Speculation, server_load
from reports.metrics.server_series import Level, telemetry_of
from reports.run_report import RunReport
from tests.reports.watched import metric, statistics

MakeReport = Callable[..., RunReport]
SteadyRun = Callable[..., list[Record]]

_BLOCKS = "nv_trt_llm_kv_cache_block_metrics"
_REQUESTS = "nv_trt_llm_request_metrics"


def _load(make_report: MakeReport, records: list[Record], server: list[MetricSample], **manifest: Any) -> ServerLoad:
    load = make_report(records, server=server, **manifest).server
    assert load is not None
    return load


def _of_server(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    return {"server_statistics": {"before": before, "after": after}}


def _changed(before: dict[str, Any], after: dict[str, Any]) -> Manifest:
    return manifest_of(_of_server(before, after))


# ---- Triton's statistics


def test_each_models_work_is_the_difference_of_its_statistics() -> None:
    found = model_work(
        _changed(statistics(core=(10, 2.0), idle=(5, 1.0)), statistics(core=(40, 5.0), idle=(5, 1.0), new=(4, 1.0)))
    )
    grown_ms = (40 * 5.0 - 10 * 2.0) / 30
    assert found == (
        ModelWork("core", 30, 0, 30, pytest.approx(grown_ms), pytest.approx(3 * grown_ms), pytest.approx(4 * grown_ms)),
        ModelWork("new", 4, 0, 4, pytest.approx(1.0), pytest.approx(3.0), pytest.approx(4.0)),
    )


def test_failed_requests_are_counted_and_have_no_times() -> None:
    after = statistics(core=(0, 0.0))
    after["core"]["fail"]["count"] = 3
    assert model_work(_changed(statistics(core=(0, 0.0)), after)) == (ModelWork("core", 0, 3, 0, None, None, None),)
    assert counted_requests(_changed(statistics(core=(0, 0.0)), after), "core") == 3


def test_failures_are_those_of_the_model_during_the_run() -> None:
    before, after = (statistics(core=(count, 1.0), pre=(count, 1.0)) for count in (4, 9))
    for model, failures in (("core", (2, 5)), ("pre", (1, 2))):
        before[model]["fail"]["count"], after[model]["fail"]["count"] = failures
    manifest = _changed(before, after)
    assert [(work.name, work.succeeded, work.failed) for work in model_work(manifest)] == [("core", 5, 3), ("pre", 5, 1)]
    assert [failed_requests(manifest, model) for model in ("core", "pre", "post")] == [3, 1, 0]
    assert [counted_requests(manifest, model) for model in ("core", "pre", "post")] == [8, 6, None]
    assert failed_requests(Manifest(), "core") == 0


def test_a_model_of_one_request_has_work() -> None:
    assert [work.succeeded for work in model_work(_changed(statistics(core=(4, 1.0)), statistics(core=(5, 1.0))))] == [1]


def test_a_count_of_failures_that_fell_is_of_a_server_that_began_anew() -> None:
    before, after = statistics(core=(4, 1.0)), statistics(core=(9, 1.0))
    before["core"]["fail"]["count"] = 1
    assert model_work(_changed(before, after)) == ()


def test_tokens_of_cancelled_answers_are_generated_tokens(make_report: MakeReport, steady_run: SteadyRun) -> None:
    of_answers = metric("nv_llm_output_token_len_sum", {-0.1: 10, 60: 310}, model="tensorrt_llm")
    of_engine = metric("inflight_bench_engine_generated_tokens", {-0.1: 10, 60: 350}, model="tensorrt_llm")
    for samples, expected in ((of_answers, 300.0), (of_answers + of_engine, 340.0)):
        server = make_report(steady_run(100), server=samples).server
        assert server is not None
        assert server.generated_tokens == expected


def test_a_time_that_fell_is_of_a_server_that_began_anew_and_counts_more_than_before() -> None:
    assert model_work(_changed(statistics(core=(50, 100.0)), statistics(core=(60, 2.0)))) == ()


def test_a_model_that_fell_at_one_of_two_servers_has_no_sum() -> None:
    anew = {"before": statistics(core=(500, 1.0), pre=(1, 1.0)), "after": statistics(core=(40, 1.0), pre=(2, 1.0))}
    other = {"before": statistics(core=(0, 1.0), pre=(1, 1.0)), "after": statistics(core=(600, 1.0), pre=(3, 1.0))}
    both = {"before": statistics(core=(500, 1.0), pre=(2, 1.0)), "after": statistics(core=(640, 1.0), pre=(5, 1.0))}
    targets = [{"address": address, "server_statistics": known} for address, known in (("a:1", anew), ("b:1", other))]
    found = model_work(manifest_of({"targets": targets, "server_statistics": both}))
    assert [(work.name, work.succeeded) for work in found] == [("pre", 3)]


@pytest.mark.parametrize(
    "known",
    [
        None,
        {"before": None, "after": statistics(core=(9, 1.0))},
        {"before": statistics(core=(9, 1.0)), "after": None},
        {"before": statistics(pre=(9, 1.0)), "after": statistics(core=(9, 1.0))},
        {"before": statistics(core=(9, 1.0)), "after": statistics(pre=(9, 1.0))},
    ],
)
def test_a_server_whose_count_of_a_model_is_not_known_on_both_sides_does_not_take_the_sum_away(known: Any) -> None:
    both = {"before": statistics(core=(0, 1.0)), "after": statistics(core=(30, 1.0))}
    manifest = manifest_of({"targets": [{"address": "a:1", "server_statistics": known}], "server_statistics": both})
    assert [(work.name, work.succeeded) for work in model_work(manifest)] == [("core", 30)]


def test_a_model_that_is_known_on_one_side_alone_has_no_count() -> None:
    one, other = statistics(core=(4, 1.0)), statistics(other=(9, 1.0))
    both = one | other
    assert counted_requests(_changed(one, both), "other") is None
    assert counted_requests(_changed(both, one), "other") is None
    assert counted_requests(_changed(both, both), "other") == 0


@pytest.mark.parametrize("known", [None, {}, {"before": statistics(core=(1, 1.0)), "after": None}])
def test_unknown_statistics_are_no_work(known: Any) -> None:
    manifest = manifest_of({"server_statistics": known})
    assert model_work(manifest) == ()
    assert counted_requests(manifest, "core") is None


def test_a_server_that_began_anew_has_counted_less_than_nothing() -> None:
    manifest = _changed(statistics(core=(10, 1.0)), statistics(core=(4, 1.0)))
    assert model_work(manifest) == ()
    assert counted_requests(manifest, "core") == -6


# ---- the metrics of different servers


def test_without_telemetry_there_is_no_server(make_report: MakeReport, steady_run: SteadyRun) -> None:
    assert make_report(steady_run(5)).server is None


def test_triton_with_tensorrt_llm(make_report: MakeReport, steady_run: SteadyRun) -> None:
    core = {"model": "tensorrt_llm", "version": "1"}
    samples = (
        metric(_REQUESTS, {0.1: 4, 0.6: 8}, request_type="active", **core)
        + metric(_REQUESTS, {0.1: 3, 0.6: 5}, request_type="scheduled", **core)
        + metric(_REQUESTS, {0.1: 1, 0.6: 3}, request_type="waiting", **core)
        + metric(_REQUESTS, {0.1: 64, 0.6: 64}, request_type="max", **core)
        + metric(_REQUESTS, {0.1: 90, 0.6: 90}, request_type="active", model="tensorrt_llm_draft", version="1")
        + metric(_BLOCKS, {0.1: 10, 0.6: 30}, kv_cache_block_type="used", **core)
        + metric(_BLOCKS, {0.1: 100, 0.6: 100}, kv_cache_block_type="max", **core)
        + metric(_BLOCKS, {0.1: 64, 0.6: 64}, kv_cache_block_type="tokens_per", **core)
        + metric(_BLOCKS, {-0.1: 5, 0.6: 10}, kv_cache_block_type="reused", **core)
        + metric("nv_llm_input_token_len_sum", {-0.1: 100, 0.6: 1700}, response_metric_type="total_input_tokens", **core)
        + metric("nv_llm_output_token_len_sum", {-0.1: 10, 0.6: 310}, response_metric_type="total_output_tokens", **core)
        + metric("nv_gpu_utilization", {0.1: 0.5, 0.6: 0.7}, gpu_uuid="a")
        + metric("nv_gpu_utilization", {0.1: 0.9, 0.6: 0.9}, gpu_uuid="b")
        + metric("nv_inference_request_success", {-0.1: 7, 0.6: 107}, model="ensemble", version="1")
        + metric("nv_inference_request_failure", {-0.1: 0, 0.6: 2}, model="ensemble", reason="OTHER", version="1")
        + metric("nv_inference_request_failure", {-0.1: 0, 0.6: 1}, model="ensemble", reason="REJECTED", version="1")
    )
    load = _load(make_report, steady_run(100), samples, target={"model": "ensemble", "streaming": True})
    assert load.active_requests == Level(6.0, 8.0, 2)
    assert load.scheduled_requests == Level(4.0, 5.0, 2)
    assert load.waiting_requests == Level(2.0, 3.0, 2)
    assert load.batch_limit == 64
    assert load.kv_cache_used_fraction == Level(0.2, 0.3, 2)
    assert load.gpu_utilization == Level(pytest.approx(0.75), pytest.approx(0.8), 2)  # type: ignore[arg-type]
    assert (load.prompt_tokens, load.generated_tokens) == (1600.0, 300.0)
    assert load.cache_reuse == CacheReuse(5 * 64, 1600.0, "tokens")
    assert load.metrics_requests == 103.0
    assert load.cpu_utilization is None
    assert load.models == ()


def test_our_engine_exports_its_times_and_the_blocks_of_prompts(
    make_report: MakeReport, steady_run: SteadyRun, failed: Callable[..., Record]
) -> None:
    core = {"model": "tensorrt_llm", "version": "1"}
    samples = (
        metric(_REQUESTS, {0.1: 4}, request_type="active", **core)
        + metric("inflight_bench_engine_kv_reused_blocks", {-0.1: 2, 1: 12}, **core)
        + metric("inflight_bench_engine_kv_prompt_blocks", {-0.1: 10, 1: 50}, **core)
        + metric("inflight_bench_time_to_first_token_seconds_sum", {-0.1: 1, 1: 3}, **core)
        + metric("inflight_bench_time_to_first_token_seconds_count", {-0.1: 10, 1: 110}, **core)
        + metric("inflight_bench_inter_token_latency_seconds_sum", {-0.1: 1, 1: 9}, **core)
        + metric("inflight_bench_queue_time_seconds_sum", {-0.1: 0, 1: 0.5}, **core)
        + metric("inflight_bench_queue_time_seconds_count", {-0.1: 0, 1: 100}, **core)
    )
    load = _load(make_report, steady_run(100), samples)
    assert load.cache_reuse is not None
    assert (load.cache_reuse.share, load.cache_reuse.unit) == (0.25, "blocks")
    assert (load.times.requests, load.times.queue_ms, load.times.ttft_ms) == (100.0, 5.0, 20.0)
    assert load.times.e2e_ms == pytest.approx(100.0)
    unstreamed = _load(make_report, steady_run(100), samples, target={"model": "tensorrt_llm", "streaming": False})
    assert unstreamed.times.e2e_ms is None  # the gaps are not exported
    cut = _load(make_report, [*steady_run(99), failed(99, 990, Outcome.TIMEOUT, 990, 1000)], samples)
    assert (cut.times.ttft_ms, cut.times.e2e_ms) == (20.0, None)  # the sum of the gaps has those of the answer that was cut off


def test_vllm(make_report: MakeReport, steady_run: SteadyRun) -> None:
    samples = (
        metric("vllm:num_requests_running", {0.1: 4, 0.6: 6}, engine="0", model_name="llama")
        + metric("vllm:num_requests_running", {0.1: 1, 0.6: 1}, engine="1", model_name="llama")
        + metric("vllm:num_requests_waiting", {0.1: 2, 0.6: 0}, engine="0", model_name="llama")
        + metric("vllm:kv_cache_usage_perc", {0.1: 0.2, 0.6: 0.4}, engine="0", model_name="llama")
        + metric("vllm:kv_cache_usage_perc", {0.1: 0.2, 0.6: 0.2}, engine="1", model_name="llama")
        + metric("vllm:generation_tokens_total", {-1: 0, 1: 300}, engine="0", model_name="llama")
        + metric("vllm:prompt_tokens_total", {-1: 0, 1: 800}, engine="0", model_name="llama")
        + metric("vllm:prefix_cache_hits_total", {-1: 0, 1: 80}, engine="0", model_name="llama")
        + metric("vllm:prefix_cache_queries_total", {-1: 0, 1: 800}, engine="0", model_name="llama")
        + metric("vllm:request_success_total", {-1: 0, 1: 90}, finished_reason="stop", model_name="llama")
        + metric("vllm:request_success_total", {-1: 0, 1: 10}, finished_reason="length", model_name="llama")
        + metric("vllm:time_to_first_token_seconds_sum", {-1: 0, 1: 5}, model_name="llama")
        + metric("vllm:time_to_first_token_seconds_count", {-1: 0, 1: 100}, model_name="llama")
        + metric("vllm:e2e_request_latency_seconds_sum", {-1: 0, 1: 10}, model_name="llama")
        + metric("vllm:e2e_request_latency_seconds_count", {-1: 0, 1: 100}, model_name="llama")
    )
    load = _load(make_report, steady_run(100), samples, target={"model": "llama", "streaming": True})
    assert load.scheduled_requests == Level(6.0, 7.0, 2)
    assert load.waiting_requests == Level(1.0, 2.0, 2)
    assert load.kv_cache_used_fraction == Level(pytest.approx(0.25), pytest.approx(0.3), 2)  # type: ignore[arg-type]
    assert (load.prompt_tokens, load.generated_tokens, load.finished_requests) == (800.0, 300.0, 100.0)
    assert load.cache_reuse == CacheReuse(80.0, 800.0, "tokens")
    assert (load.times.ttft_ms, load.times.e2e_ms, load.times.queue_ms) == (50.0, 100.0, None)


# ---- phases


def _phases(make_report: MakeReport, records: list[Record], **manifest: Any) -> dict[str, Phase]:
    return {phase.name: phase for phase in make_report(records, **manifest).phases}


def test_what_triton_counts_stands_beside_the_whole_exchange(make_report: MakeReport, steady_run: SteadyRun) -> None:
    work = _of_server(statistics(tensorrt_llm=(0, 0.0)), statistics(tensorrt_llm=(100, 20.0)))
    found = _phases(make_report, steady_run(100), **work)
    assert found["Queue and compute, by Triton"].server_ms == pytest.approx(80.0)
    assert found["Queue and compute, by Triton"].client_ms is None  # the client does not see where it begins or ends
    assert found["Queue and compute, by Triton"].whole_ms == pytest.approx(121.0)
    assert found["Whole, by Triton"].server_ms == pytest.approx(80.0)
    assert found["Whole, by Triton"].client_ms == pytest.approx(121.0)  # to the end of the exchange
    assert found["Whole, by Triton"].unexplained_ms == pytest.approx(41.0)


def test_the_engines_times_stand_beside_those_of_the_tokens(make_report: MakeReport, steady_run: SteadyRun) -> None:
    samples = (
        metric("vllm:time_to_first_token_seconds_sum", {-1: 0, 1: 9}, model_name="llama")
        + metric("vllm:time_to_first_token_seconds_count", {-1: 0, 1: 100}, model_name="llama")
        + metric("vllm:e2e_request_latency_seconds_sum", {-1: 0, 1: 11}, model_name="llama")
        + metric("vllm:e2e_request_latency_seconds_count", {-1: 0, 1: 100}, model_name="llama")
    )
    found = _phases(make_report, steady_run(100), server=samples)
    assert set(found) == {"TTFT, by the engine", "E2E, by the engine"}
    assert found["TTFT, by the engine"].unexplained_ms == pytest.approx(10.0)
    assert found["E2E, by the engine"].unexplained_ms == pytest.approx(10.0)


def test_a_decoupled_model_is_counted_until_it_took_the_request(make_report: MakeReport, steady_run: SteadyRun) -> None:
    samples = metric("vllm:time_to_first_token_seconds_sum", {-1: 0, 1: 9}) + metric(
        "vllm:time_to_first_token_seconds_count", {-1: 0, 1: 100}
    )
    work = _of_server(statistics(tensorrt_llm=(0, 0.0)), statistics(tensorrt_llm=(100, 0.5)))
    found = _phases(make_report, steady_run(100), server=samples, **work)
    assert found["Taking it in, by Triton"].server_ms == pytest.approx(2.0)
    assert found["Taking it in, by Triton"].unexplained_ms is None
    assert "Whole, by Triton" not in found


def test_means_over_other_requests_than_ours_are_not_compared(
    make_report: MakeReport, steady_run: SteadyRun, failed: Callable[..., Record]
) -> None:
    work = _of_server(statistics(tensorrt_llm=(0, 0.0)), statistics(tensorrt_llm=(101, 20.0)))
    assert _phases(make_report, steady_run(100), **work) == {}
    records = [*steady_run(100), failed(100, 1000, Outcome.TIMEOUT, 1000, 1100)]
    assert _phases(make_report, records, **work) == {}


# ---- the metrics alone


def _target(model: str, streaming: bool = True) -> ConfiguredTarget:
    return ConfiguredTarget(model=model, protocol="grpc", streaming=streaming, embedded=False, address=None)


@pytest.fixture
def load_of(
    tmp_path: Path, make_requests: Callable[..., Requests], answered: Callable[..., Record]
) -> Callable[..., ServerLoad]:
    """What is read of a server's metrics in a run of one request that lasts 10 s."""
    requests = make_requests([answered(0, 0, 0, [(9_000, 1)], done=10_000)])

    def make(samples: list[MetricSample], *, model: str = "llama", streaming: bool = True) -> ServerLoad:
        write_server_table(samples, tmp_path / "server.parquet")
        telemetry = telemetry_of(read_server_table(tmp_path / "server.parquet"))
        load = server_load(telemetry, requests, _target(model, streaming), ())
        assert load is not None
        return load

    return make


def _grown(name: str, by: float, **labels: str) -> list[MetricSample]:
    return metric(name, {-1: 5, 1: 5 + by}, **labels)


def test_readings_are_those_of_the_series_with_most(
    load_of: Callable[..., ServerLoad], make_requests: Callable[..., Requests]
) -> None:
    assert load_of(metric("a", {1: 1, 2: 2}) + metric("b", {1: 1, 2: 1, 3: 1})).readings == 3
    work = ModelWork("core", 1, 0, 1, None, None, None)
    without = server_load(None, make_requests([]), _target("core"), (work,))
    assert without is not None
    assert (without.readings, without.until_end, without.models) == (0, False, (work,))
    assert server_load(None, make_requests([]), _target("core"), ()) is None


def test_gauges_count_until_the_last_request_ended(load_of: Callable[..., ServerLoad]) -> None:
    load = load_of(metric("vllm:num_requests_running", {1: 2, 10: 4, 11: 90}))
    assert load.scheduled_requests == Level(3.0, 4.0, 2)


def test_the_target_s_own_engine_counts_before_the_core_model_s(load_of: Callable[..., ServerLoad]) -> None:
    of_core = metric(_REQUESTS, {1: 7}, request_type="active", model="tensorrt_llm")
    of_llama = metric(_REQUESTS, {1: 3}, request_type="active", model="llama")
    assert load_of(of_core + of_llama).active_requests == Level(3.0, 3.0, 1)
    assert load_of(of_core + of_llama, model="ensemble").active_requests == Level(7.0, 7.0, 1)
    assert load_of(metric(_REQUESTS, {1: 2}, request_type="active", model="other")).active_requests == Level(2.0, 2.0, 1)


def test_use_of_processors_is_a_mean_over_them(load_of: Callable[..., ServerLoad]) -> None:
    load = load_of(
        metric("nv_cpu_utilization", {1: 0.2, 2: 0.4}, cpu="0") + metric("nv_cpu_utilization", {1: 0.6, 2: 0.8}, cpu="1")
    )
    assert load.cpu_utilization == Level(pytest.approx(0.5), pytest.approx(0.6), 2)  # type: ignore[arg-type]
    assert load.gpu_utilization is None


def test_of_several_names_the_first_that_is_exported_counts(load_of: Callable[..., ServerLoad]) -> None:
    """trtllm-serve's names, beside those of vLLM, and alone."""
    trtllm = (
        metric("trtllm_num_requests_running", {1: 6})
        + metric("trtllm_num_requests_waiting", {1: 5})
        + metric("trtllm_kv_cache_utilization", {1: 0.5})
        + _grown("trtllm_generation_tokens_total", 40)
        + _grown("trtllm_prompt_tokens_total", 80)
        + _grown("trtllm_prompt_cached_tokens_total", 20)
        + _grown("trtllm_request_success_total", 9)
        + _grown("trtllm_request_queue_time_seconds_sum", 1)
        + _grown("trtllm_request_queue_time_seconds_count", 10)
        + _grown("trtllm_time_to_first_token_seconds_sum", 2)
        + _grown("trtllm_time_to_first_token_seconds_count", 10)
        + _grown("trtllm_e2e_request_latency_seconds_sum", 3)
        + _grown("trtllm_e2e_request_latency_seconds_count", 10)
    )
    alone = load_of(trtllm)
    assert (alone.scheduled_requests, alone.waiting_requests) == (Level(6.0, 6.0, 1), Level(5.0, 5.0, 1))
    assert alone.kv_cache_used_fraction == Level(0.5, 0.5, 1)
    assert (alone.generated_tokens, alone.prompt_tokens, alone.finished_requests) == (40.0, 80.0, 9.0)
    assert alone.cache_reuse == CacheReuse(20.0, 80.0, "tokens")
    assert alone.times == EngineTimes(10.0, 100.0, 200.0, 300.0)
    vllm = (
        metric("vllm:num_requests_running", {1: 1})
        + metric("vllm:gpu_cache_usage_perc", {1: 0.1})
        + _grown("vllm:gpu_prefix_cache_hits_total", 1)
        + _grown("vllm:gpu_prefix_cache_queries_total", 4)
        + _grown("vllm:request_queue_time_seconds_sum", 7)  # without its count
    )
    beside = load_of(trtllm + vllm)
    assert beside.scheduled_requests == Level(1.0, 1.0, 1)
    assert beside.kv_cache_used_fraction == Level(0.1, 0.1, 1)
    assert beside.cache_reuse == CacheReuse(1.0, 4.0, "tokens")
    assert beside.times.queue_ms == 100.0


def test_used_blocks_are_a_share_of_all_and_else_the_exported_fraction_counts(load_of: Callable[..., ServerLoad]) -> None:
    fraction = metric(_BLOCKS, {1: 0.7}, kv_cache_block_type="fraction")
    used = metric(_BLOCKS, {1: 10, 2: 30}, kv_cache_block_type="used")
    for largest, expected in ((100, Level(0.2, 0.3, 2)), (0, Level(0.7, 0.7, 1)), (1, Level(20.0, 30.0, 2))):
        whole = metric(_BLOCKS, {1: largest, 2: largest}, kv_cache_block_type="max")
        assert load_of(fraction + used + whole).kv_cache_used_fraction == expected
    assert load_of(fraction + used).kv_cache_used_fraction == Level(0.7, 0.7, 1)


def test_requests_by_triton_s_metrics_are_successes_and_failures_of_the_target(load_of: Callable[..., ServerLoad]) -> None:
    succeeded = _grown("nv_inference_request_success", 9, model="llama")
    failures = _grown("nv_inference_request_failure", 2, model="llama")
    assert load_of(succeeded + failures + _grown("nv_inference_request_success", 50, model="other")).metrics_requests == 11.0
    assert load_of(succeeded).metrics_requests is None


def test_reused_blocks_are_tokens_of_the_prompts_at_most(load_of: Callable[..., ServerLoad]) -> None:
    prompts = _grown("nv_llm_input_token_len_sum", 100)
    reused = _grown(_BLOCKS, 3, kv_cache_block_type="reused")
    block = metric(_BLOCKS, {1: 16, 2: 16}, kv_cache_block_type="tokens_per")
    assert load_of(prompts + reused + block).cache_reuse == CacheReuse(48.0, 100.0, "tokens")
    many = _grown(_BLOCKS, 30, kv_cache_block_type="reused")
    assert load_of(prompts + many + block).cache_reuse == CacheReuse(100.0, 100.0, "tokens")
    for samples in (prompts + reused, prompts + block, reused + block):
        assert load_of(samples).cache_reuse is None
    assert load_of(_grown("nv_llm_input_token_len_sum", 0) + reused + block).cache_reuse is None


def test_means_need_a_value_during_the_run(load_of: Callable[..., ServerLoad]) -> None:
    name = "inflight_bench_time_to_first_token_seconds"
    none = load_of(
        _grown(f"{name}_sum", 0) + _grown(f"{name}_count", 0) + _grown("inflight_bench_inter_token_latency_seconds_sum", 1)
    )
    assert none.times == EngineTimes(0.0, None, None, None)
    partly = load_of(_grown(f"{name}_sum", 4) + _grown(f"{name}_count", 8))
    assert partly.times == EngineTimes(8.0, None, 500.0, None)


def test_of_an_engine_s_metrics_those_of_the_core_model_count(load_of: Callable[..., ServerLoad]) -> None:
    """Beside a draft model's."""
    name = "inflight_bench_time_to_first_token_seconds"
    samples = metric(_REQUESTS, {1: 1}, request_type="active", model="tensorrt_llm")
    for model, factor in (("tensorrt_llm", 1), ("draft", 10)):
        samples += _grown("nv_llm_output_token_len_sum", 30 * factor, model=model)
        samples += _grown("nv_llm_input_token_len_sum", 1_000 * factor, model=model)
        samples += _grown(f"{name}_sum", 2 * factor, model=model) + _grown(f"{name}_count", 4, model=model)
        samples += _grown(_BLOCKS, 2 * factor, kv_cache_block_type="reused", model=model)
        samples += metric(_BLOCKS, {1: 64}, kv_cache_block_type="tokens_per", model=model)
    load = load_of(samples, model="ensemble")
    assert (load.generated_tokens, load.prompt_tokens) == (30.0, 1_000.0)
    assert (load.times.requests, load.times.ttft_ms) == (4.0, 500.0)
    assert load.cache_reuse == CacheReuse(128.0, 1_000.0, "tokens")


def test_metrics_without_a_model_count_beside_those_of_the_core_model(load_of: Callable[..., ServerLoad]) -> None:
    core = metric(_REQUESTS, {1: 1}, request_type="active", model="tensorrt_llm")
    assert load_of(core + _grown("vllm:prompt_tokens_total", 7)).prompt_tokens == 7.0
    assert load_of(core + _grown("trtllm_prompt_tokens_total", 8)).prompt_tokens == 8.0
    machine = load_of(core + metric("nv_gpu_utilization", {1: 0.5}, gpu="0") + metric("nv_cpu_utilization", {1: 0.25}))
    assert (machine.gpu_utilization, machine.cpu_utilization) == (Level(0.5, 0.5, 1), Level(0.25, 0.25, 1))


def test_hits_of_a_cache_without_its_queries_are_no_reuse(load_of: Callable[..., ServerLoad]) -> None:
    assert load_of(_grown("vllm:prefix_cache_hits_total", 3)).cache_reuse is None
    assert load_of(_grown("vllm:prefix_cache_queries_total", 3)).cache_reuse is None


def test_every_number_of_a_page(load_of: Callable[..., ServerLoad]) -> None:
    """Means of 2 requests are half of the sums in s; the last reading of all is at 12 s, after the last answer at 10 s."""
    counts = {
        "request_success": 1, "generation_tokens": 2, "prompt_tokens": 3, "num_preemptions": 4, "spec_decode_num_drafts": 5,
        "spec_decode_num_draft_tokens": 16, "spec_decode_num_accepted_tokens": 4, "prefix_cache_hits": 8,
        "prefix_cache_queries": 9,
    }  # fmt: skip
    sums = {
        "request_queue_time": 0.2, "request_prefill_time": 0.4, "request_decode_time": 0.6, "time_to_first_token": 0.8,
        "request_time_per_output_token": 1.0, "inter_token_latency": 1.2, "e2e_request_latency": 1.6,
    }  # fmt: skip
    samples = [
        *(sample for name, by in counts.items() for sample in _grown(f"vllm:{name}_total", by)),
        *(sample for name, by in sums.items() for sample in _grown(f"vllm:{name}_seconds_sum", by)),
        *(sample for name in sums for sample in _grown(f"vllm:{name}_seconds_count", 2)),
        *metric("vllm:num_requests_running", {1: 2, 3: 4, 12: 9}),
        *metric("vllm:num_requests_waiting", {1: 1, 3: 3}),
        *metric("vllm:kv_cache_usage_perc", {1: 0.25, 3: 0.75}),
    ]
    load = load_of(samples)
    ms = {"ttft": 400.0, "tpot": 500.0, "itl": 600.0, "e2e": 800.0}
    near = {key: pytest.approx(value) for key, value in ms.items()}
    assert load == ServerLoad(
        readings=3,
        until_end=True,
        active_requests=None,
        scheduled_requests=Level(3.0, 4.0, 2),
        waiting_requests=Level(2.0, 3.0, 2),
        batch_limit=None,
        kv_cache_used_fraction=Level(0.5, 0.75, 2),
        gpu_utilization=None,
        cpu_utilization=None,
        metrics_requests=None,
        finished_requests=1.0,
        generated_tokens=2.0,
        prompt_tokens=3.0,
        cache_reuse=CacheReuse(8.0, 9.0, "tokens"),
        times=EngineTimes(
            2.0,
            pytest.approx(100.0),
            near["ttft"],
            near["e2e"],
            prefill_ms=pytest.approx(200.0),
            decode_ms=pytest.approx(300.0),
        ),
        models=(),
        latencies=tuple(EngineLatency(key, 2.0, near[key], None, None) for key in ms),
        preemptions=4.0,
        speculation=Speculation(5.0, 16.0, 4.0),
    )
    assert (load.times.engine_ms, load.times.front_end_ms) == (pytest.approx(600.0), pytest.approx(200.0))
    assert load.speculation is not None
    assert load.speculation.accepted_share == 0.25


def test_the_front_end_s_time_is_what_of_the_latency_passed_outside_of_the_engine() -> None:
    """It is not below 0 where the parts belong to other requests, and unknown without one of them."""
    times = EngineTimes(2.0, 100.0, None, 500.0, prefill_ms=200.0, decode_ms=300.0)
    assert (times.engine_ms, times.front_end_ms) == (600.0, 0.0)
    for part in ("queue_ms", "prefill_ms", "decode_ms"):
        without = replace(times, **{part: None})
        assert (without.engine_ms, without.front_end_ms) == (None, None)
    assert replace(times, e2e_ms=None).front_end_ms is None


@pytest.mark.parametrize("missing", ["drafts", "draft_tokens", "accepted_tokens"])
def test_speculation_needs_all_of_its_counts_and_a_token(load_of: Callable[..., ServerLoad], missing: str) -> None:
    name = "vllm:spec_decode_num_{}_total"
    parts = [part for part in ("drafts", "draft_tokens", "accepted_tokens") if part != missing]
    assert load_of([sample for part in parts for sample in _grown(name.format(part), 3)]).speculation is None
    none = [sample for part in (*parts, missing) for sample in _grown(name.format(part), 0)]
    assert load_of(none).speculation is None


@pytest.mark.parametrize(("largest", "limit"), [(0, None), (0.5, None), (1, 1), (64, 64)])
def test_a_batch_limit_is_a_number_of_requests(load_of: Callable[..., ServerLoad], largest: float, limit: int | None) -> None:
    assert load_of(metric(_REQUESTS, {1: largest, 2: largest}, request_type="max")).batch_limit == limit


@pytest.mark.parametrize(("last_s", "until_end"), [(9.999, False), (10.0, True)])
def test_a_page_is_read_until_the_end_where_a_reading_came_after_the_last_answer(
    load_of: Callable[..., ServerLoad], last_s: float, until_end: bool
) -> None:
    assert load_of(metric("vllm:num_requests_running", {1: 1, last_s: 1}) + metric("other", {2: 1})).until_end is until_end

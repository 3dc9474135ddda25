"""The shared options: each concern's dataclass and option group agree, and run.json records every option under its name."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import click
import cloup
import pytest

from bench_cli.bench import CONTEXT_SETTINGS, bench
from bench_cli.engine_options import EngineSettings, engine_group
from bench_cli.measurement.client_options import ClientOptions, client_group
from bench_cli.measurement.distribution_options import DistributionOptions, distribution_group
from bench_cli.measurement.embedded_options import EmbeddedOptions, embedded_group
from bench_cli.measurement.load_options import LoadOptions, TrafficOptions, load_group, traffic_group
from bench_cli.measurement.mixture_options import MixtureOptions, mixture_group
from bench_cli.measurement.options import MeasureOptions, read_options
from bench_cli.measurement.output_options import CriteriaOptions, OutputOptions, output_group
from bench_cli.measurement.target_options import TargetOptions, http_group, target_group
from bench_cli.measurement.telemetry_options import TelemetryOptions, telemetry_group

_DEFAULTS: dict[str, Any] = {
    "url": None,
    "protocol": "grpc",
    "model": None,
    "streaming": None,
    "tokenizer_dir": None,
    "endpoint": None,
    "header": [],
    "extra_body": {},
    "reset_prefix_cache": False,
    "engine_dir": None,
    "decoupled_mode": True,
    "engine_settings": {
        "draft_engine_dir": None,
        "max_num_sequences": 256,
        "max_num_tokens": 2048,
        "max_beam_width": 16,
        "max_stream_interval": 4,
        "max_queue_size": 0,
        "batch_scheduler_policy": "guaranteed_no_evict",
        "max_tokens_in_paged_kv_cache": 131072,
        "kv_cache_free_gpu_mem_fraction": 0.9,
        "enable_kv_cache_reuse": True,
        "enable_chunked_context": True,
    },
    "request_rate": -1.0,
    "arrival": None,
    "rate_profile": None,
    "time_delay_dist": "exponential_dist",
    "burstiness": None,
    "max_concurrency": None,
    "concurrency": None,
    "duration": None,
    "ramp_up": None,
    "num_requests": None,
    "max_input_len": None,
    "ignore_eos": None,
    "seed": 0,
    "classes": [],
    "probe_rate": None,
    "probe_isl": 32,
    "probe_osl": 8,
    "cancel": None,
    "workers": None,
    "pin_workers": None,
    "connections": None,
    "warmup_requests": 10,
    "request_timeout": 600.0,
    "connect_timeout": 60.0,
    "max_header_bytes": 262_144,
    "max_answer_bytes": 67_108_864,
    "max_responses": 262_144,
    "max_message_bytes": 16_777_216,
    "distributed": False,
    "expect_workers": None,
    "expect_workers_max_wait": 300.0,
    "locust_processes": None,
    "master_bind_host": "127.0.0.1",
    "master_bind_port": None,
    "worker_token_file": None,
    "accept_any_worker": False,
    "web_ui": False,
    "web_host": "127.0.0.1",
    "web_port": 8089,
    "metrics_url": None,
    "telemetry_period": 1.0,
    "run_dir": None,
    "full": False,
    "plots": None,
    "op_stats_csv": None,
    "dump_perfetto_trace": False,
    "shared_results": False,
    "check_perf_json": None,
    "check_perf_key": None,
    "check_perf_rtol": 0.05,
    "check_perf_atol": 0.0,
    "slo": [],
    "fail_if": [],
    "undecided": "pass",
}
_EVERY_OPTION = [
    *("--url", "h", "-i", "openai", "--model", "m", "--no_streaming", "--tokenizer_dir", "tests", "--endpoint", "/v1/x"),
    *("--header", "X-Key: hush", "--header", "A: b", "--extra_body", '{"stop": ["a", null], "n": {"m": 1.5}}'),
    "--reset_prefix_cache",
    *("--engine_dir", "e", "--no_decoupled_mode", "--draft_engine_dir", "d", "--batch_scheduler_policy", "max_utilization"),
    *("--kv_cache_free_gpu_mem_fraction", "0.5", "--no_enable_kv_cache_reuse", "--request_rate", "10"),
    *("--time_delay_dist", "gamma_dist", "--burstiness", "2", "--max_concurrency", "9", "--duration", "5", "--ramp_up", "1"),
    *("--num_requests", "7", "--max_input_len", "64", "--ignore_eos", "--seed", "3", "--workers", "2", "--pin_workers"),
    *("--class", "chat:model=m,weight=3", "--class", "code:slo=ttft < 0.5s", "--probe_rate", "2", "--probe_isl", "16"),
    *("--probe_osl", "4", "--cancel", "5%:after=2000ms"),
    *("--distributed", "--expect_workers", "4", "--expect_workers_max_wait", "60", "--locust_processes", "2"),
    *("--master_bind_host", "10.0.0.1", "--master_bind_port", "6000", "--worker_token_file", "t", "--accept_any_worker"),
    *("--web_ui", "--web_host", "10.0.0.2", "--web_port", "9000"),
    *("--connections", "3", "--warmup_requests", "0", "--request_timeout", "30", "--metrics_url", "h:1/m"),
    *(
        "--telemetry_period",
        "0.5",
        "--run_dir",
        "r",
        "--full",
        "--plots",
        "p",
        "--op_stats_csv",
        "o.csv",
        "--dump_perfetto_trace",
        "--shared_results",
    ),
    *("--check_perf_json", "c.json", "--check_perf_key", "k", "--check_perf_rtol", "0.1", "--check_perf_atol", "1"),
    *("--slo", "ttft_ms <= 200.0", "--slo", "e2e_ms<=5e3", "--slo", "p99_ttft < 0.3s"),
    *("--fail_if", " goodput<3", "--undecided", "fail"),
]
_EVERY_ENTRY: dict[str, Any] = {
    "url": "h",
    "protocol": "openai",
    "model": "m",
    "streaming": False,
    "tokenizer_dir": "tests",
    "endpoint": "/v1/x",
    "header": ["X-Key: (not written down)", "A: b"],
    "extra_body": {"stop": ["a", None], "n": {"m": 1.5}},
    "reset_prefix_cache": True,
    "engine_dir": "e",
    "decoupled_mode": False,
    "engine_settings": {
        "draft_engine_dir": "d",
        "max_num_sequences": 256,
        "max_num_tokens": 2048,
        "max_beam_width": 16,
        "max_stream_interval": 4,
        "max_queue_size": 0,
        "batch_scheduler_policy": "max_utilization",
        "max_tokens_in_paged_kv_cache": 131072,
        "kv_cache_free_gpu_mem_fraction": 0.5,
        "enable_kv_cache_reuse": False,
        "enable_chunked_context": True,
    },
    "request_rate": 10.0,
    "arrival": None,
    "rate_profile": None,
    "time_delay_dist": "gamma_dist",
    "burstiness": 2.0,
    "max_concurrency": 9,
    "concurrency": None,
    "duration": 5.0,
    "ramp_up": 1.0,
    "num_requests": 7,
    "max_input_len": 64,
    "ignore_eos": True,
    "seed": 3,
    "classes": ["chat:weight=3,model=m", "code:weight=1,slo=ttft<=500ms"],
    "probe_rate": 2.0,
    "probe_isl": 16,
    "probe_osl": 4,
    "cancel": "5%:after=2s",
    "workers": 2,
    "pin_workers": True,
    "connections": 3,
    "warmup_requests": 0,
    "request_timeout": 30.0,
    "connect_timeout": 60.0,
    "max_header_bytes": 262_144,
    "max_answer_bytes": 67_108_864,
    "max_responses": 262_144,
    "max_message_bytes": 16_777_216,
    "distributed": True,
    "expect_workers": 4,
    "expect_workers_max_wait": 60.0,
    "locust_processes": 2,
    "master_bind_host": "10.0.0.1",
    "master_bind_port": 6000,
    "worker_token_file": "t",
    "accept_any_worker": True,
    "web_ui": True,
    "web_host": "10.0.0.2",
    "web_port": 9000,
    "metrics_url": "h:1/m",
    "telemetry_period": 0.5,
    "run_dir": "r",
    "full": True,
    "plots": "p",
    "op_stats_csv": "o.csv",
    "dump_perfetto_trace": True,
    "shared_results": True,
    "check_perf_json": "c.json",
    "check_perf_key": "k",
    "check_perf_rtol": 0.1,
    "check_perf_atol": 1.0,
    "slo": ["ttft<=200ms", "e2e<=5000ms", "p99_ttft<=300ms"],
    "fail_if": ["goodput<3"],
    "undecided": "fail",
}


def _read(*argv: str) -> MeasureOptions:
    context = bench.commands["dataset"].make_context("dataset", list(argv), parent=click.Context(bench, **CONTEXT_SETTINGS))
    return read_options(context.params)


def test_run_json_records_every_option_under_its_name() -> None:
    assert list(_read().manifest_entry().items()) == list(_DEFAULTS.items())
    assert list(_read(*_EVERY_OPTION).manifest_entry().items()) == list(_EVERY_ENTRY.items())


def _names(*groups: Any) -> list[str]:
    def nothing() -> None: ...

    for group in reversed(groups):
        group(nothing)
    return [str(parameter.name) for parameter in cloup.command()(nothing).params]


@pytest.mark.parametrize(
    ("concerns", "groups"),
    [
        ([TargetOptions], [target_group, http_group]),
        ([EngineSettings], [engine_group]),
        ([EmbeddedOptions], [embedded_group]),
        ([LoadOptions], [load_group]),
        ([TrafficOptions], [traffic_group]),
        ([MixtureOptions], [mixture_group]),
        ([ClientOptions], [client_group]),
        ([DistributionOptions], [distribution_group]),
        ([TelemetryOptions], [telemetry_group]),
        ([OutputOptions, CriteriaOptions], [output_group]),
    ],
)
def test_a_concern_has_the_options_of_its_group(concerns: list[Any], groups: list[Any]) -> None:
    names = [field.name for concern in concerns for field in fields(concern) if field.name != "engine_settings"]
    assert names == _names(*groups)

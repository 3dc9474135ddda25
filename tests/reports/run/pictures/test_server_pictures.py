"""Pictures of the server's metrics and of the client's health over the run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bench_records.client_sample import ClientSample
from bench_records.client_table import read_client_table, write_client_table
from bench_records.record import Record
from bench_records.server_table import MetricSample
from reports.render.picture import Line, Picture
from reports.run.page import run_pictures
from reports.run.pictures.client import client_pictures
from reports.run_report import RunReport

MakeReport = Callable[..., RunReport]
SteadyRun = Callable[..., list[Record]]
_S = 1_000_000_000


def _sample(at_s: float, name: str, value: float, /, **labels: str) -> MetricSample:
    return MetricSample(round(at_s * _S), 1_000_000, name, json.dumps(labels, sort_keys=True), value)


@pytest.fixture
def drawn(make_report: MakeReport, steady_run: SteadyRun) -> Callable[[list[MetricSample]], dict[str, Picture]]:
    def draw(samples: list[MetricSample]) -> dict[str, Picture]:
        return {picture.name: picture for picture in run_pictures(make_report(steady_run(20), server=samples)).server}

    return draw


def _lines(picture: Picture) -> dict[str, Line]:
    return {mark.name: mark for mark in picture.marks if isinstance(mark, Line)}


Draw = Callable[[list[MetricSample]], dict[str, Picture]]


def test_gauges_are_drawn_by_their_label(drawn: Draw) -> None:
    name = "nv_trt_llm_request_metrics"
    samples = [
        _sample(at, name, value + at, model="tensorrt_llm", version="1", request_type=kind)
        for at in (-1.0, 0.0, 1.0, 2.0)
        for kind, value in (("active", 10), ("scheduled", 5), ("max", 128))
    ]
    lines = _lines(drawn(samples)["server-requests"])
    assert set(lines) == {"active", "scheduled"}
    assert lines["active"].x.tolist() == [0.0, 1.0, 2.0]  # what was before the run is not shown
    assert lines["active"].y.tolist() == [10.0, 11.0, 12.0]


def test_fractions_become_per_cent_and_bytes_gigabytes(drawn: Draw) -> None:
    pictures = drawn(
        [
            _sample(0, "nv_trt_llm_kv_cache_block_metrics", 0.25, kv_cache_block_type="fraction"),
            _sample(0, "nv_trt_llm_kv_cache_block_metrics", 999, kv_cache_block_type="used"),
            _sample(0, "nv_trt_llm_runtime_memory_metrics", 2e9, memory_type="cpu"),
            _sample(0, "nv_trt_llm_runtime_memory_metrics", 0, memory_type="gpu"),
        ]
    )
    assert _lines(pictures["server-kv-cache"])["in use"].y.tolist() == [25.0]
    assert {name: line.y.tolist() for name, line in _lines(pictures["server-memory"]).items()} == {"CPU": [2.0]}


def test_a_counter_becomes_a_rate_and_a_restart_a_gap(drawn: Draw) -> None:
    counts = [0, 20, 60, 5, 15]  # the server began anew before the fourth
    samples = [_sample(2 * k, "nv_inference_request_success", n, model="ensemble") for k, n in enumerate(counts)]
    (line,) = _lines(drawn(samples)["server-requests-ended"]).values()
    assert line.x.tolist() == [2.0, 4.0, 8.0]
    assert line.y.tolist() == [10.0, 20.0, 5.0]


def test_time_in_the_queue_is_divided_by_the_requests_that_ended(drawn: Draw) -> None:
    samples = [_sample(k, "nv_inference_queue_duration_us", us, model="a") for k, us in enumerate([0, 6_000, 6_000, 7_000])]
    samples += [_sample(k, "nv_inference_request_success", n, model="a") for k, n in enumerate([0, 3, 3, 4])]
    (line,) = _lines(drawn(samples)["server-queue-time"]).values()
    assert dict(zip(line.x.tolist(), line.y.tolist(), strict=True)) == {1.0: 2.0, 3.0: 1.0}  # none ended in between


def test_models_are_named_and_idle_ones_left_out(drawn: Draw) -> None:
    name = "nv_inference_pending_request_count"
    samples = [_sample(k, name, v, model=m, version="1") for k in (0, 1) for m, v in (("a", 2), ("b", 0), ("c", 1))]
    assert set(_lines(drawn(samples)["server-queue"])) == {"a", "c"}


def test_many_readings_are_averaged_as_the_caption_states(drawn: Draw) -> None:
    samples = [_sample(k / 100, "nv_gpu_power_usage", 100 + k % 2, gpu_uuid="G") for k in range(5_000)]
    picture = drawn(samples)["gpu-power"]
    (line,) = _lines(picture).values()
    assert line.x.size <= 1_000
    assert np.allclose(line.y, 100.5, atol=0.2)
    assert "Means of 1,000 equal parts" in picture.caption


@pytest.mark.parametrize(
    ("picture", "of_page", "of_bench"),
    [
        ("server-memory", "nv_gpu_memory_used_bytes", "gpu_memory_used_bytes"),
        ("gpu-utilization", "nv_gpu_utilization", "gpu_utilization_ratio"),
        ("gpu-power", "nv_gpu_power_usage", "gpu_power_watts"),
    ],
)
def test_a_gpu_that_triton_s_page_and_bench_both_read_is_drawn_once(
    drawn: Draw, picture: str, of_page: str, of_bench: str
) -> None:
    """``bench`` read the first of two GPUs: ten times a second, where the page renews its values every 2 s."""
    read, unread = "GPU-c876b730-e3b1-0489-4cbe-7e6c712c3bf6", "GPU-5f0c81bd-7e6c-0489-4cbe-e3b1712c3bf6"
    own = {"gpu": "0", "name": "NVIDIA H100 80GB HBM3", "uuid": read}
    page = [_sample(2.0 * k, of_page, 1.0, gpu_uuid=gpu) for k in range(3) for gpu in (read, unread)]
    lines = _lines(drawn([*page, *(_sample(k / 10, of_bench, 2.0, **own) for k in range(41))])[picture])
    assert sorted(line.x.size for line in lines.values()) == [3, 41]
    (alone,) = _lines(drawn([*page[::2], *(_sample(k / 10, of_bench, 2.0, **own) for k in range(41))])[picture]).values()
    assert alone.x.size == 41
    before = [_sample(-k / 10, of_bench, 2.0, **own) for k in range(1, 3)]  # until the run began
    assert [line.x.size for line in _lines(drawn([*before, *page])[picture]).values()].count(3) == 2


def test_power_of_each_package_and_its_dram_is_what_their_counters_grew_by(drawn: Draw) -> None:
    watts = {("cpu", "package-0"): 60.0, ("cpu", "package-1"): 35.0, ("dram", "package-0"): 8.0, ("dram", "package-1"): 4.0}
    samples = [
        _sample(k / 10, f"host_{part}_energy_joules_total", float("nan") if k == 5 else each * k / 10, zone=zone)
        for (part, zone), each in watts.items()
        for k in range(-1, 10)
    ]
    lines = _lines(drawn(samples)["host-power"])
    assert {name: line.y[0] for name, line in lines.items()} == pytest.approx(
        {"CPU, package-0": 60.0, "CPU, package-1": 35.0, "DRAM, package-0": 8.0, "DRAM, package-1": 4.0}
    )
    for line in lines.values():
        assert np.allclose(line.x, [0.0, 0.1, 0.2, 0.3, 0.4, 0.7, 0.8, 0.9])  # of an unknown reading nothing is drawn


def test_unknown_metrics_and_values_draw_nothing(drawn: Draw) -> None:
    samples = [_sample(0, "process_cpu_seconds", 1), _sample(0, "nv_gpu_utilization", float("nan"), gpu_uuid="G")]
    assert drawn(samples) == {}
    assert drawn([]) == {}


def test_the_client_s_lag_and_cpu_by_worker(tmp_path: Path) -> None:
    samples = [
        ClientSample(time_ns=k * _S // 10, worker=worker, lag_ns=1_000_000 if k == 50 and worker else 1_000, cpu_ns=_S // 20)
        for k in range(100)
        for worker in (0, 1)
    ]
    samples += [ClientSample(time_ns=k * _S, worker=None, busy_ns=1) for k in range(10)]
    write_client_table(samples, tmp_path / "client.parquet")
    pictures = {picture.name: picture for picture in client_pictures(read_client_table(tmp_path / "client.parquet"))}
    lag = _lines(pictures["client-lag"])
    assert {name: line.y.max() for name, line in lag.items()} == {"worker 0": 0.001, "worker 1": 1.0}
    assert lag["worker 1"].x[np.argmax(lag["worker 1"].y)] == pytest.approx(5.0, abs=0.05)
    cpu = _lines(pictures["client-cpu"])
    assert cpu["worker 0"].y == pytest.approx(50.0)  # 50 ms in each 100
    assert client_pictures(None) == []

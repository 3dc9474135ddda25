"""What was seen of client and server, in every format."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable

import pytest

from bench_records.record import Record
from bench_records.server_table import MetricSample
from reports.render.plain_text import escaped
from reports.render.tables import Table
from reports.run.console import render_answer
from reports.run.full import render
from reports.run.markdown import render_markdown
from reports.run.page import run_page, run_pictures
from reports.run.summary_json import summary, write_summary
from reports.run.watched_tables import client_tables, server_tables, times_tables
from reports.run_report import RunReport
from tests.reports.watched import WorkerUsage, histogram, machine_samples, metric, statistics, worker_samples

MakeReport = Callable[..., RunReport]
SteadyRun = Callable[..., list[Record]]


_TIMES = {
    "command_started_at": "2026-11-22T01:23:51.5+00:00",
    "set_up_s": 1.5,
    "run_s": 4.0,
    "set_up_and_run_cpu_s": 1.75,
    "report_s": 0.5,
    "report_cpu_s": 0.25,
    "total_s": 6.0,
}


@pytest.fixture(scope="module")
def watched(make_report: MakeReport, steady_run: SteadyRun) -> RunReport:
    core = {"model": "tensorrt_llm", "version": "1"}
    return make_report(
        steady_run(100),
        client=[*worker_samples([0.5] * 39 + [1.5], WorkerUsage(0.25, wait_share=0.04)), *machine_samples(1, busy_cores=1.25)],
        server=[
            *metric("nv_trt_llm_request_metrics", {0.1: 4, 0.6: 8}, request_type="active", **core),
            *metric("nv_trt_llm_kv_cache_block_metrics", {0.1: 0.125, 0.6: 0.375}, kv_cache_block_type="fraction", **core),
            *metric("nv_cpu_utilization", {0.1: float("nan"), 0.6: 0.5}),
        ],
        server_statistics={
            "before": statistics(tensorrt_llm=(0, 0.0), ensemble=(5, 1.0)),
            "after": statistics(tensorrt_llm=(100, 20.0), ensemble=(5, 1.0)),
        },
        times=_TIMES,
    )


def _tables(report: RunReport) -> tuple[Table, ...]:
    return (*client_tables(report), *times_tables(report), *server_tables(report))


def test_tables(watched: RunReport) -> None:
    client, times, levels, models, phases = _tables(watched)
    shown = {row[0]: row[1] for row in client.rows}
    assert shown["CPU of the busiest worker (% of a core)"] == pytest.approx(25.0)
    assert shown["Event loop woke late, p99 (ms)"] == 1.5
    assert shown["Machine: busy (% of a core)"] == pytest.approx(125.0)
    assert [value for _, value in times.rows] == [1.5, 4.0, 0.5, 6.0, 1.75, 0.25]
    assert times.note.startswith("Started 2026-11-22 01:23:51 UTC.")
    assert levels.rows == (("Active requests", 6.0, 8.0), ("KV cache used (%)", 25.0, 37.5), ("CPU busy (%)", 50.0, 50.0))
    assert models.rows == (("tensorrt_llm", 100, 0, pytest.approx(20.0), pytest.approx(60.0), pytest.approx(80.0)),)
    assert ("Whole, by Triton", pytest.approx(80.0), pytest.approx(121.0), pytest.approx(41.0)) in phases.rows
    for table in _tables(watched):
        assert all(len(row) == len(table.columns) for row in table.rows)


def test_the_engine_s_view_is_beside_the_client_s(make_report: MakeReport, steady_run: SteadyRun) -> None:
    server = [
        *histogram("vllm:time_to_first_token_seconds", {"0.1": 98, "0.25": 1, "+Inf": 1}, 9.0),
        *histogram("vllm:e2e_request_latency_seconds", {"0.1": 1, "+Inf": 99}, 12.0),
        *metric("vllm:num_preemptions_total", {-0.1: 1.0, 2.0: 4.0}),
        *metric("vllm:spec_decode_num_drafts_total", {0.1: 0.0, 2.0: 50.0}),
        *metric("vllm:spec_decode_num_draft_tokens_total", {0.1: 0.0, 2.0: 200.0}),
        *metric("vllm:spec_decode_num_accepted_tokens_total", {0.1: 0.0, 2.0: 150.0}),
    ]
    engine, latencies = server_tables(make_report(steady_run(100), server=server))[:2]
    assert engine.rows == (
        ("Preemptions", 3),
        ("Draft tokens accepted (%)", 75.0),
        ("Draft tokens accepted, each step", 3.0),
    )
    assert latencies.rows == (
        ("TTFT", 100.0, 90.0, 100.0, "0 to 100", 100.0, "100 to 250"),
        ("E2E latency", 120.0, 120.0, 120.0, "above 100", 120.0, "above 100"),
    )


def test_the_gpus_have_a_table_and_a_line_in_the_answer(make_report: MakeReport, steady_run: SteadyRun) -> None:
    times_s = [0.1 * k for k in range(-1, 14)]
    labels = {"gpu": "0", "name": "H100", "uuid": "a"}
    server = [
        *metric("gpu_power_watts", {at_s: 480.0 if at_s > 0 else 70.0 for at_s in times_s}, **labels),
        *metric("gpu_energy_joules_total", {at_s: 500.0 * at_s for at_s in times_s}, **labels),
        *metric("gpu_utilization_ratio", dict.fromkeys(times_s, 0.67), **labels),
        *metric("gpu_memory_used_bytes", dict.fromkeys(times_s, 12e9), **labels),
        *metric("gpu_sm_clock_hertz", dict.fromkeys(times_s, 1.98e9), **labels),
    ]
    report = make_report(
        steady_run(100), server=server, gpu_telemetry={"gpus": ["H100"], "of_target": False, "period_s": 0.1, "samples": 15}
    )
    (table,) = server_tables(report)
    ((name, power, idle, energy, busy, memory, clock, limits),) = table.rows
    assert (name, idle, busy, memory, clock, limits) == (
        "0: H100",
        70.0,
        pytest.approx(67.0),
        12.0,
        pytest.approx(1980.0),
        None,
    )
    assert report.gpus is not None
    assert energy == pytest.approx(500.0 * (report.gpus.end_s - report.gpus.start_s))
    assert power == pytest.approx(480.0, rel=0.1)
    assert "which of them the target computes is not known" in table.note
    assert "J per output token ±" in table.note
    shown = r"[0-9.]+ J a token, 500 W, busy 67%\.$"
    assert re.search(f"^GPU of this machine, perhaps not the target's: {shown}", render_answer(report), re.MULTILINE)
    known = {"gpus": ["H100"], "of_target": True, "period_s": 0.1, "samples": 15}
    of_target = make_report(steady_run(100), server=server, gpu_telemetry=known)
    assert re.search(f"^GPU: {shown}", render_answer(of_target), re.MULTILINE)
    assert of_target.gpus is not None
    two = dataclasses.replace(of_target.gpus, gpus=of_target.gpus.gpus * 2, energy_j=None)
    assert "\n2 GPUs: busy 67%.\n" in render_answer(dataclasses.replace(of_target, gpus=two))
    found = summary(report)["gpus"]
    assert (found["source"], found["power_w"]) == ("nvml", pytest.approx(500.0))


def _energy(joules: dict[str, float], name: str = "cpu") -> list[MetricSample]:
    """Counters of zones, by their growth in J a second, read every 0.1 s."""
    times_s = [0.1 * k for k in range(-1, 14)]
    return [
        sample
        for zone, watts in joules.items()
        for sample in metric(f"host_{name}_energy_joules_total", {at_s: 1e3 + watts * at_s for at_s in times_s}, zone=zone)
    ]


def test_cpu_and_dram_have_a_table_and_a_line_in_the_answer(make_report: MakeReport, steady_run: SteadyRun) -> None:
    server = _energy({"package-0": 60.0, "package-1": 35.0}) + _energy({"package-0": 12.0}, "dram")
    report = make_report(steady_run(100), server=server)
    (table,) = server_tables(report)
    assert report.host_energy is not None
    length_s = report.host_energy.end_s - report.host_energy.start_s
    tokens = report.host_energy.output_tokens
    assert tokens is not None
    assert [(row[0], *map(pytest.approx, row[1:4])) for row in table.rows] == [
        ("CPU", 95.0, 95.0 * length_s, 95.0 * length_s / tokens),
        ("CPU, package-0", 60.0, 60.0 * length_s, None),
        ("CPU, package-1", 35.0, 35.0 * length_s, None),
        ("DRAM", 12.0, 12.0 * length_s, 12.0 * length_s / tokens),
    ]
    assert "the client included" in table.note
    assert re.search(r"^CPU: [0-9.]+ J a token, 95 W; DRAM 12 W\.$", render_answer(report), re.MULTILINE)
    found = json.loads(json.dumps(summary(report)["host_energy"]))
    assert (found["cpu"]["power_w"], found["dram"]["power_w"]) == (pytest.approx(95.0), pytest.approx(12.0))
    assert summary(report)["server"] is None  # it has no metrics of its own


def test_of_packages_one_of_which_is_unknown_nothing_is_added_up(make_report: MakeReport, steady_run: SteadyRun) -> None:
    unknown = metric("host_cpu_energy_joules_total", {0.1 * k: float("nan") for k in range(-1, 14)}, zone="package-1")
    report = make_report(steady_run(100), server=[*_energy({"package-0": 60.0}), *unknown])
    (table,) = server_tables(report)
    assert [row[:2] for row in table.rows] == [
        ("CPU", None),
        ("CPU, package-0", pytest.approx(60.0)),
        ("CPU, package-1", None),
    ]
    assert not re.search("^CPU: ", render_answer(report), re.MULTILINE)
    of_none = make_report(steady_run(100), server=unknown)
    assert (of_none.host_energy, server_tables(of_none)) == (None, ())


def test_a_run_without_samples_has_no_such_tables(make_report: MakeReport, steady_run: SteadyRun) -> None:
    report = make_report(steady_run(5))
    assert _tables(report) == ()
    found = summary(report)
    assert (found["client"], found["server"], found["phases"]) == (None, None, [])


def test_times_of_the_report_are_left_out_while_it_is_made(make_report: MakeReport, steady_run: SteadyRun) -> None:
    known = {key: value for key, value in _TIMES.items() if key.startswith(("command", "set_up", "run"))}
    (table,) = _tables(make_report(steady_run(5), times=known))
    assert [value for _, value in table.rows] == [1.5, 4.0, 1.75]
    assert _tables(make_report(steady_run(5), times={})) == ()


def test_every_format_shows_every_row(watched: RunReport) -> None:
    page = run_page(watched, run_pictures(watched))
    in_page = [block for section in page.sections for block in section.blocks]
    text, markdown = render(watched), render_markdown(watched)
    for table in (*client_tables(watched), *server_tables(watched)):
        assert table in in_page
        for row in table.rows:
            assert re.search(rf"^{re.escape(str(row[0]))}  ", text, re.MULTILINE), row
            assert escaped(str(row[0])) in markdown
    (times,) = times_tables(watched)  # the console's last line has them
    assert times in in_page
    assert all(escaped(str(row[0])) in markdown for row in times.rows)


def test_summary_has_the_numbers_and_stays_json(watched: RunReport) -> None:
    write_summary(watched, watched.folder.summary)
    found = json.loads(watched.folder.summary.read_text())
    assert found["client"]["lag"]["max_ms"] == 1.5
    assert found["client"]["workers"][0]["cpu_share"] == pytest.approx(0.25)
    assert found["server"]["active_requests"] == {"mean": 6.0, "max": 8.0, "readings": 2}
    assert found["server"]["models"][0]["name"] == "tensorrt_llm"
    assert found["phases"][0].keys() == {"name", "server_ms", "client_ms", "unexplained_ms"}

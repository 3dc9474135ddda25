"""Several servers measured together: sums of counts, and no other number of unlike servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench_records.record import Outcome, Record
from bench_records.server_table import MetricSample, read_server_table, write_server_table
from reports.metrics.configuration import ConfiguredTarget
from reports.metrics.model_statistics import ModelWork
from reports.metrics.requests import Requests
from reports.metrics.server_load import CacheReuse, EngineTimes, ServerLoad, Speculation
from reports.metrics.server_loads import ServerLoads, server_loads
from reports.metrics.server_series import telemetry_of
from reports.run.pictures.server import server_pictures
from reports.run.target_table import console_target_table, server_level_table, target_table
from reports.run_report import RunReport
from tests.reports.findings.lookup import finding_of
from tests.reports.manifests import counted_by_server
from tests.reports.watched import metric

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]
MakeRequests = Callable[[Sequence[Record]], Requests]
SteadyRun = Callable[..., list[Record]]

_PAGES = ("http://a:1/metrics", "http://b:1/metrics")


def _of(page: int, samples: list[MetricSample]) -> list[MetricSample]:
    return [replace(sample, server=_PAGES[page]) for sample in samples]


def _vllm(page: int, running: float, finished: float, tokens: float) -> list[MetricSample]:
    samples = [
        *metric("vllm:num_requests_running", {-1: 0, 0.5: running, 1.5: running, 60: 0}),
        *metric("vllm:request_success_total", {-1: 0, 60: finished}, finished_reason="length"),
        *metric("vllm:generation_tokens_total", {-1: 0, 60: tokens}),
    ]
    return _of(page, [replace(sample, time_ns=sample.time_ns + 1_000 * page) for sample in samples])


def _several(pages: int = 2, **of_targets: Any) -> dict[str, Any]:
    """Keys of a manifest of two targets, with ``of_targets`` a key's value for each."""
    targets = [{"address": f"{name}:8000"} for name in "ab"]
    for key, values in of_targets.items():
        targets = [target | {key: value} for target, value in zip(targets, values, strict=True)]
    telemetry = [{"url": url, "scrapes": 4, "failed": 0, "period_s": 1.0} for url in _PAGES[:pages]]
    return {"targets": targets, "telemetry": {"url": ", ".join(_PAGES), "pages": telemetry}}


def _records(steady_run: SteadyRun, to_second: int = 30) -> list[Record]:
    """100 requests, of which the last ``to_second`` went to the second target."""
    from msgspec.structs import replace as changed

    return [changed(record, target=int(record.index >= 100 - to_second)) for record in steady_run(100)]


def test_counts_are_added_up_and_gauges_of_different_servers_are_not(make_report: MakeReport, steady_run: SteadyRun) -> None:
    server = [*_vllm(0, 8, 70, 210), *_vllm(1, 2, 30, 90)]
    report = make_report(_records(steady_run), server=server, **_several())
    assert report.server is not None
    assert (report.server.finished_requests, report.server.generated_tokens) == (100, 300)
    assert report.server.scheduled_requests is None
    assert list(report.servers) == list(_PAGES)
    levels = [load.scheduled_requests for load in report.servers.values()]
    assert [None if level is None else level.max for level in levels] == [8, 2]
    assert finding_of(report, "counters_disagree") is None
    rows = server_level_table(report).rows
    assert [row[0] for row in rows] == ["a:1", "b:1"]
    (picture,) = [picture for picture in server_pictures(report.telemetry) if picture.name == "server-requests"]
    assert [line.name for line in picture.marks] == ["a:1", "b:1"]


def _reused(page: int, queries: float, hits: float) -> list[MetricSample]:
    samples = [
        *metric("vllm:prefix_cache_queries_total", {-1: 0, 60: queries}),
        *metric("vllm:prefix_cache_hits_total", {-1: 0, 60: hits}),
    ]
    return _of(page, samples)


def test_the_reuse_of_all_caches_is_their_sum_where_each_has_a_count(make_report: MakeReport, steady_run: SteadyRun) -> None:
    both = make_report(_records(steady_run), server=[*_reused(0, 1_000, 100), *_reused(1, 200, 50)], **_several())
    assert both.server is not None
    assert both.server.cache_reuse == CacheReuse(150, 1_200, "tokens")
    assert [load.cache_reuse for load in both.servers.values()] == [
        CacheReuse(100, 1_000, "tokens"),
        CacheReuse(50, 200, "tokens"),
    ]
    one = make_report(_records(steady_run), server=[*_reused(0, 1_000, 100), *_vllm(1, 2, 30, 90)], **_several())
    assert one.server is not None
    assert one.server.cache_reuse is None


@pytest.mark.parametrize("second", [[], _of(1, metric("sglang:num_running_reqs", {-1: 0, 60: 1}))])
def test_a_sum_is_unknown_where_a_server_does_not_have_the_count(
    make_report: MakeReport, steady_run: SteadyRun, second: list[MetricSample]
) -> None:
    report = make_report(_records(steady_run), server=[*_vllm(0, 8, 70, 210), *second], **_several())
    assert report.server is not None
    assert (report.server.finished_requests, report.server.generated_tokens) == (None, None)
    assert finding_of(report, "counters_disagree") is None


def _all_counts(page: int, times: int, until_s: float = 60.0, cache: str = "prefix_cache") -> list[MetricSample]:
    """Every count that a page may have, ``times`` those of the first server, and one of its gauges."""
    grown = {
        "vllm:request_success_total": 1, "vllm:generation_tokens_total": 2, "vllm:prompt_tokens_total": 3,
        f"vllm:{cache}_hits_total": 4, f"vllm:{cache}_queries_total": 5, "vllm:num_preemptions_total": 6,
        "vllm:spec_decode_num_drafts_total": 7, "vllm:spec_decode_num_draft_tokens_total": 8,
        "vllm:spec_decode_num_accepted_tokens_total": 9, "vllm:time_to_first_token_seconds_count": 10,
        "vllm:time_to_first_token_seconds_sum": 11, "nv_inference_request_success": 12, "nv_inference_request_failure": 13,
    }  # fmt: skip
    samples = [
        sample
        for name, by in grown.items()
        for sample in metric(name, {-1: 100, until_s: 100 + by * times}, model="tensorrt_llm")
    ]
    limit = metric("nv_trt_llm_request_metrics", {0.5: 16 * times}, model="tensorrt_llm", request_type="max")
    return _of(page, [*samples, *limit, *metric("vllm:num_requests_running", {0.1 * k: 1 for k in range(3 + times)})])


def _loads(
    make_requests: MakeRequests, records: list[Record], tmp_path: Path, samples: list[MetricSample], pages: int | None = 2
) -> ServerLoads:
    write_server_table(samples, tmp_path / "server.parquet")
    target = ConfiguredTarget(model="tensorrt_llm", protocol="grpc", streaming=True, embedded=False, address=None)
    telemetry = telemetry_of(read_server_table(tmp_path / "server.parquet"))
    return server_loads(telemetry, pages, make_requests(records), target, (_WORK,))


_WORK = ModelWork("tensorrt_llm", 3, 0, 3, None, None, None)


@pytest.mark.parametrize(("until_s", "until_end"), [(60.0, True), (0.6, False)])
def test_every_number_of_two_servers_together(
    make_requests: MakeRequests, steady_run: SteadyRun, tmp_path: Path, until_s: float, until_end: bool
) -> None:
    loads = _loads(make_requests, steady_run(100), tmp_path, _all_counts(0, 1) + _all_counts(1, 2, until_s))
    assert loads.total == ServerLoad(
        readings=4,
        until_end=until_end,
        active_requests=None,
        scheduled_requests=None,
        waiting_requests=None,
        batch_limit=48,
        kv_cache_used_fraction=None,
        gpu_utilization=None,
        cpu_utilization=None,
        metrics_requests=75.0,
        finished_requests=3.0,
        generated_tokens=6.0,
        prompt_tokens=9.0,
        cache_reuse=CacheReuse(12.0, 15.0, "tokens"),
        times=EngineTimes(requests=30.0, queue_ms=None, ttft_ms=None, e2e_ms=None),
        models=(_WORK,),
        preemptions=18.0,
        speculation=Speculation(21.0, 24.0, 27.0),
    )
    first, second = loads.each.values()
    assert (first.readings, first.models, first.until_end) == (4, (), True)
    assert (second.readings, second.cache_reuse, second.until_end) == (5, CacheReuse(8.0, 10.0, "tokens"), until_end)


@pytest.mark.parametrize(
    "second",
    [
        _of(1, metric("vllm:num_requests_running", {0.0: 1, 60.0: 1})),
        _of(
            1,
            metric("inflight_bench_engine_kv_reused_blocks", {-1: 2, 60: 12})
            + metric("inflight_bench_engine_kv_prompt_blocks", {-1: 10, 60: 50}),
        ),
        [],
    ],
    ids=["no reuse", "in blocks", "no page"],
)
def test_reuse_and_speculation_that_a_server_does_not_have_alike_have_no_sum(
    make_requests: MakeRequests, steady_run: SteadyRun, tmp_path: Path, second: list[MetricSample]
) -> None:
    loads = _loads(make_requests, steady_run(100), tmp_path, _all_counts(0, 1) + second)
    assert loads.total is not None
    assert (loads.total.cache_reuse, loads.total.speculation, loads.total.batch_limit) == (None, None, None)
    assert next(iter(loads.each.values())).speculation == Speculation(7.0, 8.0, 9.0)


@pytest.mark.parametrize("pages", [None, 1])
def test_one_page_has_the_whole_load_and_an_unknown_number_of_pages_no_sums(
    make_requests: MakeRequests, steady_run: SteadyRun, tmp_path: Path, pages: int | None
) -> None:
    one = _loads(make_requests, steady_run(100), tmp_path, _all_counts(0, 1), pages)
    assert one.total is not None
    assert (one.total.finished_requests, one.total.models, dict(one.each)) == (1.0, (_WORK,), {})
    both = _loads(make_requests, steady_run(100), tmp_path, _all_counts(0, 1) + _all_counts(1, 2), pages)
    assert both.total is not None
    assert (both.total.finished_requests, list(both.each)) == (None, list(_PAGES))


def test_differences_of_two_servers_that_cancel_each_other_are_found(make_report: MakeReport, steady_run: SteadyRun) -> None:
    server = [*_vllm(0, 8, 30, 210), *_vllm(1, 2, 70, 90)]  # the pages in the wrong order
    finding = finding_of(make_report(_records(steady_run), server=server, **_several()), "counters_disagree")
    assert finding is not None
    assert finding.evidence["target"] == "a:8000"
    assert finding.sentence == "The server at a:8000 counted 30 requests; 70 of this run reached it."
    statistics = [counted_by_server(count)["server_statistics"] for count in (71, 29)]
    of_statistics = make_report(_records(steady_run), **_several(server_statistics=statistics), **counted_by_server(100))
    found = finding_of(of_statistics, "counters_disagree")
    assert found is not None
    assert "71 requests; 70 of this run" in found.sentence


@pytest.mark.parametrize(
    ("counts", "found"),
    [((70, 30), None), ((72, 32), None), ((73, 30), ("a:8000", 70, 72)), ((70, 33), ("b:8000", 30, 32))],
)
def test_a_lost_request_of_an_unknown_target_may_have_reached_either(
    make_report: MakeReport, steady_run: SteadyRun, failed: Make, counts: tuple[int, int], found: tuple[str, int, int] | None
) -> None:
    """2 requests are lost, of which no target is known; 3 were not sent, and reached none."""
    lost = [failed(100 + k, 1_000 + k, Outcome.LOST) for k in range(2)]
    unsent = [failed(102 + k, 1_010 + k, Outcome.NOT_SENT) for k in range(3)]
    statistics = [counted_by_server(count)["server_statistics"] for count in counts]
    report = make_report([*_records(steady_run), *lost, *unsent], **_several(server_statistics=statistics))
    finding = finding_of(report, "counters_disagree")
    evidence = {} if finding is None else finding.evidence
    assert [evidence.get(name) for name in ("target", "ours_least", "ours_most")] == list(found or (None, None, None))


def test_a_count_that_fell_is_unknown_and_found(make_report: MakeReport, steady_run: SteadyRun) -> None:
    statistics = [counted_by_server(*counts)["server_statistics"] for counts in ((40, 500), (30, 0))]
    report = make_report(_records(steady_run), **_several(server_statistics=statistics))
    assert [(numbers.counted.requests, numbers.counted.failed) for numbers in report.targets] == [(None, None), (30, 0)]
    finding = finding_of(report, "counters_disagree")
    assert finding is not None
    assert finding.sentence == "The count of requests of the server at a:8000 fell by 460; 70 of this run reached it."
    assert "restarted" in finding.advice


def test_a_page_that_belongs_to_no_target_is_in_no_row(make_report: MakeReport, steady_run: SteadyRun) -> None:
    """As many pages as targets are theirs in order; one page is that of a router, or of one of them."""
    both = make_report(_records(steady_run), server=[*_vllm(0, 8, 70, 210), *_vllm(1, 2, 30, 90)], **_several())
    assert [numbers.counted.output_tokens for numbers in both.targets] == [210, 90]
    one = make_report(_records(steady_run), server=_vllm(0, 8, 70, 210), **_several(pages=1))
    assert [numbers.counted.output_tokens for numbers in one.targets] == [None, None]


def test_a_target_that_died_has_its_failures_in_its_row(make_report: MakeReport, steady_run: SteadyRun, failed: Make) -> None:
    gone = [failed(100 + k, 1000 + k, Outcome.CONNECT, 1000 + k, 1001 + k, target=1) for k in range(20)]
    unsent = failed(120, 1030, Outcome.NOT_SENT)
    report = make_report([*_records(steady_run), *gone, unsent], **_several())
    first, second = report.targets
    assert (first.sent, first.failed, first.output_tokens) == (70, 0, 210)
    assert (second.sent, second.done, second.failed, second.failed_by_kind) == (50, 30, 20, {"connect": 20})
    assert second.output_tokens == 90
    assert second.ttft_ms is not None
    assert second.ttft_ms.p99 is None  # among failures
    shown = console_target_table(report)
    assert max(map(len, shown.splitlines())) <= 80
    assert "b:8000" in shown
    assert "failed" in shown
    assert "connect 20" in str(target_table(report).rows[1])
    assert console_target_table(report, most=1).endswith("\n1 more target is in the report.")


def test_the_last_page_of_a_target_that_died_is_not_compared_with_what_it_answered_since(
    make_report: MakeReport, steady_run: SteadyRun
) -> None:
    """The second of two servers answered 30 requests, the last after 1.1 s; it had counted 20 when its page was last read."""
    died = _of(1, metric("vllm:request_success_total", {-1: 0, 0.9: 20}))
    report = make_report(_records(steady_run), server=[*_vllm(0, 8, 70, 210), *died], **_several())
    assert [numbers.counted.requests for numbers in report.targets] == [70, None]
    assert finding_of(report, "counters_disagree") is None
    late = _of(1, metric("vllm:request_success_total", {-1: 0, 60: 20}))
    found = finding_of(
        make_report(_records(steady_run), server=[*_vllm(0, 8, 70, 210), *late], **_several()), "counters_disagree"
    )
    assert found is not None
    assert found.sentence == "The server at b:8000 counted 20 requests; 30 of this run reached it."


@pytest.mark.parametrize(
    ("balance", "distribution", "note"),
    [
        ("least_in_flight", None, "Requests were spread by least_in_flight. "),
        (
            "least_in_flight",
            {},
            "spread by least_in_flight: each worker counted those that it had in flight itself. ",
        ),
        ("round_robin", {}, "Requests were spread by round_robin. "),
    ],
)
def test_the_note_says_what_the_workers_of_a_distributed_run_counted(
    make_report: MakeReport, steady_run: SteadyRun, balance: str, distribution: dict[str, Any] | None, note: str
) -> None:
    target = {"target": {"balance": balance, "servers": 2}, "distribution": distribution}
    assert note in target_table(make_report(_records(steady_run), **_several(), **target)).note


def test_a_run_of_one_target_has_no_rows(make_report: MakeReport, steady_run: SteadyRun) -> None:
    report = make_report(steady_run(30))
    assert (report.targets, dict(report.servers), console_target_table(report)) == ((), {}, "")
    assert not target_table(report).rows
    assert not server_level_table(report).rows

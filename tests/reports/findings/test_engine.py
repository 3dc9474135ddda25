"""Findings from the engine's own view."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bench_records.manifest import Manifest
from bench_records.record import Record
from bench_records.server_table import MetricSample
from reports.findings.engine import FrontEndTime, GpuClocksLimited
from reports.findings.finding import RunFacts
from reports.metrics.gpu_use import ClockLimit
from reports.run_report import RunReport
from tests.reports.findings.lookup import finding_of
from tests.reports.manifests import machine_use
from tests.reports.watched import engine_parts, engine_times, limited_clocks, metric

MakeReport = Callable[..., RunReport]
SteadyRun = Callable[..., list[Record]]


@pytest.mark.parametrize(("decode_ms", "expected"), [(99.0, None), (49.0, 61.0), (109.0, None)])
def test_time_in_the_front_end_is_what_the_engine_did_not_take(
    make_report: MakeReport, steady_run: SteadyRun, decode_ms: float, expected: float | None
) -> None:
    server = engine_times(100, 120) + engine_parts(1.0, 9.0, decode_ms)
    finding = finding_of(make_report(steady_run(100), server=server), "server_front_end")
    assert (finding is None) == (expected is None)
    if finding is not None:
        assert finding.evidence["front_end_ms"] == pytest.approx(expected)
        assert finding.sentence.startswith(
            "61 of 120 ms (51%) of the server's own mean E2E latency passed in its front end; the engine"
        )


def _facts(*, window_s: float | None = None, **known: Any) -> RunFacts:
    """An unstreamed run of which nothing else is read."""
    return RunFacts(cast("Any", None), cast("Any", SimpleNamespace(streamed=False, window_s=window_s)), Manifest(), **known)


@pytest.mark.parametrize(
    ("front_end_ms", "e2e_ms", "engine_ms", "until_end", "expected"),
    [
        (20.0, 200.0, 180.0, True, False),  # a tenth
        (20.1, 200.0, 179.9, True, True),
        (10.0, 50.0, 40.0, True, False),  # the floor
        (10.1, 50.0, 39.9, True, True),
        (20.1, 200.0, 179.9, False, False),  # the last requests are not in the counters
        (20.1, 0.0, 179.9, True, False),
        (20.1, None, 179.9, True, False),
        (20.1, 200.0, None, True, False),
        (None, 200.0, 179.9, True, False),
    ],
)
def test_more_than_a_tenth_and_10_ms_in_the_front_end_are_named(
    front_end_ms: float | None, e2e_ms: float | None, engine_ms: float | None, until_end: bool, expected: bool
) -> None:
    times = SimpleNamespace(front_end_ms=front_end_ms, e2e_ms=e2e_ms, engine_ms=engine_ms)
    found = FrontEndTime.check(_facts(server=SimpleNamespace(until_end=until_end, times=times)))
    assert (found is not None) is expected
    if found is not None and front_end_ms is not None and e2e_ms is not None:
        assert found.evidence == {
            "front_end_ms": front_end_ms, "share": front_end_ms / e2e_ms, "e2e_ms": e2e_ms, "engine_ms": engine_ms,
            "beside": None,
        }  # fmt: skip


@pytest.mark.parametrize(("others_cores", "beside"), [(0.1, None), (1.0, "machine_shared")])
def test_a_front_end_that_others_delay_needs_no_more_processes(
    make_report: MakeReport, steady_run: SteadyRun, others_cores: float, beside: str | None
) -> None:
    server = engine_times(100, 120) + engine_parts(1.0, 9.0, 49.0)
    finding = finding_of(make_report(steady_run(100), server=server, **machine_use(others_cores)), "server_front_end")
    assert finding is not None
    assert finding.evidence["beside"] == beside
    assert ("front-end processes" in finding.advice, "front-end processes" in finding.brief) == (beside is None,) * 2
    assert beside is None or beside in finding.advice


def test_a_front_end_s_time_needs_all_parts_of_the_engine(make_report: MakeReport, steady_run: SteadyRun) -> None:
    parts = [sample for sample in engine_parts(1.0, 9.0, 9.0) if "prefill" not in sample.name]
    report = make_report(steady_run(100), server=engine_times(100, 120) + parts)
    assert finding_of(report, "server_front_end") is None


@pytest.mark.parametrize(
    ("preemptions", "sentence"), [(0, None), (1, "1 time, in"), (22, "22 times, in a run of 100 requests.")]
)
def test_preemptions_are_counted(
    make_report: MakeReport, steady_run: SteadyRun, preemptions: int, sentence: str | None
) -> None:
    report = make_report(steady_run(100), server=metric("vllm:num_preemptions_total", {-1: 5, 2: 5 + preemptions}))
    finding = finding_of(report, "requests_preempted")
    assert (finding is None) == (sentence is None)
    if finding is not None and sentence is not None:
        assert sentence in finding.sentence


# ---- gpu_clocks_limited; the runs take 1.12 s


@pytest.mark.parametrize(
    ("server", "sentence"),
    [
        (limited_clocks("power cap", 0.45), "Power cap: clocks fell to 1,350 MHz, for 0.50 s."),
        (limited_clocks("heat", 0.45, clock_mhz=None), "Heat: clocks were held down, for 0.50 s."),
        (
            limited_clocks("heat", 0.25) + limited_clocks("power cap", 0.45, uuid="b"),
            "Power cap: clocks fell to 1,350 MHz, for 0.50 s, on 2 GPUs.",
        ),
        (limited_clocks("power cap", -1.0), None),
    ],
    ids=["power", "unknown clock", "two GPUs", "never"],
)
def test_clocks_that_were_held_down_are_named(
    make_report: MakeReport, steady_run: SteadyRun, server: list[MetricSample], sentence: str | None
) -> None:
    report = make_report(steady_run(100), server=server)
    finding = finding_of(report, "gpu_clocks_limited")
    assert (None if finding is None else finding.sentence) == sentence
    assert report.server is None  # the server itself exported nothing


def _limited(*gpus: tuple[ClockLimit, ...]) -> Any:
    return SimpleNamespace(gpus=tuple(SimpleNamespace(limits=limits) for limits in gpus))


@pytest.mark.parametrize(("seconds", "window_s", "expected"), [
    (0.1, 10.0, True), (0.0999, 10.0, False), (0.1, None, False), (0.1, 0.0, False),
])  # fmt: skip
def test_clocks_held_down_for_a_hundredth_of_the_run_are_named(seconds: float, window_s: float | None, expected: bool) -> None:
    limit = ClockLimit("heat", seconds, 1_305.0)
    found = GpuClocksLimited.check(_facts(window_s=window_s, gpus=_limited((limit,))))
    assert found == (GpuClocksLimited("heat", seconds, 1_305.0, 1) if expected else None)


def test_the_longest_limit_of_all_gpus_is_named_with_how_many_had_one() -> None:
    heat, longest, short = ClockLimit("heat", 3.0, 1_305.0), ClockLimit("power cap", 5.0, None), ClockLimit("heat", 4.0, 900.0)
    for gpus in (((heat, longest), (), (short,)), ((short,), (longest, heat))):
        found = GpuClocksLimited.check(_facts(window_s=10.0, gpus=_limited(*gpus)))
        assert found == GpuClocksLimited("power cap", 5.0, None, 2)
    assert GpuClocksLimited.check(_facts(window_s=10.0, gpus=_limited((), ()))) is None
    assert GpuClocksLimited.check(_facts(window_s=10.0)) is None

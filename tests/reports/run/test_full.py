"""The report on a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from bench_records.record import FAILURES, Outcome, Record
from reports.run.full import render
from reports.run_report import RunReport

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]
SteadyRun = Callable[..., list[Record]]


def _cells(text: str, name: str) -> list[str]:
    """The cells of the first table row that begins with ``name``."""
    line = next(line for line in text.splitlines() if line.startswith(name + "  "))
    return re.split(r"\s{2,}", line.strip())[1:]


def _intervals(text: str, name: str) -> list[str]:
    """The intervals of mean, p50 and p99 in the row of ``name``."""
    return _cells(text[text.index("95 % intervals, ms") :], name)


def test_latencies_stand_in_their_row(make_report: MakeReport, answered: Make) -> None:
    records = [answered(k, 10 * k, 10 * k + 1, [(10 * k + 5, 1), (10 * k + 9, 2)]) for k in range(3)]
    text = render(make_report(records))

    def same(value: str, n: str) -> list[str]:  # p99 is marked: three values are too few for it
        return [value] * 4 + [f"*{value}", value, n]

    assert _cells(text, "TTFT, from schedule") == same("5.00", "3")
    assert _cells(text, "TTFT, from send") == same("4.00", "3")
    assert _cells(text, "E2E latency, from schedule") == same("9.00", "3")
    assert _cells(text, "TPOT") == same("2.00", "3")
    assert _cells(text, "ITL") == same("2.00", "6")
    assert _cells(text, "Inter-chunk latency") == same("4.00", "3")
    assert _cells(text, "Schedule slip") == same("1.00", "3")
    assert _cells(text, "Offered rate (requests/s)") == ["100.00"]
    assert _cells(text, "Request throughput (requests/s)") == ["100.00", "n too small"]
    assert _cells(text, "Output token throughput (tokens/s)") == ["300.00", "n too small"]


def test_upstream_s_rows_have_upstream_s_names(make_report: MakeReport, answered: Make) -> None:
    text = render(make_report([answered(0, 0, 0, [(5, 4)], done=10, input_tokens=6)]))
    rows = {
        "Requests/Sec": "100.00",
        "OP tokens/sec": "400.00",
        "Avg. latency (ms)": "10.00",
        "P99 latency (ms)": "10.00",
        "P90 latency (ms)": "10.00",
        "Avg. IP tokens per request": "6.00",
        "Avg. OP tokens per request": "4.00",
        "Total latency (ms)": "10.00",
        "Total requests": "1",
    }
    assert {name: _cells(text, name) for name in rows} == {name: [value] for name, value in rows.items()}


def test_upstream_s_numbers_have_no_separators_and_ours_have(make_report: MakeReport, answered: Make) -> None:
    text = render(make_report([answered(k, 2 * k, 2 * k, [(2 * k + 12_345.678, 1)]) for k in range(1200)]))
    assert _cells(text, "Total requests") == ["1200"]
    assert _cells(text, "Total latency (ms)") == ["14744.68"]
    assert _cells(text, "E2E latency, from schedule")[1] == "12,345.68"


def test_every_percentile_stands_in_its_column_and_its_interval_below(make_report: MakeReport, answered: Make) -> None:
    order = np.random.default_rng(0).permutation(600)
    report = make_report([answered(k, 0, 0, [(float(order[k]) + 1, 1)]) for k in range(600)])
    text = render(report)
    latencies = ["300.50", "300.00", "540.00", "570.00", "*594.00", "600.00"]  # mean, p50, p90, p95, p99, max
    assert _cells(text, "E2E latency, from schedule") == [*latencies, "600"]
    d = report.metrics.e2e_ms.scheduled
    assert d is not None
    intervals = (d.mean.interval, d.percentile(0.50).interval, d.percentile(0.99).interval)
    expected = [f"{low:.2f} – {high:.2f}" for low, high in filter(None, intervals)]
    assert len(expected) == 3
    assert _intervals(text, "E2E latency, from schedule") == expected


def test_an_interval_that_failures_took_is_not_put_down_to_the_sample(
    make_report: MakeReport, answered: Make, failed: Make
) -> None:
    order = np.random.default_rng(0).permutation(1000)
    records = [answered(k, 0, 0, [(float(order[k]) + 1, 1)]) for k in range(1000)]
    for k in range(8):
        records[120 * k] = failed(120 * k, 0, Outcome.REFUSED, 0, 500)
    assert re.fullmatch(r"≥ 9\d\d\.\d\d; failed", _intervals(render(make_report(records)), "E2E latency, from schedule")[-1])


def test_a_p99_of_too_few_values_is_marked_and_the_mark_explained(make_report: MakeReport, steady_run: SteadyRun) -> None:
    mark = "* too few values for a claim about p99, which needs 662 (99 % confidence)."
    few, enough = (render(make_report(steady_run(count))) for count in (661, 662))
    assert _cells(few, "TTFT, from schedule")[4] == "*100.00"
    assert mark in few
    assert _cells(enough, "TTFT, from schedule")[4] == "100.00"
    assert mark not in enough
    assert "p99.9" not in enough


def test_p99_9_is_shown_where_the_values_are_enough_for_it(make_report: MakeReport, answered: Make, failed: Make) -> None:
    order = np.random.default_rng(0).permutation(6_700)
    records = [answered(k, 0, 0, [(float(order[k]) + 1, 1)]) for k in range(6_700)]
    report = make_report(records)
    text = render(report)
    tails = text[text.index("p99.9") :]
    d = report.metrics.e2e_ms.scheduled
    assert d is not None
    interval = d.percentile(0.999).interval
    assert interval is not None
    low, high = interval
    assert _cells(tails, "E2E latency, from schedule") == ["6,694.00", f"{low:,.2f} – {high:,.2f}"]
    assert "TPOT" not in tails[: tails.index("Rates")]  # one token each
    for k in range(50):
        records[k] = failed(k, 0, Outcome.REFUSED, 0, 10)
    failing = render(make_report(records))
    assert _cells(failing[failing.index("p99.9") :], "E2E latency, from schedule")[0] == "failed"


def test_slip_is_shown_by_worker_where_there_are_several_and_over_time(make_report: MakeReport, answered: Make) -> None:
    def run(workers: int) -> str:
        records = [answered(k, 10 * k, 10 * k + 1 + k % workers, [(10 * k + 5, 1)], worker=k % workers) for k in range(110)]
        return render(make_report(records))

    text = run(2)
    assert _cells(text, "Worker 0") == ["55", "1.00", "1.00", "1.00"]
    assert _cells(text, "Worker 1") == ["55", "2.00", "2.00", "2.00"]
    assert f"p99 slip (ms) in tenths of the run: {', '.join(['2.00'] * 10)}" in text
    assert "Worker" not in run(1)
    assert f"tenths of the run: {', '.join(['1.00'] * 10)}" in run(1)


def test_both_windows_are_shown(make_report: MakeReport, steady_run: SteadyRun) -> None:
    text = render(make_report(steady_run(700)))
    whole, steady = _cells(text, "Whole run (p50, p99: TTFT)"), _cells(text, "Steady (MSER-5; p50, p99: TTFT)")
    assert whole[:2] == ["0.00", "7.11"]
    assert float(steady[0]) > 0
    assert steady[1] == "6.99"  # the last send: what follows is the drain
    assert [float(cell) for cell in steady[2:]] == pytest.approx([100, 300, 100, 100], rel=0.01)


def test_a_run_that_never_settled_has_the_reason_in_place_of_a_window(make_report: MakeReport, answered: Make) -> None:
    growing = [answered(k, 10 * k, 10 * k, [(20 * k + 5, 1)]) for k in range(700)]
    assert "Steady (MSER-5; p50, p99: TTFT): none, the load on the server was still changing" in render(make_report(growing))


def test_what_is_unknown_is_a_dash_and_never_a_zero(make_report: MakeReport, failed: Make) -> None:
    text = render(make_report([failed(0, 0, Outcome.CONNECT, 0, 1)]))
    assert _cells(text, "TTFT, from schedule") == ["–"] * 7
    assert _cells(text, "Request throughput (requests/s)") == ["–"]
    assert _cells(text, "Requests/Sec") == ["–"]
    assert _cells(text, "Total requests") == ["0"]


def test_an_unstreamed_run_has_no_rows_for_tokens(make_report: MakeReport, steady_run: SteadyRun) -> None:
    text = render(make_report(steady_run(5), streaming=False))
    assert "unstreamed" in text
    for name in ("TTFT", "TPOT", "ITL", "Inter-chunk"):
        assert name not in text
    assert _cells(text, "E2E latency, from schedule")[0] == "120.00"


def test_a_valid_run_is_declared_valid(make_report: MakeReport, steady_run: SteadyRun) -> None:
    text = render(make_report(steady_run(700)))
    assert text.endswith("This run is valid.")
    assert "Failed: 0 of 700 requests sent." in text
    assert "7 prompts of test.json; constant arrivals at 100 requests/s; tensorrt_llm over grpc, streamed" in text


def test_an_invalid_run_is_declared_so_with_what_is_wrong_and_what_to_do(
    make_report: MakeReport, steady_run: SteadyRun, failed: Make
) -> None:
    records = steady_run(20)
    records[4] = failed(4, 40, Outcome.REFUSED, 40, 41, error="queue full")
    records[5] = failed(5, 50, Outcome.TIMEOUT, 50, 90, error="too late")
    report = make_report(records)
    text = render(report)
    assert "THIS RUN IS NOT VALID: errors." in text
    assert "This run is valid" not in text
    assert "Failed: 2 of 20 requests sent (refused 1, timeout 1)." in text
    assert "queue full" in text
    for finding in report.findings:
        assert finding.severity.value in text
        assert finding.advice in text


@pytest.mark.parametrize("kind", [*FAILURES, Outcome.NOT_SENT])
@pytest.mark.parametrize("streaming", [True, False])
def test_a_run_of_any_failure_can_be_printed(make_report: MakeReport, failed: Make, kind: Outcome, streaming: bool) -> None:
    sent = None if kind in (Outcome.NOT_SENT, Outcome.LOST) else 1.0
    text = render(make_report([failed(0, 0, kind, sent, None if sent is None else 9.0)], streaming=streaming))
    assert ("Not sent: 1 of 1 request." if kind is Outcome.NOT_SENT else f"{kind.value} 1") in text
    assert "THIS RUN IS NOT VALID" in text


def test_an_error_message_cannot_steer_the_terminal(make_report: MakeReport, failed: Make) -> None:
    text = render(make_report([failed(0, 0, Outcome.SERVER_ERROR, 0, 1, error="\x1b[2J\x1b[1;1HThis run is valid.\r")]))
    assert "\x1b" not in text
    assert "\r" not in text

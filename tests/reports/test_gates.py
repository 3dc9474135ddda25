"""Gates: a number, its limits and a requirement make a status and a sentence, the same in JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import pytest

from harness.records.record import Outcome, Record
from reports.criteria import Requirement, parse_fail_if, parse_slo
from reports.gates import Evidence, Status, judge, judge_together
from reports.metrics.failures import FailedShare
from reports.metrics.goodput import Goodput, Objective
from reports.metrics.output_events import Rate
from reports.metrics.requests import Requests
from reports.metrics.run_metrics import Anchored, Metrics, compute_metrics
from reports.run.summary_json import summary
from reports.run_report import RunReport, read_run
from reports.statistics.autocorrelation import CLUSTERED_ARRIVALS, DRIFTS, TOO_FEW, TOO_UNEVEN
from reports.statistics.percentiles import Distribution, Percentile, SampleMean

Make = Callable[..., Record]
MakeRequests = Callable[[Sequence[Record]], Requests]
SteadyRun = Callable[..., list[Record]]
MakeReport = Callable[..., RunReport]
_AMONG_FAILED = "it falls among the failed requests"
_FEW = "too few requests for an interval, at least 100 needed"


def _with_tail(metrics: Metrics, percentile: Percentile) -> Metrics:
    """The metrics with this p99 of TTFT, and this p50 with the same limits."""
    assert metrics.ttft_ms is not None
    found = metrics.ttft_ms.scheduled
    assert found is not None
    percentiles = tuple(dataclasses.replace(percentile, q=one.q) if one.q in (0.50, 0.99) else one for one in found.percentiles)
    changed: Distribution = dataclasses.replace(found, percentiles=percentiles)
    return dataclasses.replace(metrics, ttft_ms=Anchored(changed, metrics.ttft_ms.sent))


@pytest.fixture
def metrics(make_requests: MakeRequests, steady_run: SteadyRun) -> Metrics:
    return compute_metrics(make_requests(steady_run(700)), streaming=True)


@pytest.mark.parametrize("name", ["p99_ttft", "p50_ttft"])
@pytest.mark.parametrize(
    ("percentile", "limit", "status", "why"),
    [
        (Percentile(0.99, 110.0, (100.0, 120.0)), 120, Status.PASSED, "110 ms, 95 %: 100 – 120 ms"),
        (Percentile(0.99, 110.0, (100.0, 120.0)), 150, Status.PASSED, "110 ms, 95 %: 100 – 120 ms"),
        (Percentile(0.99, 110.0, (100.0, 120.0)), 119, Status.UNDECIDED, "110 ms, 95 %: 100 – 120 ms"),
        (Percentile(0.99, 110.0, (100.0, 120.0)), 105, Status.UNDECIDED, "110 ms, 95 %: 100 – 120 ms"),
        (Percentile(0.99, 110.0, (100.0, 120.0)), 100, Status.UNDECIDED, "110 ms, 95 %: 100 – 120 ms"),
        (Percentile(0.99, 110.0, (100.0, 120.0)), 99, Status.FAILED, "110 ms, 95 %: 100 – 120 ms"),
        (Percentile(0.99, 110.0, None, 100.0, "n too small"), 150, Status.UNDECIDED, "110 ms, at least 100 ms; " + _FEW),
        (Percentile(0.99, 110.0, None, 100.0, "n too small"), 90, Status.FAILED, "110 ms, at least 100 ms"),
        (Percentile(0.99, 110.0, None, None, "n too small"), 150, Status.UNDECIDED, "110 ms; " + _FEW),
        (Percentile(0.99, 110.0, None, None, "n too small"), 1, Status.UNDECIDED, "110 ms; " + _FEW),
        (Percentile(0.99, None, None, 100.0, "failed"), 90, Status.FAILED, "unknown, at least 100 ms"),
        (
            Percentile(0.99, None, None, 100.0, "failed"),
            1e6,
            Status.UNDECIDED,
            "unknown, at least 100 ms; " + _AMONG_FAILED,
        ),
    ],
)
def test_a_latency_passes_or_fails_by_its_limits_and_is_undecided_between(
    metrics: Metrics, name: str, percentile: Percentile, limit: float, status: Status, why: str
) -> None:
    (gate,) = judge([_required(f"{name}<={limit}ms")], _with_tail(metrics, percentile), valid=True)
    assert (gate.status, gate.why) == (status, why)


@pytest.mark.parametrize(
    ("rate", "text", "status"),
    [
        (Rate(100.0, (95.0, 105.0), None), "request_throughput>=95", Status.PASSED),
        (Rate(100.0, (95.0, 105.0), None), "request_throughput>=96", Status.UNDECIDED),
        (Rate(100.0, (95.0, 105.0), None), "request_throughput>=105", Status.UNDECIDED),
        (Rate(100.0, (95.0, 105.0), None), "request_throughput>=106", Status.FAILED),
        (Rate(100.0, (95.0, 105.0), None), "request_throughput<=94", Status.FAILED),
        (Rate(100.0, None, "drifts, or run too short"), "request_throughput>=1", Status.UNDECIDED),
    ],
)
def test_a_throughput_is_judged_by_its_limits(metrics: Metrics, rate: Rate, text: str, status: Status) -> None:
    assert metrics.windows.whole is not None
    whole = dataclasses.replace(metrics.windows.whole, request_throughput=rate)
    changed = dataclasses.replace(metrics, windows=dataclasses.replace(metrics.windows, whole=whole))
    (gate,) = judge([_required(text)], changed, valid=True)
    assert gate.status is status


@pytest.mark.parametrize(
    ("text", "status", "why"),
    [
        ("attainment>=50%", Status.UNDECIDED, "it needs an objective of each request"),
        ("goodput>=1", Status.UNDECIDED, "it needs an objective of each request"),
        ("p99_ttfo<=1s", Status.UNDECIDED, "this run has no TTFO"),
        ("failed_share<=2%", Status.PASSED, "0.0 %, 95 %: 0.0 – 1.1 %"),
    ],
)
def test_a_number_that_a_run_does_not_have_decides_nothing(metrics: Metrics, text: str, status: Status, why: str) -> None:
    (gate,) = judge([_required(text)], metrics, valid=True)
    assert gate.status is status
    assert why in gate.why


def test_attainment_and_goodput_are_of_the_objectives(make_requests: MakeRequests, steady_run: SteadyRun) -> None:
    objective = parse_slo("e2e<=60s")
    assert isinstance(objective, Objective)
    metrics = compute_metrics(make_requests(steady_run(700)), streaming=True, objectives=[objective])
    required = [_required(text) for text in ("attainment>=95%", "attainment>=99.999%", "goodput>=1")]
    assert [gate.status for gate in judge(required, metrics, valid=True)] == [
        Status.PASSED,
        Status.UNDECIDED,  # 700 of 700 do not show that much
        Status.PASSED,
    ]


@pytest.mark.parametrize(
    ("done", "failed_requests", "text", "status"),
    [
        (10, 0, "failed_share>1%", Status.UNDECIDED),  # 0 of 10 allow up to 30.8 %
        (10, 0, "failed_share>31%", Status.PASSED),
        (99, 0, "failed_share>3.6%", Status.UNDECIDED),
        (99, 0, "failed_share>3.7%", Status.PASSED),
        (700, 0, "failed_share>1.1%", Status.PASSED),
        (700, 0, "failed_share>0%", Status.UNDECIDED),  # no number of requests shows that none would ever fail
        (10, 10, "failed_share>1%", Status.FAILED),
        (95, 1, "failed_share>1%", Status.UNDECIDED),
    ],
)
def test_a_failed_share_is_decided_by_as_many_requests_as_support_it(
    make_requests: MakeRequests,
    steady_run: SteadyRun,
    failed: Make,
    done: int,
    failed_requests: int,
    text: str,
    status: Status,
) -> None:
    failures = [failed(k, 10 * k, Outcome.TIMEOUT, 10 * k, 10 * k + 9) for k in range(done, done + failed_requests)]
    metrics = compute_metrics(make_requests([*steady_run(done), *failures]), streaming=True)
    (gate,) = judge([parse_fail_if(text)], metrics, valid=True)
    assert gate.status is status, gate.why


def test_a_request_that_was_never_sent_is_no_failure_of_the_target(
    make_requests: MakeRequests, steady_run: SteadyRun, failed: Make
) -> None:
    metrics = compute_metrics(make_requests([*steady_run(9), failed(9, 90, Outcome.NOT_SENT)]), streaming=True)
    assert metrics.failed_share == FailedShare(0, 9, pytest.approx((0.0, 0.3363), abs=1e-4))


def test_correlated_requests_are_counted_by_what_they_are_worth(metrics: Metrics) -> None:
    tail = Percentile(0.99, 110.0, None, 100.0, "n as good as 62")
    p99, p50 = judge([_required("p99_ttft<=150ms"), _required("p50_ttft<=150ms")], _with_tail(metrics, tail), valid=True)
    assert p99.why == "110 ms, at least 100 ms; equivalent to 62 independent requests, 368 needed"
    assert p50.why.endswith("10 needed")


@pytest.mark.parametrize(
    ("text", "mean", "status", "why"),
    [
        ("mean_ttft<=120", SampleMean(110.0, (100.0, 120.0)), Status.PASSED, "110 ms, 95 %: 100 – 120 ms"),
        ("mean_ttft<=99", SampleMean(110.0, (100.0, 120.0)), Status.FAILED, "110 ms, 95 %: 100 – 120 ms"),
        ("mean_tpot<=120", SampleMean(0.5, (0.25, 1.125)), Status.PASSED, "0.5 ms, 95 %: 0.25 – 1.12 ms"),
        ("mean_ttft<=1", SampleMean(110.0), Status.UNDECIDED, "110 ms"),
        ("mean_ttft<=1", SampleMean(110.0, None, DRIFTS), Status.UNDECIDED, "110 ms; it drifts, or the run is too short"),
        ("mean_ttft<=1", SampleMean(110.0, None, "odd"), Status.UNDECIDED, "110 ms; odd"),
        (
            "mean_ttft<=1",
            SampleMean(1_234.5, None, "n as good as 9"),
            Status.UNDECIDED,
            "1,234 ms; equivalent to 9 independent requests, 10 needed",
        ),
    ],
)
def test_a_mean_is_judged_by_its_interval(metrics: Metrics, text: str, mean: SampleMean, status: Status, why: str) -> None:
    assert metrics.ttft_ms is not None
    assert metrics.ttft_ms.scheduled is not None
    assert metrics.tpot_ms is not None
    ttft = dataclasses.replace(metrics.ttft_ms, scheduled=dataclasses.replace(metrics.ttft_ms.scheduled, mean=mean))
    changed = dataclasses.replace(metrics, ttft_ms=ttft, tpot_ms=dataclasses.replace(metrics.tpot_ms, mean=mean))
    (gate,) = judge([_required(text)], changed, valid=True)
    assert (gate.status, gate.why) == (status, why)
    assert gate.evidence.value == mean.value


def test_a_mean_of_a_short_run_needs_thirty_independent_requests(make_requests: MakeRequests, answered: Make) -> None:
    """699 answers that become slower and quicker again in waves of 50."""
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 50 + abs(25 - k % 50), 1)]) for k in range(699)]
    metrics = compute_metrics(make_requests(records), streaming=True)
    (gate,) = judge([_required("mean_ttft<=1")], metrics, valid=True)
    assert gate.evidence.value == pytest.approx(62.5, abs=0.1)
    assert gate.why.endswith("independent requests, 30 needed")


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("n as good as 1,234", "equivalent to 1,234 independent requests, 10 needed"),
        (TOO_FEW, _FEW),
        (DRIFTS, "it drifts, or the run is too short"),
        (TOO_UNEVEN, "it rests on few values"),
        (CLUSTERED_ARRIVALS, "arrivals came in few clusters, worth 200 independent ones are needed"),
        ("odd", "odd"),
    ],
)
def test_why_a_rate_is_undecided_is_in_words(metrics: Metrics, reason: str, words: str) -> None:
    (gate,) = judge([_required("request_throughput>=1")], _of_rate(metrics, 10.0, None, reason), valid=True)
    assert gate.why == f"10 requests/s; {words}"


def test_a_run_without_a_success_has_no_rate_and_one_without_an_end_no_share(
    make_requests: MakeRequests, failed: Make, metrics: Metrics
) -> None:
    timeouts = [failed(k, 10 * k, Outcome.TIMEOUT, 10 * k, 10 * k + 9) for k in range(3)]
    unsent = [failed(k, 10 * k, Outcome.NOT_SENT) for k in range(3)]
    (rate,) = judge([_required("request_throughput>=1")], compute_metrics(make_requests(timeouts), streaming=True), valid=True)
    (share,) = judge([_required("failed_share<=1%")], compute_metrics(make_requests(unsent), streaming=True), valid=True)
    assert (rate.status, rate.evidence, rate.why) == (
        Status.UNDECIDED,
        Evidence(None, reason="no request succeeded"),
        "unknown; no request succeeded",
    )
    assert (share.status, share.why) == (Status.UNDECIDED, "unknown; no request ended")
    clustered = dataclasses.replace(metrics, failed_share=FailedShare(7, 700, None))
    (gate,) = judge([_required("failed_share<=1%")], clustered, valid=True)
    assert gate.why == "1.0 %; failures drift or cluster, so the share has no interval"


def test_goodput_and_attainment_have_the_limits_of_the_objectives(metrics: Metrics) -> None:
    objective = parse_slo("e2e<=60s")
    assert isinstance(objective, Objective)
    goodput = Goodput(
        (objective,), (650,), (700,), 650, 650, 650, 700, 0, Rate(12.0, (10.0, 15.0), None), 0.93, (0.9, 0.95), None
    )
    changed = dataclasses.replace(metrics, goodput=goodput)
    required = [_required(text) for text in ("goodput>=10", "goodput>=11", "attainment>=90%", "attainment>=96%")]
    gates = judge(required, changed, valid=True)
    assert [gate.status for gate in gates] == [Status.PASSED, Status.UNDECIDED, Status.PASSED, Status.FAILED]
    assert gates[0].why == "12 requests/s, 95 %: 10 – 15 requests/s"
    assert gates[2].why == "93.0 %, 95 %: 90.0 – 95.0 %"
    without = dataclasses.replace(goodput, rate=Rate(12.0, None, "n as good as 9"), attainment_interval=None)
    rate, share = judge(required[1:3], dataclasses.replace(metrics, goodput=without), valid=True)
    assert rate.why == "12 requests/s; equivalent to 9 independent requests, 10 needed"
    assert share.why == "93.0 %; no interval"


@pytest.mark.parametrize(
    ("value", "text"), [(99.4, "99.4 ms"), (99.5, "100 ms"), (1_234.5, "1,234 ms"), (0.123456, "0.123 ms")]
)
def test_a_number_in_words_has_three_digits_and_limits_that_are_equal_are_left_out(
    metrics: Metrics, value: float, text: str
) -> None:
    (gate,) = judge([_required("p99_ttft<=1s")], _with_tail(metrics, Percentile(0.99, value, (value, value))), valid=True)
    assert gate.why == text


def test_of_a_run_that_is_not_valid_nothing_passes_or_fails(metrics: Metrics) -> None:
    gates = judge([_required("p99_ttft<=60s"), _required("request_throughput>=1e6")], metrics, valid=False)
    assert {gate.status for gate in gates} == {Status.UNDECIDED}
    assert all(gate.why.endswith("; the run is not valid") for gate in gates)


def test_json_has_the_status_and_the_evidence(make_report: MakeReport, steady_run: SteadyRun) -> None:
    folder = make_report(steady_run(700)).folder
    report = read_run(folder, [parse_slo("p99_ttft<=60s"), parse_fail_if("request_throughput<1e6")])
    first, second = summary(report)["gates"]
    assert first["requirement"] == "p99_ttft<=60000ms"
    assert first["status"] == "passed"
    assert first["low"] <= first["value"] <= first["high"]
    assert second["status"] == "failed"


def test_a_run_without_requirements_has_no_gates(make_report: MakeReport, steady_run: SteadyRun) -> None:
    assert make_report(steady_run(50)).gates == ()


def test_unknown_evidence_is_none_and_never_zero() -> None:
    assert Evidence(None) == Evidence(value=None, low=None, high=None, reason=None)


def _required(text: str) -> Requirement:
    criterion = parse_slo(text)
    assert isinstance(criterion, Requirement)
    return criterion


def _of_rate(metrics: Metrics, value: float, interval: tuple[float, float] | None, reason: str = "too few requests") -> Metrics:
    rate = Rate(value, interval, None if interval else reason)
    assert metrics.windows.whole is not None
    whole = dataclasses.replace(metrics.windows.whole, request_throughput=rate)
    return dataclasses.replace(metrics, windows=dataclasses.replace(metrics.windows, whole=whole))


@pytest.mark.parametrize(("limit", "status"), [(8.5, Status.PASSED), (8.6, Status.UNDECIDED), (13.5, Status.FAILED)])
def test_repeats_are_judged_by_the_interval_of_their_mean(metrics: Metrics, limit: float, status: Status) -> None:
    """Of 10, 11 and 12: mean 11, Student's t with 2 degrees of freedom 4.303, error 0.577: 8.516 to 13.484."""
    repeats = [_of_rate(metrics, value, (value - 0.1, value + 0.1)) for value in (10.0, 11.0, 12.0)]
    gate = judge_together(parse_fail_if(f"request_throughput<{limit}"), repeats, valid=True)
    assert gate.status is status
    assert gate.evidence.low == pytest.approx(8.516, abs=1e-3)
    assert gate.evidence.high == pytest.approx(13.484, abs=1e-3)


def test_one_run_is_judged_by_its_own_interval(metrics: Metrics) -> None:
    run = _of_rate(metrics, 10.0, (9.0, 11.0))
    requirement = parse_fail_if("request_throughput<9")
    assert judge_together(requirement, [run], valid=True) == judge([requirement], run, valid=True)[0]


def test_equal_repeats_keep_the_widest_of_their_own_limits(metrics: Metrics) -> None:
    repeats = [_of_rate(metrics, 10.0, (9.0, 11.0)), _of_rate(metrics, 10.0, (8.0, 10.5))]
    gate = judge_together(parse_fail_if("request_throughput<8"), repeats, valid=True)
    assert (gate.evidence.low, gate.evidence.high, gate.status) == (8.0, 11.0, Status.PASSED)


def test_repeats_need_no_interval_of_their_own_but_for_a_tail(metrics: Metrics) -> None:
    repeats = [_of_rate(metrics, 10.0, (9.0, 11.0)), _of_rate(metrics, 10.1, None)]
    assert judge_together(parse_fail_if("request_throughput<2"), repeats, valid=True).status is Status.PASSED
    tails = [
        _with_tail(metrics, Percentile(0.99, 110.0, (100.0, 120.0))),
        _with_tail(metrics, Percentile(0.99, 111.0, None, None, "n too small")),
    ]
    gate = judge_together(parse_fail_if("p99_ttft>500ms"), tails, valid=True)
    assert gate.status is Status.UNDECIDED
    assert gate.evidence == Evidence(110.5, None, None, _FEW)
    assert gate.why == f"110 ms; {_FEW}"
    assert judge_together(parse_fail_if("p50_ttft>500ms"), tails, valid=True).status is Status.PASSED


def test_of_repeats_that_are_not_valid_nothing_passes(metrics: Metrics) -> None:
    gate = judge_together(parse_fail_if("request_throughput<1"), [metrics, metrics], valid=False)
    assert gate.status is Status.UNDECIDED


def test_a_tail_that_one_repeat_is_too_short_for_keeps_the_lower_limit_of_both(metrics: Metrics) -> None:
    tails = [
        _with_tail(metrics, Percentile(0.99, 110.0, (100.0, 120.0))),
        _with_tail(metrics, Percentile(0.99, 113.0, None, 105.0, "n too small")),
    ]
    passed, failed = (judge_together(parse_fail_if(f"p99_ttft>{limit}ms"), tails, valid=True) for limit in (500, 99))
    assert passed.evidence == failed.evidence == Evidence(111.5, 100.0, None, _FEW)
    assert (passed.status, failed.status) == (Status.UNDECIDED, Status.FAILED)


def test_tails_with_an_interval_in_every_repeat_are_judged_by_that_of_their_mean(metrics: Metrics) -> None:
    """Of 110, 111 and 112: 111 ± 4.303 · 0.577."""
    tails = [_with_tail(metrics, Percentile(0.99, value, (90.0, 150.0))) for value in (110.0, 111.0, 112.0)]
    gate = judge_together(parse_fail_if("p99_ttft>120ms"), tails, valid=True)
    assert (gate.evidence.value, gate.status) == (pytest.approx(111.0), Status.PASSED)
    assert (gate.evidence.low, gate.evidence.high) == pytest.approx((108.516, 113.484), abs=1e-3)


def test_the_lower_limit_of_repeats_is_at_least_nothing(metrics: Metrics) -> None:
    """Of 1 and 10: 5.5 ± 12.706 · 4.5."""
    repeats = [_of_rate(metrics, value, None) for value in (1.0, 10.0)]
    evidence = judge_together(parse_fail_if("request_throughput<1"), repeats, valid=True).evidence
    assert (evidence.value, evidence.low) == (5.5, 0.0)
    assert evidence.high == pytest.approx(62.678, abs=1e-3)


def test_repeats_of_which_one_lacks_the_number_have_none(metrics: Metrics) -> None:
    without = dataclasses.replace(metrics, ttft_ms=None)
    gate = judge_together(parse_fail_if("p50_ttft>1s"), [metrics, without], valid=True)
    assert gate.evidence == Evidence(None, reason="this run has no TTFT")
    assert (gate.status, gate.why) == (Status.UNDECIDED, "unknown; this run has no TTFT")


def test_one_run_keeps_a_lower_limit_without_a_value(metrics: Metrics) -> None:
    tail = _with_tail(metrics, Percentile(0.99, None, None, 100.0, "failed"))
    assert judge_together(parse_fail_if("p99_ttft>90ms"), [tail], valid=True).status is Status.FAILED

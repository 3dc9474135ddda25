"""Every report of a run says the same share of failures."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench_records.record import Outcome, Record
from reports.compare.comparison import Arm, differences_between
from reports.criteria import parse_fail_if
from reports.findings.outcomes import Errors
from reports.gates.gate import Status
from reports.gates.judge import judge_together
from reports.run.full import render
from reports.run_report import RunReport
from reports.trend.history import estimates_of


def test_gate_comparison_trend_and_finding_count_answers_without_a_token_as_successes(
    answered: Callable[..., Record], failed: Callable[..., Record], make_report: Callable[..., RunReport]
) -> None:
    """200 requests: 10 failed, 90 answers have no token. 10 of the 110 with a latency or a failure would be 9.1 %."""
    records = [
        failed(k, 10 * k, Outcome.SERVER_ERROR, 10 * k, 10 * k + 9)
        if k % 20 == 0
        else answered(k, 10 * k, 10 * k, [] if k % 2 == 0 else [(10 * k + 50, 1), (10 * k + 60, 1)])
        for k in range(200)
    ]
    run = make_report(records)
    (compared,) = (d for d in differences_between(Arm("a", (run,)), Arm("b", (run,))) if d.measure.name == "failed_share")
    gate = judge_together(parse_fail_if("failed_share>1%"), [run.judged], run.validity)
    (finding,) = (f for f in run.findings if isinstance(f, Errors))
    assert (compared.a, compared.b) == (0.05, 0.05)
    assert gate.status is Status.FAILED  # although so many failures make the run invalid
    assert estimates_of(run)["failed_share"].value == gate.evidence.value == finding.share == pytest.approx(0.05)
    assert run.metrics.failed_share is not None
    assert estimates_of(run)["failed_share"].interval == run.metrics.failed_share.interval
    assert "Failed: 10 of 200 requests sent" in render(run)

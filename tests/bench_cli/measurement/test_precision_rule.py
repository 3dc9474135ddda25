"""The rule of --until: by which requests a run looks, when it ends, and that its interval is the report's."""

from __future__ import annotations

import time

import numpy as np
import pytest

from bench_cli.measurement.precision_rule import Until
from bench_records.record import Outcome, Record
from bench_records.table import table_of
from harness.run.end_rule import RunMoment
from reports.criteria import parse_until
from reports.metrics.configuration import OPEN_LOOP
from reports.metrics.precision import half_width
from reports.metrics.requests import from_columns
from reports.metrics.run_metrics import compute_metrics

_MS = 1_000_000
_MOMENT = RunMoment(10**12, None, behind=False)


def _records(count: int, deviation: float, seed: int = 3) -> list[Record]:
    """One request each 10 ms or so, with three tokens; the first comes after 100 ms, times a lognormal factor."""
    rng = np.random.default_rng(seed)
    due_ns = np.cumsum(rng.exponential(10.0 * _MS, count)).astype(int).tolist()
    first_ms = (100.0 * rng.lognormal(0.0, deviation, count)).tolist()
    return [
        Record(
            index=k,
            outcome=Outcome.DONE,
            scheduled_ns=due,
            requested_output_tokens=3,
            sent_ns=due,
            done_ns=due + round((ms + 21.0) * _MS),
            token_times_ns=tuple(due + round((ms + each) * _MS) for each in (0.0, 9.0, 20.0)),
            token_counts=(1, 1, 1),
            output_tokens=3,
        )
        for k, (due, ms) in enumerate(zip(due_ns, first_ms, strict=True))
    ]


def _until(goal: str, *, in_order: bool = True, planned: int = 10**6) -> Until:
    return Until(parse_until(goal), planned, OPEN_LOOP, streaming=True, in_order=in_order)


def _looked(rule: Until) -> str | None:
    """The rule's reason after the look that is due, if one is."""
    until_s = time.monotonic() + 120
    reason = rule.reason(_MOMENT)
    while reason is None and rule.is_looking and time.monotonic() < until_s:
        time.sleep(0.005)
        reason = rule.reason(_MOMENT)
    return reason


def test_a_run_ends_when_looks_in_turn_are_precise() -> None:
    rule = _until("mean_ttft±10%")
    records, reasons = _records(1_000, 0.2), {}
    for record in records:
        rule.add(record)
        if record.index + 1 in (300, 375, 469, 586, 733):
            reasons[record.index + 1] = _looked(rule)
            assert rule.looked_at == record.index + 1
    assert list(reasons.values())[:-1] == [None] * 4  # precise, but too few
    assert reasons[733] is not None
    assert reasons[733].startswith("mean_ttft is 10")
    assert reasons[733].endswith(" % by the first 733 requests")


def test_a_run_that_is_not_precise_goes_on() -> None:
    rule = _until("mean_ttft±0.5%")
    for record in _records(1_000, 0.2):
        rule.add(record)
        assert len(record.token_times_ns) == 3
    assert [_looked(rule), _looked(rule)] == [None, None]


def test_a_look_waits_for_those_that_were_due_first_in_an_open_loop_alone() -> None:
    records = _records(1_200, 0.2)
    slow, others = records[5], records[:5] + records[6:]
    for in_order in (True, False):
        rule = _until("mean_ttft±10%", in_order=in_order, planned=1_140)
        for record in others:
            rule.add(record)
        rule.reason(_MOMENT)
        assert rule.is_looking is not in_order
    rule = _until("mean_ttft±10%", planned=1_140)
    for record in (*others, slow):
        rule.add(record)
    rule.reason(_MOMENT)
    assert rule.is_looking
    assert rule.looked_at == 916  # those with later indices are probes


@pytest.mark.parametrize("goal", ["p99_ttft±5%", "mean_ttft±5%", "p50_e2e±5%", "mean_tpot±5%"])
def test_the_interval_of_a_look_is_that_of_the_report(goal: str) -> None:
    records = _records(2_000, 0.5)
    requests = from_columns(table_of(records).select)
    metrics = compute_metrics(requests, streaming=True)
    precision = parse_until(goal)
    rule = _until(goal)
    for record in reversed(records):
        rule.add(record)
    assert rule.estimate(rule.ended) == precision.estimate(metrics.latencies[precision.metric])
    assert half_width(rule.estimate(rule.ended)) is not None

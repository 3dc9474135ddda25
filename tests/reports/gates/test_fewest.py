"""How many requests a run must have to pass a gate."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from bench_records.record import Record
from reports.criteria import Requirement, parse_fail_if
from reports.findings.checks import Validity
from reports.gates.fewest import fewest_requests
from reports.gates.gate import JudgedRun, Status
from reports.gates.judge import judge_together


@pytest.mark.parametrize(
    ("text", "fewest"),
    [
        ("p99_ttft>500ms", 299),
        ("p50_e2e>500ms", 100),
        ("p99_itl>50ms", 1),
        ("mean_ttft>1s", 100),
        ("mean_icl>1s", 1),
        ("request_throughput<5", 100),
        ("output_token_throughput<5", 100),
        ("goodput<5", 100),
        ("attainment<99%", 299),
        ("attainment<50%", 100),
        ("attainment<100%", None),
        ("attainment<0%", 1),
        ("failed_share>1%", 299),
        ("failed_share>5%", 59),
        ("failed_share>96%", 1),
        ("failed_share>0%", None),
        ("failed_share<1%", 1),
        ("p99_ttft<500ms", 100),
    ],
)
def test_the_fewest_requests_are_those_of_the_number(text: str, fewest: int | None) -> None:
    assert fewest_requests(parse_fail_if(text)) == fewest


@pytest.mark.parametrize(
    "text",
    [
        "p99_ttft>60s",
        "p50_e2e>60s",
        "mean_ttft>60s",
        "request_throughput<0.01",
        "output_token_throughput<0.01",
        "goodput<0.01",
        "attainment<99%",
        "failed_share>5%",
    ],
)
def test_a_run_of_one_fewer_passes_nothing_however_calm(run_of: Callable[..., JudgedRun], text: str) -> None:
    requirement: Requirement = parse_fail_if(text)
    fewest = fewest_requests(requirement)
    assert fewest is not None
    gate = judge_together(requirement, [run_of([50.0 + k % 2 for k in range(fewest - 1)], "ttft<=1s")], Validity.VALID)
    assert gate.status is Status.UNDECIDED, gate.why


@pytest.mark.parametrize("text", ["p99_itl>60s", "p99_icl>60s", "mean_itl>60s"])
def test_fewer_requests_do_where_each_has_many_gaps_between_tokens(
    judged: Callable[..., JudgedRun], answered: Callable[..., Record], text: str
) -> None:
    """60 requests of 12 tokens each, one after another: 660 gaps of 5 to 6 ms."""
    gaps_ms = np.random.default_rng(1).uniform(5.0, 6.0, (60, 12)).cumsum(axis=1)
    records = [answered(k, 100 * k, 100 * k, [(100 * k + at, 1) for at in gaps_ms[k].tolist()]) for k in range(60)]
    gate = judge_together(parse_fail_if(text), [judged(records)], Validity.VALID)
    assert gate.status is Status.PASSED, gate.why

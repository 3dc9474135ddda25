"""Gates by the words of a user, and the types of the fixtures that make runs."""

from __future__ import annotations

from collections.abc import Callable

from bench_records.record import Record
from reports.criteria import Requirement, parse_slo
from reports.findings.checks import Validity
from reports.gates.gate import Gate, JudgedRun
from reports.gates.judge import judge_together

Make = Callable[..., Record]
MakeRun = Callable[..., JudgedRun]
Noise = Callable[..., list[float]]
Queue = Callable[..., list[Record]]


def required(text: str) -> Requirement:
    criterion = parse_slo(text)
    assert isinstance(criterion, Requirement)
    return criterion


def gate_of(text: str, *runs: JudgedRun) -> Gate:
    gate = judge_together(required(text), runs, Validity.VALID)
    assert gate.requirement == required(text)
    return gate

"""What all runs of a sweep show together of the load that the target holds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from bench_records.record import Record
from reports.capacity.limits import limit_set
from reports.capacity.probe import Probe, Violations
from reports.capacity.result import LoadUnit
from reports.criteria import parse_slo
from reports.gates.gate import Status
from reports.run_report import RunReport, read_run
from reports.sweep.formats import SWEEP
from reports.sweep.json_file import document
from reports.sweep.loads import AtLoad, at_load
from reports.sweep.page import sweep_page
from reports.sweep.points import Sweep
from reports.sweep.together import together_sentence
from tests.reports.manifests import asked_load
from tests.reports.sweep.test_answer import _point, _sweep

LIMITS = limit_set(None, ["p99_ttft<=300ms"]).limits
CURVE = {"100": 0.001, "130": 0.004, "142": 0.006, "151": 0.011, "165": 0.03}


def _over(shares: dict[str, float], n: int = 20_000, unit: LoadUnit = LoadUnit.REQUESTS_PER_S) -> Sweep:
    points = (
        replace(
            _point(load, Status.UNDECIDED),
            at_loads=(AtLoad(unit, LIMITS, Probe(float(load), n, (Violations(n, round(share * n), 4.0),))),),
        )
        for load, share in shares.items()
    )
    return _sweep(*points)


def test_the_runs_together_decide_more_than_each_alone_in_every_format() -> None:
    sweep = _over(CURVE)
    sentence = together_sentence(sweep)
    found = document(sweep)["capacity"]
    assert isinstance(found, dict)
    assert found["limits"] == ["p99_ttft<=300ms"]
    assert 125.0 < found["certified"] < found["estimate"] < found["refused"] < 170.0  # the curve crosses 1 % near 149
    assert sentence.startswith(f"All rates together: holds {math.floor(found['certified'])} requests/s with p99 TTFT of ")
    assert sentence.endswith(f"at most 300 ms (95 %); fails at {math.ceil(found['refused'])} requests/s.")
    assert SWEEP.terminal_text(sweep).endswith(f"\n\n{sentence}")
    assert SWEEP.markdown_text(sweep).endswith(f"\n\n{sentence}\n")
    assert next(section.id for section in sweep_page(sweep).sections) == "together"


def test_nothing_is_said_twice_or_without_evidence() -> None:
    held = replace(_point("100", Status.PASSED), at_loads=_over({"100": 0.0}).points[0].at_loads)
    failed = replace(_point("200", Status.FAILED), at_loads=_over({"200": 0.4}).points[0].at_loads)
    assert together_sentence(_sweep(held, failed)) == ""
    few = _over(CURVE, n=50)
    assert together_sentence(few) == ""
    assert document(few)["capacity"] is None
    other = replace(few.points[0], at_loads=_over(CURVE, unit=LoadUnit.USERS).points[0].at_loads)
    assert together_sentence(_sweep(other, *few.points[1:])) == ""


@pytest.mark.parametrize(
    ("settings", "criteria", "shown"),
    [
        ((("request-rate", "60"),), ["p99_ttft<=300ms"], True),
        ((("concurrency", "60"),), ["p99_ttft<=300ms", "failed_share<=1%"], True),
        ((("isl", "60"),), ["p99_ttft<=300ms"], False),
        ((("request_rate", "-1"),), ["p99_ttft<=300ms"], False),
        ((("request_rate", "60"), ("isl", "60")), ["p99_ttft<=300ms"], False),
        ((("request_rate", "60"),), ["p99_ttft<=300ms", "request_throughput>=9"], False),
        ((("request_rate", "60"),), [], False),
    ],
)
def test_a_run_is_a_probe_where_its_load_was_swept_and_its_limits_are_on_shares(
    make_report: Callable[..., RunReport],
    queued_run: Callable[..., list[Record]],
    settings: tuple[tuple[str, str], ...],
    criteria: list[str],
    shown: bool,
) -> None:
    report = make_report(queued_run(60.0, 1), load=asked_load(60.0))
    found = at_load(settings, read_run(report.folder, [parse_slo(text) for text in criteria]))
    assert (found is not None) is shown
    if found is not None:
        assert [str(limit.requirement) for limit in found.limits] == criteria
        assert (found.probe.load, found.probe.overloaded) == (60.0, True)

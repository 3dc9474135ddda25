"""``summary.json``, the contract with other programs (DESIGN.md, section 3)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from harness.records.record import Outcome, Record
from reports.run_report import RunReport
from reports.summary_json import write_summary

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]

_DISTRIBUTION = {"mean", "p50", "p90", "p95", "p99", "max", "n", "mean_interval", "p99_interval"}
_ANCHORED = ("ttft_ms", "e2e_ms")
_POOLED = ("tpot_ms", "itl_ms", "icl_ms", "slip_ms")
_RATES = ("request_throughput", "output_token_throughput", "offered_rate", "achieved_rate")


def _no_constants(name: str) -> NoReturn:
    raise AssertionError(f"{name} is no JSON")


def _written(report: RunReport) -> dict[str, Any]:
    write_summary(report, report.folder.summary)
    document = json.loads(report.folder.summary.read_text(encoding="utf-8"), parse_constant=_no_constants)
    assert isinstance(document, dict)
    return document


def test_it_keeps_the_contract(make_report: MakeReport, steady_run: Callable[..., list[Record]]) -> None:
    document = _written(make_report(steady_run(700)))
    # It grows by new keys, so these are the least that there are.
    assert document.keys() >= {"schema", "validity", "findings", "requests", "metrics", "schedule"}
    assert document["schema"] == 1
    assert document["validity"] == "valid"
    assert document["findings"] == []
    assert document["requests"] == {"scheduled": 700, "done": 700, "failed": 0, "by_kind": {}}
    assert document["schedule"] == {"digest": "0f" * 32, "seed": 42}
    metrics = document["metrics"]
    assert metrics.keys() >= {*_ANCHORED, *_POOLED, *_RATES}
    for name in _ANCHORED:
        assert metrics[name].keys() == {"scheduled", "sent"}
        for anchor in ("scheduled", "sent"):
            assert metrics[name][anchor].keys() >= _DISTRIBUTION
    for name in _POOLED:
        assert metrics[name].keys() >= _DISTRIBUTION
    for name in _RATES:
        assert metrics[name].keys() == {"value", "interval"}


def test_the_numbers_are_those_of_the_run(make_report: MakeReport, answered: Make) -> None:
    records = [answered(k, 10 * k, 10 * k + 1, [(10 * k + 5, 1), (10 * k + 9, 2)]) for k in range(3)]
    metrics = _written(make_report(records))["metrics"]
    constant = {"n": 3, "failed": 0, "mean_interval": None, "p99_interval": None}

    def all_of(value: float, **changes: Any) -> dict[str, Any]:
        return dict.fromkeys(("mean", "p50", "p90", "p95", "p99", "max"), pytest.approx(value)) | constant | changes

    assert metrics["ttft_ms"] == {"scheduled": all_of(5), "sent": all_of(4)}
    assert metrics["e2e_ms"] == {"scheduled": all_of(9), "sent": all_of(8)}
    assert metrics["tpot_ms"] == all_of(2)
    assert metrics["icl_ms"] == all_of(4)
    assert metrics["itl_ms"] == all_of(2, n=6)
    assert metrics["slip_ms"] == all_of(1)
    assert metrics["offered_rate"] == {"value": pytest.approx(100), "interval": None}
    assert metrics["achieved_rate"] == {"value": pytest.approx(100), "interval": None}
    assert metrics["request_throughput"]["value"] == pytest.approx(3 / 0.030)
    assert metrics["output_token_throughput"]["value"] == pytest.approx(9 / 0.030)


def test_every_percentile_has_its_own_number_and_an_interval_is_a_pair(make_report: MakeReport, answered: Make) -> None:
    records = [answered(k, 0, 0, [(k + 1, 1)]) for k in range(368)]
    scheduled = _written(make_report(records))["metrics"]["e2e_ms"]["scheduled"]
    assert scheduled == {
        "mean": 184.5,
        "p50": 184,
        "p90": 332,
        "p95": 350,
        "p99": 365,
        "max": 368,
        "n": 368,
        "failed": 0,
        "mean_interval": None,
        "p99_interval": [360, 368],  # Binomial(368, 0.99): P(X < 360) ≤ 2.5 %, P(X < 368) ≥ 97.5 %
    }


def test_what_does_not_exist_is_null(make_report: MakeReport, answered: Make) -> None:
    record = answered(0, 0, 0, [(5, 4)], token_counts=None, output_tokens=None)
    metrics = _written(make_report([record], streaming=False))["metrics"]
    for name in ("ttft_ms", "tpot_ms", "itl_ms", "icl_ms", "output_token_throughput", "offered_rate", "achieved_rate"):
        assert metrics[name] is None, name
    assert metrics["e2e_ms"]["scheduled"]["p50"] == 5


def test_a_run_of_failures_is_still_a_document(make_report: MakeReport, failed: Make) -> None:
    records = [failed(0, 0, Outcome.CONNECT, 0, 1, error='refused "é" \x1b \u2028'), failed(1, 10, Outcome.NOT_SENT)]
    document = _written(make_report(records))
    assert document["validity"] == "invalid"
    assert document["requests"] == {"scheduled": 2, "done": 0, "failed": 2, "by_kind": {"connect": 1, "not_sent": 1}}
    assert document["metrics"]["e2e_ms"] == {"scheduled": None, "sent": None}
    assert document["metrics"]["request_throughput"] is None
    errors = next(finding for finding in document["findings"] if finding["code"] == "errors")
    assert errors.keys() == {"code", "severity", "evidence", "advice"}
    assert errors["severity"] == "invalid"
    assert errors["evidence"]["first_error"] == 'refused "é" \x1b \u2028'


def test_validity_follows_the_findings_and_warnings_do_not_break_it(
    make_report: MakeReport, steady_run: Callable[..., list[Record]]
) -> None:
    document = _written(make_report(steady_run(5), warm_up={"failures": ["x"]}))
    assert [finding["code"] for finding in document["findings"]] == ["warm_up_failed", "sample_too_small"]
    assert document["validity"] == "valid"


def test_a_slip_beside_a_latency_of_zero_can_be_written(make_report: MakeReport, answered: Make) -> None:
    document = _written(make_report([answered(0, 0, 5, [(5, 1)])]))
    assert document["validity"] == "invalid"

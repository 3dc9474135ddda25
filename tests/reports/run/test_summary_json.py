"""``summary.json``, the contract with other programs (DESIGN.md, section 3)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import pytest

from bench_records.record import Outcome, Record
from reports.run.summary_json import write_summary
from reports.run_report import RunReport
from tests.reports.manifests import asked_load

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
    assert document["requests"] == {
        "prepared": 700,
        "scheduled": 700,
        "done": 700,
        "failed": 0,
        "withdrawn": 0,
        "not_sent": 0,
        "by_kind": {},
    }
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
    assert document.keys() >= {"slip_by_worker", "slip_over_time"}


def test_the_numbers_are_those_of_the_run(make_report: MakeReport, answered: Make) -> None:
    records = [answered(k, 10 * k, 10 * k + 1, [(10 * k + 5, 1), (10 * k + 9, 2)]) for k in range(3)]
    metrics = _written(make_report(records))["metrics"]
    reasons = dict.fromkeys(("mean", "p50", "p99"), "n too small")
    none = dict.fromkeys(("p99_9", "mean_interval", "p50_interval", "p99_interval", "p99_9_interval"))
    none |= {"censored": 0, "lower_bounds": {}}
    constant = {"n": 3, "failed": 0, **none, "interval_reasons": reasons, "at_least": {}, "p99_supported": False}

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
    order = np.random.default_rng(0).permutation(600)
    records = [answered(k, 10 * k, 10 * k, [(10 * k + float(order[k]) + 1, 1)]) for k in range(600)]
    metrics = _written(make_report(records))["metrics"]
    scheduled = metrics["e2e_ms"]["scheduled"]
    numbers = {"mean": 300.5, "p50": 300, "p90": 540, "p95": 570, "p99": 594, "max": 600, "n": 600, "failed": 0}
    assert {name: scheduled[name] for name in numbers} == numbers
    for name in ("mean", "p50", "p99"):
        low, high = scheduled[f"{name}_interval"]
        assert low < scheduled[name] < high
    assert scheduled["interval_reasons"] == {}
    throughput = metrics["request_throughput"]
    assert throughput["interval"][0] <= throughput["value"] <= throughput["interval"][1]


def test_an_interval_that_does_not_exist_has_a_reason(make_report: MakeReport, answered: Make) -> None:
    records = [answered(k, 0, 0, [(k + 1, 1)]) for k in range(600)]  # slower and slower
    scheduled = _written(make_report(records))["metrics"]["e2e_ms"]["scheduled"]
    assert scheduled["p99_interval"] is None
    assert scheduled["interval_reasons"]["p99"] == "drifts, or run too short"


def test_both_windows_and_the_arrivals_are_there(make_report: MakeReport, steady_run: Callable[..., list[Record]]) -> None:
    document = _written(make_report(steady_run(700), load=asked_load(100.0, "constant")))
    windows = document["windows"]
    assert (windows["whole"]["start_s"], windows["whole"]["end_s"]) == (0.0, pytest.approx(7.111))
    assert windows["steady"]["end_s"] == pytest.approx(6.99)
    assert windows["steady"]["request_throughput"]["value"] == pytest.approx(100, rel=0.01)
    assert (windows["steady_rule"], windows["steady_reason"]) == ("MSER-5", None)
    assert document["arrivals"] == {
        "scheduled_index_of_dispersion": pytest.approx(0, abs=0.1),
        "sent_index_of_dispersion": pytest.approx(0, abs=0.1),
        "law": {"name": "constant", "rate_per_s": 100.0, "shape": 1.0},
        "test": {"gaps": 699, "statistic": 0.0, "p_value": None, "rejected": False},
    }


def test_slip_is_there_by_worker_and_over_time(make_report: MakeReport, answered: Make) -> None:
    records = [answered(k, 10 * k, 10 * k + 1 + k % 2, [(10 * k + 5, 1)], worker=k % 2) for k in range(11)]
    document = _written(make_report(records))
    assert document["slip_by_worker"] == [
        {"worker": 0, "sends": 6, "p50_ms": 1.0, "p99_ms": 1.0, "max_ms": 1.0},
        {"worker": 1, "sends": 5, "p50_ms": 2.0, "p99_ms": 2.0, "max_ms": 2.0},
    ]
    over_time = document["slip_over_time"]
    assert len(over_time) == 10
    assert over_time[1] == {"start_s": 0.01, "end_s": 0.02, "sends": 1, "p50_ms": 2.0, "p99_ms": 2.0, "max_ms": 2.0}


def test_p99_9_is_there_where_the_values_are_enough_for_it(make_report: MakeReport, answered: Make) -> None:
    order = np.random.default_rng(0).permutation(6_636)
    records = [answered(k, 10 * k, 10 * k, [(10 * k + float(order[k]) + 1, 1)]) for k in range(6_636)]
    enough = _written(make_report(records))["metrics"]["e2e_ms"]["scheduled"]
    assert enough["p99_9"] == 6_630
    assert enough["p99_9_interval"][0] < 6_630 < enough["p99_9_interval"][1]
    assert enough["p99_supported"] is True
    fewer = _written(make_report(records[:6_635]))["metrics"]["e2e_ms"]["scheduled"]
    assert (fewer["p99_9"], fewer["p99_9_interval"]) == (None, None)


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
    assert document["requests"] == {
        "prepared": 2,
        "scheduled": 2,
        "done": 0,
        "failed": 1,
        "withdrawn": 0,
        "not_sent": 1,
        "by_kind": {"connect": 1},
    }
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

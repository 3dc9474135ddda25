"""Findings about simulated runs, by what their manifests say of the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bench_records.record import Record
from reports.run_report import RunReport
from tests.reports.findings.lookup import finding_of, severity_of

MakeReport = Callable[..., RunReport]
SteadyRun = Callable[..., list[Record]]

_SIMULATED = {
    "model": "model.json",
    "digest": "0f",
    "fitted_to": ["a", "b"],
    "replicas": 2,
    "router": "round_robin",
    "draws": 3,
}
_CODES = ("simulated", "doubtful_model", "beyond_model")


def test_a_simulated_run_names_its_model_and_its_servers(make_report: MakeReport, steady_run: SteadyRun) -> None:
    report = make_report(steady_run(10), simulation=_SIMULATED)
    finding = finding_of(report, "simulated")
    assert finding is not None
    known = {name: value for name, value in _SIMULATED.items() if name != "digest"}
    assert finding.evidence == known | {"servers": "2 replicas"}
    assert finding.sentence == (
        "No server was measured: model.json, fitted to a, b, simulated 2 replicas with a router (round_robin)."
    )
    assert [severity_of(report, code) for code in _CODES] == ["warning", None, None]


@pytest.mark.parametrize(
    ("code", "field", "begin"),
    [
        ("doubtful_model", "doubts", "The model of this run is in doubt"),
        ("beyond_model", "beyond", "The run lies beyond what the model was fitted to"),
    ],
)
def test_what_makes_a_model_doubtful_is_repeated(
    make_report: MakeReport, steady_run: SteadyRun, code: str, field: str, begin: str
) -> None:
    said: dict[str, Any] = {field: ["81 requests a second, fitted up to 67", "9 in flight, fitted up to 8"]}
    report = make_report(steady_run(10), simulation=_SIMULATED | said)
    finding = finding_of(report, code)
    assert finding is not None
    assert finding.evidence == said
    assert finding.sentence == f"{begin}: 81 requests a second, fitted up to 67; 9 in flight, fitted up to 8."
    assert [each for each in _CODES if finding_of(report, each) is not None] == ["simulated", code]


def test_a_measured_run_is_not_simulated(make_report: MakeReport, steady_run: SteadyRun) -> None:
    report = make_report(steady_run(10))
    assert [severity_of(report, code) for code in _CODES] == [None, None, None]

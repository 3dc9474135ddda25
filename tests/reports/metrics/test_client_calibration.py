"""The client's calibration in a report: what is read from the manifest, what the run is compared with, and the sentences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_records.manifest import Manifest, WorkersFacts, manifest_of
from bench_records.record import Record
from reports.metrics import client_calibration as module
from reports.metrics.client_calibration import Added, client_calibration, peak_rates, run_workers
from reports.metrics.requests import Requests
from reports.render.plain_text import escaped
from reports.run.full import render
from reports.run.headline import describe_calibration
from reports.run.markdown import render_markdown
from reports.run.page import run_pictures, write_html
from reports.run.summary_json import summary
from reports.run_report import RunReport
from tests.reports.manifests import calibration, rate_limit
from tests.reports.worker_hosts import worker_host, worker_hosts

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]
MakeRequests = Callable[[list[Record]], Requests]
SteadyRun = Callable[..., list[Record]]


# ---- the finding; the runs send 60 requests in a second, and 180 responses come


def _finding(report: RunReport, code: str) -> Any:
    return next((finding for finding in report.findings if finding.code == code), None)


@pytest.mark.parametrize(
    ("requests", "responses", "provoked"),
    [
        (rate_limit(60), rate_limit(180), False),
        (rate_limit(1000, 1200), rate_limit(20_000), False),
        (rate_limit(59), rate_limit(180), True),
        (rate_limit(60), rate_limit(179), True),
        (rate_limit(50), rate_limit(60), True),
        (rate_limit(None), rate_limit(None), False),  # there was no time to try
        (rate_limit(None, 10), rate_limit(180), True),  # not even 10 were held
    ],
)
def test_a_run_beyond_the_calibration_is_a_finding(
    make_report: MakeReport, steady_run: SteadyRun, requests: Any, responses: Any, provoked: bool
) -> None:
    report = make_report(steady_run(60), calibration=calibration(requests, responses))
    finding = _finding(report, "beyond_calibration")
    assert (finding is not None) == provoked
    if finding is not None:
        assert finding.severity.value == "warning"
        assert (finding.evidence["requests_per_s"], finding.evidence["responses_per_s"]) == (60, 180)
        assert report.valid


def test_the_finding_names_the_rate_that_was_too_high(make_report: MakeReport, steady_run: SteadyRun) -> None:
    only_requests = _finding(
        make_report(steady_run(60), calibration=calibration(rate_limit(50), rate_limit(20_000))), "beyond_calibration"
    )
    assert only_requests.sentence == (
        "In its busiest seconds the client handled 60 requests/s where 50 are calibrated (with 1 worker)."
    )
    both = _finding(
        make_report(steady_run(60), calibration=calibration(rate_limit(50), rate_limit(None, 125))), "beyond_calibration"
    )
    assert "60 requests/s where 50 are calibrated and 180 responses/s where 0 are calibrated" in both.sentence


def test_the_limits_are_those_of_as_many_workers_as_the_run_had(make_report: MakeReport, steady_run: SteadyRun) -> None:
    limits = [
        {"workers": 2, "requests": rate_limit(120), "responses": rate_limit(2000)},
        {"workers": 1, "requests": rate_limit(50), "responses": rate_limit(1000)},
        {"workers": 8, "requests": rate_limit(1), "responses": rate_limit(1)},
    ]
    limited = calibration(None, None, limits=limits)
    for workers, calibrated, provoked in ((1, 1, True), (2, 2, False), (5, 2, False), (8, 8, True)):
        report = make_report(steady_run(60), calibration=limited, workers={"count": workers})
        found = client_calibration(report.manifest)
        assert found is not None
        assert found.workers == calibrated
        assert (_finding(report, "beyond_calibration") is not None) == provoked


def test_a_run_without_a_calibration_has_no_such_finding(make_report: MakeReport, steady_run: SteadyRun) -> None:
    assert _finding(make_report(steady_run(60), calibration=None), "beyond_calibration") is None
    assert _finding(make_report(steady_run(60)), "beyond_calibration") is None


# ---- peaks


def test_peaks_are_of_the_busiest_second(make_requests: MakeRequests, answered: Make) -> None:
    at = [100, 200, 300, 1100, 1200, 5000]
    requests = make_requests([answered(k, ms, ms, [(ms + 10, 1), (ms + 20, 1)]) for k, ms in enumerate(at)])
    peak = peak_rates(requests)
    assert (peak.requests_per_s, peak.responses_per_s) == (3, 6)


def test_one_second_in_a_hundred_may_be_busier(make_requests: MakeRequests, answered: Make) -> None:
    at = [1000 * second + k for second in range(200) for k in range(50 if second == 7 else 2)]
    assert peak_rates(make_requests([answered(k, ms, ms, []) for k, ms in enumerate(at)])).requests_per_s == 2


def test_peaks_of_many_events_are_counted_piece_by_piece(
    make_requests: MakeRequests, answered: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order in which they were due, and not sent: seconds 5, 0, 0, then 0, 1, then 0."""
    monkeypatch.setattr(module, "_CHUNK", 3)
    sent_ms = [5_000, 100, 200, 300, 1_000, 400]
    requests = make_requests([answered(k, k, at, []) for k, at in enumerate(sent_ms)])
    assert peak_rates(requests).requests_per_s == 4


def test_a_time_before_the_start_is_in_no_second(make_requests: MakeRequests, answered: Make) -> None:
    records = [answered(0, 0, 100, []), answered(1, 0, -5_000, [])]
    assert peak_rates(make_requests(records)).requests_per_s == 1


def test_nothing_sent_has_no_peak(make_requests: MakeRequests, failed: Make) -> None:
    from bench_records.record import Outcome

    peak = peak_rates(make_requests([failed(0, 0, Outcome.NOT_SENT)]))
    assert (peak.requests_per_s, peak.responses_per_s) == (0, 0)


# ---- the sentences


def test_an_error_that_is_shown_as_zero_has_no_sign() -> None:
    assert [str(Added(mean_ms, 0.25)) for mean_ms in (-0.0049, -0.005, 0.0, 1.0)] == [
        "0.00 ± 0.25 ms",
        "-0.01 ± 0.25 ms",
        "0.00 ± 0.25 ms",
        "1.00 ± 0.25 ms",
    ]


def test_a_run_has_one_worker_unless_more_are_known() -> None:
    assert run_workers(Manifest()) == run_workers(Manifest(workers=WorkersFacts())) == 1
    assert run_workers(Manifest(workers=WorkersFacts(count=2))) == 2


_SAID = (
    "The client adds 0.10 ± 0.05 ms to TTFT and 0.00 ± 0.04 ms to inter-chunk latency "
    "(calibrated 2026-11-22, up to 800 requests/s and 16,000 streamed responses/s with 1 worker)."
)


def test_every_format_says_what_the_client_adds(make_report: MakeReport, steady_run: SteadyRun) -> None:
    report = make_report(steady_run(60), calibration=calibration(rate_limit(800), rate_limit(16_000)))
    assert describe_calibration(report) == _SAID
    assert _SAID in render(report)
    write_html(report, run_pictures(report), report.folder.html)
    assert _SAID in report.folder.html.read_text()
    assert escaped(_SAID) in render_markdown(report)
    assert summary(report)["calibration"] == {
        "made_on": "2026-11-22",
        "client_adds_ttft_ms": {"mean": 0.1, "stdev": 0.05},
        "client_adds_icl_ms": {"mean": -0.0001, "stdev": 0.04},
        "workers": 1,
        "requests_per_s": {"peak": 60, "calibrated": 800},
        "responses_per_s": {"peak": 180, "calibrated": 16_000},
    }


def test_every_format_shows_that_nothing_is_known(make_report: MakeReport, steady_run: SteadyRun) -> None:
    report = make_report(steady_run(60), calibration=None)
    assert "Run `bench calibrate`" in render(report)
    write_html(report, run_pictures(report), report.folder.html)
    assert "Run `bench calibrate`" in report.folder.html.read_text()
    assert escaped("Run `bench calibrate`") in render_markdown(report)
    assert summary(report)["calibration"] is None


@pytest.mark.parametrize(
    ("requests", "responses", "reach"),
    [
        (rate_limit(800), rate_limit(None), "up to 800 requests/s with 1 worker"),
        (rate_limit(None), rate_limit(None, 5), "at a quiet rate only"),
    ],
)
def test_a_limit_that_is_not_known_is_not_said(
    make_report: MakeReport, steady_run: SteadyRun, requests: Any, responses: Any, reach: str
) -> None:
    report = make_report(steady_run(10), calibration=calibration(requests, responses))
    assert f"(calibrated 2026-11-22, {reach})." in describe_calibration(report)


def test_a_calibration_of_a_busy_machine_says_so(make_report: MakeReport, steady_run: SteadyRun) -> None:
    undisturbed, disturbed = "(calibrated 2026-11-22, up to", "2026-11-22, while other processes kept 1.4 cores busy, up to"
    for cores, text in ((0.1, undisturbed), (1.44, disturbed)):
        report = make_report(steady_run(10), calibration=calibration(rate_limit(800), rate_limit(9000), busy_cores=cores))
        assert text in describe_calibration(report)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["made_at", "limits", "ttft", "icl", "workers", "requests", "mean_ms"]), inner)
        ),
    )
)
def test_a_calibration_of_another_form_is_refused_by_its_key(found: Any) -> None:
    if found is not None:
        with pytest.raises(ValueError, match="at `calibration"):
            manifest_of({"schema": 1, "calibration": found})


def test_a_calibration_for_more_workers_alone_is_none(make_report: MakeReport, steady_run: SteadyRun) -> None:
    limits = [{"workers": 2, "requests": rate_limit(120), "responses": rate_limit(2000)}]
    report = make_report(steady_run(60), calibration=calibration(None, None, limits=limits))
    assert client_calibration(report.manifest) is None


def test_a_run_is_advised_to_calibrate_the_master_only_where_all_workers_are_there(
    make_report: MakeReport, steady_run: SteadyRun
) -> None:
    workers = worker_hosts(worker_host(0))
    said = describe_calibration(make_report(steady_run(100), **workers))
    assert said == "What the client adds is not known: `bench calibrate` covers the workers of its own machine alone."
    said = describe_calibration(make_report(steady_run(100), options={"locust_processes": 1}, **workers))
    assert said.endswith("this machine was not calibrated. Run `bench calibrate` on it, then measure.")

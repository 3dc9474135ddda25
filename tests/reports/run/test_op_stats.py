"""Upstream's statistics as CSV, and the check against reference numbers."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench_records.record import Outcome, Record
from reports.errors import CheckPerfError, OpStatsError
from reports.metrics.requests import Requests
from reports.metrics.run_metrics import Metrics, compute_metrics
from reports.metrics.upstream import UpstreamTable
from reports.run.op_stats import PerfCheck, append_op_stats, check_perf, op_stats, read_reference

Make = Callable[..., Record]
MakeRequests = Callable[[Sequence[Record]], Requests]

_TABLE = UpstreamTable(
    requests_per_s=100.0,
    output_tokens_per_s=2000.0,
    mean_latency_ms=50.0,
    p99_latency_ms=90.0,
    p90_latency_ms=80.0,
    mean_input_tokens=128.0,
    mean_output_tokens=20.0,
    total_latency_ms=10_000.0,
    total_requests=1000,
)
_NAMES = {
    "Requests/Sec": 100.0,
    "OP tokens/sec": 2000.0,
    "Avg. latency (ms)": 50.0,
    "P99 latency (ms)": 90.0,
    "P90 latency (ms)": 80.0,
    "Avg. Input tokens per request": 128.0,
    "Avg. Output tokens per request": 20.0,
    "Total latency (ms)": 10_000.0,
    "Total requests": 1000,
}
_HIGHER = ("Requests/Sec", "OP tokens/sec")
_LOWER = ("Avg. latency (ms)", "P99 latency (ms)", "P90 latency (ms)", "Total latency (ms)")
_SAME = ("Avg. Input tokens per request", "Avg. Output tokens per request", "Total requests")


@pytest.fixture
def metrics(make_requests: MakeRequests, answered: Make) -> Metrics:
    return replace(compute_metrics(make_requests([answered(0, 0, 0, [(5, 1)])]), streaming=True), upstream=_TABLE)


def test_statistics_have_the_names_of_upstream_s_csv(metrics: Metrics) -> None:
    assert op_stats(metrics) == _NAMES
    assert list(op_stats(metrics)) == list(_NAMES)


def test_rows_are_appended_below_one_header(metrics: Metrics, tmp_path: Path) -> None:
    path = tmp_path / "stats.csv"
    for _ in range(3):
        append_op_stats(metrics, path)
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows[0] == list(_NAMES)
    assert [[float(cell) for cell in row] for row in rows[1:]] == [list(_NAMES.values())] * 3


def test_an_empty_file_gets_a_header(metrics: Metrics, tmp_path: Path) -> None:
    path = tmp_path / "stats.csv"
    path.touch()
    append_op_stats(metrics, path)
    assert path.read_text(encoding="utf-8").startswith("Requests/Sec,")


def test_statistics_that_do_not_exist_are_empty_cells(make_requests: MakeRequests, failed: Make, tmp_path: Path) -> None:
    path = tmp_path / "stats.csv"
    append_op_stats(compute_metrics(make_requests([failed(0, 0, Outcome.CONNECT, 0, 1)]), streaming=True), path)
    with path.open(newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert row == dict.fromkeys(_NAMES, "") | {"Total requests": "0"}


def test_a_file_with_another_header_is_not_appended_to_blindly(metrics: Metrics, tmp_path: Path) -> None:
    # upstream's own file has "Avg. InFlight requests" before the last two columns
    path = tmp_path / "stats.csv"
    names = list(_NAMES)
    path.write_text(",".join([*names[:-2], "Avg. InFlight requests", *names[-2:]]) + "\n", encoding="utf-8")
    before = path.read_bytes()
    with pytest.raises(OpStatsError, match="its columns differ from those of this version"):
        append_op_stats(metrics, path)
    assert path.read_bytes() == before


def test_a_file_without_a_last_newline_keeps_its_last_row(metrics: Metrics, tmp_path: Path) -> None:
    path = tmp_path / "stats.csv"
    append_op_stats(metrics, path)
    path.write_bytes(path.read_bytes().rstrip(b"\r\n"))
    append_op_stats(metrics, path)
    with path.open(newline="", encoding="utf-8") as file:
        assert [row["Total requests"] for row in csv.DictReader(file)] == ["1000", "1000"]


def test_a_file_that_is_no_text_is_refused_by_the_option_s_name(metrics: Metrics, tmp_path: Path) -> None:
    path = tmp_path / "stats.csv"
    path.write_bytes(b"\xff\xfeR\x00")
    with pytest.raises(OpStatsError, match="--op_stats_csv"):
        append_op_stats(metrics, path)


# ---- check_perf


@pytest.mark.parametrize("metric", _HIGHER)
@pytest.mark.parametrize(("factor", "passed"), [(0.5, True), (1.0, True), (1.05, True), (1.06, False), (2.0, False)])
def test_a_rate_may_be_higher_but_not_much_lower_than_its_reference(
    metrics: Metrics, metric: str, factor: float, passed: bool
) -> None:
    (check,) = check_perf(metrics, {metric: _NAMES[metric] * factor}, rtol=0.05, atol=0)
    assert check.passed is passed


@pytest.mark.parametrize("metric", _LOWER)
@pytest.mark.parametrize(("factor", "passed"), [(2.0, True), (1.0, True), (0.96, True), (0.95, False), (0.5, False)])
def test_a_latency_may_be_lower_but_not_much_higher_than_its_reference(
    metrics: Metrics, metric: str, factor: float, passed: bool
) -> None:
    (check,) = check_perf(metrics, {metric: _NAMES[metric] * factor}, rtol=0.05, atol=0)
    assert check.passed is passed


@pytest.mark.parametrize("metric", _SAME)
@pytest.mark.parametrize(("factor", "passed"), [(0.5, False), (0.97, True), (1.0, True), (1.03, True), (2.0, False)])
def test_a_count_must_be_near_its_reference_on_both_sides(metrics: Metrics, metric: str, factor: float, passed: bool) -> None:
    (check,) = check_perf(metrics, {metric: _NAMES[metric] * factor}, rtol=0.05, atol=0)
    assert check.passed is passed


@pytest.mark.parametrize(
    ("reference", "rtol", "atol", "passed"),
    [
        (110.0, 0.0, 10.0, True),  # 10 lower, in the metric's own unit
        (110.5, 0.0, 10.0, False),
        (110.5, 0.01, 10.0, True),  # the two add up
        (100.0, 0.0, 0.0, True),
        (100.0001, 0.0, 0.0, False),
        (0.0, 0.0, 0.0, True),
    ],
)
def test_tolerances(metrics: Metrics, reference: float, rtol: float, atol: float, passed: bool) -> None:
    (check,) = check_perf(metrics, {"Requests/Sec": reference}, rtol, atol)
    assert check.passed is passed


def test_a_tolerance_that_upstream_defaults_to_does_not_come_by_itself(metrics: Metrics) -> None:
    # upstream's atol of 50 lets 40 requests/s pass for 1
    slow = replace(metrics, upstream=replace(_TABLE, requests_per_s=1.0))
    (check,) = check_perf(slow, {"Requests/Sec": 40.0}, rtol=0.05, atol=0.0)
    assert not check.passed


def test_worse_by_has_a_direction(metrics: Metrics) -> None:
    checks = check_perf(metrics, {"Requests/Sec": 80.0, "P99 latency (ms)": 75.0, "Total requests": 800}, 0.05, 0)
    assert [check.worse_by for check in checks] == pytest.approx([-0.25, 0.2, 0.25])
    assert [str(check) for check in checks] == [
        "pass  Requests/Sec: 100.00 against 80.00 (25.0% better)",
        "FAIL  P99 latency (ms): 90.00 against 75.00 (20.0% worse)",
        "FAIL  Total requests: 1000.00 against 800.00 (25.0% worse)",
    ]


def test_an_equal_number_is_neither_better_nor_worse(metrics: Metrics) -> None:
    (check,) = check_perf(metrics, {"Requests/Sec": 100.0}, 0.05, 0)
    assert str(check) == "pass  Requests/Sec: 100.00 against 100.00"


def test_a_metric_that_does_not_exist_fails(metrics: Metrics) -> None:
    unknown = replace(metrics, upstream=replace(_TABLE, output_tokens_per_s=None))
    (check,) = check_perf(unknown, {"OP tokens/sec": 1.0}, 0.05, 1e9)
    assert (check.passed, check.value, check.worse_by) == (False, None, None)
    assert str(check) == "FAIL  OP tokens/sec: none against 1.00"


def test_names_of_the_printed_table_are_known_too(metrics: Metrics) -> None:
    checks = check_perf(metrics, {"Avg. IP tokens per request": 128, "Avg. OP tokens per request": 25}, 0.05, 0)
    assert [check.passed for check in checks] == [True, False]


def test_metrics_are_checked_in_the_order_of_the_reference_and_no_others(metrics: Metrics) -> None:
    checks = check_perf(metrics, {"Total requests": 1000, "Requests/Sec": 100}, 0.05, 0)
    assert [check.metric for check in checks] == ["Total requests", "Requests/Sec"]


# ---- read_reference


def _file(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "reference.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_a_reference_is_read_by_its_key(tmp_path: Path) -> None:
    path = _file(tmp_path, json.dumps({"a": {"Requests/Sec": 10}, "b": _NAMES}))
    assert read_reference(path, "a") == {"Requests/Sec": 10}
    assert read_reference(path, "b") == _NAMES


@pytest.mark.parametrize("metric", ["requests/sec", "TTFT", "", "Requests/Sec "])
def test_an_unknown_metric_is_named_with_those_that_are_known(tmp_path: Path, metric: str) -> None:
    path = _file(tmp_path, json.dumps({"a": {"Requests/Sec": 1, metric: 2}}))
    with pytest.raises(CheckPerfError, match=rf"--check_perf_json .*unknown metric '{metric}'; known: .*Requests/Sec"):
        read_reference(path, "a")


@pytest.mark.parametrize("value", [None, "10", True, [], {}])
def test_a_reference_that_is_no_number_is_refused(tmp_path: Path, value: Any) -> None:
    path = _file(tmp_path, json.dumps({"a": {"Requests/Sec": value}}))
    with pytest.raises(CheckPerfError, match="Requests/Sec must be a number"):
        read_reference(path, "a")


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_reference_that_is_not_finite_is_refused(tmp_path: Path, value: str) -> None:
    path = _file(tmp_path, f'{{"a": {{"Requests/Sec": {value}}}}}')
    with pytest.raises(CheckPerfError):
        read_reference(path, "a")


def test_a_reference_beyond_the_largest_float_is_refused(tmp_path: Path) -> None:
    path = _file(tmp_path, '{"a": {"Requests/Sec": 1' + "0" * 400 + "}}")
    with pytest.raises(CheckPerfError):
        read_reference(path, "a")


@pytest.mark.parametrize("content", ["", "{", "not json", b"\xff\xfe", b"\xef\xbb\xbf{}", "[" + "1" * 5_000 + "]"])
def test_a_file_that_is_not_json_is_refused_by_the_option_s_name(tmp_path: Path, content: str | bytes) -> None:
    path = _file(tmp_path, content)
    with pytest.raises(CheckPerfError, match=r"^--check_perf_json .*reference\.json: "):
        read_reference(path, "a")


def test_a_file_that_is_not_there_is_refused_by_the_option_s_name(tmp_path: Path) -> None:
    with pytest.raises(CheckPerfError, match=r"^--check_perf_json .*nowhere\.json: "):
        read_reference(tmp_path / "nowhere.json", "a")


@pytest.mark.parametrize("document", [{}, {"b": {}}, {"a": []}, {"a": 3}, [], "a", None])
def test_a_missing_entry_is_refused_by_the_option_s_name(tmp_path: Path, document: Any) -> None:
    path = _file(tmp_path, json.dumps(document))
    with pytest.raises(CheckPerfError, match=r"^--check_perf_key a: .* has no such entry"):
        read_reference(path, "a")


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckPerfError, match="needs --check_perf_key"):
        read_reference(_file(tmp_path, "{}"), None)


def test_small_numbers_of_a_check_are_no_zeros() -> None:
    assert str(PerfCheck("Requests/Sec", 0.0042, 0.0051, 0.176, passed=False)) == (
        "FAIL  Requests/Sec: 0.0042 against 0.0051 (17.6% worse)"
    )
    assert "12345.68 against 10000.00" in str(PerfCheck("Total latency (ms)", 12_345.678, 10_000.0, 0.235, passed=False))

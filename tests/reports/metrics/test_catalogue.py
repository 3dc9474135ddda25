"""The catalogue of metrics: complete, without contradictions, and what every format reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bench_records.record import Record
from reports.compare.measures import MEASURES
from reports.metrics import catalogue
from reports.metrics.catalogue import (
    ARRIVAL_RATES,
    ATTAINMENT,
    E2E,
    GOODPUT,
    LATENCIES,
    METRICS,
    OBJECTIVE_METRICS,
    THROUGHPUTS,
    TTFT,
    WINDOW,
)
from reports.metrics.metric import Metric
from reports.metrics.upstream import UPSTREAM_STATISTICS, UpstreamTable
from reports.run.full import render
from reports.run.markdown import render_markdown
from reports.run.op_stats import OP_STATS_COLUMNS
from reports.run_report import RunReport

_SCHEMA = Path(__file__).parents[3] / "docs" / "schemas" / "summary.schema.json"


def test_every_constant_is_in_the_tuple_once() -> None:
    constants = [value for value in vars(catalogue).values() if isinstance(value, Metric)]
    assert sorted(metric.key for metric in METRICS) == sorted(metric.key for metric in constants)
    assert len({metric.key for metric in METRICS}) == len({metric.label for metric in METRICS}) == len(METRICS)
    assert set(OBJECTIVE_METRICS) <= set(LATENCIES) <= set(METRICS)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.key)
def test_every_metric_is_described(metric: Metric) -> None:
    assert metric.label
    assert metric.unit
    assert metric.definition
    assert "\n" not in metric.definition + metric.full_name


def test_the_keys_are_those_of_the_schema() -> None:
    schema = json.loads(_SCHEMA.read_text(encoding="utf-8"))
    expected = [*LATENCIES, *THROUGHPUTS, *ARRIVAL_RATES, WINDOW, GOODPUT, ATTAINMENT]
    assert [metric.key for metric in expected] == schema["properties"]["metrics"]["required"]


def test_names_and_units_in_tables() -> None:
    assert (TTFT.name, TTFT.column, TTFT.label_with_unit) == ("ttft", "TTFT ms", "TTFT (ms)")
    assert (E2E.name, E2E.column, E2E.full_name) == ("e2e", "E2E ms", "E2E latency")
    assert [metric.table_unit for metric in (*THROUGHPUTS, *ARRIVAL_RATES)] == ["requests/s", "tokens/s", *["requests/s"] * 2]


def test_the_measures_of_comparisons_are_named_by_their_metrics() -> None:
    assert [(measure.name, measure.title, measure.unit) for measure in MEASURES] == [
        ("p50_ttft", "TTFT p50", "ms"),
        ("p99_ttft", "TTFT p99", "ms"),
        ("p50_e2e", "E2E latency p50", "ms"),
        ("p99_e2e", "E2E latency p99", "ms"),
        ("mean_tpot", "TPOT mean", "ms"),
        ("request_throughput", "Request throughput", "1/s"),
        ("output_token_throughput", "Output token throughput", "tokens/s"),
        ("failed_share", "Failed requests", "share"),
    ]
    assert [measure.name for measure in MEASURES if measure.higher_is_better] == [
        "request_throughput",
        "output_token_throughput",
    ]
    assert [measure.name for measure in MEASURES if not measure.relative] == ["failed_share"]


def test_every_latency_and_rate_is_in_the_tables(
    make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]]
) -> None:
    report = make_report(
        steady_run(100, has_reasoning=True, first_output_ns=10**9, parent=0, planned_ns=0),
        load={"mode": "open", "max_concurrency": 50},
    )
    for text in (render(report), render_markdown(report)):
        for metric in LATENCIES:
            assert metric.label in text
        for metric in (*THROUGHPUTS, *ARRIVAL_RATES):
            assert metric.label_with_unit in text
    assert report.metrics.latencies.keys() == set(LATENCIES)
    assert report.metrics.rates.keys() == {*THROUGHPUTS, *ARRIVAL_RATES}


def test_an_unstreamed_run_has_the_other_latencies(
    make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]]
) -> None:
    metrics = make_report(steady_run(100), streaming=False).metrics
    assert [metric.key for metric in metrics.latencies] == ["e2e_ms", "slip_ms"]
    assert metrics.latency == (E2E, metrics.e2e_ms)
    assert not metrics.streamed


def test_upstream_s_statistics_read_every_field_of_the_table() -> None:
    values = tuple(range(1, 10))
    table = UpstreamTable(*values)
    assert tuple(statistic.value(table) for statistic in UPSTREAM_STATISTICS) == values
    assert len(set(OP_STATS_COLUMNS)) == len(OP_STATS_COLUMNS)

"""The explanations of metrics and findings: one text for ``bench explain`` and the pages, and terms marked in pages."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench_cli import run as bench
from bench_records.record import Record
from reports.findings.checks import KINDS
from reports.glossary import of_findings, of_metrics, terms
from reports.metrics.catalogue import METRICS
from reports.page.page import render_page
from reports.page.terms import Terms
from reports.run.page import run_page, run_pictures
from reports.run_report import RunReport
from tests.reports.markup import checked


def test_every_metric_and_finding_has_a_text_without_markdown() -> None:
    texts = terms()
    assert {metric.label for metric in METRICS if metric.unit != "tokens"} <= set(texts)
    assert "output tokens" not in texts  # "Most output tokens" of a sweep is a rate
    assert {kind.code for kind in KINDS} <= set(texts)
    for text in texts.values():
        assert "`" not in text
        assert "](" not in text


@pytest.mark.parametrize("name", ["slip", "ttft", "schedule_slip"])
def test_the_command_prints_the_text_of_the_pages(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert bench(["explain", name]) == 0
    explanation = (of_metrics() | of_findings())[name]
    assert capsys.readouterr().out.split() == explanation.text.split()
    assert explanation.text in terms().values()


def test_the_longest_whole_name_is_marked_once_in_a_section() -> None:
    marks = Terms({"E2E": "short", "E2E latency": "long"})
    first = marks.marked("p99 E2E latency, from schedule", "latency")
    assert first == 'p99 <dfn class="term" tabindex="0" title="long">E2E latency</dfn>, from schedule'
    assert marks.marked("E2E latency", "latency") == "E2E latency"
    assert "dfn" in marks.marked("E2E latency", "arrivals")
    assert "dfn" not in marks.marked("E2Es and xE2E", "other")
    assert marks.explanation("E2E ms") == "short"
    assert marks.explanation("n") is None


def test_text_and_explanations_are_text() -> None:
    marks = Terms({"TTFT": 'a "<b>"'})
    marked = marks.marked("<i>\u202e TTFT", "s")
    assert marked.startswith("&lt;i&gt;")
    assert "\u202e" not in marked
    assert 'title="a &#34;&lt;b&gt;&#34;"' in marked
    assert Terms({}).marked("<i>", "s") == "&lt;i&gt;"


def test_a_page_explains_cards_rows_and_findings(
    make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]]
) -> None:
    report = make_report(steady_run(50))
    html = checked(render_page(run_page(report, run_pictures(report))))
    for term in ("TTFT", "Request throughput", "sample_too_small", "Schedule slip"):
        assert f">{term}</dfn>" in html, term
    assert html.count(">TTFT</dfn>") <= 4  # once in the cards, and once in a section

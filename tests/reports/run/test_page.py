"""``report.html``: opens without a network, runs no script but ours, and shows what came from outside as text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest

from bench_records.record import FAILURES, Outcome, Record
from bench_records.server_table import MetricSample
from reports.metrics.catalogue import REQUEST_THROUGHPUT
from reports.run.page import run_pictures, write_html
from reports.run_report import RunReport
from tests.reports.markup import checked

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]
SteadyRun = Callable[..., list[Record]]

_VOID = {"meta", "link", "br", "hr", "img", "input", "base"}
_SCRIPT = '<script>alert("x")</script>'
_BREAKOUT = "\"'></style></title></td><img src=x onerror=alert(1)><!--\u2028"


class _Page(HTMLParser):
    """The elements of a page, its attributes, its text and its scripts; checks that every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self.scripts: list[str] = []
        self.data: list[Any] = []
        self._open: list[str] = []
        self._script_type: str | None = None
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in _VOID:
            self._open.append(tag)
        self._script_type = dict(attrs).get("type") if tag == "script" else None

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] == ["script"] and self._script_type == "application/json":
            self.data.append(json.loads(data))
        elif self._open[-1:] == ["script"]:
            self.scripts.append(data)
        elif self._open[-1:] != ["style"]:
            self.text += data


def _page(report: RunReport) -> tuple[str, _Page]:
    write_html(report, run_pictures(report), report.folder.html)
    text = re.sub(r'<dfn class="term"[^>]*>(.*?)</dfn>', r"\1", checked(report.folder.html.read_text(encoding="utf-8")))
    return text, _Page(text)


@pytest.fixture
def mixed(answered: Make, failed: Make) -> list[Record]:
    return [
        answered(0, 0, 1, [(5, 1), (9, 2)]),
        answered(1, 1, 1, [(6, 1)], token_counts=None, output_tokens=None),
        failed(2, 2, Outcome.SERVER_ERROR, 2, 8, error=f"{_SCRIPT} {_BREAKOUT}"),
        failed(3, 4, Outcome.NOT_SENT),
    ]


def test_it_loads_nothing(make_report: MakeReport, mixed: list[Record]) -> None:
    text, page = _page(make_report(mixed))
    assert not page.tags & {"link", "iframe", "img", "object", "embed", "base", "form"}
    for tag, name, value in page.attributes:
        if name in ("src", "href", "xlink:href", "srcset", "data", "action"):
            assert value.startswith(("#", "data:")), (tag, name, value)
        assert not name.startswith("on"), (tag, name)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert "url(" not in style
    assert "@import" not in style


def test_its_policy_lets_its_own_scripts_run_and_no_other(make_report: MakeReport, mixed: list[Record]) -> None:
    _, page = _page(make_report(mixed))
    (policy,) = [value for _, name, value in page.attributes if name == "content" and "default-src" in value]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert "http" not in policy
    own = {f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in page.scripts}
    assert set(rules["script-src"].split()) == own
    assert len(own) == 8  # theme, tables, Bokeh's two, and four of the pictures


def test_an_error_message_is_text(make_report: MakeReport, mixed: list[Record]) -> None:
    text, page = _page(make_report(mixed))
    assert text.count("<script") == 9  # ours, and the pictures' data
    assert "<img" not in text
    assert f"{_SCRIPT} {_BREAKOUT}".replace("\u2028", "\ufffd") in page.text


def test_the_server_s_names_cannot_leave_the_pictures_data(make_report: MakeReport, steady_run: SteadyRun) -> None:
    models = [f"{_SCRIPT}{_BREAKOUT}\x00\u202e", "other"]
    server = [
        MetricSample(at, 1_000, "nv_inference_pending_request_count", json.dumps({"model": model}), 3.0)
        for at in (0, 10**8)
        for model in models
    ]
    text, page = _page(make_report(steady_run(30), server=server))
    assert text.count("<script") == 9
    (data,) = page.data
    names = [mark["name"] for mark in data["pictures"]["server-queue"]["marks"]]
    assert names == [f"{_SCRIPT}{_BREAKOUT}".replace("\u2028", "\ufffd") + "\ufffd\ufffd", "other"]


def test_manifest_keys_and_values_are_text(make_report: MakeReport, steady_run: SteadyRun) -> None:
    hostile = f"{_SCRIPT}{_BREAKOUT}"
    report = make_report(
        steady_run(3),
        workload={"description": hostile, "dropped_too_long": 0},
        arrivals=hostile,
        target={"model": hostile, "protocol": hostile, "streaming": True, "model_parameters": {hostile: hostile}},
        warm_up={"failures": [hostile]},
        unknown=[{"nested": [hostile, 1]}, None],
    )
    text, page = _page(report)
    shown = hostile.replace("\u2028", "\ufffd")
    assert "<img" not in text
    assert page.text.count(_SCRIPT) >= 10  # title, heading, finding, and each cell of the manifest
    assert f"target.model_parameters.{shown}" in page.text
    assert f"unknown[0].nested{shown}, 1" in re.sub(r"\s*\n\s*", "", page.text)


def test_it_shows_verdict_findings_latencies_and_manifest(make_report: MakeReport, steady_run: SteadyRun) -> None:
    report = make_report(steady_run(10))
    text, page = _page(report)
    assert "This run is valid." in page.text
    assert '<p class="verdict good">' in text
    for finding in report.findings:
        assert finding.advice in page.text
    assert _cells(text, "TTFT, from schedule")[0] == "100.00"
    assert _cells(text, "TPOT")[0] == "10.00"
    assert _cells(text, "schedule.digest") == ["0f" * 32]
    assert _card(text, "p99 TTFT, from schedule") == ("100.00", "ms", "no interval: n too small")
    assert {*re.findall(r'data-picture="([^"]+)"', text)} == set(page.data[0]["pictures"])
    assert len(page.data[0]["pictures"]) >= 8


def test_every_percentile_stands_in_its_column(make_report: MakeReport, answered: Make) -> None:
    text, _ = _page(make_report([answered(k, 0, 0, [(k + 1, 1)]) for k in range(368)]))
    assert _cells(text, "E2E latency, from schedule") == ["184.50", "184.00", "332.00", "350.00", "365.00", "368.00", "368"]
    assert _card(text, "p99 TTFT, from schedule")[0] == "365.00"


def test_a_number_sorts_by_its_value_and_not_by_its_text(make_report: MakeReport, answered: Make) -> None:
    text, _ = _page(make_report([answered(k, 0, 0, [(1_234_567.125, 1)]) for k in range(3)]))
    assert '<td data-value="1234567.125">1,234,567.12</td>' in text


def test_intervals_and_windows_are_shown(make_report: MakeReport, steady_run: SteadyRun) -> None:
    report = make_report(steady_run(700))
    text, _ = _page(report)
    intervals = text[text.index('id="t-intervals"') :]
    assert _cells(intervals, "TTFT, from schedule")[:2] == ["100.00 – 100.00", "100.00 – 100.00"]
    whole = report.metrics.windows.whole
    assert whole is not None
    throughput = whole.throughputs[REQUEST_THROUGHPUT]
    assert _cells(text, "Request throughput (requests/s)") == [f"{throughput.value:.2f}", throughput.interval_text]
    assert _card(text, "Request throughput")[2] == f"95 %: {throughput.interval_text}"
    assert _cells(text, "Whole run (p50, p99: TTFT)")[:2] == ["0.00", "7.11"]
    assert _cells(text, "Steady (MSER-5; p50, p99: TTFT)")


def test_the_slowest_requests_and_failure_messages_are_listed(make_report: MakeReport, answered: Make, failed: Make) -> None:
    records = [answered(k, 10 * k, 10 * k + 2, [(10 * k + 50 + k, 1)], input_tokens=7) for k in range(40)]
    records += [failed(40 + k, 400, Outcome.TIMEOUT, 400, 500, error="late" if k else "first") for k in range(3)]
    text, _ = _page(make_report(records))
    slowest = text[text.index('id="t-slowest"') :]
    assert _rows(slowest)[0] == ["39", "0.39", "2.00", "89.00", "89.00", "7", "1"]
    assert [row[0] for row in _rows(slowest)] == [str(k) for k in range(39, 19, -1)]
    assert _rows(text[text.index('id="t-messages"') :]) == [["late", "timeout", "2", "41"], ["first", "timeout", "1", "40"]]


def test_an_invalid_run_is_declared_so_on_top(make_report: MakeReport, failed: Make) -> None:
    text, page = _page(make_report([failed(0, 0, Outcome.CONNECT, 0, 1)]))
    assert '<p class="verdict bad">THIS RUN IS NOT VALID: nothing_done, errors.' in text
    assert _rows(text[text.index('id="t-failures"') :]) == [["connect", "1"]]
    assert _cells(text, "TTFT, from schedule") == ["–"] * 7
    assert "1 of 1 request sent failed" in page.text


def test_an_unstreamed_run_leads_with_the_whole_answer(make_report: MakeReport, steady_run: SteadyRun) -> None:
    text, page = _page(make_report(steady_run(10), streaming=False))
    assert _card(text, "p50 E2E latency, from schedule")[0] == "120.00"
    assert "TTFT, from" not in page.text


@pytest.mark.parametrize("kind", FAILURES)
def test_a_run_of_any_failure_can_be_rendered(make_report: MakeReport, failed: Make, kind: Outcome) -> None:
    sent = None if kind in (Outcome.NOT_SENT, Outcome.LOST) else 1.0
    _, page = _page(make_report([failed(0, 0, kind, sent, None if sent is None else 9.0)]))
    assert kind.value in page.text


def test_an_unknown_value_of_the_manifest_is_a_dash(make_report: MakeReport, steady_run: SteadyRun) -> None:
    text, _ = _page(make_report(steady_run(3), options={"num_requests": None, "workers": 0, "names": ["a", "b"]}))
    assert _cells(text, "options.num_requests") == ["–"]
    assert _cells(text, "options.workers") == ["0"]
    assert _cells(text, "options.names") == ["a, b"]


def _rows(text: str) -> list[list[str]]:
    """The cells of each row of the first table in ``text``."""
    body = re.search(r"<tbody>(.*?)</tbody>", text, re.DOTALL)
    assert body is not None
    rows = re.findall(r"<tr>(.*?)</tr>", body[1], re.DOTALL)
    return [re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL) for row in rows]


def _cells(text: str, name: str) -> list[str]:
    """The cells after the first one, of the first row that begins with ``name``."""
    row = re.search(rf"<tr><td[^>]*>{re.escape(name)}</td>(.*?)</tr>", text, re.DOTALL)
    assert row is not None, name
    return re.findall(r"<td[^>]*>(.*?)</td>", row[1], re.DOTALL)


def _card(text: str, title: str) -> tuple[str, str, str]:
    """Value, unit and interval of a card."""
    found = re.search(rf"<h3>{re.escape(title)}</h3><b>(.*?)</b> <small>(.*?)</small><p>(.*?)</p>", text)
    assert found is not None, title
    return found[1], found[2], found[3]

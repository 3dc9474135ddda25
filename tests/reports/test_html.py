"""``report.html``: opens without a network, and shows what came from outside as text."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser

import pytest

from harness.records.record import FAILURES, Outcome, Record
from reports.html import write_html
from reports.run_report import RunReport

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]
SteadyRun = Callable[..., list[Record]]

_VOID = {"meta", "link", "br", "hr", "img", "input", "base"}
_SCRIPT = '<script>alert("x")</script>'
_BREAKOUT = "\"'></style></title></td><img src=x onerror=alert(1)><!--"


class _Page(HTMLParser):
    """The elements of a page, its attributes and its text; checks that every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def _page(report: RunReport) -> tuple[str, _Page]:
    write_html(report, report.folder.html)
    text = report.folder.html.read_text(encoding="utf-8")
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
    assert not page.tags & {"script", "link", "iframe", "img", "object", "embed", "base", "form"}
    for tag, name, value in page.attributes:
        if name in ("src", "href", "xlink:href", "srcset", "data", "action"):
            assert value.startswith(("#", "data:")), (tag, name, value)
        assert not name.startswith("on"), (tag, name)
    assert all(target.strip("'\" ").startswith(("#", "data:")) for target in re.findall(r"url\(([^)]*)\)", text))
    assert "@import" not in text
    assert ("meta", "http-equiv", "Content-Security-Policy") in page.attributes


def test_its_policy_forbids_to_load_anything(make_report: MakeReport, mixed: list[Record]) -> None:
    _, page = _page(make_report(mixed))
    (policy,) = [value for _, name, value in page.attributes if name == "content" and "default-src" in value]
    assert "default-src 'none'" in policy
    assert "http" not in policy
    assert "script-src" not in policy


def test_no_address_is_named_but_xml_namespaces(make_report: MakeReport, mixed: list[Record]) -> None:
    text, _ = _page(make_report(mixed))
    without_namespaces = re.sub(r'\bxmlns(:\w+)?="[^"]*"', "", text)
    assert re.findall(r"\w+://[^\s\"'<>]+", without_namespaces) == []


def test_an_error_message_is_text(make_report: MakeReport, mixed: list[Record]) -> None:
    text, page = _page(make_report(mixed))
    assert "<script" not in text
    assert "<img" not in text
    assert f"{_SCRIPT} {_BREAKOUT}" in page.text


def test_manifest_keys_and_values_are_text(make_report: MakeReport, steady_run: SteadyRun) -> None:
    hostile = f"{_SCRIPT}{_BREAKOUT}"
    report = make_report(
        steady_run(3),
        workload={"description": hostile, "dropped_too_long": 0},
        arrivals=hostile,
        target={"model": hostile, "protocol": hostile, "streaming": True, "model_parameters": {hostile: hostile}},
        warm_up={"failures": [hostile]},
        options=[{"nested": [hostile, 1]}, None],
    )
    text, page = _page(report)
    assert "<script" not in text
    assert "<img" not in text
    assert page.text.count(_SCRIPT) >= 10  # title, heading, finding, and each cell of the manifest
    assert f"target.model_parameters.{hostile}" in page.text
    assert f"options[0].nested{hostile}, 1" in re.sub(r"\s*\n\s*", "", page.text)


def test_it_shows_verdict_findings_latencies_and_manifest(make_report: MakeReport, steady_run: SteadyRun) -> None:
    report = make_report(steady_run(10))
    text, page = _page(report)
    assert "This run is valid." in page.text
    assert '<p class="verdict">' in text
    for finding in report.findings:
        assert finding.advice in page.text
    assert "<td>TTFT, from schedule</td><td>100.00</td>" in text
    assert "<td>TPOT</td><td>10.00</td>" in text
    assert "<td>schedule.digest</td><td>" + "0f" * 32 + "</td>" in text
    assert text.count("<figure>") == 3
    assert '<div class="card">p50 TTFT<b>100.00</b><span>ms from the schedule</span></div>' in text


def test_every_percentile_stands_in_its_column(make_report: MakeReport, answered: Make) -> None:
    text, _ = _page(make_report([answered(k, 0, 0, [(k + 1, 1)]) for k in range(368)]))
    numbers = ("184.50", "184.00", "332.00", "350.00", "365.00", "368.00", "368")
    cells = "".join(f"<td>{number}</td>" for number in numbers)
    assert f"<tr><td>E2E latency, from schedule</td>{cells}</tr>" in text
    assert '<div class="card">p99 TTFT<b>365.00</b>' in text


def test_intervals_and_windows_are_shown(make_report: MakeReport, steady_run: SteadyRun) -> None:
    report = make_report(steady_run(700))
    text, _ = _page(report)
    assert "<tr><td>TTFT, from schedule</td><td>100.00 – 100.00</td><td>100.00 – 100.00</td>" in text
    whole = report.metrics.windows.whole
    assert whole is not None
    assert whole.request_throughput is not None
    throughput = whole.request_throughput
    cells = f"<td>{throughput.value:.2f}</td><td>{throughput.interval_text}</td>"
    assert f"<td>Request throughput (requests/s)</td>{cells}" in text
    assert "<td>Whole run (p50, p99: TTFT)</td><td>0.00</td><td>7.11</td>" in text
    assert "<td>Steady (MSER-5; p50, p99: TTFT)</td>" in text


def test_an_invalid_run_says_so_on_top(make_report: MakeReport, failed: Make) -> None:
    text, page = _page(make_report([failed(0, 0, Outcome.CONNECT, 0, 1)]))
    assert '<p class="verdict bad">THIS RUN IS NOT VALID: nothing_done, errors.</p>' in text
    assert "<tr><td>connect</td><td>1</td></tr>" in text
    assert '<td>TTFT, from schedule</td><td colspan="7">–</td>' in text
    assert "1 of 1 requests failed" in page.text


def test_an_unstreamed_run_leads_with_the_whole_answer(make_report: MakeReport, steady_run: SteadyRun) -> None:
    _, page = _page(make_report(steady_run(10), streaming=False))
    assert "p99 E2E latency" in page.text
    assert "TTFT" not in page.text


@pytest.mark.parametrize("kind", FAILURES)
def test_a_run_of_any_failure_can_be_rendered(make_report: MakeReport, failed: Make, kind: Outcome) -> None:
    sent = None if kind in (Outcome.NOT_SENT, Outcome.LOST) else 1.0
    _, page = _page(make_report([failed(0, 0, kind, sent, None if sent is None else 9.0)]))
    assert kind.value in page.text


def test_an_unknown_value_of_the_manifest_is_a_dash(make_report: MakeReport, steady_run: SteadyRun) -> None:
    text, _ = _page(make_report(steady_run(3), options={"num_requests": None, "workers": 0, "names": ["a", "b"]}))
    assert "<tr><td>options.num_requests</td><td>–</td></tr>" in text
    assert "<tr><td>options.workers</td><td>0</td></tr>" in text
    assert "<tr><td>options.names</td><td>a, b</td></tr>" in text

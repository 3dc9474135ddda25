"""The answer of a run on a terminal: what stands where, in how many lines of which width."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from harness.records.record import Outcome, Record
from reports.criteria import parse_slo
from reports.findings.checks import KINDS
from reports.render.tables import three_digits
from reports.run.answer import WIDTH, render_answer
from reports.run.console import render as render_full
from reports.run.markdown import render_markdown
from reports.run.summary_json import summary
from reports.run_report import RunReport, read_run

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]
SteadyRun = Callable[..., list[Record]]


def _row(text: str, name: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(name + "  "))
    return re.split(r"\s{2,}", line.strip())[1:]


def test_the_verdict_is_the_first_line_and_the_numbers_follow(make_report: MakeReport, steady_run: SteadyRun) -> None:
    text = render_answer(make_report(steady_run(2_000)))
    lines = text.splitlines()
    assert lines[0] == "This run is valid."
    assert len(lines) < 25
    assert max(map(len, lines)) <= WIDTH
    table = text.index("ms, from the schedule")
    assert table < text.index("Request throughput") < text.index("Output token throughput")
    assert "2,000 of 2,000 requests succeeded" in text[:table]


def test_no_number_of_upstreams_table_is_repeated(make_report: MakeReport, steady_run: SteadyRun) -> None:
    text = render_answer(make_report(steady_run(700)))
    assert "OP tokens/sec" not in text
    assert "Requests/Sec" not in text


def test_a_tail_without_support_is_marked_and_the_mark_is_explained_in_words(
    make_report: MakeReport, steady_run: SteadyRun
) -> None:
    few = render_answer(make_report(steady_run(661)))
    assert _row(few, "E2E latency")[3].endswith("*")
    assert "p99 not yet supported: 661 values, 662 needed." in few
    assert "too few requests for p99: raise --num_requests" in few.lower()


def test_correlated_requests_are_counted_by_what_they_are_worth(make_report: MakeReport, answered: Make) -> None:
    # A queue that builds up and empties every 100 requests: neighbours are alike.
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 20 + 5 * (k % 100), 1)]) for k in range(2_000)]
    text = render_answer(make_report(records))
    assert re.search(r"\* p99 not yet supported:\s+equivalent to [\d,]+ independent\s+requests, 368 needed", text)


def test_tails_that_are_worth_different_numbers_share_a_note(make_report: MakeReport, answered: Make) -> None:
    # TTFT follows a queue of 100 requests, what comes after it one of 40: each is worth another number of requests
    records = [
        answered(k, 10 * k, 10 * k, [(first := 10 * k + 20 + 5 * (k % 100), 1), (first + 10 + 40 * (k % 40), 1)])
        for k in range(2_000)
    ]
    text = render_answer(make_report(records))
    assert text.count("not yet supported") == 1
    note = " ".join(text[text.index("* TTFT") :].partition("\n\n")[0].split())
    assert re.fullmatch(
        r"\* TTFT: p99 not yet supported: equivalent to [\d,]+ independent requests, 368 needed"
        r"(; [^;:]+: to [\d,]+)+\.",
        note,
    )


def test_anchors_are_one_row_where_they_agree_and_two_where_the_client_was_late(
    make_report: MakeReport, answered: Make
) -> None:
    def text(late_ms: int) -> str:
        return render_answer(
            make_report([answered(k, 50 * k, 50 * k + late_ms, [(50 * k + late_ms + 100, 1)]) for k in range(700)])
        )

    assert "from send" not in text(2)
    late = text(20)
    assert _row(late, "TTFT")[0] == "120"
    assert _row(late, "TTFT (from send)")[0] == "100"


def test_failed_requests_are_counted_by_kind_in_the_head(make_report: MakeReport, steady_run: SteadyRun, failed: Make) -> None:
    records = [*steady_run(95), *(failed(k, 10 * k, Outcome.TIMEOUT, 10 * k, 10 * k + 9) for k in range(95, 100))]
    text = render_answer(make_report(records))
    assert text.startswith("THIS RUN IS NOT VALID: errors.\n")
    assert "95 of 100 requests succeeded" in text
    assert "failed: timeout 5." in text
    assert "failed*" in _row(text, "E2E latency")
    assert "invalid  Requests failed: fix what fails, or lower the load" in text


def test_objectives_add_goodput_and_attainment(make_report: MakeReport, steady_run: SteadyRun) -> None:
    folder = make_report(steady_run(700)).folder
    text = render_answer(read_run(folder, [parse_slo("ttft_ms<=200"), parse_slo("e2e_ms<=1")]))
    assert "Objectives: ttft<=200ms and e2e<=1ms." in text
    assert re.search(r"Attainment +0\.0 % of 700 sent", text)


@pytest.mark.parametrize(("late_ms", "shown"), [(0, False), (20, True)])
def test_attainment_from_the_send_stands_beside_where_the_client_was_late(
    make_report: MakeReport, answered: Make, late_ms: int, shown: bool
) -> None:
    folder = make_report([answered(k, 50 * k, 50 * k + late_ms, [(50 * k + late_ms + 100, 1)]) for k in range(700)]).folder
    report = read_run(folder, [parse_slo("ttft<=110ms")])
    text = render_answer(report)
    attainment = 0.0 if shown else 1.0
    assert re.search(rf"Attainment +{100 * attainment:.1f} % of 700 sent", text)
    assert bool(re.search(r"\nAttainment .*; from send 100\.0 %", text)) is shown
    assert text.count("Late sends: ") == shown  # of both findings, which have one remedy
    document = summary(report)["metrics"]["attainment"]
    assert (document["value"], document["from_send"]["value"]) == (attainment, 1.0)
    for rendered in (render_full(report), render_markdown(report)):
        assert "Attainment, from send" in rendered


def test_the_answer_has_less_than_25_lines_with_objectives_gates_and_many_findings(
    make_report: MakeReport, answered: Make, failed: Make
) -> None:
    records = [
        *(answered(k, 50 * k, 50 * k + 30, [(50 * k + 130, 1), (50 * k + 150, 1)], output_tokens=5) for k in range(120)),
        *(failed(k, 50 * k, Outcome.TIMEOUT, 50 * k, 50 * k + 9) for k in range(120, 140)),
    ]
    workload = {"dropped_too_long": 1, "description": "140 prompts"}
    folder = make_report(records, workload=workload, interrupted=True, warm_up={"failures": ["x"]}).folder
    criteria = [parse_slo(text) for text in ("ttft<=110ms", "p99_ttft<=300ms", "failed_share<=1%")]
    report = read_run(folder, criteria)
    lines = render_answer(report).splitlines()
    assert len(lines) < 24, "\n".join(lines)  # the path of the report follows
    assert [line.split()[0] for line in lines if line.startswith("  invalid")]
    more = re.fullmatch(r" +and (\d+) more: --full", lines[-1])
    assert more is not None
    briefs = {finding.brief for finding in report.findings}
    assert sum(any(brief in line for line in lines) for brief in briefs) + int(more[1]) == len(briefs)


def test_nothing_done_has_no_table_but_a_reason(make_report: MakeReport, failed: Make) -> None:
    text = render_answer(make_report([failed(0, 0, Outcome.CONNECT, 0, 1)]))
    assert text.startswith("THIS RUN IS NOT VALID: ")
    assert "p50" not in text
    assert "No request succeeded" in text


def test_every_finding_has_a_line_for_each_of_its_remedies() -> None:
    for kind in KINDS:
        assert len(kind.briefs) == len(kind.advices), kind.code
        assert all(len(brief) + len("  warning  ") <= WIDTH for brief in kind.briefs), kind.code


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0.00"), (9.99, "9.99"), (9.996, "10.0"), (99.94, "99.9"), (99.96, "100"), (12345.6, "12,346")]
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert three_digits(value) == text

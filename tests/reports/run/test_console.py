"""The answer of a run on a terminal: what is shown where, in how many lines of which width."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from bench_records.manifest import GpuTelemetry
from bench_records.record import Outcome, Record
from reports.criteria import Requirement, parse_slo
from reports.findings.checks import KINDS
from reports.findings.finding import Finding, RunFacts, Severity
from reports.findings.outcomes import Errors
from reports.gates.gate import Evidence, Gate, Status
from reports.metrics.catalogue import E2E, OUTPUT_TOKEN_THROUGHPUT, REQUEST_THROUGHPUT, TPOT, TTFT
from reports.metrics.goodput import Goodput, Objective
from reports.metrics.gpu_use import Gpu, GpuUse
from reports.metrics.host_energy import Drawn, HostEnergy
from reports.render.tables import cell_text, three_digits
from reports.run.console import WIDTH, render_answer
from reports.run.full import render as render_full
from reports.run.markdown import render_markdown
from reports.run.summary_json import summary
from reports.run.tables import latency_table, rate_table, slowest_table
from reports.run_report import RunReport, read_run
from reports.statistics.estimate import Cause, Correlated, Estimate, Reason, TooFew
from reports.statistics.percentiles import Distribution
from tests.reports.findings.runs import withdrawn
from tests.reports.manifests import calibration, rate_limit

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
    assert re.search(r"2,000 of 2,000 requests\s+succeeded in 20\.1 s\.\n", text[:table])


def test_no_number_of_upstreams_table_is_repeated(make_report: MakeReport, steady_run: SteadyRun) -> None:
    text = render_answer(make_report(steady_run(700)))
    assert "OP tokens/sec" not in text
    assert "Requests/Sec" not in text


def test_a_tail_without_support_is_marked_and_the_mark_is_explained_in_words(
    make_report: MakeReport, steady_run: SteadyRun
) -> None:
    few = render_answer(make_report(steady_run(661)))
    assert _row(few, "E2E latency")[3].endswith("*")
    assert "p99 not yet supported: 661 values, 662 needed (sample_too_small)." in few
    assert "p99 not yet supported: 1 value, 662 needed (sample_too_small)." in render_answer(make_report(steady_run(1)))
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
    records = [*steady_run(95), *(failed(k, 10 * k, Outcome.REFUSED, 10 * k, 10 * k + 9) for k in range(95, 100))]
    text = render_answer(make_report(records))
    assert text.startswith("THIS RUN IS NOT VALID: errors.\n")
    assert "95 of 100 requests succeeded" in text
    assert "failed: refused 5." in text
    assert "failed*" in _row(text, "E2E latency")
    assert "invalid  Requests failed: fix what fails, or lower the load" in text


def test_the_first_error_says_why_requests_failed(make_report: MakeReport, steady_run: SteadyRun, failed: Make) -> None:
    errors = ["HTTP status 400: the prompt\x1b[31m is too long", *["another"] * 4]
    records = [
        *steady_run(95),
        *(failed(k, 10 * k, Outcome.REFUSED, 10 * k, 10 * k + 9, error=errors[k - 95]) for k in range(95, 100)),
    ]
    text = " ".join(render_answer(make_report(records)).split())
    assert "failed: refused 5. The first error: HTTP status 400: the prompt" in text
    assert "\x1b" not in text
    long = [*steady_run(95), failed(95, 950, Outcome.REFUSED, 950, 959, error="word " * 300)]
    text = " ".join(render_answer(make_report(long)).split())
    assert 100 < len(text.partition("The first error: ")[2].partition("word … ")[0]) <= 200


def test_planned_cancellations_are_counted_apart_from_failures(make_report: MakeReport, steady_run: SteadyRun) -> None:
    records = [withdrawn(record, tokens=1) if record.index % 10 == 3 else record for record in steady_run(100)]
    text = " ".join(render_answer(make_report(records)).split())
    assert "90 of 100 requests succeeded in 1.1 s; cancelled as planned: 10." in text


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
    assert (" Attainment from send: 100.0 %." in text) is shown
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
    ("value", "text"),
    [
        (0.0, "0.00"), (0.0042, "0.0042"), (0.04217, "0.0422"), (-0.0042, "-0.0042"), (0.5, "0.50"), (9.99, "9.99"),
        (9.996, "10.0"), (99.94, "99.9"), (99.96, "100"), (12345.6, "12,346"),
    ],
)  # fmt: skip
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert three_digits(value) == text


# ---- whole answers, of numbers by hand


def _percentiles(d: Distribution, p50: Estimate, p90_ms: float | None, p99: Estimate, n: int = 700) -> Distribution:
    p90 = Estimate(p90_ms)
    chosen = {0.50: p50, 0.90: p90, 0.99: p99}
    return dataclasses.replace(d, n=n, percentiles=dict(d.percentiles) | chosen)


def _calm(d: Distribution, n: int = 700) -> Distribution:
    return _percentiles(d, Estimate(10.0, (9.0, 11.0)), 20.0, Estimate(30.0, (25.0, 35.0)), n)


def _tail(d: Distribution, reason: Reason, n: int = 700) -> Distribution:
    return _percentiles(d, Estimate(10.0, (9.0, 11.0)), 20.0, Estimate(30.0, None, reason, 25.0), n)


Change = Callable[[Distribution], Distribution]


def _of(report: RunReport, ttft: Change, tpot: Change, e2e: Change, **replaced: Any) -> RunReport:
    """The report with other latencies, and other numbers of its metrics."""
    metrics = report.metrics
    assert metrics.ttft_ms is not None
    assert metrics.tpot_ms is not None
    changed = [
        dataclasses.replace(latency, scheduled=change(latency.scheduled))
        for latency, change in ((metrics.ttft_ms, ttft), (metrics.e2e_ms, e2e))
        if latency.scheduled is not None
    ]
    latencies = {**metrics.latencies, TTFT: changed[0], E2E: changed[1], TPOT: tpot(metrics.tpot_ms)}
    return dataclasses.replace(report, metrics=dataclasses.replace(metrics, latencies=latencies, **replaced))


@pytest.fixture
def steady(make_report: MakeReport, steady_run: SteadyRun) -> RunReport:
    return make_report(steady_run(700))


def test_a_whole_answer(steady: RunReport) -> None:
    def slow(d: Distribution) -> Distribution:
        return _percentiles(d, Estimate(1_234.0, (1_000.0, 1_500.0)), 1_600.0, Estimate(1_700.0, (1_650.0, 1_800.0)))

    def worth_62(d: Distribution) -> Distribution:
        return _percentiles(d, Estimate(1.5), 2.0, Estimate(5.05, None, Correlated(62, 368), 4.46))

    def among_failures(d: Distribution) -> Distribution:
        return _percentiles(d, Estimate(171.0, (127.0, 293.0)), 556.0, Estimate(None, None, Cause.AMONG_FAILURES, None))

    objective, requirement = parse_slo("ttft<=200ms"), parse_slo("p99_ttft<=300ms")
    assert isinstance(objective, Objective)
    assert isinstance(requirement, Requirement)
    goodput = Goodput(
        (objective,), (350,), (700,), 350, 525, 525, 700, 0, Estimate(4.65, (3.816, 6.16)), 0.5, (0.44, 0.561), None
    )
    whole = steady.metrics.windows.whole
    assert whole is not None
    windows = dataclasses.replace(
        steady.metrics.windows,
        whole=dataclasses.replace(
            whole,
            throughputs={
                REQUEST_THROUGHPUT: Estimate(9.86, None, TooFew(9, 100)),
                OUTPUT_TOKEN_THROUGHPUT: Estimate(992.0, (819.0, 1_285.0)),
            },
        ),
    )
    numbers = {"failed_by_kind": {"timeout": 1_005, "connect": 1}, "not_sent": 2_000, "windows": windows, "goodput": goodput}
    why = "1,700 ms, 95 %: 1,650 – 1,800 ms; equivalent to 62 independent requests, 368 needed"
    gate = Gate(requirement, Status.UNDECIDED, Evidence(1_700.0), why)
    report = dataclasses.replace(_of(steady, slow, worth_62, among_failures, **numbers), gates=(gate,))
    assert (
        render_answer(report)
        == """\
This run is valid.
7 prompts of test.json; constant arrivals at 100 requests/s; tensorrt_llm over
grpc, streamed. 700 of 700 requests succeeded in 7.1 s; failed: timeout 1,005,
connect 1; not sent: 2,000.

ms, from the schedule      p50  95 % interval      p90      p99  95 % interval
TTFT                     1,234  1,000 – 1,500    1,600    1,700  1,650 – 1,800
TTFT (from send)           100  100 – 100          100      100  100 – 100
TPOT                      1.50  –                 2.00    5.05*  ≥ 4.46
E2E latency                171  127 – 293          556  failed*  –
E2E latency (from send)    120  120 – 120          120      120  120 – 120
* E2E latency: p99, or the end of its interval, falls among the failed requests.
* TPOT: p99 not yet supported: equivalent to 62 independent requests, 368
  needed.

Request throughput       9.86 requests/s     95 %: – (n too small)
Output token throughput  992 tokens/s        95 %: 819 – 1,285
Goodput                  4.65 requests/s     95 %: 3.82 – 6.16
Attainment               50.0 % of 700 sent  95 %: 44.0 – 56.1
Objectives: ttft<=200ms. Attainment from send: 75.0 %.

undecided  p99_ttft<=300ms: 1,700 ms, 95 %: 1,650 – 1,800 ms; equivalent to 62
           independent requests, 368 needed"""
    )


def _gpus(joules: float | None, *busy: float | None, tokens: float | None = 1_000.0) -> GpuUse:
    """GPUs over 10 s."""
    each = tuple(Gpu(f"{k}", None, None, None, share, None, None, ()) for k, share in enumerate(busy))
    return GpuUse("nvml", 1.0, 11.0, 0.1, each, joules, None, tokens)


@pytest.mark.parametrize(
    ("use", "of_target", "line"),
    [
        (_gpus(12_344.0, 0.5), True, "GPU: 12.3 J a token, 1,234 W, busy 50%."),
        (_gpus(5_000.0, 0.5, 1.0), None, "2 GPUs: 5.00 J a token, 500 W, busy 75%."),
        (_gpus(5_000.0, None, tokens=None), True, "GPU: 500 W."),
        (_gpus(None, 0.5, 0.25), False, "2 GPUs of this machine, perhaps not the target's: busy 38%."),
        (_gpus(None, None), True, None),
        (None, True, None),
    ],
)
def test_what_is_known_of_gpus_has_a_line(
    steady: RunReport, use: GpuUse | None, of_target: bool | None, line: str | None
) -> None:
    telemetry = None if of_target is None else GpuTelemetry(gpus=["0"], of_target=of_target, period_s=0.1, samples=9)
    manifest = structs.replace(steady.manifest, gpu_telemetry=telemetry)
    lines = render_answer(dataclasses.replace(steady, manifest=manifest, gpus=use)).splitlines()
    assert [text for text in lines if text not in render_answer(steady).splitlines()] == ([] if line is None else [line])


def _drawn(power_w: float | None, joules_per_token: float | None) -> Drawn:
    return Drawn((), None, None, power_w, joules_per_token, None)


@pytest.mark.parametrize(
    ("cpu", "dram", "line"),
    [
        (_drawn(1_234.4, 0.25), _drawn(1_012.0, 0.1), "CPU: 0.25 J a token, 1,234 W; DRAM 1,012 W."),
        (_drawn(95.0, None), None, "CPU: 95 W."),
        (_drawn(None, None), _drawn(12.0, None), "DRAM 12 W."),
        (None, _drawn(12.0, None), "DRAM 12 W."),
        (_drawn(95.0, 0.25), _drawn(None, None), "CPU: 0.25 J a token, 95 W."),
        (None, _drawn(None, None), None),
    ],
)
def test_what_is_known_of_the_host_s_energy_has_a_line(
    steady: RunReport, cpu: Drawn | None, dram: Drawn | None, line: str | None
) -> None:
    report = dataclasses.replace(steady, host_energy=HostEnergy(1.0, 11.0, 0.1, None, cpu, dram))
    lines = render_answer(report).splitlines()
    assert [text for text in lines if text not in render_answer(steady).splitlines()] == ([] if line is None else [line])


@pytest.mark.parametrize(
    ("undetermined", "from_send", "note"),
    [
        (0, 250, ""),
        (0, 251, " Attainment from send: 25.1 %."),  # a thousandth more
        (1, 250, " 1 request was cut off before that was decided, with which attainment is 25.0 – 25.1 %."),
        (
            1_000,
            500,
            " 1,000 requests were cut off before that was decided, with which attainment is 12.5 – 62.5 %. "
            "Attainment from send: 50.0 %.",
        ),
    ],
)
def test_objectives_are_named_with_what_attainment_may_have_been(
    steady: RunReport, undetermined: int, from_send: int, note: str
) -> None:
    """250 of 1,000 met them."""
    ttft, e2e = parse_slo("ttft<=200ms"), parse_slo("e2e<=1s")
    assert isinstance(ttft, Objective)
    assert isinstance(e2e, Objective)
    rate = Estimate(4.65, None, None)
    goodput = Goodput((ttft, e2e), (1, 1), (1, 1), 250, 250, from_send, 1_000, undetermined, rate, 0.25, (0.2, 0.3), None)
    report = dataclasses.replace(steady, metrics=dataclasses.replace(steady.metrics, goodput=goodput))
    answer = render_answer(report)
    judged = "25.0 % of 1,000 judged" if undetermined else "25.0 % of 1,000 sent"
    assert _row(answer, "Goodput") == ["4.65 requests/s", "95 %: –"]
    assert _row(answer, "Attainment") == [judged, "95 %: 20.0 – 30.0"]
    lines = answer[answer.index("\nObjectives") :].split("\n\n")[0].split()
    assert " ".join(lines) == f"Objectives: ttft<=200ms and e2e<=1000ms.{note}"


@pytest.mark.parametrize(
    ("reason", "note"),
    [
        (Cause.CUT_OFF, "p99 is a lower bound: requests were cut off."),
        (Cause.AMONG_FAILURES, "p99, or the end of its interval, falls among the failed requests."),
        (Cause.DRIFTS, "p99 not yet supported: drifts, or run too short."),
    ],
)
def test_the_reason_of_a_mark_is_the_whole_note_where_all_rows_have_it(steady: RunReport, reason: Reason, note: str) -> None:
    report = _of(steady, *[lambda d: _tail(d, reason)] * 3)
    assert f"\n* {note}\n\n" in render_answer(report)
    rows = [_row(render_answer(report), name) for name in ("TTFT", "TPOT", "E2E latency")]
    assert rows == [["10.0", "9.00 – 11.0", "20.0", "30.0*", "≥ 25.0"]] * 3


def test_an_attainment_without_an_interval_stands_alone(steady: RunReport) -> None:
    objective = parse_slo("ttft<=200ms")
    assert isinstance(objective, Objective)
    goodput = Goodput(
        (objective,), (350,), (700,), 350, 350, 350, 700, 0, Estimate(4.65, None, TooFew(9, 100)), 0.5, None, None
    )
    text = render_answer(dataclasses.replace(steady, metrics=dataclasses.replace(steady.metrics, goodput=goodput)))
    assert "\nAttainment               50.0 % of 700 sent\n" in text


def test_an_attainment_and_its_limits_below_100_are_shown_to_be(steady: RunReport) -> None:
    """Three of 30,000 missed an objective; with two digits of 99.99 %, and three of its limits, none had."""
    objective = parse_slo("ttft<=200ms")
    assert isinstance(objective, Objective)
    rate, limits = Estimate(99.0, (98.0, 100.0)), (0.99972, 0.999979)
    goodput = Goodput((objective,), (29_997,), (30_000,), 29_997, 29_999, 29_999, 30_000, 2, rate, 0.9999, limits, limits)
    report = dataclasses.replace(steady, metrics=dataclasses.replace(steady.metrics, goodput=goodput))
    answer = render_answer(report)
    assert "Attainment               99.99 % of 30,000 judged  95 %: 99.97 – 99.9979" in answer
    cut_off = "2 requests were cut off before that was decided, with which attainment is 99.98 – 99.99 %."
    assert cut_off in " ".join(answer.split())
    rows = {row[0]: (cell_text(row[1]), row[2]) for row in rate_table(report).rows}
    assert rows["Attainment (% of 30,000 judged)"] == ("99.99", "99.97 – 99.998")
    assert rows["Attainment, from send (%)"] == ("99.997", "99.97 – 99.998")
    assert rows["Attainment (%) with 2 cut off, undetermined"] == ("–", "99.98 – 99.99")


def test_the_answer_of_a_long_run_has_lines_of_80_characters(steady: RunReport) -> None:
    objective, limits = parse_slo("ttft<=200ms"), (12_345.0, 123_456.0)
    assert isinstance(objective, Objective)
    rate, sent, undetermined = Estimate(99_999.0, limits, None), 1_000_000, 1_000_000
    goodput = Goodput((objective,), (1,), (1,), 250_000, 1, 750_000, sent, undetermined, rate, 0.25, (0.2, 1.0), None)
    report = dataclasses.replace(steady, metrics=dataclasses.replace(steady.metrics, goodput=goodput))
    assert max(map(len, render_answer(report).splitlines())) <= WIDTH


def test_tails_of_one_number_of_independent_requests_are_named_together(steady: RunReport) -> None:
    report = _of(
        steady,
        *(lambda d, n=n: _tail(d, Correlated(n, 368)) for n in (62, 62, 40)),
    )
    assert (
        "* TTFT, TPOT: p99 not yet supported: equivalent to 62 independent requests, 368\n  needed; E2E latency: to 40.\n"
    ) in render_answer(report)


def test_tails_of_two_numbers_of_independent_requests_are_named_apart(steady: RunReport) -> None:
    report = _of(steady, _calm, lambda d: _tail(d, Correlated(62, 368)), lambda d: _tail(d, Correlated(40, 368)))
    note = render_answer(report).partition("\n* ")[2].partition("\n\n")[0]
    assert " ".join(note.split()) == (
        "TPOT: p99 not yet supported: equivalent to 62 independent requests, 368 needed; E2E latency: to 40."
    )
    report = _of(steady, *(lambda d, n=n: _tail(d, Correlated(n, 368)) for n in (62, 40, 40)))
    note = render_answer(report).partition("\n* ")[2].partition("\n\n")[0]
    assert " ".join(note.split()).endswith("368 needed; TPOT, E2E latency: to 40.")


def test_tails_of_too_few_values_are_counted_from_the_fewest_to_the_most(steady: RunReport) -> None:
    few = render_answer(_of(steady, *(lambda d, n=n: _tail(d, TooFew(n, 368), n) for n in (150, 661, 100))))
    assert "* p99 not yet supported: 100 to 661 values, 662 needed (sample_too_small).\n" in few
    cut = render_answer(_of(steady, *[lambda d: dataclasses.replace(_tail(d, TooFew(500, 368), 500), censored=100)] * 3))
    assert "* p99 not yet supported: 600 values, 662 needed (sample_too_small).\n" in cut
    one = render_answer(_of(steady, *(lambda d, n=n: _calm(d, n) for n in (100, 662, 1_200))))
    assert "* p99 not yet supported: 100 values, 662 needed (sample_too_small).\n" in one
    assert (_row(one, "TTFT")[3], _row(one, "TPOT")[3], _row(one, "E2E latency")[3]) == ("30.0*", "30.0", "30.0")


@pytest.mark.parametrize(
    ("scheduled_ms", "sent_ms", "shown"),
    [(None, 30.0, True), (30.0, None, True), (None, None, False), (30.0, 30.0, False), (30.0, 28.4, True), (30.0, 28.5, False)],
)
def test_a_tail_from_the_send_is_shown_where_it_differs_by_more_than_a_twentieth(
    steady: RunReport, scheduled_ms: float | None, sent_ms: float | None, shown: bool
) -> None:
    def with_p99(d: Distribution, p99_ms: float | None) -> Distribution:
        return _percentiles(d, Estimate(10.0, (9.0, 11.0)), 20.0, Estimate(p99_ms, None, Cause.AMONG_FAILURES, 25.0))

    changed = _of(steady, lambda d: with_p99(d, scheduled_ms), _calm, lambda d: d)
    found = changed.metrics.ttft_ms
    assert found is not None
    assert found.sent is not None
    ttft = dataclasses.replace(found, sent=with_p99(found.sent, sent_ms))
    metrics = dataclasses.replace(changed.metrics, latencies={**changed.metrics.latencies, TTFT: ttft})
    text = render_answer(dataclasses.replace(changed, metrics=metrics))
    assert ("\nTTFT (from send)  " in text) is shown


@pytest.mark.parametrize(
    ("error_ms", "shown"), [(None, True), ((15.0, 3.0), False), ((15.0, 2.4), True), ((-15.0, 3.0), False)]
)
def test_a_delay_within_the_calibrated_error_of_the_client_is_not_shown(
    make_report: MakeReport, answered: Make, error_ms: tuple[float, float] | None, shown: bool
) -> None:
    """A delay of 20 ms, beside a mean error and two standard deviations of 21 and 19.8 ms; without a calibration of 0.9 ms of
    10.
    """
    late_ms, latency_ms = (0.9, 9.1) if error_ms is None else (20.0, 100.0)
    manifest = {}
    if error_ms is not None:
        made = calibration(rate_limit(1e4), rate_limit(1e4))
        manifest["calibration"] = made | {"ttft": made["ttft"] | {"mean_ms": error_ms[0], "stdev_ms": error_ms[1]}}
    records = [answered(k, 50 * k, 50 * k + late_ms, [(50 * k + late_ms + latency_ms, 1)]) for k in range(700)]
    assert ("TTFT (from send)" in render_answer(make_report(records, **manifest))) is shown


@dataclasses.dataclass(frozen=True)
class _Numbered(Finding):
    number: int

    code = "numbered"
    severities = (Severity.NOTE,)

    @classmethod
    def check(cls, facts: RunFacts) -> None:
        raise NotImplementedError

    @property
    def brief(self) -> str:
        return f"finding {self.number}"

    def _sentence(self) -> str:
        raise NotImplementedError


@pytest.mark.parametrize("gates", [0, 2])
def test_as_many_findings_are_shown_as_leave_23_lines(steady: RunReport, gates: int) -> None:
    requirement = parse_slo("p99_ttft<=300ms")
    assert isinstance(requirement, Requirement)
    gate = Gate(requirement, Status.PASSED, Evidence(1.0), "1 ms")

    def lines(findings: int) -> list[str]:
        found = tuple(_Numbered(number) for number in range(findings))
        return render_answer(dataclasses.replace(steady, gates=(gate,) * gates, findings=found)).splitlines()

    head = len(lines(0)) + (0 if gates else 1)  # an empty line before the first
    fitting = 23 - head
    assert fitting > 3
    assert lines(fitting)[-1] == f"     note  finding {fitting - 1}"
    assert len(lines(fitting)) == 23
    beyond = lines(fitting + 1)
    assert len(beyond) == 23
    assert beyond[-2:] == [f"     note  finding {fitting - 2}", f"{'':9}  and 2 more: --full"]
    assert sum(line == "   passed  p99_ttft<=300ms: 1 ms" for line in beyond) == gates


def test_the_first_error_is_left_out_where_it_leaves_too_few_lines_to_findings(steady: RunReport) -> None:
    """The error takes three lines, and each gate one of those for findings."""
    requirement = parse_slo("p99_ttft<=300ms")
    assert isinstance(requirement, Requirement)
    gate = Gate(requirement, Status.PASSED, Evidence(1.0), "1 ms")
    found = (Errors(1, 0.001, {"timeout": 1}, "word " * 40), *(_Numbered(number) for number in range(20)))
    shown = []
    for gates in range(12):
        text = render_answer(dataclasses.replace(steady, gates=(gate,) * gates, findings=found))
        lines, error = text.splitlines(), "The first error: word" in text
        listed = sum("  note  " in line or "  warning  " in line for line in lines) + 1  # with that which counts the others
        assert len(lines) == 23 or (len(lines) > 23 and listed == 3 and not error)
        shown.append((error, listed))
    with_error = [listed for error, listed in shown if error]
    without = [listed for error, listed in shown if not error]
    assert [error for error, _ in shown] == [True] * len(with_error) + [False] * len(without)
    assert (with_error[-1], without[0]) == (3, 5)


def test_a_name_from_outside_is_not_broken(make_report: MakeReport, steady_run: SteadyRun) -> None:
    name = "model-" * 20
    text = render_answer(make_report(steady_run(50), target={"model": name, "protocol": "grpc", "streaming": True}))
    assert name in text.splitlines()


def test_what_a_run_does_not_have_is_left_out(make_report: MakeReport, failed: Make) -> None:
    text = render_answer(make_report([failed(0, 0, Outcome.CONNECT, 0, 1)]))
    assert "0 of 1 request succeeded; failed: connect 1." in " ".join(text.split())
    assert "\nRequest throughput       – requests/s\n" in text


def test_a_short_run_of_one_request_took_some_time(make_report: MakeReport, answered: Make) -> None:
    text = render_answer(make_report([answered(0, 0, 0, [(9, 1), (12, 1)])]))
    assert "1 of 1 request succeeded in 0.013 s." in " ".join(text.split())


def test_notes_of_one_request_are_in_the_singular(make_report: MakeReport, answered: Make) -> None:
    report = make_report([answered(0, 0, 0, [(9, 1), (12, 1)])])
    assert latency_table(report).note.startswith("0 of 1 request sent failed; ")
    assert slowest_table(report).note.startswith("The 1 success with the longest E2E latency; ")
    assert "Failed: 0 of 1 request sent." in render_full(report)

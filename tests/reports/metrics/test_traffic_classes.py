"""Classes of a mixture, probes and planned cancellations: which requests each number covers, and what is shown of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from bench_records.record import Outcome, Record, TokenSource
from reports.criteria import parse_slo
from reports.metrics.full_batch import FullBatch
from reports.metrics.output_events import output_tokens
from reports.metrics.requests import Requests
from reports.metrics.traffic_classes import Judged, traffic_classes
from reports.run.class_table import class_table
from reports.run.console import render_answer
from reports.run.full import render
from reports.run.markdown import render_markdown
from reports.run.page import run_page, run_pictures
from reports.run.summary_json import summary
from reports.run.tables import failure_tables
from reports.run_report import RunReport, read_run
from reports.statistics.estimate import Cause
from tests.reports.findings.runs import withdrawn

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]

_CLUSTERED = Cause.CLUSTERED_ARRIVALS
_MIXTURE: dict[str, Any] = {
    "classes": [{"name": "chat", "weight": 3.0}, {"name": "code", "weight": 1.0}],
    "objectives": {"code": ["ttft<=40ms"]},
    "probe": {"rate_per_s": 1.0},
    "cancellation": {"percent": 10.0},
}


@pytest.fixture
def records(answered: Make, failed: Make) -> list[Record]:
    """40 of chat with a TTFT of 50 ms, and 20 of code of 30 ms, of which one fails and one is cancelled; 5 probes of 9 ms."""

    def one(index: int, ttft_ms: float, name: str) -> Record:
        at = 10 * index
        return answered(index, at, at, [(at + ttft_ms, 1), (at + ttft_ms + 10, 1)], traffic_class=name)

    chat = [one(k, 50, "chat") for k in range(40)]
    code = [one(k, 30, "code") for k in range(40, 60)]
    code[3] = failed(43, 430, Outcome.TIMEOUT, 430, 900, traffic_class="code", error="too late")
    code[5] = withdrawn(code[5], tokens=1)
    probes = [replace(one(k, 9, "probe"), scheduled_ns=k * 7_000_000, sent_ns=k * 7_000_000) for k in range(60, 65)]
    return [*chat, *code, *[replace(p, token_times_ns=(p.scheduled_ns + 9_000_000,), token_counts=(2,)) for p in probes]]


def test_each_class_has_the_numbers_of_its_own_requests(make_report: MakeReport, records: list[Record]) -> None:
    chat, code, probe = make_report(records, mixture=_MIXTURE).classes
    assert [numbers.name for numbers in (chat, code, probe)] == ["chat", "code", "probe"]
    assert (chat.scheduled, chat.done, chat.failed, chat.withdrawn, chat.goodput) == (40, 40, 0, 0, None)
    assert (code.scheduled, code.done, code.failed, code.withdrawn) == (20, 18, 1, 1)
    assert (probe.scheduled, probe.done, probe.is_probe) == (5, 5, True)
    assert chat.ttft_ms is not None
    assert code.ttft_ms is not None
    assert code.e2e_ms is not None
    assert (chat.ttft_ms.p50, code.ttft_ms.p50, code.ttft_ms.p99) == (50, 30, None)  # one timed out
    assert (code.ttft_ms.n, code.e2e_ms.n) == (19, 18)  # of the one that was cancelled, the first token came


def test_an_unstreamed_run_has_no_first_tokens_of_any_class(make_report: MakeReport, records: list[Record]) -> None:
    for numbers in make_report(records, streaming=False).classes:
        assert (numbers.ttft_ms, numbers.e2e_ms is None) == (None, False)


def test_latencies_and_goodput_of_a_class_with_clustered_arrivals_have_no_interval(
    make_requests: Callable[[Sequence[Record]], Requests], answered: Make
) -> None:
    """700 requests of one class in ten crowds, and 700 of another one at an even rate."""
    records = []
    for k, wait in enumerate(np.random.default_rng(2).normal(300.0, 60.0, 700).tolist()):
        for number, (name, due) in enumerate((("crowded", 100_000.0 * (k // 70) + k % 70), ("even", 1_000.0 * k))):
            records.append(answered(2 * k + number, due, due, [(due + wait, 1), (due + wait + 9, 1)], traffic_class=name))
    requests = make_requests(records)
    limit = parse_slo("ttft<=300ms")
    for numbers, reason in zip(traffic_classes(requests, Judged([limit], {}), streaming=True), (_CLUSTERED, None), strict=True):
        assert numbers.ttft_ms is not None
        assert numbers.e2e_ms is not None
        assert numbers.goodput is not None
        estimates = (numbers.ttft_ms.percentile(0.5), numbers.e2e_ms.percentile(0.5), numbers.goodput.rate)
        assert [estimate.reason for estimate in estimates] == [reason] * 3


def test_a_batch_that_is_full_too_rarely_leaves_the_tails_of_each_class_without_an_upper_limit(
    make_requests: Callable[[Sequence[Record]], Requests], answered: Make
) -> None:
    waits = np.random.default_rng(3).normal(300.0, 60.0, 1_000).tolist()
    requests = make_requests(
        [answered(k, 1e3 * k, 1e3 * k, [(1e3 * k + wait, 1)], traffic_class="chat") for k, wait in enumerate(waits)]
    )
    rare = FullBatch(answers=1_000, largest=8, waited=0, spells=0, limit=8, near_limit=True)
    for batch, reason in ((None, None), (rare, Cause.FEW_QUEUES)):
        (chat,) = traffic_classes(requests, Judged([], {}), streaming=True, batch=batch)
        for latency in (chat.ttft_ms, chat.e2e_ms):
            assert latency is not None
            p99 = latency.percentile(0.99)
            assert (p99.reason, p99.interval is None) == (reason, reason is not None)


def test_probes_alone_are_a_class(make_requests: Callable[[Sequence[Record]], Requests], answered: Make) -> None:
    requests = make_requests([answered(k, 10 * k, 10 * k, [(10 * k + 5, 1)], traffic_class="probe") for k in range(3)])
    (probes,) = traffic_classes(requests, Judged([parse_slo("ttft<=9ms")], {}), streaming=True)
    assert (probes.is_probe, probes.done, probes.goodput_rate) == (True, 3, None)


def test_probes_stand_behind_all_classes(make_report: MakeReport, answered: Make) -> None:
    names = ["retrieval", "probe", "chat"]
    report = make_report([answered(k, k, k, [(k + 5, 1)], traffic_class=name) for k, name in enumerate(names)])
    assert [numbers.name for numbers in report.classes] == ["chat", "retrieval", "probe"]


def test_objectives_of_a_class_judge_its_requests_alone(make_report: MakeReport, records: list[Record]) -> None:
    report = make_report(records, mixture=_MIXTURE)
    code = report.classes[1]
    assert code.goodput is not None
    assert (code.goodput.good, code.goodput.sent) == (19, 20)  # the first token of the one that was cancelled came in time
    assert report.metrics.window_s is not None
    assert code.goodput_rate == pytest.approx(19 / report.metrics.window_s)
    assert report.metrics.goodput is None
    chat, code, _ = read_run(report.folder, [parse_slo("ttft<=55ms")]).classes
    assert chat.goodput is not None
    assert code.goodput is not None
    assert [str(objective) for objective in chat.goodput.objectives] == ["ttft<=55ms"]
    assert [str(objective) for objective in code.goodput.objectives] == ["ttft<=40ms"]


def test_the_goodput_of_classes_lasts_until_the_last_good_request_that_was_cancelled(
    make_report: MakeReport, answered: Make
) -> None:
    """As that of the run, so that the goodputs of classes add up to it."""
    times = [100 * k for k in range(20)]
    whole = [answered(k, at, at, [(at + 20, 1), (at + 50, 1)], traffic_class=f"c{k % 2}") for k, at in enumerate(times)]
    report = make_report([whole[0], *(withdrawn(record, tokens=1) for record in whole[1:])])
    report = read_run(report.folder, [parse_slo("ttft<=40ms")])
    assert report.metrics.goodput is not None
    assert report.metrics.goodput.good == 20
    assert report.metrics.goodput.rate.value == pytest.approx(20 / 1.949)
    assert [numbers.goodput_rate for numbers in report.classes] == [pytest.approx(10 / 1.949)] * 2
    none_done = read_run(make_report([withdrawn(record, tokens=1) for record in whole]).folder, [parse_slo("ttft<=40ms")])
    assert none_done.metrics.goodput is not None
    assert none_done.metrics.goodput.rate.value == pytest.approx(20 / 1.949)
    assert [numbers.goodput_rate for numbers in none_done.classes] == [pytest.approx(10 / 1.949)] * 2
    mixture = {"classes": [{"name": name, "weight": 1.0} for name in ("c0", "c1")], "objectives": {"c1": ["ttft<=40ms"]}}
    of_one_class = make_report([withdrawn(record, tokens=1) for record in whole], mixture=mixture)
    assert [numbers.goodput_rate for numbers in of_one_class.classes] == [None, pytest.approx(10 / 1.949)]


def test_failures_after_the_last_success_make_no_rate_smaller(
    make_report: MakeReport, records: list[Record], failed: Make
) -> None:
    """The window of every rate ends with the last success, on each page and in each file."""
    late = [failed(k, 10 * k, Outcome.TIMEOUT, 10 * k, 60_000, traffic_class="code") for k in range(60, 64)]
    runs = (records[:60], [*records[:60], *late])
    without, after = (read_run(make_report(run, mixture=_MIXTURE).folder, [parse_slo("ttft<=55ms")]) for run in runs)
    first, second = summary(without), summary(after)
    for name in ("window_s", "request_throughput", "output_token_throughput", "goodput"):
        assert second["metrics"][name]["value"] == first["metrics"][name]["value"]
    assert second["windows"]["whole"]["end_s"] == first["windows"]["whole"]["end_s"]
    assert [each["goodput"] for each in second["classes"]] == [each["goodput"] for each in first["classes"]]
    assert after.metrics.upstream == without.metrics.upstream


def test_a_run_is_as_it_would_be_without_its_probes(make_report: MakeReport, records: list[Record]) -> None:
    with_probes, without = (summary(make_report(some)) for some in (records, records[:60]))
    assert with_probes.pop("classes")[:2] == without.pop("classes")
    assert with_probes == without


def test_every_report_has_a_row_for_each_class_and_names_the_probes(make_report: MakeReport, records: list[Record]) -> None:
    report = make_report(records, mixture=_MIXTURE)
    page = run_page(report, run_pictures(report))
    (section,) = (section for section in page.sections if section.id == "classes")
    for text in (render_markdown(report), str(section)):
        assert all(name in text for name in ("chat", "code", "probe", "withdrawn", "met %"))
    answer = " ".join(render_answer(report).split())
    assert "Probes, in no other number here: 5 of 5 succeeded; TTFT p50 9.00 ms, p99 9.00 ms." in answer
    assert "cancelled as planned: 1" in answer
    found = {entry["name"]: entry for entry in summary(report)["classes"]}
    assert (found["code"]["withdrawn"], found["code"]["attainment"]["value"], found["chat"]["goodput"]) == (1, 19 / 20, None)
    assert summary(report)["requests"]["withdrawn"] == 1


def test_the_table_fits_a_terminal_of_80_columns(make_report: MakeReport, records: list[Record]) -> None:
    text = render(make_report(records, mixture=_MIXTURE))
    start = text.index("\nClass ")
    lines = text[start + 1 : text.index("\n\n", start)].splitlines()
    assert max(map(len, lines)) <= 80
    rows = {line.split()[0]: line.replace("≥ ", "≥").split()[1:] for line in lines[2:]}
    assert rows["chat"] == ["40", "40", "0", "–", "50.0", "50.0", "60.0", "60.0", "–", "–"]
    assert rows["code"][:8] == ["20", "18", "1", "1", "30.0", "≥470", "40.0", "≥470"]


def test_a_run_of_no_class_has_no_table(make_report: MakeReport, answered: Make) -> None:
    report = make_report([answered(k, k, k, [(k + 5, 1)]) for k in range(5)])
    assert report.classes == ()
    assert "By class" not in render_markdown(report)


def test_probes_beside_a_load_without_classes_have_the_load_in_a_row_above(make_report: MakeReport, answered: Make) -> None:
    load = [answered(k, k, k, [(k + 5, 1)]) for k in range(5)]
    probe = answered(5, 3, 3, [(4, 1)], traffic_class="probe")
    assert [(numbers.name, numbers.scheduled) for numbers in make_report([*load, probe]).classes] == [(None, 5), ("probe", 1)]


def test_a_run_recorded_before_there_were_classes_is_read(make_report: MakeReport, answered: Make) -> None:
    report = make_report([answered(k, k, k, [(k + 5, 1)]) for k in range(5)])
    path = report.folder.requests
    table = pq.read_table(path)
    older = table.drop_columns(["traffic_class", "cancel_after_ns", "cancel_after_tokens"])
    pq.write_table(older, path)
    again = read_run(report.folder)
    assert summary(again) == summary(report)


def test_of_many_classes_tables_show_the_largest_and_the_summary_all(make_report: MakeReport, answered: Make) -> None:
    names = [f"client {k % 30:02}" for k in range(60)] + ["client 29"] * 5 + ["probe"]
    report = make_report([answered(k, k, k, [(k + 5, 1)], traffic_class=name) for k, name in enumerate(names)])
    rows = [row[0] for row in class_table(report).rows]
    assert (len(rows), "client 29" in rows, rows[-1]) == (21, True, "probe")
    assert "summary.json has 10 more" in class_table(report).note
    assert len(summary(report)["classes"]) == 31


def test_a_failed_probe_is_among_the_failures_and_the_files_have_every_request(
    make_report: MakeReport, records: list[Record]
) -> None:
    lost = replace(records[-1], outcome=Outcome.STREAM_CUT, error="cut off", token_times_ns=(), token_counts=None)
    report = make_report([*records[:-1], lost], mixture=_MIXTURE)
    assert "cut off" in render_markdown(report)
    assert report.metrics.failed == 1
    assert report.all_requests.index.size == 65


# ---- what a planned cancellation counts for


def test_tokens_until_a_cancellation_are_output_and_the_request_is_no_success(make_report: MakeReport, answered: Make) -> None:
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 5, 1), (10 * k + 9, 1)], done=10 * k + 10) for k in range(100)]
    records[40] = withdrawn(records[40], tokens=1)
    metrics = make_report(records).metrics
    assert (metrics.done, metrics.withdrawn, metrics.failed) == (99, 1, 0)
    assert metrics.window_s == 1.0
    assert metrics.output_token_throughput == 199
    assert metrics.request_throughput == 99
    assert metrics.ttft_ms is not None
    assert metrics.ttft_ms.scheduled is not None
    assert metrics.e2e_ms.scheduled is not None
    assert metrics.tpot_ms is not None
    assert (metrics.ttft_ms.scheduled.n, metrics.e2e_ms.scheduled.n, metrics.tpot_ms.n) == (100, 99, 99)
    assert metrics.e2e_ms.scheduled.failed == 0


def test_tokens_of_a_cancelled_answer_that_nothing_counted_leave_throughput_known(
    make_report: MakeReport, answered: Make
) -> None:
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 5, 1), (10 * k + 9, 1)], done=10 * k + 10) for k in range(100)]
    records[40] = replace(withdrawn(records[40], tokens=1), token_counts=None, output_tokens=None)
    assert make_report(records).metrics.output_token_throughput == 198
    records[40] = replace(records[40], output_tokens=3, output_tokens_source=TokenSource.TEXT)
    report = make_report(records)
    events = output_tokens(report.requests)
    assert report.metrics.output_token_throughput == 201
    assert events is not None
    assert events.times_ns.size == 199  # two of each success, and its own at its end
    assert "text" not in report.requests.output_tokens_sources


def test_the_chosen_requests_keep_their_tokens(make_report: MakeReport, answered: Make) -> None:
    tokens = [0, 2, 1, 3]
    requests = make_report(
        [answered(k, 10 * k, 10 * k, [(10 * k + 1 + n, 1) for n in range(tokens[k])]) for k in range(4)]
    ).requests
    some = requests.only(np.array([True, False, True, True]))
    assert some.index.tolist() == [0, 2, 3]
    assert some.token_starts.tolist() == [0, 0, 1, 4]
    assert (some.token_times_ns / 1e6).tolist() == [21, 31, 32, 33]
    assert some.errors == (None, None, None)


def test_failures_of_probes_are_among_the_messages_alone(make_report: MakeReport, records: list[Record], failed: Make) -> None:
    probe = failed(64, 448, Outcome.REFUSED, 448, 450, traffic_class="probe", error="queue full")
    report = make_report([*records[:64], probe], mixture=_MIXTURE)
    kinds, messages = failure_tables(report)
    assert dict(kinds.rows) == summary(report)["requests"]["by_kind"] == {"timeout": 1}
    assert [row[:3] for row in messages.rows] == [("too late", "timeout", 1), ("queue full", "refused", 1)]
    (alone,) = failure_tables(make_report([*records[:43], probe], mixture=_MIXTURE))
    assert alone.name == "messages"

"""The answer of ``bench why``: what it says of runs whose times are known by construction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace as with_fields

from bench_records.manifest import Connections, Distribution, EmbeddedServer, LoadFacts, OneTarget, WorkersFacts
from bench_records.record import Outcome, Record
from bench_records.run_folder import RunFolder
from reports.metrics.catalogue import E2E, TTFT
from reports.metrics.request_phases import Phase
from reports.render.console import WIDTH, console_text
from reports.render.markdown import markdown_text
from reports.run.page import run_page, run_pictures
from reports.run_report import RunReport
from reports.why.answer import METRICS, Detail, Why, explain
from reports.why.documents import document, waterfall_table
from reports.why.trial import trial
from reports.why.words import WORDS, answer, change, phases_text, remarks, remedy, shares_text, unlike_sources, without_largest
from tests.reports.manifests import clock_readings
from tests.reports.watched import metric

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]

_STARTED = "2026-11-22T01:23:51+00:00"
_ARRIVED_NS = 1_795_310_631_000_000_000 - 1_795_306_986_682_515_898  # the start of the run on the monotonic clock
_ON_ONE_HOST: dict[str, Any] = {**clock_readings(), "started_at": _STARTED}


def _ns(ms: float) -> int:
    return round(ms * 1e6)


def _run(
    make: Make, queues_ms: Sequence[float], *, front_end: float = 20.0, prefill: float = 40.0, stamped: bool = True
) -> list[Record]:
    """Requests one each second with these waits; 8 ms of slip, 12 ms of return, 40 ms of decode."""
    records = []
    for k, queue in enumerate(queues_ms):
        due = 1_000.0 * k
        arrival = due + 8 + front_end
        first = arrival + queue + prefill + 12
        of_server = {
            "server_arrival_ns": _ARRIVED_NS + _ns(arrival) if stamped else None,
            "server_queue_ns": _ns(queue),
            "server_prefill_ns": _ns(prefill),
            "server_decode_ns": _ns(40),
        }
        records.append(make(k, due, due + 8, [(first, 1), (first + 40, 1)], **of_server))
    return records


def _widest(text: str) -> int:
    """The length of the longest line, without commands, which are not broken."""
    return max(len(line) for line in text.splitlines() if not line.startswith(("Try it", "After that change", "See what")))


def _explained(report: RunReport, q: float = 0.99) -> Why:
    return explain([report], METRICS, q)


@pytest.fixture(scope="module")
def queued(make_report: MakeReport, answered: Make) -> RunReport:
    """Half of the requests waited 20 ms, half 320 ms."""
    return make_report(_run(answered, [20.0] * 50 + [320.0] * 50), **_ON_ONE_HOST)


def test_the_answer_names_the_shares_and_what_would_be_without_the_largest(queued: RunReport) -> None:
    ttft, e2e = _explained(queued).runs[0].latencies
    parts = ttft.percentiles[-1]
    assert answer(TTFT, parts) == (
        "p99 TTFT 400 ms: 80 % engine queue, 10 % prefill, 5 % front end, 3 % return, 2 % schedule slip."
    )
    assert without_largest(TTFT, parts) == (
        "Without the engine queue it would be 80.0 ms. This takes away the waiting alone, not its effect on batching: in "
        "larger batches prefill and decode take longer."
    )
    assert answer(E2E, e2e.percentiles[-1]).startswith("p99 E2E latency 440 ms: 73 % engine queue, 9 % prefill, 9 % decode, ")
    assert answer(TTFT, ttft.percentiles[0]).startswith("p50 TTFT 100 ms: ")


def test_a_long_wait_on_a_host_of_both_is_said_to_slow_what_follows(
    queued: RunReport, make_report: MakeReport, answered: Make
) -> None:
    """The percentile without the wait was 8 to 21 % too high on such a host, and nothing said so."""
    said = "after a long engine queue the next phases take some ms longer"

    def said_of(report: RunReport) -> bool:
        return said in " ".join(remarks(report, _explained(report).runs[0].latencies[0].percentiles[-1]))

    assert said_of(queued)
    assert not said_of(make_report(_run(answered, [45.0] * 100), **_ON_ONE_HOST))
    assert not said_of(make_report(_run(answered, [320.0] * 100, stamped=False), **_ON_ONE_HOST))  # on an unknown host


def test_a_long_send_on_a_host_of_both_is_said_to_slow_what_follows(make_report: MakeReport, answered: Make) -> None:
    """The server sleeps meanwhile, as in a queue."""
    records = [
        answered(
            k, 500 * k, 500 * k, [(500 * k + 200, 1), (500 * k + 240, 1)],
            written_ns=_ns(500 * k + 150), server_arrival_ns=_ARRIVED_NS + _ns(500 * k + 155), server_queue_ns=_ns(5),
            server_prefill_ns=_ns(35), server_decode_ns=_ns(40),
        )
        for k in range(100)
    ]  # fmt: skip
    [run] = _explained(make_report(records, **_ON_ONE_HOST)).runs
    parts = run.latencies[0].percentiles[-1]
    assert answer(TTFT, parts).startswith("p99 TTFT 200 ms: 75 % send, ")
    assert "after a long send the next phases take some ms longer" in " ".join(remarks(run.report, parts))


def test_the_remedy_of_the_first_byte_does_not_repeat_what_was_done(make_report: MakeReport, answered: Make) -> None:
    """The commands after it have the option, and a run that had it got no times."""
    assert "--server_timings" not in remedy(_explained(make_report(_untimed(answered))).runs[0].latencies[0].percentiles[-1])


def test_differences_without_intervals_say_why_once(make_report: MakeReport, answered: Make) -> None:
    """A column of them said "effective n 76" in each row."""
    few, more = (make_report(_run(answered, [wait] * 4), **_ON_ONE_HOST) for wait in (20.0, 320.0))
    text = console_text(document(explain([few, more], [TTFT], 0.99)))
    assert "The differences have no intervals: n too small." in text
    assert "95 % interval" not in text
    many, others = (make_report(_run(answered, [wait] * 1_000), **_ON_ONE_HOST) for wait in (20.0, 320.0))
    text = console_text(document(explain([many, others], [TTFT], 0.99)))
    assert "95 % interval" in text
    assert "have no intervals" not in text


def test_the_documents_have_the_answer_first_and_fit_a_terminal(queued: RunReport) -> None:
    why = _explained(queued)
    text = console_text(document(why))
    assert text.startswith("p99 TTFT 400 ms: 80 % engine queue")
    assert _widest(text) <= WIDTH
    assert text.count("After that change, send the same requests: bench replay ") == 1  # both latencies have the same remedy
    for phase in (Phase.SLIP, Phase.FRONT_END, Phase.QUEUE, Phase.PREFILL, Phase.DECODE, Phase.RETURN):
        assert phase.value in text
    assert "--max-num-seqs" in text
    assert markdown_text(document(why)).startswith("**p99 TTFT 400 ms: 80 % engine queue")


def test_every_phase_has_its_words() -> None:
    assert WORDS.keys() == set(Phase)
    for phase, words in WORDS.items():
        assert words.source
        assert words.assumes.endswith(".")
        assert words.remedy.endswith(".") or phase is Phase.UNATTRIBUTED


def test_a_run_without_times_of_the_server_says_what_it_cannot_attribute(make_report: MakeReport, answered: Make) -> None:
    records = [answered(k, 100 * k, 100 * k + 5, [(100 * k + 55, 1), (100 * k + 75, 1)]) for k in range(200)]
    [run] = _explained(make_report(records)).runs
    parts = run.latencies[0].percentiles[-1]
    assert answer(TTFT, parts) == "p99 TTFT 55.0 ms: 9 % schedule slip, 91 % unattributed."
    assert (without_largest(TTFT, parts), remedy(parts)) == ("", "")  # of what is unattributed nothing can be said
    [around, unsupported, untimed] = remarks(run.report, parts)
    assert unsupported == "p99 is not yet supported: 200 requests, 662 needed."
    assert around.startswith("Times are means of the 20 of 200 requests ranked around p99.")
    assert "Measure with --server_timings" in untimed
    assert "openai_completions" not in untimed


def _untimed(make: Make, count: int = 200, **fields: Any) -> list[Record]:
    """Requests whose heads came 70 ms after they were due, and their first tokens after 100 ms."""
    return [
        make(
            k, 200 * k, 200 * k + 5, [(200 * k + 100, 1), (200 * k + 140, 1)],
            written_ns=_ns(200 * k + 10), head_ns=_ns(200 * k + 70), **fields,
        )
        for k in range(count)
    ]  # fmt: skip


def _tried(run: Path) -> str:
    """The folder beside that of the runs, which have numbers as repeats have."""
    return f"{run.parent}-{run.name}-tried"


def test_a_client_alone_has_the_send_and_the_first_byte(make_report: MakeReport, answered: Make) -> None:
    why = _explained(make_report(_untimed(answered)))
    [run] = why.runs
    parts = run.latencies[0].percentiles[-1]
    assert answer(TTFT, parts) == "p99 TTFT 100 ms: 60 % first byte, 5 % schedule slip, 5 % send, 30 % unattributed."
    assert without_largest(TTFT, parts).startswith("Without the first byte it would be 40.0 ms. ")
    untimed = remarks(run.report, parts)[-1]
    assert "what passed between the send and the first token is the wait for the first byte, undivided, and from" in untimed
    path = run.report.folder.path
    assert trial(run.report, parts) == (
        f"bench replay {path} --server_timings --run_dir {_tried(path)}",
        f"bench why {_tried(path)}",
    )
    text = console_text(document(why))
    assert "See what it consists of: bench why" in text
    assert _widest(text) <= WIDTH


def test_a_server_that_returned_no_times_though_it_was_asked_is_not_asked_again(
    make_report: MakeReport, answered: Make
) -> None:
    target = {"model": "m", "protocol": "openai", "streaming": True, "server_timings": True}
    run = make_report(_untimed(answered), target=target)
    path = run.folder.path
    assert (
        trial(run, _explained(run).runs[0].latencies[0].percentiles[-1])[0] == f"bench replay {path} --run_dir {_tried(path)}"
    )


def test_a_server_that_times_some_phases_alone_is_not_said_to_time_none(make_report: MakeReport, answered: Make) -> None:
    """llama.cpp says nothing of its queue, and Dynamo with prefill and decode on one worker nothing but the decode."""
    records = [
        answered(
            k, 100 * k, 100 * k, [(100 * k + 50, 1), (100 * k + 75, 1)], server_prefill_ns=_ns(9), server_decode_ns=_ns(25)
        )
        for k in range(200)
    ]
    run = make_report(records)
    assert remarks(run, _explained(run).runs[0].latencies[0].percentiles[-1])[-1] == (
        "The server returned nothing but the prefill of these requests: what else passed before their first token is "
        "unattributed."
    )


@pytest.mark.parametrize("fields", [{}, {"written_ns": 1, "head_ns": _ns(30)}])
def test_a_decode_alone_leaves_the_prefill_unknown_and_is_not_said_to_be_nothing(
    make_report: MakeReport, answered: Make, fields: dict[str, int]
) -> None:
    """Another worker did the prefill, or the same one: Dynamo then says nothing of it. ``bench why`` said of TTFT that the
    server returned no times, and to measure with --server_timings, with which the run had been measured.
    """
    tokens = [(50, 1), (75, 1)]
    records = [answered(k, 0, 0, tokens, server_decode_ns=_ns(24), **fields) for k in range(40)]
    run = make_report(records, target={"model": "m", "protocol": "openai", "streaming": True, "server_timings": True})
    ttft, e2e = _explained(run).runs[0].latencies
    for latency in (ttft, e2e):
        parts = latency.percentiles[-1]
        assert not {Phase.QUEUE, Phase.PREFILL} & parts.by_phase.keys()
        [said] = [sentence for sentence in remarks(run, parts) if sentence.startswith("The server returned")]
        assert "nothing but the decode of its requests" in said
        assert "--server_timings" not in said
    assert ttft.percentiles[-1].by_phase[Phase.UNATTRIBUTED].mean_ms.value == pytest.approx(20.0 if fields else 50.0)
    assert e2e.percentiles[-1].by_phase[Phase.UNATTRIBUTED].mean_ms.value == pytest.approx(51.0)


def test_a_wait_without_its_prefill_leaves_that_unattributed(make_report: MakeReport, answered: Make) -> None:
    """A prefill that is missing took some time: it is not one of 0 ms."""
    records = [answered(k, 0, 0, [(50, 1), (75, 1)], server_queue_ns=_ns(4), server_decode_ns=_ns(24)) for k in range(40)]
    run = make_report(records)
    parts = _explained(run).runs[0].latencies[0].percentiles[-1]
    assert Phase.PREFILL not in parts.by_phase
    assert parts.by_phase[Phase.UNATTRIBUTED].mean_ms.value == pytest.approx(46.0)
    assert remarks(run, parts)[-1].startswith("The server returned nothing but the engine queue of these requests: ")


def test_a_server_that_times_other_requests_alone_timed_none_of_these(make_report: MakeReport, answered: Make) -> None:
    """The slow one of two targets returns no times."""
    records = _run(answered, [20.0] * 40, stamped=False)
    records += [answered(k, 1_000 * k, 1_000 * k, [(1_000 * k + 900, 1)]) for k in range(40, 80)]
    run = make_report(records)
    untimed = remarks(run, _explained(run).runs[0].latencies[0].percentiles[-1])[-1]
    assert untimed.startswith("The server timed none of these 20 requests: ")


@pytest.mark.parametrize("protocol", ["openai", "openai_completions", "openai_responses", "vllm_tokens"])
def test_the_way_to_a_vllms_times_depends_on_the_protocol(make_report: MakeReport, answered: Make, protocol: str) -> None:
    records = [answered(k, 100 * k, 100 * k + 5, [(100 * k + 55, 1), (100 * k + 75, 1)]) for k in range(200)]
    run = make_report(records, target={"model": "m", "protocol": protocol, "streaming": True})
    untimed = remarks(run, _explained(run).runs[0].latencies[0].percentiles[-1])[-1]
    assert "--enable-per-request-metrics" in untimed
    assert ("none over vllm_tokens, but over -i openai_completions" in untimed) is (protocol == "vllm_tokens")


def test_a_router_may_leave_out_the_times_of_the_server(make_report: MakeReport, answered: Make) -> None:
    records = [answered(k, 100 * k, 100 * k, [(100 * k + 50, 1)], router_ns=_ns(3.0)) for k in range(100)]
    run = make_report(records, target={"model": "m", "protocol": "openai", "streaming": True})
    parts = _explained(run).runs[0].latencies[0].percentiles[-1]
    assert answer(TTFT, parts) == "p99 TTFT 50.0 ms: 6 % router, 94 % unattributed."
    assert "as LiteLLM does, leaves them out: measure a server at its own address." in remarks(run, parts)[-1]


def test_the_engines_means_are_named_but_not_attributed(make_report: MakeReport, answered: Make) -> None:
    records = [answered(k, 100 * k, 100 * k, [(100 * k + 50, 1)]) for k in range(100)]
    server = [
        *metric("vllm:request_queue_time_seconds_sum", {0.0: 0.0, 11.0: 2.0}),
        *metric("vllm:request_queue_time_seconds_count", {0.0: 0.0, 11.0: 100.0}),
        *metric("vllm:request_prefill_time_seconds_sum", {0.0: 0.0, 11.0: 3.0}),
        *metric("vllm:request_prefill_time_seconds_count", {0.0: 0.0, 11.0: 100.0}),
    ]
    report = make_report(records, server=server)
    parts = _explained(report).runs[0].latencies[0].percentiles[-1]
    assert Phase.QUEUE not in parts.by_phase
    assert "The engine's means over all requests are 20.0 ms of queue, 30.0 ms of prefill; " in remarks(report, parts)[-1]


def test_durations_without_stamps_leave_the_way_unattributed(make_report: MakeReport, answered: Make) -> None:
    report = make_report(_run(answered, [30.0] * 40, stamped=False))
    parts = _explained(report).runs[0].latencies[0].percentiles[-1]
    assert parts.by_phase[Phase.UNATTRIBUTED].mean_ms.value == pytest.approx(32.0)
    assert "front end, network and the way back are unattributed" in remarks(report, parts)[-1]


def test_the_error_of_another_clock_is_remarked(make_report: MakeReport, answered: Make) -> None:
    """Its origin is another one; 20 ms of front end and 12 ms of return leave it open within 16 ms to either side."""
    records = _run(answered, [2_000.0] * 40)
    report = make_report(
        [with_fields(r, server_arrival_ns=(r.server_arrival_ns or 0) + 10**15) for r in records], **_ON_ONE_HOST
    )
    parts = _explained(report).runs[0].latencies[0].percentiles[-1]
    assert parts.clock_error_ms == pytest.approx(16.0)
    assert "the server's stamps are right to ± 16.0 ms, and so are front end and return" in remarks(report, parts)[-1]


def test_some_requests_without_times_and_contradictions_are_remarked(make_report: MakeReport, answered: Make) -> None:
    records = _run(answered, [30.0] * 38, stamped=False)
    records.append(answered(38, 38_000, 38_000, [(39_000, 1)]))
    records.append(answered(39, 39_000, 39_000, [(40_000, 1)], server_queue_ns=_ns(1_400), server_prefill_ns=0))
    report = make_report(records)
    why = _explained(report)
    found = remarks(report, why.runs[0].latencies[0].percentiles[-1])
    assert "The server timed 19 of these 20 requests" in found[2]
    assert found[3].startswith("The server returned durations")
    assert found[4].startswith("Sources contradict each other in 1 of these requests")
    assert "20.0 ms more than the mean latency" in found[4]
    assert "contradiction" in console_text(document(why))


def test_a_percentile_among_failures_has_no_parts(make_report: MakeReport, answered: Make, failed: Make) -> None:
    records = _run(answered, [30.0] * 90) + [failed(90 + k, 9e4 + k, Outcome.REFUSED, 9e4 + k, 9e4 + k + 1) for k in range(10)]
    report = make_report(records)
    why = _explained(report)
    assert console_text(document(why)).startswith("p99 TTFT falls among requests that failed or were cut off")
    parts = why.runs[0].latencies[0].percentiles[-1]
    assert parts.around > 0


def test_a_percentile_that_cut_requests_decide_has_the_lower_bound_of_the_report(
    make_report: MakeReport, answered: Make, failed: Make
) -> None:
    """It was shown as known: with the cut ones slowest, it is that of the answers above it, 50 ms here."""
    records = [answered(k, 1e3 * k, 1e3 * k, [(1e3 * k + (20 if k < 50 else 50), 1)]) for k in range(80)]
    records += [failed(80 + k, 8e4 + k, Outcome.WITHDRAWN, 8e4 + k, 8e4 + k + 20) for k in range(20)]
    report = make_report(records)
    why = explain([report], [TTFT], 0.7)
    parts = why.runs[0].latencies[0].percentiles[-1]
    assert (parts.value_ms, parts.percentile.lower_bound) == (None, 20.0)
    assert console_text(document(why)).startswith("p70 TTFT is at least 20.0 ms; requests that were cut off leave it open.")
    assert report.metrics.ttft_ms is not None
    reported = report.metrics.ttft_ms.scheduled.percentile(0.9)
    p90 = explain([report], [TTFT], 0.9).runs[0].latencies[0].percentiles[-1]
    assert (p90.value_ms, p90.percentile.lower_bound) == (None, reported.lower_bound)
    assert [share.without_ms for share in p90.shares] == [None] * len(p90.shares)


def test_where_no_latency_around_a_percentile_is_known_no_zero_is_shown(
    make_report: MakeReport, answered: Make, failed: Make
) -> None:
    """The table had 0.00 ms of each phase, and the remarks "means of the 0 of 200 requests"."""
    records = _run(answered, [30.0] * 60) + [failed(60 + k, 6e4 + k, Outcome.REFUSED, 6e4 + k, 6e4 + k + 1) for k in range(40)]
    report = make_report(records)
    parts = _explained(report).runs[0].latencies[0].percentiles[-1]
    assert [share.mean_ms.value for share in parts.shares] == [None] * len(parts.shares)
    text = console_text(document(_explained(report)))
    assert "No whole latency of the 20 requests around it is known. p99 is not yet supported" in text
    assert " 0.00 " not in next(line for line in text.splitlines() if line.startswith("engine queue"))
    assert "means of the 0" not in text
    beside = console_text(document(explain([report, make_report(_run(answered, [30.0] * 100))], [TTFT], 0.99)))
    assert "falls among requests that failed or were cut off in one of the runs" in beside
    assert "engine queue" not in beside


def test_a_run_of_failures_has_no_answer(make_report: MakeReport, failed: Make) -> None:
    why = _explained(make_report([failed(0, 0, Outcome.REFUSED, 0, 1)]))
    assert console_text(document(why)).startswith("No request has a latency whose parts could be shown.")


def test_an_unstreamed_run_has_the_parts_of_its_e2e_latency_alone(make_report: MakeReport, answered: Make) -> None:
    report = make_report([answered(k, 100 * k, 100 * k, [(100 * k + 50, 3)]) for k in range(30)], streaming=False)
    assert [parts.metric for parts in _explained(report).runs[0].latencies] == [E2E]


def test_shares_without_intervals_have_one_reason_and_no_column(make_report: MakeReport, answered: Make) -> None:
    """All requests at once wait in one queue."""
    records = [answered(k, k, k, [(500 + 9 * k, 1)], server_queue_ns=_ns(300 + 8 * k), server_prefill_ns=0) for k in range(90)]
    report = make_report(records)
    why = _explained(report)
    text = console_text(document(why))
    assert "95 % interval" not in text
    assert "The shares have no intervals: queues in few spells." in remarks(report, why.runs[0].latencies[0].percentiles[-1])[0]
    assert _widest(text) <= WIDTH


def test_the_percentile_without_a_phase_is_shown_with_its_interval(make_report: MakeReport, answered: Make) -> None:
    queues = np.random.default_rng(3).normal(300.0, 60.0, 400).tolist()
    report = make_report(_run(answered, queues), **_ON_ONE_HOST)
    why = _explained(report, 0.5)
    parts = why.runs[0].latencies[0].percentiles[-1]
    low, high = parts.by_phase[Phase.PREFILL].without.interval or (0.0, 0.0)
    assert low < (parts.by_phase[Phase.PREFILL].without_ms or 0.0) < high
    text = console_text(document(why))
    assert f"{low:.2f} – {high:.2f}" in text
    assert _widest(text) <= WIDTH
    said = without_largest(TTFT, parts)  # all but the queue is constant
    assert said.startswith("Without the engine queue it would be 80.0 ms (95 % interval 80.0 – 80.0). This takes")


# ---- two runs


def test_the_difference_of_two_runs_is_the_sum_of_its_phases(
    queued: RunReport, make_report: MakeReport, answered: Make
) -> None:
    other = make_report(_run(answered, [20.0] * 50 + [399.0] * 50, prefill=45.0), **_ON_ONE_HOST)
    why = explain([queued, other], METRICS, 0.99)
    ttft, _ = why.differences
    assert change(ttft) == (
        "p99 TTFT +84.0 ms (400 to 484 ms). The requests around it took +84.0 ms on the mean: "
        "+79.0 engine queue, +5.00 prefill."
    )
    by_phase = {phase.phase: phase.difference for phase in ttft.phases}
    assert sum(found.value or 0.0 for found in by_phase.values() if found) == pytest.approx(ttft.mean_ms)
    assert ttft.same_sources
    text = console_text(document(why))
    assert "+79.00" in text
    assert _widest(text) <= WIDTH


def test_a_run_that_did_not_wait_at_a_ceiling_waited_there_for_0_ms(make_report: MakeReport, answered: Make) -> None:
    """It was taken for a run without a source of that phase, and the phases did not add up to the change."""
    free = make_report([answered(k, 1_000 * k, 1_000 * k, [(1_000 * k + 100, 1)]) for k in range(100)])
    waited = [answered(k, 1_000 * k, 1_000 * k + 50, [(1_000 * k + 150, 1)]) for k in range(100)]
    held = make_report([with_fields(record, released_ns=record.sent_ns) for record in waited])
    for runs, sign in (([free, held], 1), ([held, free], -1)):
        ttft = explain(runs, [TTFT], 0.99).differences[0]
        found = next(phase for phase in ttft.phases if phase.phase is Phase.CEILING).difference
        assert found is not None
        assert found.value == pytest.approx(50.0 * sign)
        assert ttft.same_sources


def test_runs_with_other_sources_are_not_compared_by_phases(queued: RunReport, make_report: MakeReport, answered: Make) -> None:
    plain = make_report([answered(k, 1_000 * k, 1_000 * k, [(1_000 * k + 300, 1)]) for k in range(100)])
    why = explain([plain, queued], METRICS, 0.99)
    ttft = why.differences[0]
    assert not ttft.same_sources
    assert next(phase for phase in ttft.phases if phase.phase is Phase.QUEUE).difference is None
    assert "measure both with --server_timings" in unlike_sources(ttft)


def test_a_difference_of_noise_has_an_interval_that_covers_0(make_report: MakeReport, answered: Make) -> None:
    rng = np.random.default_rng(4)
    reports = [make_report(_run(answered, rng.normal(300.0, 60.0, 400).tolist()), **_ON_ONE_HOST) for _ in range(2)]
    ttft, _ = explain(reports, METRICS, 0.5).differences
    queue = next(phase.difference for phase in ttft.phases if phase.phase is Phase.QUEUE)
    assert queue is not None
    assert queue.interval is not None
    assert queue.interval[0] < 0.0 < queue.interval[1]


# ---- classes


def test_each_class_has_its_own_percentile(make_report: MakeReport, answered: Make) -> None:
    records = _run(answered, [20.0] * 60 + [320.0] * 40)
    named = [with_fields(record, traffic_class="chat" if k < 60 else "code <b>") for k, record in enumerate(records)]
    why = _explained(make_report(named, **_ON_ONE_HOST))
    chat, code = why.runs[0].classes_of(TTFT)
    assert (chat.name, chat.parts.value_ms, code.parts.value_ms) == ("chat", 100.0, 400.0)
    assert shares_text(chat.parts).startswith("40 % prefill, 20 % front end, 20 % engine queue")
    text = console_text(document(why))
    assert "class" in text
    assert "80 % engine queue, 10 % prefill, " in text


# ---- over time, and requests


def test_each_stretch_of_the_run_has_its_own_percentile(queued: RunReport) -> None:
    why = explain([queued], METRICS, 0.99, Detail(stretches=4))
    stretches = why.runs[0].stretches_of(TTFT)
    assert [stretch.parts.value_ms for stretch in stretches] == [100.0, 100.0, 400.0, 400.0]
    assert (stretches[0].start_s, stretches[-1].end_s) == (0.0, 99.0)
    assert sum(stretch.parts.n for stretch in stretches) == 100
    assert "49.5 – 74.2" in console_text(document(why))


def test_the_slowest_requests_by_their_phases(make_report: MakeReport, answered: Make, failed: Make) -> None:
    records = _run(answered, [20.0, 920.0, 20.0, 520.0])
    records += [
        failed(4, 4_000, Outcome.SERVER_ERROR, 4_000, 9_000),
        answered(5, 5_000, 5_000, [(5_100, 1)], server_queue_ns=_ns(130)),
    ]
    why = explain([make_report(records, **_ON_ONE_HOST)], METRICS, 0.99, Detail(slowest=3))
    first, second, third = why.runs[0].slowest[TTFT.key]
    assert [(found.index, found.due_s, found.latency_ms) for found in (first, second)] == [(1, 1.0, 1_000.0), (3, 3.0, 600.0)]
    assert phases_text(first) == "8.00 schedule slip, 20.0 front end, 920 engine queue, 40.0 prefill, 12.0 return"
    assert (third.index, phases_text(third)) == (5, "130 engine queue, -30.0 contradiction")
    assert sum(first.phases_ms.values()) == pytest.approx(first.latency_ms)
    assert "8.00 schedule slip, 20.0 front end, 920 engine queue" in console_text(document(why))


def test_a_chosen_request_has_a_waterfall(make_report: MakeReport, answered: Make, failed: Make) -> None:
    records = [*_run(answered, [20.0, 320.0]), failed(2, 4_000, Outcome.SERVER_ERROR, 4_000, 9_000)]
    [run] = explain([make_report(records, **_ON_ONE_HOST)], METRICS, 0.99, Detail(chosen=(2, 1))).runs
    [request] = run.chosen[TTFT.key]
    table = waterfall_table(request, "TTFT")
    assert table.columns[0] == "Request 1, due at 1.000 s: TTFT 400 ms"
    rows = [(row[0], *(round(float(str(cell)), 3) for cell in row[1:4])) for row in table.rows]
    assert rows == [
        ("schedule slip", 0.0, 8.0, 8.0),
        ("front end", 8.0, 28.0, 20.0),
        ("engine queue", 28.0, 348.0, 320.0),
        ("prefill", 348.0, 388.0, 40.0),
        ("return", 388.0, 400.0, 12.0),
    ]
    bars = [str(row[4]) for row in table.rows]
    assert bars[2] == "··" + "█" * 24
    assert all(bar.endswith("█") and len(bar) <= 30 for bar in bars)
    assert "Request 1, due at 1.000 s" in console_text(document(explain([run.report], METRICS, 0.99, Detail(chosen=(1,)))))


def _waterfall(report: RunReport, number: int = 0) -> list[tuple[object, ...]]:
    [request] = explain([report], [E2E], 0.99, Detail(chosen=(number, number))).runs[0].chosen[E2E.key]
    table = waterfall_table(request, "E2E latency")
    return [(row[0], *(None if cell is None else round(float(str(cell)), 3) for cell in row[1:4])) for row in table.rows]


def test_a_waterfall_has_the_stream_at_its_end(make_report: MakeReport, answered: Make) -> None:
    """What is unattributed passed before the first token; by durations alone the places of the server's phases are unknown."""
    plain = answered(0, 0, 0, [(500, 1), (1_500, 1)])
    assert _waterfall(make_report([plain])) == [("unattributed", 0.0, 500.0, 500.0), ("stream", 500.0, 1_500.0, 1_000.0)]
    timed = with_fields(plain, server_queue_ns=_ns(100), server_prefill_ns=_ns(300))
    assert _waterfall(make_report([timed])) == [
        ("engine queue", None, None, 100.0),
        ("prefill", None, None, 300.0),
        ("unattributed", None, None, 100.0),
        ("stream", 500.0, 1_500.0, 1_000.0),
    ]


def test_a_waterfall_has_the_first_byte_as_a_phase_or_as_a_mark(make_report: MakeReport, answered: Make) -> None:
    """A phase of a request that the server did not time; its place in the server's phases, which may be unknown, else."""
    [alone] = _untimed(answered, 1)
    to_head = [("schedule slip", 0.0, 5.0, 5.0), ("send", 5.0, 10.0, 5.0)]
    stream = ("stream", 100.0, 140.0, 40.0)
    assert _waterfall(make_report([alone])) == [
        *to_head, ("first byte", 10.0, 70.0, 60.0), ("unattributed", 70.0, 100.0, 30.0), stream,
    ]  # fmt: skip
    timed = with_fields(alone, server_queue_ns=_ns(30), server_prefill_ns=_ns(40))
    assert _waterfall(make_report([timed])) == [
        *to_head,
        ("engine queue", None, None, 30.0),
        ("prefill", None, None, 40.0),
        ("unattributed", None, None, 20.0),
        ("head of the answer", 70.0, None, None),
        stream,
    ]
    routed = with_fields(alone, router_ns=_ns(20))
    assert _waterfall(make_report([routed])) == [
        *to_head,
        ("router", None, None, 20.0),
        ("first byte", None, None, 40.0),
        ("unattributed", None, None, 30.0),
        stream,
    ]


def test_the_mark_of_the_head_stands_at_its_time(make_report: MakeReport, answered: Make) -> None:
    records = [with_fields(record, head_ns=record.token_times_ns[0] - _ns(100)) for record in _run(answered, [320.0] * 40)]
    [run] = explain([make_report(records, **_ON_ONE_HOST)], METRICS, 0.99, Detail(chosen=(1,))).runs
    table = waterfall_table(run.chosen[TTFT.key][0], "TTFT")
    assert [row[0] for row in table.rows] == [
        "schedule slip", "front end", "engine queue", "head of the answer", "prefill", "return",
    ]  # fmt: skip
    assert (table.rows[3][1], table.rows[3][4]) == (300.0, "·" * 22 + "│")
    last = with_fields(records[1], head_ns=records[1].token_times_ns[0])
    [run] = explain([make_report([last], **_ON_ONE_HOST)], METRICS, 0.99, Detail(chosen=(1,))).runs
    assert waterfall_table(run.chosen[TTFT.key][0], "TTFT").rows[-1][4] == "·" * 29 + "│"


def test_a_return_without_a_decode_comes_before_the_stream(make_report: MakeReport, answered: Make) -> None:
    records = [with_fields(record, server_decode_ns=None) for record in _run(answered, [20.0] * 40)]
    assert _waterfall(make_report(records, **_ON_ONE_HOST))[-2:] == [
        ("return", 88.0, 100.0, 12.0),
        ("stream", 100.0, 140.0, 40.0),
    ]


def test_a_waterfall_of_contradicting_sources_says_by_how_much(make_report: MakeReport, answered: Make) -> None:
    record = answered(0, 0, 0, [(100, 1)], server_queue_ns=_ns(130), server_prefill_ns=0)
    assert _waterfall(make_report([record])) == [("engine queue", None, None, 130.0), ("contradiction", None, None, -30.0)]


def test_a_chosen_request_without_the_latency_is_named(make_report: MakeReport, answered: Make, failed: Make) -> None:
    records = [*_run(answered, [20.0, 320.0]), failed(2, 4_000, Outcome.SERVER_ERROR, 4_000, 9_000)]
    text = console_text(document(explain([make_report(records)], METRICS, 0.99, Detail(chosen=(2, 2)))))
    assert text.count("Request 2 has no TTFT: it failed or was cut off.") == 1
    assert "Request 2 has no E2E latency: it failed or was cut off." in text


def test_why_a_chosen_request_has_no_latency(make_report: MakeReport, answered: Make, failed: Make) -> None:
    records = [*_run(answered, [20.0, 320.0]), answered(2, 4_000, 4_000, []), failed(3, 9_000, Outcome.NOT_SENT)]
    text = console_text(document(explain([make_report(records)], METRICS, 0.99, Detail(chosen=(2, 3)))))
    assert "Request 2 has no TTFT: its answer has no token." in text
    assert "Request 3 has no TTFT: it was not sent." in text


# ---- what to try


@pytest.mark.parametrize(
    ("phase", "facts", "change"),
    [
        ("queue", {"server": EmbeddedServer(engine={"max_num_sequences": 2})}, " --max_num_sequences 4"),
        ("queue", {"server": EmbeddedServer(engine={"max_num_sequences": "2"})}, ""),
        ("queue", {}, ""),
        ("slip", {"workers": WorkersFacts(count=3)}, " --workers 6"),
        ("slip", {"workers": WorkersFacts(count=3), "load": LoadFacts(concurrency=4)}, ""),
        ("slip", {"workers": WorkersFacts(count=3), "distribution": Distribution()}, ""),
    ],
)
def test_the_commands_try_the_remedy_of_the_largest_phase(
    make_report: MakeReport, answered: Make, phase: str, facts: dict[str, Any], change: str
) -> None:
    records = _run(answered, [900.0] * 4)
    if phase == "slip":
        records = [answered(k, 1_000 * k, 1_000 * k + 90, [(1_000 * k + 95, 1)]) for k in range(4)]
    recorded = make_report(records, **_ON_ONE_HOST)
    run = replace(recorded, manifest=with_fields(recorded.manifest, **facts))
    path = run.folder.path
    assert trial(run, _explained(run).runs[0].latencies[0].percentiles[-1]) == (
        f"bench replay {path}{change} --run_dir {_tried(path)}",
        f"bench why {path} {_tried(path)}",
    )


@pytest.mark.parametrize(
    ("records_ms", "facts", "change"),
    [
        ({"queue": 900.0}, {"engine": {"max_num_sequences": 128}}, None),  # two are in flight
        ({"queue": 20.0, "prefill": 900.0}, {"engine": {"max_num_tokens": 2_048}}, None),
        ({"queue": 20.0, "prefill": 900.0}, {"engine": {"max_num_tokens": 64}}, " --max_num_tokens 128"),
    ],
)
def test_a_setting_that_the_run_did_not_come_near_is_not_tried(
    make_report: MakeReport, answered: Make, records_ms: dict[str, float], facts: dict[str, Any], change: str | None
) -> None:
    records = _run(answered, [records_ms["queue"]] * 4, prefill=records_ms.get("prefill", 40.0))
    recorded = make_report([with_fields(record, input_tokens=100) for record in records], **_ON_ONE_HOST)
    run = replace(recorded, manifest=with_fields(recorded.manifest, server=EmbeddedServer(**facts)))
    found = trial(run, _explained(run).runs[0].latencies[0].percentiles[-1])
    assert (found == ()) if change is None else (change in found[0])


@pytest.mark.parametrize(
    ("per_worker", "targets", "change"),
    [(16, 2, " --connections 16"), (16, 1, " --connections 32"), (1_024, 1, "")],
)
def test_more_connections_are_those_of_each_target_up_to_the_options_limit(
    make_report: MakeReport, answered: Make, per_worker: int, targets: int, change: str
) -> None:
    records = [answered(k, 1_000 * k, 1_000 * k, [(1_000 * k + 95, 1)], connect_ns=_ns(90)) for k in range(4)]
    recorded = make_report(records)
    facts = {"connections": Connections(per_worker=per_worker), "targets": (OneTarget(),) * targets if targets > 1 else None}
    run = replace(recorded, manifest=with_fields(recorded.manifest, **facts))
    command, _ = trial(run, _explained(run).runs[0].latencies[0].percentiles[-1])
    assert f"{run.folder.path}{change} --run_dir" in command


@pytest.mark.parametrize(
    ("run", "tried"),
    [
        ("runs/now/1", "runs/now-1-tried"),
        ("runs/now", "runs/now-tried"),
        ("runs/2026-01-01-101010-dataset", "runs/2026-01-01-101010-dataset-tried"),
        ("1", "1-tried"),
        ("../1", "../1-tried"),
        (".", ".-tried"),
        ("/1", "/1-tried"),
    ],
)
def test_a_changed_run_is_no_repeat_of_the_run(make_report: MakeReport, answered: Make, run: str, tried: str) -> None:
    """What is in a folder of repeats is compared as one of them."""
    report = make_report(_untimed(answered))
    named = replace(report, folder=RunFolder(Path(run)))
    command, _ = trial(named, _explained(report).runs[0].latencies[0].percentiles[-1])
    assert command == f"bench replay {run} --server_timings --run_dir {tried}"


def test_nothing_is_tried_where_nothing_is_known(make_report: MakeReport, answered: Make) -> None:
    run = make_report([answered(k, 100 * k, 100 * k, [(100 * k + 50, 1)]) for k in range(30)])
    assert trial(run, _explained(run).runs[0].latencies[0].percentiles[-1]) == ()


# ---- the page of a run


def test_a_page_explains_p99_by_all_sources_of_the_run(queued: RunReport, make_report: MakeReport, answered: Make) -> None:
    sections = {section.id: section for section in run_page(queued, run_pictures(queued)).sections}
    text = str(sections["why"].blocks)
    assert "p99 TTFT 400 ms: 80 % engine queue" in text
    assert "p99 E2E latency 440 ms" in text
    assert "TTFT over time" in text
    assert "Slowest requests by TTFT" in text


def test_a_simulated_run_is_not_to_be_measured_with_other_options(make_report: MakeReport, answered: Make) -> None:
    simulation = {"model": "model.json", "digest": "0f", "fitted_to": ["a"], "replicas": 1, "router": None, "draws": 3}
    report = make_report([answered(k, 100 * k, 100 * k, [(100 * k + 50, 1)]) for k in range(90)], simulation=simulation)
    text = " ".join(remarks(report, _explained(report).runs[0].latencies[0].percentiles[-1]))
    assert "A simulated server returns no times of single requests" in text
    assert "--server_timings" not in text


def test_a_page_says_what_it_cannot_attribute(make_report: MakeReport, answered: Make, failed: Make) -> None:
    plain = make_report([answered(k, 100 * k, 100 * k, [(100 * k + 50, 1)], traffic_class="chat") for k in range(90)])
    sections = {section.id: section for section in run_page(plain, run_pictures(plain)).sections}
    text = str(sections["why"].blocks)
    assert "p99 TTFT 50.0 ms: 100 % unattributed." in text
    assert "The server returned no times of single requests" in text
    assert "TTFT by class" in text
    assert "over time" not in text  # of too few requests in each part
    without_latency = make_report([failed(0, 0, Outcome.REFUSED, 0, 1)])
    assert "why" not in {section.id for section in run_page(without_latency, run_pictures(without_latency)).sections}

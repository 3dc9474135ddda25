from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from bench_records.manifest import Manifest
from bench_records.record import Outcome, Record
from reports.findings.finding import Severity
from reports.metrics.distribution import distribution_of
from reports.run.watched_tables import worker_tables
from reports.run_report import RunReport
from tests.reports.findings.lookup import finding_of
from tests.reports.watched import WorkerUsage, machine_samples, worker_samples
from tests.reports.worker_hosts import worker_host, worker_hosts

MakeReport = Callable[..., RunReport]
SteadyRun = Callable[..., list[Record]]


def test_a_run_of_one_host_has_no_workers_table_and_no_finding(make_report: MakeReport, steady_run: SteadyRun) -> None:
    report = make_report(steady_run(700))
    assert distribution_of(Manifest()) is None
    assert worker_tables(report) == ()


def test_sound_workers_have_a_row_each_and_no_finding(make_report: MakeReport, steady_run: SteadyRun) -> None:
    report = make_report(steady_run(700), **worker_hosts(worker_host(0), worker_host(1, offset_ms=-4.5)))
    assert report.findings == ()
    (table,) = worker_tables(report)
    assert table.rows == (("0: host-0", 3.0, 0.2, 1.5, "yes"), ("1: host-1", -4.5, 0.2, 1.5, "yes"))


def test_a_lost_worker_makes_the_run_invalid_and_names_what_has_no_record(
    make_report: MakeReport, steady_run: SteadyRun
) -> None:
    records = steady_run(700)
    lost = [
        msgspec.structs.replace(r, outcome=Outcome.LOST, sent_ns=None, done_ns=None, token_times_ns=(), token_counts=())
        for r in records[-3:]
    ]
    hosts = worker_hosts(worker_host(0), worker_host(1, lost="nothing was heard of it for 15 s"))
    finding = finding_of(make_report([*records[:-3], *lost], **hosts), "workers_lost")
    assert finding.severity is Severity.INVALID
    assert finding.evidence == {"workers": "1 (host-1)", "requests": 3}
    not_sent = [msgspec.structs.replace(lost[0], index=700 + k, outcome=Outcome.NOT_SENT) for k in range(5)]
    finding = finding_of(make_report([*records[:-3], *lost, *not_sent], **hosts), "workers_lost")
    assert finding.evidence["requests"] == 3
    both = worker_hosts(worker_host(0, lost="its stream was reset"), worker_host(1, lost="nothing was heard of it for 15 s"))
    finding = finding_of(make_report([*records[:-3], *lost], **both), "workers_lost")
    assert finding.evidence == {"workers": "0 (host-0), 1 (host-1)", "requests": 3}


@pytest.mark.parametrize("unsent", [0, 5])
def test_a_worker_that_stopped_by_itself_makes_the_run_invalid(
    make_report: MakeReport, steady_run: SteadyRun, unsent: int
) -> None:
    """In a closed loop nothing else shows it: what its users would have sent has no records."""
    records = steady_run(700 + unsent)
    not_sent = [
        msgspec.structs.replace(r, outcome=Outcome.NOT_SENT, sent_ns=None, done_ns=None, token_times_ns=(), token_counts=())
        for r in records[700:]
    ]
    hosts = worker_hosts(worker_host(0), worker_host(1, stopped="it was stopped on its host"))
    report = make_report([*records[:700], *not_sent], **hosts)
    assert [finding.code for finding in report.findings] == ["workers_stopped"]
    finding = finding_of(report, "workers_stopped")
    assert finding.severity is Severity.INVALID
    assert finding.evidence == {"workers": "1 (host-1)", "reason": "it was stopped on its host", "not_sent": unsent}
    assert ("5 requests were not sent" in finding.sentence) == bool(unsent)
    (table,) = worker_tables(report)
    assert [row[-1] for row in table.rows] == ["yes", "stopped"]
    codes = [finding.code for finding in make_report([*records[:700], *not_sent], interrupted=True, **hosts).findings]
    assert codes == ["workers_stopped", "interrupted"]


@pytest.mark.parametrize(("jump_ms", "found"), [(None, False), (1.0, False), (1.1, True)])
def test_a_jump_of_a_workers_clock_beyond_a_millisecond_is_found(
    make_report: MakeReport, steady_run: SteadyRun, jump_ms: float | None, found: bool
) -> None:
    report = make_report(steady_run(700), **worker_hosts(worker_host(0), worker_host(1, jump_ms=jump_ms)))
    assert [finding.code for finding in report.findings] == (["worker_clock_jumped"] if found else [])
    if found:
        assert finding_of(report, "worker_clock_jumped").evidence == {"worker": 1, "host": "host-1", "jump_ms": jump_ms}
        assert finding_of(report, "worker_clock_jumped").sentence == (
            "The clock of worker 1 (host-1) jumped by at least 1.1 ms against the master's."  # the rest may be the network
        )


@pytest.mark.parametrize(("jumps_ms", "worker"), [((2.0, 5.0, 5.0), 1), ((5.0, 2.0, None), 0), ((None, 2.0, 5.0), 2)])
def test_of_several_jumps_the_largest_is_reported(
    make_report: MakeReport, steady_run: SteadyRun, jumps_ms: tuple[float | None, ...], worker: int
) -> None:
    hosts = (worker_host(number, jump_ms=jump_ms) for number, jump_ms in enumerate(jumps_ms))
    finding = finding_of(make_report(steady_run(700), **worker_hosts(*hosts)), "worker_clock_jumped")
    assert finding.evidence == {"worker": worker, "host": f"host-{worker}", "jump_ms": 5.0}


@pytest.mark.parametrize(("uncertainty_ms", "found"), [(10.0, False), (10.5, True)])
def test_an_uncertain_clock_is_a_note(
    make_report: MakeReport, steady_run: SteadyRun, uncertainty_ms: float, found: bool
) -> None:
    report = make_report(steady_run(700), **worker_hosts(worker_host(0), worker_host(1, uncertainty_ms=uncertainty_ms)))
    assert [finding.code for finding in report.findings] == (["worker_clock_uncertain"] if found else [])
    if found:
        evidence = {"worker": 1, "host": "host-1", "uncertainty_ms": uncertainty_ms}
        assert finding_of(report, "worker_clock_uncertain").evidence == evidence


@pytest.mark.parametrize(("known_ms", "worker"), [((12.0, 15.0, 15.0), 1), ((15.0, 12.0, 9.0), 0), ((9.0, 12.0, 15.0), 2)])
def test_of_several_uncertain_clocks_the_least_known_is_reported(
    make_report: MakeReport, steady_run: SteadyRun, known_ms: tuple[float, ...], worker: int
) -> None:
    hosts = (worker_host(number, uncertainty_ms=uncertainty_ms) for number, uncertainty_ms in enumerate(known_ms))
    finding = finding_of(make_report(steady_run(700), **worker_hosts(*hosts)), "worker_clock_uncertain")
    assert finding.evidence == {"worker": worker, "host": f"host-{worker}", "uncertainty_ms": 15.0}


def test_workers_that_took_no_part_are_named(make_report: MakeReport, steady_run: SteadyRun) -> None:
    reasons = {"b": "the run has its 1 workers", "c": "another version of bench"}
    away = [{"host": host, "reason": reason} for host, reason in reasons.items()]
    finding = finding_of(make_report(steady_run(700), **worker_hosts(worker_host(0), turned_away=away)), "workers_turned_away")
    assert finding.evidence == {"hosts": "b, c", "reason": "the run has its 1 workers"}


def test_dropped_messages_are_a_note_with_their_number_and_sender(make_report: MakeReport, steady_run: SteadyRun) -> None:
    dropped = [{"from": "10.0.0.9", "reason": "not a message", "count": 3}, {"from": "b", "reason": "late", "count": 1}]
    finding = finding_of(make_report(steady_run(700), **worker_hosts(worker_host(0), dropped=dropped)), "messages_dropped")
    assert finding.evidence == {"messages": 4, "sender": "10.0.0.9", "reason": "not a message"}
    unknown = worker_hosts(worker_host(0))
    unknown["distribution"]["dropped_messages"] = 3
    finding = finding_of(make_report(steady_run(700), **unknown), "messages_dropped")
    assert finding.evidence == {"messages": 3, "sender": "?", "reason": "?"}


@pytest.mark.parametrize(("here", "elsewhere"), [(2, False), (1, True), (None, True)])
def test_steal_at_the_master_does_not_explain_what_workers_on_other_hosts_do(
    make_report: MakeReport, steady_run: SteadyRun, here: int | None, elsewhere: bool
) -> None:
    samples = [*worker_samples([60.0] * 300, WorkerUsage(0.1), every_ms=2.5), *machine_samples(8, steal_cores=0.4)]
    hosts = worker_hosts(worker_host(0), worker_host(1))
    report = make_report(steady_run(100), client=samples, options={"locust_processes": here}, **hosts)
    finding = finding_of(report, "client_saturated")
    assert ("hypervisor" in finding.advice) != elsewhere
    assert finding.evidence["steal_cores"] == (None if elsewhere else pytest.approx(0.4, rel=0.2))

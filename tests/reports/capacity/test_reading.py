"""Recorded probes as the result of a search: what each shows of each limit, without its ramp."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from bench_records.record import Outcome, Record
from bench_records.run_folder import RunFolderError
from bench_records.search import PlannedProbe, PlannedTier, Search, SearchFolder
from reports.capacity.limits import every_limit, hopeless, limit_set
from reports.capacity.reading import (
    _at,
    probe_command,
    probe_of,
    reach_of,
    read_capacity,
    read_probe,
    requests_that_show_the_queue,
    size_options,
    steady,
)
from reports.capacity.result import Ended, LoadUnit, Verdict
from reports.criteria import parse_stop_if
from reports.metrics.catalogue import TTFT
from reports.metrics.configuration import OPEN_LOOP, ConfiguredLoad
from reports.metrics.requests import Requests
from reports.run_report import RunReport, read_run

_SEARCH = Search(
    arguments=("token_norm_dist", "--isl", "8"),
    tiers=(PlannedTier("fast", ("p99_ttft<=150ms", "failed_share<=1%")), PlannedTier("slow", ("p99_ttft<=400ms",))),
    unit="requests/s",
    confidence=0.95,
    ratio=1.2,
    budget_s=900.0,
    most_load=None,
    seed=0,
    probes=tuple(PlannedProbe(float(rate), 700, rate, f"{rate}") for rate in (25, 40, 60)),
    spent_s=80.0,
    ended=Ended.BUDGET.value,
)
_Make = Callable[..., Record]


@pytest.fixture
def folder(tmp_path: Path) -> SearchFolder:
    SearchFolder(tmp_path).write(_SEARCH)
    return SearchFolder(tmp_path)


def _record(folder: SearchFolder, planned: PlannedProbe, report: RunReport) -> None:
    report.folder.path.rename(folder.run_folder(planned).path)


@pytest.mark.parametrize(
    ("given", "warm_up", "expected"),
    [((), 0, "--warmup_requests 0 "), ((), 10, ""), ((), None, ""), (("--warmup-requests", "0"), 0, "--warmup-requests 0 ")],
)
def test_the_command_of_a_probe_warms_the_target_up_as_the_probe_did(
    given: tuple[str, ...], warm_up: int | None, expected: str
) -> None:
    search = replace(_SEARCH, arguments=("token_norm_dist", *given))
    command = probe_command(search, _SEARCH.probes[0], warm_up)
    assert command.startswith(f"bench token_norm_dist {expected}--request_rate 25 ")


def test_the_recorded_probes_are_read_in_their_order_with_the_bracket_of_each_set(
    folder: SearchFolder, make_report: Callable[..., RunReport], queued_run: Callable[..., list[Record]]
) -> None:
    assert read_capacity(folder).probes == ()
    for planned in (_SEARCH.probes[0], _SEARCH.probes[2]):  # one was never made
        _record(folder, planned, make_report(queued_run(planned.load, planned.seed)))
    capacity = read_capacity(folder)
    below, beyond = capacity.probes
    assert (capacity.measured, capacity.budget_s, capacity.spent_s) == ("token_norm_dist --isl 8", 900.0, 80.0)
    assert [str(limit) for limit in capacity.limits] == ["p99_ttft<=150ms", "failed_share<=1%", "p99_ttft<=400ms"]
    assert [(tier.name, tier.goal.limits) for tier in capacity.tiers] == [("fast", (0, 1)), ("slow", (2,))]
    assert [tier.goal.allowed for tier in capacity.tiers] == [(0.01, 0.01), (0.01,)]
    assert (below.folder, below.probe.requests, below.probe.overloaded) == ("25", 700, False)
    assert below.command == (
        "bench token_norm_dist --warmup_requests 0 --isl 8 --request_rate 25 --num_requests 700 --seed 25 "
        "--stop_if 'p80_ttft>400ms' --slo 'p99_ttft<=150ms' --slo 'failed_share<=1%'"
    )
    assert [violations.above for violations in below.probe.violations] == [0, 0, 0]
    assert below.goodput == pytest.approx(below.request_throughput)
    assert beyond.probe.overloaded
    assert beyond.verdict is Verdict.FAILS
    assert beyond.goodput is not None
    assert beyond.request_throughput is not None
    assert beyond.goodput < 0.2 * beyond.request_throughput
    assert capacity.tiers[0].bracket.refused == 60.0


def test_failures_are_beyond_every_limit_and_a_cut_request_beyond_those_that_it_exceeded(
    folder: SearchFolder, make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]], failed: _Make
) -> None:
    records = steady_run(700)
    for k in range(300, 310):
        records[k] = failed(k, 10 * k, Outcome.SERVER_ERROR, sent=10 * k, done=10 * k + 1)
    for k in range(400, 405):
        records[k] = failed(k, 10 * k, Outcome.WITHDRAWN, sent=10 * k, done=10 * k + 200)
    for k in range(500, 520):
        records[k] = failed(k, 10 * k, Outcome.WITHDRAWN, sent=10 * k, done=10 * k + 90)
    planned = _SEARCH.probes[0]
    _record(folder, planned, make_report(records))
    fast, failures, slow = read_probe(folder, _SEARCH, planned).run.probe.violations
    assert (fast.above, failures.above, slow.above) == (15, 10, 10)
    assert fast.n - slow.n == 5  # those cut after 200 ms decide nothing about 400 ms, those after 90 ms nothing at all


def test_a_failed_request_is_beyond_a_limit_on_tpot_and_a_cut_one_where_it_was_too_slow_in_any_case(
    make_requests: Callable[..., Requests], steady_run: Callable[..., list[Record]], failed: _Make
) -> None:
    """All were to have 3 tokens, so that one that took 200 ms from the first token to the cut took 100 ms for each or more."""
    records = steady_run(700)
    for k in range(300, 310):
        records[k] = failed(k, 10 * k, Outcome.SERVER_ERROR, sent=10 * k, done=10 * k + 1)
    for k in range(310, 320):
        records[k] = failed(k, 10 * k, Outcome.SERVER_ERROR, sent=10 * k, done=10 * k + 1, requested_output_tokens=1)
    for k, after_ms in ((400, 200), (401, 90)):
        first_ns = 1_000_000 * (10 * k + 50)
        times = {"token_times_ns": (first_ns,), "token_counts": (1,)}
        records[k] = failed(k, 10 * k, Outcome.TIMEOUT, sent=10 * k, done=10 * k + 50 + after_ms, **times)
    records[402] = failed(402, 4_020, Outcome.TIMEOUT, sent=4_020, done=9_000)  # before its first token
    [limit] = limit_set(None, ["p99_tpot<=60ms"]).limits
    found = limit.violations(make_requests(records), None)
    assert (found.n, found.above) == (700 - 10 - 2, 10 + 1)


@pytest.mark.parametrize(
    ("text", "above"), [("p99_ttft<=1s", 40), ("p99_e2e<=1s", 40), ("p99_tpot<=1s", 0), ("failed_share<=1%", 0)]
)
def test_an_answer_without_a_token_is_beyond_a_limit_on_the_time_of_one(
    make_requests: Callable[..., Requests], steady_run: Callable[..., list[Record]], answered: _Make, text: str, above: int
) -> None:
    """A target that sheds load by empty answers would hold any load by the others' latencies."""
    records = steady_run(700)
    for k in range(300, 340):
        records[k] = answered(k, 10 * k, 10 * k, [], done=10 * k + 1)
    [limit] = limit_set(None, [text]).limits
    requests = make_requests(records)
    found = limit.violations(requests, None)
    assert (found.n, found.above) == (700 - (40 if text.startswith("p99_tpot") else 0), above)
    attainment = limit_set(None, ["attainment>=99%", "ttft<=1s"]).limits[0]
    assert attainment.violations(requests, None).above == 40  # as objectives have it


@pytest.mark.parametrize(
    ("limits", "shown"),
    [
        (("p95_ttft<=150ms",), "p95_ttft<=150ms"),
        (("p90_e2e<=1s", "p90_tpot<=9ms"), "p90_tpot<=9ms"),
        (("attainment>=99%", "ttft<=1s"), "ttft<=1000ms"),
        (("p90_e2e<=1s",), None),
    ],
)
def test_an_unstreamed_probe_shows_no_latency_of_tokens(
    folder: SearchFolder,
    make_report: Callable[..., RunReport],
    steady_run: Callable[..., list[Record]],
    limits: tuple[str, ...],
    shown: str | None,
) -> None:
    """The first token of such an answer came with the last one: its E2E latency would be taken for its TTFT."""
    objectives = tuple(text for text in limits if text == "ttft<=1s")
    tier = PlannedTier(None, tuple(text for text in limits if text not in objectives), objectives)
    _record(folder, _SEARCH.probes[0], make_report(steady_run(200), streaming=False))
    if shown is None:
        assert read_probe(folder, replace(_SEARCH, tiers=(tier,)), _SEARCH.probes[0]).run.probe.violations[0].n
        return
    with pytest.raises(RunFolderError, match=f"was not streamed, so nothing in it shows {shown}"):
        read_probe(folder, replace(_SEARCH, tiers=(tier,)), _SEARCH.probes[0])


def test_a_probe_that_lost_its_server_says_nothing_of_a_load(
    folder: SearchFolder, make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]], failed: _Make
) -> None:
    records = steady_run(700)
    records[-20:] = [failed(k, 10 * k, Outcome.CONNECT, sent=10 * k, done=10 * k + 1) for k in range(680, 700)]
    _record(folder, _SEARCH.probes[0], make_report(records))
    found = read_probe(folder, _SEARCH, _SEARCH.probes[0])
    assert found.target_gone
    assert not found.counts
    assert read_capacity(folder).tiers[0].bracket.refused is None


@pytest.mark.parametrize(("limit", "counts"), [("p99_ttft<=150ms", False), ("p99_ttft<=2s", True)])
def test_a_client_that_is_late_beside_short_latencies_and_not_beside_the_limit_is_believed(
    folder: SearchFolder,
    make_report: Callable[..., RunReport],
    steady_run: Callable[..., list[Record]],
    limit: str,
    counts: bool,
) -> None:
    records = [
        msgspec.structs.replace(record, sent_ns=(record.sent_ns or 0) + 90_000_000) if record.index % 20 == 0 else record
        for record in steady_run(700)
    ]
    search = replace(_SEARCH, tiers=(PlannedTier(None, (limit,)),))
    _record(folder, search.probes[0], make_report(records))
    found = read_probe(folder, search, search.probes[0])
    assert not read_run(folder.run_folder(search.probes[0])).valid
    assert (found.counts, found.run.valid) == (counts, counts)
    assert found.run.problem is not None
    assert found.run.problem.startswith("Late sends: ")


def test_limits_of_attainment_count_requests_that_miss_an_objective(
    folder: SearchFolder, make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]], answered: _Make
) -> None:
    records = steady_run(700)
    for k in range(300, 330):
        records[k] = answered(k, 10 * k, 10 * k, [(10 * k + 300, 1), (10 * k + 310, 1)], input_tokens=8)
    search = replace(_SEARCH, tiers=(PlannedTier(None, ("attainment>=95%",), ("ttft<=250ms", "e2e<=900ms")),))
    _record(folder, search.probes[0], make_report(records))
    found = read_probe(folder, search, search.probes[0]).run.probe.violations
    assert [(each.above, each.n) for each in found] == [(30, 617)]
    assert found[0].effect is not None
    assert found[0].effect > 5.0  # they came together


def test_users_and_tokens_are_those_at_the_certified_load(
    folder: SearchFolder,
    make_report: Callable[..., RunReport],
    steady_run: Callable[..., list[Record]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for planned in _SEARCH.probes[:2]:
        _record(folder, planned, make_report(steady_run(700)))
    exact = read_capacity(folder).tiers[0].bracket
    monkeypatch.setattr("reports.capacity.reading.bracket", lambda probes, goal: replace(exact, certified=32.5))
    tier = read_capacity(folder).tiers[0]
    throughput = 700 / 7.111  # requests/s, of both probes
    assert tier.users == pytest.approx(throughput * 0.12, rel=0.01)  # Little's law
    assert tier.output_token_throughput == pytest.approx(3 * throughput, rel=0.01)
    assert tier.goodput == pytest.approx(throughput, rel=0.01)


def test_the_beginning_and_the_end_are_left_out(
    make_requests: Callable[[Sequence[Record]], Requests], steady_run: Callable[..., list[Record]]
) -> None:
    requests = make_requests(steady_run(700))  # over 7 s, each of which takes 121 ms
    chosen = np.flatnonzero(steady(requests, OPEN_LOOP))
    assert (chosen[0], chosen[-1]) == (70, 686)
    ramped = steady(requests, replace(OPEN_LOOP, ramp_up_s=2.0))
    assert np.flatnonzero(ramped)[0] == 200


def test_equal_limits_of_several_sets_are_judged_once() -> None:
    sets = [limit_set("a", ["p99_ttft<=1s", "p99_tpot<=9ms"]), limit_set("b", ["p99_tpot<=9ms", "p50_e2e<=9s"])]
    assert [(str(limit.requirement), limit.allowed) for limit in every_limit([*sets, limit_set("c", ["p95_ttft<=1s"])])] == [
        ("p99_ttft<=1000ms", 0.01),
        ("p99_tpot<=9ms", 0.01),
        ("p50_e2e<=9000ms", 0.5),
        ("p95_ttft<=1000ms", 0.05),
    ]


@pytest.mark.parametrize(
    ("sets", "stops"),
    [
        ([["p99_ttft<=1s"]], "p80_ttft>1000ms"),
        ([["p99_tpot<=9.5ms", "failed_share<=1%"]], "p80_tpot>9.5ms"),
        ([["p99_ttft<=1s"], ["p99_ttft<=2s", "p99_tpot<=9ms"]], "p80_ttft>2000ms"),
        ([["p99_ttft<=1s"], ["p99_e2e<=2s"]], None),
        ([["p99_99_ttft<=1s"]], "p99.8_ttft>1000ms"),
        ([["p98.72_ttft<=1s"]], "p74.4_ttft>1000ms"),
        ([["p50_ttft<=1s"]], None),
        ([["attainment>=99%", "ttft<=1s"]], None),
    ],
)
def test_a_probe_ends_where_its_load_is_far_too_high_for_every_set(sets: list[list[str]], stops: str | None) -> None:
    assert hopeless([limit_set(str(number), texts) for number, texts in enumerate(sets)]) == stops
    if stops is not None:
        assert parse_stop_if(stops).limit > 0.0  # as the option of the probe's run takes it


def test_a_probe_that_was_ended_is_overloaded(
    folder: SearchFolder, make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]]
) -> None:
    early = {"rule": "--stop_if p80_ttft>150ms", "reason": "", "gave_up": True, "at_s": 7.0, "requests": 700, "planned": 900}
    for planned, ended in zip(_SEARCH.probes, (early, early | {"gave_up": False}), strict=False):
        _record(folder, planned, make_report(steady_run(700), early_end=ended))
    assert [run.probe.overloaded for run in read_capacity(folder).probes] == [True, False]


def test_a_probe_whose_records_are_gone_leaves_no_other_answer(
    folder: SearchFolder, make_report: Callable[..., RunReport], queued_run: Callable[..., list[Record]]
) -> None:
    for planned in _SEARCH.probes[:2]:
        _record(folder, planned, make_report(queued_run(planned.load, planned.seed)))
    assert len(read_capacity(folder).probes) == 2
    folder.run_folder(_SEARCH.probes[0]).requests.unlink()
    with pytest.raises(RunFolderError, match=r"25/requests.parquet is missing: .* another answer; restore the file"):
        read_capacity(folder)


def test_a_folder_without_a_search_is_none(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="no search for capacity"):
        read_capacity(SearchFolder(tmp_path))


def test_how_far_latencies_are_from_their_limits_is_by_the_share_that_may_be_beyond(
    make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]]
) -> None:
    report = make_report(steady_run(700))
    tight, loose, failures = (limit_set(None, [text]) for text in ("p50_ttft<=1ms", "p50_ttft<=1s", "failed_share<=1%"))
    p50_ms = reach_of(report, [tight])
    assert p50_ms == pytest.approx(float(np.median(TTFT.values(report.requests).values_ms)), rel=0.1)
    assert p50_ms is not None
    assert reach_of(report, [loose]) == pytest.approx(p50_ms / 1e3)
    assert reach_of(report, [loose, failures, tight]) == p50_ms
    assert reach_of(report, [failures]) is None


def test_the_users_of_a_probe_start_over_its_ramp() -> None:
    assert "--ramp_up" not in size_options(_SEARCH, PlannedProbe(25.0, 700, 3, "x"))
    assert size_options(_SEARCH, PlannedProbe(25.0, 700, 3, "x", 1.25))[-2:] == ("--ramp_up", "1.25")


@pytest.mark.parametrize(
    ("answers", "silent_ms", "gone"),
    [
        (300, 20_000, True),  # it fell silent
        (0, 20_000, True),  # it never answered
        (300, 3_000, False),  # too short to know
        (396, 20_000, False),  # few wait
    ],
)
def test_a_probe_whose_target_fell_silent_says_nothing_of_a_load(
    folder: SearchFolder,
    make_report: Callable[..., RunReport],
    steady_run: Callable[..., list[Record]],
    failed: _Make,
    answers: int,
    silent_ms: int,
    gone: bool,
) -> None:
    records = steady_run(400)
    records[answers:] = [failed(k, 10 * k, Outcome.TIMEOUT, sent=10 * k, done=10 * k + silent_ms) for k in range(answers, 400)]
    _record(folder, _SEARCH.probes[0], make_report(records))
    found = read_probe(folder, _SEARCH, _SEARCH.probes[0])
    assert found.target_gone is gone
    assert not (gone and found.counts)


@pytest.mark.parametrize(
    ("given", "timeout_s", "expected"),
    [
        ((), 75.0, ("--request_timeout", "75", "--connect_timeout", "60")),  # as long as it is by default
        ((), 5.0, ("--request_timeout", "5", "--connect_timeout", "5")),
        (("--connect-timeout=9",), 5.0, ("--request_timeout", "5")),
        ((), None, ()),
    ],
)
def test_a_probe_waits_no_longer_for_answers_and_for_the_target_than_planned(
    given: tuple[str, ...], timeout_s: float | None, expected: tuple[str, ...]
) -> None:
    search = replace(_SEARCH, arguments=(*_SEARCH.arguments, *given))
    assert size_options(search, PlannedProbe(25.0, 700, 3, "x", timeout_s=timeout_s))[4:] == expected


@pytest.mark.parametrize(
    ("count", "grows_ms", "needed"),
    [
        (400, 0.0, 0),  # 4 s, of answers of 120 ms
        (60, 0.0, 99),  # 0.59 s: 8 answers take 0.96 s
        (400, 10.0, 0),  # by the answers of the first third, before those of an overloaded target took long
    ],
)
def test_a_probe_that_lasts_for_few_answers_needs_more_requests_to_show_its_queue(
    make_requests: Callable[..., Requests], answered: _Make, count: int, grows_ms: float, needed: int
) -> None:
    tokens = [(100.0, 1), (120.0, 1)]
    records = [
        answered(k, 10 * k, 10 * k, [(10 * k + at + max(0.0, grows_ms * (k - 140)), n) for at, n in tokens])
        for k in range(count)
    ]
    requests = make_requests(records)
    assert requests_that_show_the_queue(requests) == needed
    probe = probe_of(100.0, count, requests, ConfiguredLoad(rate_per_s=100.0), limit_set(None, ["p99_ttft<=150ms"]).limits)
    assert (probe.needs, probe.queue is None) == (needed, needed > 0)
    users = probe_of(20.0, count, requests, ConfiguredLoad(closed=True), limit_set(None, ["p99_ttft<=150ms"]).limits)
    assert users.needs == 0


@pytest.mark.parametrize(("slo", "stalled"), [("p99_ttft<=150ms", True), ("p99_ttft<=1s", False), ("p99_tpot<=50ms", False)])
def test_a_probe_shows_whether_its_target_stalled_for_longer_than_a_limit(
    make_requests: Callable[..., Requests], answered: _Make, failed: _Make, slo: str, stalled: bool
) -> None:
    """Also where it ended before the first answer after the stall."""
    records = [answered(k, 10 * k, 10 * k, [(10 * k + 100.0, 1), (10 * k + 120.0, 1)]) for k in range(200)]
    records += [failed(k, 10 * k, Outcome.CANCELLED, sent=10 * k, done=2_600) for k in range(200, 250)]
    limits = limit_set(None, [slo]).limits
    ((violations,), (before,)) = (
        probe_of(100.0, len(some), make_requests(some), ConfiguredLoad(rate_per_s=100.0), limits).violations
        for some in (records, records[:200])
    )
    assert (violations.stalled, before.stalled) == (stalled, False)


@pytest.mark.parametrize(("unit", "below", "above"), [(LoadUnit.REQUESTS_PER_S, 100.0, 300.0), (LoadUnit.USERS, None, None)])
def test_a_number_beyond_the_measured_loads_is_in_proportion_to_a_rate_alone(
    unit: LoadUnit, below: float | None, above: float | None
) -> None:
    """A target that is busy with 4 users answers 6 no more, so 4 have not two thirds of what 6 have."""
    points = [(6.0, 150.0), (8.0, 200.0)]
    assert _at(4.0, points, unit) == (None if below is None else pytest.approx(below))
    assert _at(7.0, points, unit) == pytest.approx(175.0)
    assert _at(12.0, points, unit) == (None if above is None else pytest.approx(above))
    assert _at(None, points, unit) is None

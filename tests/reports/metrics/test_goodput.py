"""Goodput and attainment: which requests met what was set."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_records.record import Outcome, Record
from bench_records.run_folder import RunFolderError
from reports.criteria import parse_slo
from reports.metrics.catalogue import E2E, OBJECTIVE_METRICS, TTFT
from reports.metrics.full_load import full_load, rate_of_run
from reports.metrics.goodput import Goodput, Objective, good_ends_ns, goodput, severities
from reports.metrics.metric import Metric
from reports.metrics.output_events import completions
from reports.metrics.requests import Requests
from reports.run.full import render
from reports.run.summary_json import summary
from reports.run_report import RunReport, read_run
from reports.statistics.estimate import UNKNOWN, Cause, Estimate

Make = Callable[..., Record]
MakeRequests = Callable[[Sequence[Record]], Requests]
MakeReport = Callable[..., RunReport]


def _goodput_of(requests: Requests, *texts: str) -> Goodput:
    found = goodput(requests, [parse_slo(text) for text in texts])
    assert found is not None
    return found


# ---- reading objectives


@given(st.sampled_from(OBJECTIVE_METRICS), st.floats(min_value=1e-6, max_value=1e9))
def test_an_objective_reads_what_it_writes(metric: Metric, limit_ms: float) -> None:
    written = str(Objective(metric, limit_ms))
    assert parse_slo(written) == Objective(metric, pytest.approx(limit_ms, rel=1e-14))
    assert str(parse_slo(written)) == written


@pytest.mark.parametrize("text", ["ttft_ms<=200", " ttft_ms  <= 200.0 ", "ttft_ms<=2e2"])
def test_spaces_and_exponents_are_allowed(text: str) -> None:
    assert parse_slo(text) == Objective(TTFT, 200.0)


@pytest.mark.parametrize(
    "text",
    ["", "ttft_ms", "ttft_ms=200", "ttft_ms<=0", "ttft_ms<=-1", "ttft_ms<=1.2.3", "ttft_ms<=1e999"],
)
def test_an_invalid_objective_is_explained(text: str) -> None:
    with pytest.raises(ValueError, match=r"ttft<=200ms|above 0|at least 0"):
        parse_slo(text)


# ---- which requests are good


def test_every_objective_must_be_met_at_its_limit_or_below(make_requests: MakeRequests, answered: Make) -> None:
    requests = make_requests(
        [
            answered(0, 0, 0, [(100, 1), (120, 1)]),  # TTFT 100, TPOT 20, E2E 120
            answered(1, 10, 10, [(111, 1), (121, 1)]),  # TTFT 101
            answered(2, 20, 20, [(120, 1), (141, 1)]),  # TPOT 21
            answered(3, 30, 30, [(130, 1), (150, 1)], done=500),
        ]
    )
    found = _goodput_of(requests, "ttft_ms<=100", "tpot_ms<=20")
    assert (found.good, found.sent, found.met, found.attainment) == (2, 4, (3, 3), 0.5)
    assert _goodput_of(requests, "e2e_ms<=120").good == 3
    assert found.rate is not None
    assert found.rate.value == pytest.approx(2 / 0.5)  # first scheduled arrival to the end of the last success


def test_severity_is_the_largest_ratio_to_a_limit_and_a_bound_where_it_is_not_decided(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    """TTFT is 200 ms at most, and E2E latency 100 ms."""
    records = [
        answered(0, 0, 5, [(100, 1), (120, 1)]),
        answered(1, 10, 15, [(60, 1), (70, 1)], done=75),
        answered(2, 20, 25, [(120, 1)], done=130),
        failed(3, 30, Outcome.SERVER_ERROR, 30, 31),
        failed(4, 40, Outcome.NOT_SENT),
        failed(5, 50, Outcome.WITHDRAWN, 50, 200),  # E2E latency is 150 ms or more
        failed(6, 60, Outcome.WITHDRAWN, 60, 110),
        answered(7, 70, 70, []),
    ]
    requests, objectives = make_requests(records), [Objective(TTFT, 200.0), Objective(E2E, 100.0)]
    found = severities(requests, objectives)
    assert found.values_ms.tolist() == [1.2, 0.6, 1.0, math.inf, 1.5, 0.5, math.inf]
    assert found.is_bound.tolist() == [False] * 5 + [True, False]
    assert good_ends_ns(requests, objectives).tolist() == [75e6, 130e6]
    assert good_ends_ns(requests, []).tolist() == []


def test_attainment_of_few_conversations_is_less_certain_than_that_of_as_many_requests(
    make_requests: MakeRequests, answered: Make
) -> None:
    """One request in five misses its limit: all of some conversations, where there are any."""
    intervals = {}
    for conversations in (None, 50):
        records = [
            answered(k, due, due, [(due + (10 if k % 5 else 90), 1)], session=conversations and str(k % conversations))
            for k, due in enumerate(range(0, 1_000_000, 1_000))
        ]
        found = _goodput_of(make_requests(records), "ttft<=50ms")
        assert found.attainment == 0.8
        assert found.attainment_interval is not None
        low, high = intervals[conversations] = found.attainment_interval
        assert 0.0 < low < 0.8 < high < 1.0
        assert found.from_send_interval == found.attainment_interval
    assert intervals[50][0] < intervals[None][0] < intervals[None][1] < intervals[50][1]


def test_latency_counts_from_the_schedule(make_requests: MakeRequests, answered: Make) -> None:
    requests = make_requests([answered(0, 0, 90, [(100, 1)])])
    assert _goodput_of(requests, "ttft_ms<=99").good == 0
    assert _goodput_of(requests, "ttft_ms<=100").good == 1


def test_what_the_client_delayed_and_what_a_ceiling_held_back_are_kept_apart(
    make_requests: MakeRequests, answered: Make
) -> None:
    """Sent when due, held back at a ceiling for 50 ms, sent 50 ms late, and both; TTFT is 60 ms from each send."""
    delays_ms = [(0, 0), (50, 0), (0, 50), (50, 50)]
    requests = make_requests(
        [
            answered(k, 0, held + late, [(held + late + 60, 1)], released_ns=held * 1_000_000)
            for k, (held, late) in enumerate(delays_ms)
        ]
    )
    found = _goodput_of(requests, "ttft_ms<=100")
    assert (found.good, found.good_from_release, found.good_from_send) == (1, 2, 4)
    assert (found.lost_to_client, found.attainment, found.attainment_from_send) == (2, 0.25, 1.0)


def test_a_failure_is_not_good_and_counts_as_sent_and_what_was_not_sent_does_not(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    fast = {"token_times_ns": (6_000_000,), "token_counts": (1,), "output_tokens": 1}
    records = [
        answered(0, 0, 0, [(5, 1)]),
        failed(1, 0, Outcome.STREAM_CUT, 0, 7, **fast),
        failed(2, 0, Outcome.TIMEOUT, 0, 700),
        failed(3, 0, Outcome.NOT_SENT),
    ]
    found = _goodput_of(make_requests(records), "ttft_ms<=100")
    assert (found.good, found.sent, found.attainment) == (1, 3, pytest.approx(1 / 3))


def test_an_answer_without_tokens_met_nothing(make_requests: MakeRequests, answered: Make) -> None:
    assert _goodput_of(make_requests([answered(0, 0, 0, [])]), "tpot_ms<=100").good == 0


@pytest.mark.parametrize(("tokens", "good"), [([(50, 1)], 1), ([(50, 9)], 1), ([(50, 1), (80, 1)], 0), ([(50, 2), (80, 2)], 1)])
def test_time_per_output_token_is_0_without_a_wait_between_tokens(
    make_requests: MakeRequests, answered: Make, tokens: list[tuple[float, int]], good: int
) -> None:
    assert _goodput_of(make_requests([answered(0, 0, 0, tokens)]), "tpot_ms<=10").good == good


@pytest.mark.parametrize("unknown", [{}, {"output_tokens": None, "token_counts": None}])
def test_an_answer_in_one_response_meets_any_time_per_output_token_however_many_tokens_it_has(
    make_requests: MakeRequests, answered: Make, unknown: dict[str, None]
) -> None:
    record = answered(0, 0, 0, [(50, 9)], **unknown)
    assert _goodput_of(make_requests([record]), "tpot_ms<=0.001").good == 1


def test_time_per_output_token_of_unknown_tokens_was_not_met(make_requests: MakeRequests, answered: Make) -> None:
    record = answered(0, 0, 0, [(50, 1), (51, 1)], output_tokens=None, token_counts=None)
    assert _goodput_of(make_requests([record]), "tpot_ms<=10").good == 0


def test_without_objectives_or_sends_there_is_none(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    assert goodput(make_requests([answered(0, 0, 0, [(5, 1)])]), []) is None
    assert goodput(make_requests([failed(0, 0, Outcome.NOT_SENT)]), [Objective(E2E, 1.0)]) is None


def test_nothing_good_is_a_goodput_of_0_and_nothing_done_has_no_window(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    slow = _goodput_of(make_requests([answered(0, 0, 0, [(500, 1)])]), "ttft_ms<=1")
    assert slow.rate is not None
    assert slow.rate.value == 0.0
    assert _goodput_of(make_requests([failed(0, 0, Outcome.TIMEOUT, 0, 9)]), "ttft_ms<=1").rate == UNKNOWN


def test_attainment_has_an_interval_within_0_and_1(
    make_requests: MakeRequests, steady_run: Callable[..., list[Record]]
) -> None:
    records = steady_run(700)
    assert _goodput_of(make_requests(records[:99]), "ttft_ms<=100").attainment_interval is None
    every, none = (_goodput_of(make_requests(records), f"ttft_ms<={limit}").attainment_interval for limit in (100, 99))
    assert every is not None
    assert none is not None
    # of 700 independent requests 0.9948
    assert every[0] == pytest.approx(0.025 ** (1 / 700), abs=1e-5)
    assert every[1] == 1.0
    assert none[0] == 0.0
    assert none[1] == pytest.approx(1 - 0.025 ** (1 / 700), abs=1e-5)


def test_attainment_without_an_interval_says_why(make_requests: MakeRequests, steady_run: Callable[..., list[Record]]) -> None:
    known, few = (_goodput_of(make_requests(steady_run(count)), "ttft_ms<=100") for count in (700, 99))
    assert known.attainment_estimate == Estimate(1.0, known.attainment_interval)
    assert few.attainment_estimate == Estimate(1.0, reason=Cause.CLUSTERED_FAILURES)
    clustered = goodput(make_requests(steady_run(700)), [Objective(TTFT, 100.0)], Cause.CLUSTERED_ARRIVALS)
    assert clustered is not None
    assert clustered.attainment_estimate == Estimate(1.0, reason=Cause.CLUSTERED_ARRIVALS)


def test_attainment_from_the_send_has_an_interval_of_its_own(make_requests: MakeRequests, answered: Make) -> None:
    """All are sent late by more than the objective allows."""
    requests = make_requests([answered(k, 10 * k, 10 * k + 50, [(10 * k + 150, 1)]) for k in range(700)])
    found = _goodput_of(requests, "ttft_ms<=100")
    assert found.attainment_interval is not None
    assert found.from_send_interval is not None
    assert found.attainment_interval[1] < 0.02
    assert found.from_send_interval[0] > 0.98


def test_the_error_of_a_goodput_is_that_of_the_throughput_under_full_load_and_of_the_attainment(
    make_requests: MakeRequests, answered: Make
) -> None:
    """One request in 50 takes 900 ms, and misses the objective; the part under full load is without ramp and drain."""
    wait_ms = [900 if k % 50 == 0 else 5 for k in range(1_001)]
    requests = make_requests([answered(k, 10 * k, 10 * k, [(10 * k + wait, 1)]) for k, wait in enumerate(wait_ms)])
    found = _goodput_of(requests, "ttft_ms<=5")
    ends, window = completions(requests), (0.0, float(requests.done_ns.max()))
    full = full_load(requests, ends)
    assert full is not None
    of_ends = rate_of_run(ends, *window, full)
    assert of_ends is not None
    assert of_ends.interval is not None
    assert found.rate is not None
    assert found.rate.interval is not None
    assert found.attainment_interval is not None
    assert found.rate.value == pytest.approx(980 / window[1] * 1e9)
    for limit, of_rate, of_share in zip(found.rate.interval, of_ends.interval, found.attainment_interval, strict=True):
        of_throughput, of_attainment = of_rate / of_ends.value - 1.0, of_share / found.attainment - 1.0
        assert abs(limit / found.rate.value - 1.0) == pytest.approx(math.hypot(of_throughput, of_attainment))


def test_failures_do_not_change_the_relative_error_that_attainment_gives_to_a_goodput(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    """Half of the requests fail and a quarter are too slow, by chance: goodput is 25/s, of 100/s that were sent."""
    fate = np.random.default_rng(0).permutation(np.repeat([0, 1, 2, 2], 500))
    records = [
        failed(k, 10 * k, Outcome.REFUSED, 10 * k, 10 * k + 8)
        if fate[k] == 2
        else answered(k, 10 * k, 10 * k, [(10 * k + (5 if fate[k] else 8), 1)], done=10 * k + 9)
        for k in range(2_000)
    ]
    found = _goodput_of(make_requests(records), "ttft<=5ms")
    assert (found.attainment, found.good, found.sent) == (0.25, 500, 2_000)
    assert found.attainment_interval is not None
    assert found.rate.value == pytest.approx(25.0, rel=0.01)
    assert found.rate.interval is not None
    for limit, of_share in zip(found.rate.interval, found.attainment_interval, strict=True):
        assert 1.0 <= (limit / found.rate.value - 1.0) / (of_share / 0.25 - 1.0) < 1.25


def test_where_nothing_was_good_goodput_is_at_most_the_throughput_times_the_limit_of_attainment(
    make_requests: MakeRequests, answered: Make
) -> None:
    """700 answers in 7 s from the first send to the last end; of 700 none was good, so the limit is 0.53 %."""
    found = _goodput_of(
        make_requests([answered(k, 10 * k, 10 * k, [(10 * k + 7, 1)], done=10 * k + 10 - k % 2) for k in range(700)]),
        "ttft<=5ms",
    )
    assert found.attainment_interval == (0.0, pytest.approx(1 - 0.025 ** (1 / 700), abs=1e-5))
    assert found.rate.interval == (0.0, pytest.approx(found.attainment_interval[1] * 700 / 6.999))


def test_no_number_has_an_interval_where_there_is_a_reason_against_it(
    make_requests: MakeRequests, steady_run: Callable[..., list[Record]]
) -> None:
    """700 requests in 7.111 s, from the first send to the end of the last answer, all of which are good."""
    requests, objectives = make_requests(steady_run(700)), [Objective(TTFT, 100.0)]
    known, found = goodput(requests, objectives), goodput(requests, objectives, Cause.DRIFTS)
    assert known is not None
    assert found is not None
    assert None not in (known.attainment_interval, known.from_send_interval, known.rate.interval)
    assert (found.attainment_interval, found.from_send_interval) == (None, None)
    assert found.rate == Estimate(pytest.approx(700 / 7.111), reason=Cause.DRIFTS)
    assert found.attainment == 1.0


def test_requests_that_were_not_sent_do_not_change_the_error_of_a_goodput(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    """Half of the 1,000 that were sent are good, by chance."""
    good = np.random.default_rng(0).permutation(1_000) < 500
    sent = [answered(k, 10 * k, 10 * k, [(10 * k + (5 if good[k] else 8), 1)]) for k in range(1_000)]
    unsent = [failed(1_000 + k, 9_990, Outcome.NOT_SENT) for k in range(1_000)]
    alone, among = (_goodput_of(make_requests(records), "ttft_ms<=5") for records in (sent, [*sent, *unsent]))
    assert (alone.attainment, among.attainment) == (0.5, 0.5)
    assert alone.rate.interval is not None
    assert among.rate.interval == alone.rate.interval


def test_a_goodput_without_an_interval_of_attainment_has_none(make_requests: MakeRequests, answered: Make) -> None:
    requests = make_requests([answered(k, 10 * k, 10 * k, [(10 * k + (5 if k < 500 else 9), 1)]) for k in range(1_000)])
    found = _goodput_of(requests, "ttft_ms<=5")
    assert found.rate is not None
    assert (found.attainment_interval, found.rate.interval, found.rate.reason) == (None, None, Cause.UNEVEN)


# ---- requests that were cut off

_CUT_OFF = [Outcome.WITHDRAWN, Outcome.CANCELLED]


def _cut_after(answered: Make, failed: Make, outcome: Outcome) -> list[Record]:
    """Due at 0, sent at 100 ms: an answer; then, cut off at 1,100 ms, a first token at 300 ms, at 700 ms, and none."""
    return [
        answered(0, 0, 100, [(200, 1), (400, 1)]),
        answered(1, 0, 100, [(300, 1)], done=1_100, outcome=outcome),
        answered(2, 0, 100, [(700, 1)], done=1_100, outcome=outcome),
        failed(3, 0, outcome, 100, 1_100),
    ]


@pytest.mark.parametrize("outcome", _CUT_OFF)
@pytest.mark.parametrize(
    ("objectives", "good", "sent", "limits"),
    [
        (["ttft<=500ms"], 2, 4, (0.5, 0.5)),
        (["ttft<=1100ms"], 3, 4, (0.75, 0.75)),  # longer than until the cut is too long
        (["ttft<=1101ms"], 3, 3, (0.75, 1.0)),
        (["e2e<=1100ms"], 1, 4, (0.25, 0.25)),
        (["e2e<=2s"], 1, 1, (0.25, 1.0)),
        (["tpot<=300ms"], 1, 1, (0.25, 1.0)),
        (["tpot<=0.1ms"], 0, 1, (0.0, 0.75)),  # of a request that was cut off nothing is known
        (["ttft<=500ms", "e2e<=2s"], 1, 3, (0.25, 0.5)),  # the first token missed it, or came in time and left E2E open
    ],
)
def test_a_request_that_was_cut_off_missed_what_it_had_exceeded_and_met_what_had_come(
    make_requests: MakeRequests,
    answered: Make,
    failed: Make,
    outcome: Outcome,
    objectives: list[str],
    good: int,
    sent: int,
    limits: tuple[float, float],
) -> None:
    found = _goodput_of(make_requests(_cut_after(answered, failed, outcome)), *objectives)
    assert (found.good, found.sent, found.undetermined, found.attainment_limits) == (good, sent, 4 - sent, limits)
    assert found.attainment == good / sent


def test_each_objective_alone_is_of_the_requests_of_which_it_is_decided(
    make_report: MakeReport, answered: Make, failed: Make
) -> None:
    report = make_report(_cut_after(answered, failed, Outcome.WITHDRAWN), criteria={"slo": ["ttft<=500ms", "e2e<=2s"]})
    assert report.metrics.goodput is not None
    assert (report.metrics.goodput.met, report.metrics.goodput.judged) == ((2, 1), (4, 1))
    attainment = summary(report)["metrics"]["attainment"]
    assert (attainment["value"], attainment["undetermined"], attainment["limits"]) == (pytest.approx(1 / 3), 1, (0.25, 0.5))
    assert [objective["attainment"] for objective in attainment["objectives"]] == [0.5, 1.0]
    text = render(report)
    assert "Attainment (% of 3 judged)" in text
    assert "Attainment (%) with 1 cut off, undetermined" in text


def test_a_timeout_met_nothing_whatever_had_come(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    found = _goodput_of(make_requests(_cut_after(answered, failed, Outcome.TIMEOUT)), "ttft<=2s")
    assert (found.good, found.sent, found.undetermined) == (1, 4, 0)


def test_from_the_send_a_cut_is_earlier_and_what_was_missed_from_the_schedule_is_not_taken_back(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    found = _goodput_of(make_requests(_cut_after(answered, failed, Outcome.WITHDRAWN)), "ttft<=1050ms")
    assert (found.good, found.good_from_send, found.sent, found.attainment_from_send) == (3, 3, 4, 0.75)


def test_the_interval_from_the_send_counts_what_was_missed_from_the_schedule_alone(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    """Each second request was sent 100 ms late and cut off 1,000 ms later, beyond the limit from the schedule only."""
    records = [
        failed(k, 10 * k, Outcome.WITHDRAWN, 10 * k + 100, 10 * k + 1_100)
        if k % 2
        else answered(k, 10 * k, 10 * k + 100, [(10 * k + 200, 1)])
        for k in range(700)
    ]
    found = _goodput_of(make_requests(records), "ttft<=1050ms")
    assert (found.attainment, found.attainment_from_send) == (0.5, 0.5)
    assert found.from_send_interval is not None
    assert found.from_send_interval == found.attainment_interval


def test_a_good_request_that_was_cancelled_counts_in_the_rate_at_its_end(make_requests: MakeRequests, answered: Make) -> None:
    requests = make_requests([answered(0, 0, 0, [(300, 1)], done=2_000, outcome=Outcome.WITHDRAWN)])
    rate_of_good = _goodput_of(requests, "ttft<=500ms").rate
    assert rate_of_good is not None
    assert rate_of_good.value == 0.5


def test_where_nothing_is_decided_there_is_no_goodput(make_requests: MakeRequests, failed: Make) -> None:
    requests = make_requests([failed(0, 0, Outcome.WITHDRAWN, 0, 100)])
    assert goodput(requests, [Objective(TTFT, 500.0)]) is None


# ---- in the report


def test_the_manifest_s_objectives_are_reported_and_others_may_take_their_place(
    make_report: MakeReport, steady_run: Callable[..., list[Record]]
) -> None:
    report = make_report(steady_run(700), criteria={"slo": ["ttft_ms<=100", "e2e_ms<=119"]})
    metrics = summary(report)["metrics"]
    assert metrics["goodput"]["value"] == 0.0
    assert metrics["attainment"]["value"] == 0.0
    assert metrics["attainment"]["objectives"] == [
        {"objective": "ttft<=100ms", "attainment": 1.0},
        {"objective": "e2e<=119ms", "attainment": 0.0},
    ]
    text = render(report)
    assert "Goodput: ttft<=100ms and e2e<=119ms (requests/s)" in text
    assert "Attainment (% of 700 sent)" in text
    again = summary(read_run(report.folder, [parse_slo("e2e_ms<=120")]))["metrics"]
    assert again["goodput"]["value"] == pytest.approx(700 / 7.111)
    assert again["goodput"]["interval"][0] < 700 / 7.111 < again["goodput"]["interval"][1]
    assert again["attainment"]["value"] == 1.0


def test_without_objectives_both_are_null_and_no_row_is_shown(
    make_report: MakeReport, steady_run: Callable[..., list[Record]]
) -> None:
    report = make_report(steady_run(5))
    assert (summary(report)["metrics"]["goodput"], summary(report)["metrics"]["attainment"]) == (None, None)
    assert "Goodput" not in render(report)


def test_an_invalid_objective_of_a_manifest_is_named_with_its_place(
    make_report: MakeReport, steady_run: Callable[..., list[Record]]
) -> None:
    with pytest.raises(RunFolderError, match=r"run.json, criteria.slo: 'fast': write a number"):
        make_report(steady_run(5), criteria={"slo": ["fast"]})

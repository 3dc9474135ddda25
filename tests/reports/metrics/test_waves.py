"""Users of a closed loop that keep in step, and what a window says of their rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from msgspec.structs import replace

from bench_records.record import Outcome, Record
from reports.findings.in_flight import UsersInStep
from reports.metrics.catalogue import REQUEST_THROUGHPUT
from reports.metrics.requests import Requests
from reports.metrics.waves import Waves, is_burst, waited_in_batches, waves_of
from reports.run_report import RunReport
from tests.reports.findings.lookup import finding_of
from tests.reports.findings.runs import AT_ONCE, closed_loop, in_step, served_in_batches

Make = Callable[..., Record]
MakeRequests = Callable[[Sequence[Record]], Requests]
MakeReport = Callable[..., RunReport]

LOAD = {"mode": "closed", "max_concurrency": None, "concurrency": 512, "duration_s": 60.0, "ramp_up_s": 0.0}


def test_two_waves_of_long_answers_are_no_steady_rate(make_report: MakeReport, answered: Make) -> None:
    """512 users, 28 s an answer, 60 s: 18.3 requests/s, of which a window shows more or less by how many waves it holds."""
    report = make_report(in_step(answered, 512, 28.0, 60.0), load=LOAD)
    assert report.metrics.windows.steady is None
    assert report.metrics.windows.not_steady is not None
    finding = finding_of(report, "users_in_step")
    assert finding is not None
    assert finding.evidence["users"] == 512
    assert finding.evidence["waves"] == 3
    assert finding.evidence["period_s"] == pytest.approx(28.0, rel=0.03)
    assert finding.evidence["share"] > 0.9


@pytest.mark.parametrize(("latency_s", "is_steady"), [(2.5, False), (2.0, True)])
def test_a_steady_part_of_a_closed_loop_holds_five_latencies(
    make_report: MakeReport, answered: Make, latency_s: float, is_steady: bool
) -> None:
    """Runs of 12 s; latencies spread so much that the users soon fall out of step."""
    report = make_report(in_step(answered, 200, latency_s, 12.0, spread=0.5), load=LOAD | {"concurrency": 200})
    windows = report.metrics.windows
    assert (windows.steady is not None) is is_steady
    if not is_steady:
        assert windows.not_steady is not None
        assert "5 median E2E latencies" in windows.not_steady


def test_littles_law_does_not_excuse_a_part_of_a_wave(make_report: MakeReport, answered: Make) -> None:
    """A window of five latencies shows 56 requests/s of 50: users in step are no chance of its ends."""
    report = make_report(in_step(answered, 100, 2.0, 15.0), load=LOAD | {"concurrency": 100})
    steady = report.metrics.windows.steady
    assert steady is not None
    assert steady.length_s > 10.0
    assert steady.throughputs[REQUEST_THROUGHPUT].value == pytest.approx(56.0, abs=0.1)
    finding = finding_of(report, "littles_law")
    assert finding is not None
    assert "wave" in finding.advice


def test_users_out_of_step_are_not_in_waves(make_requests: MakeRequests, answered: Make) -> None:
    assert waves_of(make_requests(closed_loop(answered, 50, 10, 2_000.0))) is None
    assert waves_of(make_requests(in_step(answered, 200, 10.0, 60.0, spread=0.5))) is None


def test_more_than_twenty_waves_do_not_matter_to_a_rate(make_requests: MakeRequests, answered: Make) -> None:
    few, many = (waves_of(make_requests(in_step(answered, 50, 1.0, duration_s, 0.001))) for duration_s in (15.0, 30.0))
    assert few is not None
    assert few.waves == 16
    assert many is None


@pytest.mark.parametrize(("waves", "is_steady"), [(3, False), (4, False), (8, True)])
def test_equal_answers_to_requests_sent_at_once_end_in_waves(
    make_report: MakeReport, answered: Make, waves: int, is_steady: bool
) -> None:
    """64 at a time, 10 s each: 6.4 requests/s, of which a window of three waves shows 4.7."""
    services_ms = 10_000 * np.random.default_rng(1).uniform(0.97, 1.03, 64 * waves)
    report = make_report(served_in_batches(answered, 64, services_ms.tolist()), load=AT_ONCE)
    finding = finding_of(report, "users_in_step")
    assert finding is not None
    assert (finding.evidence["users"], finding.evidence["at_once"], finding.evidence["waves"]) == (None, True, waves)
    assert finding.sentence.startswith("The answers keep in step: 100% of the answers end in one third of each 10")
    assert "--ramp_up" not in finding.advice
    assert (report.metrics.windows.steady is not None) is is_steady
    if not is_steady:
        assert (report.metrics.windows.not_steady or "").startswith("answers end in waves")


@pytest.mark.parametrize("batch", [16, 256])
def test_answers_of_many_lengths_to_requests_sent_at_once_are_not_in_waves(
    make_report: MakeReport, answered: Make, batch: int
) -> None:
    """A batch that refills as answers end, and one that holds all of them at once."""
    spread = 0.6 if batch == 16 else 0.15
    services_ms = 1_000 * np.random.default_rng(1).normal(1.0, spread, 256).clip(0.1, 3.0)
    report = make_report(served_in_batches(answered, batch, services_ms.tolist()), load=AT_ONCE)
    assert finding_of(report, "users_in_step") is None
    assert report.metrics.windows.steady is not None


def test_answers_of_two_lengths_to_requests_served_at_once_are_not_in_waves(
    make_requests: MakeRequests, answered: Make
) -> None:
    """They end after 0.3 and 1.5 s, with nothing between."""
    services_ms = [300.0 + k / 10 if k % 2 else 1_500.0 + k / 10 for k in range(200)]
    assert waves_of(make_requests(served_in_batches(answered, 200, services_ms))) is None


@pytest.mark.parametrize(
    ("answers_at_s", "waves"),
    [
        ({1: 80, 2: 40}, 2),  # two thirds of them in one wave
        ({1: 81, 2: 39}, None),
        ({1: 60, 3: 60}, 3),  # two of three waves have answers
        ({1: 60, 4: 60}, None),  # two of four
        ({1: 40, 2: 40, 5: 40}, 5),  # three of five
        ({1: 40, 2: 40, 6: 40}, None),  # three of six
    ],
)
def test_most_waves_of_a_burst_have_answers_and_none_has_more_than_two_thirds(
    make_requests: MakeRequests, answered: Make, answers_at_s: dict[int, int], waves: int | None
) -> None:
    """120 requests at once, whose first answers take 1 s."""
    ends_ms = [1_000.0 * at_s for at_s, count in answers_at_s.items() for _ in range(count)]
    found = waves_of(make_requests([answered(k, 0, 0, [(end, 1)], done=end) for k, end in enumerate(ends_ms)]))
    assert found == (None if waves is None else Waves(pytest.approx(1.0), waves, 1.0))


def _of_ten_s(make_requests: MakeRequests, answered: Make, ends_s: Sequence[float]) -> Requests:
    """Requests that took 10 s each."""
    return make_requests(
        [
            answered(k, 1e3 * (end - 10), 1e3 * (end - 10), [(1e3 * end, 1)], done=1e3 * end)
            for k, end in enumerate(sorted(ends_s))
        ]
    )


@pytest.mark.parametrize(("moved", "is_wave"), [(0, True), (1, False)])
def test_six_tenths_of_the_answers_in_one_third_of_each_period_are_in_step(
    make_requests: MakeRequests, answered: Make, moved: int, is_wave: bool
) -> None:
    """In each of 20 waves three answers end 0.15 of a period before the middle and three as long after it: these are in the
    third. Two each end 0.2 of a period before and after it: they are not. ``moved``: neither are two of the others.
    """
    offsets = [-2.0, -2.0, -1.5, -1.5, -1.5, 1.5, 1.5, 1.5, 2.0, 2.0]
    ends_s = [10.0 * wave + offset for wave in range(2, 22) for offset in offsets]
    if moved:
        ends_s[12], ends_s[17] = 30.0 - 2.0, 30.0 + 2.0
    found = waves_of(_of_ten_s(make_requests, answered, ends_s))
    assert found == (Waves(pytest.approx(10.0), 20, pytest.approx(0.6)) if is_wave else None)


@pytest.mark.parametrize(
    ("times", "waves"),
    [
        ([10.0] * 50 + [20.0] * 50, 2),
        ([10.0] * 50 + [20.0] * 49, None),  # too few answers
        ([10.0] * 50 + [19.999] * 50, None),  # shorter than an answer
        ([10.0 * k for k in range(1, 22) for _ in range(5)], 21),
        ([10.0 * k for k in range(1, 21) for _ in range(5)] + [210.001], None),  # longer than 20 answers
    ],
)
def test_waves_are_those_of_100_answers_over_one_to_twenty_times_what_one_takes(
    make_requests: MakeRequests, answered: Make, times: list[float], waves: int | None
) -> None:
    found = waves_of(_of_ten_s(make_requests, answered, times))
    assert found == (None if waves is None else Waves(pytest.approx(10.0), waves, 1.0))


def test_waves_of_a_closed_loop_have_the_period_of_the_median_answer_whatever_their_middle(
    make_requests: MakeRequests, answered: Make
) -> None:
    """Each 10 s, five answers end 1 s before the middle and five 1 s after it, one of which took 1 s; the others took 10."""
    ends_s = sorted(10.0 * wave + 3.0 + offset for wave in range(2, 22) for offset in [-1.0] * 5 + [1.0] * 5)
    records = []
    for k, end in enumerate(ends_s):
        sent = 1e3 * (end - (1.0 if k % 10 == 9 else 10.0))
        records.append(answered(k, sent, sent, [(1e3 * end, 1)], done=1e3 * end))
    found = waves_of(make_requests(sorted(records, key=lambda record: record.scheduled_ns)))
    assert found == Waves(pytest.approx(10.0), 20, 1.0)


def test_requests_without_an_end_are_no_burst(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    lost = failed(0, 0, Outcome.LOST, 0, None)
    assert not is_burst(make_requests([lost]))
    assert is_burst(make_requests([lost, *(answered(k, 0, 0, [(1e3, 1)]) for k in range(1, 9))]))


@pytest.mark.parametrize(("waiting", "wait_ms", "waited"), [(25, 500.0, True), (24, 500.0, False), (25, 499.999, False)])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_quarter_of_the_answers_that_waited_for_half_of_what_the_first_took_are_in_batches(
    make_requests: MakeRequests, answered: Make, waiting: int, wait_ms: float, waited: bool, streamed: bool
) -> None:
    """Six of 100 take 1 s for their token, and others 2 s for two. Those that wait take as much longer; of streams the wait for
    the first token counts, and not how long they take.
    """
    took_ms = [1_000.0] * 6 + [2_000.0] * (94 - waiting) + [2_000.0 + (0.0 if streamed else wait_ms)] * waiting
    records = []
    for k, took in enumerate(took_ms):
        first = 100.0 + (wait_ms if k >= 100 - waiting else 20.0)
        count = 1 if k < 6 else 2
        tokens = [(first, 1), (100.0 + took, 1)] if streamed else [(100.0 + took, count)]
        records.append(answered(k, 100, 100, tokens, done=100.0 + took, output_tokens=count))
    assert waited_in_batches(make_requests(records)) is waited


def test_most_answers_may_have_waited(make_requests: MakeRequests, answered: Make) -> None:
    """The pace is that of the first answers: 60 of 100 take 3 s in place of 2."""
    took_ms = [1_000.0] * 6 + [2_000.0] * 34 + [3_000.0] * 60
    records = [answered(k, 0, 0, [(took, 1 if k < 6 else 2)], done=took) for k, took in enumerate(took_ms)]
    assert waited_in_batches(make_requests(records))


def _in_one_piece(records: Sequence[Record]) -> list[Record]:
    return [
        replace(record, token_times_ns=record.token_times_ns[-1:], token_counts=(record.output_tokens or 0,))
        for record in records
    ]


@pytest.mark.parametrize("pieces", [list, _in_one_piece], ids=["streamed", "unstreamed"])
@pytest.mark.parametrize(("batch", "waited"), [(240, False), (200, False), (120, True), (60, True)])
@pytest.mark.parametrize("lengths", [(50, 100), (50, 100, 150), (50, 100, 200)])
def test_answers_of_a_few_lengths_to_requests_served_at_once_do_not_keep_in_step(
    make_report: MakeReport,
    answered: Make,
    pieces: Callable[[Sequence[Record]], list[Record]],
    batch: int,
    waited: bool,
    lengths: tuple[int, ...],
) -> None:
    """They end in waves as well, each a multiple of the shortest, although hardly any waited for another."""
    rng = np.random.default_rng(1)
    tokens = rng.choice(lengths, 240)
    services_ms = 20.0 * tokens * rng.uniform(0.98, 1.02, 240)
    records = [
        replace(record, output_tokens=count, requested_output_tokens=count)
        for record, count in zip(served_in_batches(answered, batch, services_ms.tolist()), tokens.tolist(), strict=True)
    ]
    report = make_report(pieces(records), load=AT_ONCE)
    assert (finding_of(report, "users_in_step") is not None) is waited


def test_waves_of_a_burst_whose_sends_are_not_at_one_instant_are_in_step(make_report: MakeReport, answered: Make) -> None:
    """What is sent later waits for less than the first answers take."""
    records = []
    for number in range(200):
        sent, begin = 0.25 * number, 0.25 * (number % 100) + 1_000.0 * (number // 100)
        tokens = [(begin + 20.0 * k, 1) for k in range(1, 51)]
        records.append(answered(number, 0, sent, tokens, done=begin + 1_000.0))
    assert finding_of(make_report(records, load=AT_ONCE), "users_in_step") is not None


def test_answers_in_one_response_of_unknown_length_may_have_waited(make_report: MakeReport, answered: Make) -> None:
    services_ms = [1_000.0 + k / 10 for k in range(192)]
    records = [
        replace(record, token_times_ns=record.token_times_ns[-1:], token_counts=None, output_tokens=None)
        for record in served_in_batches(answered, 64, services_ms)
    ]
    assert finding_of(make_report(records, load=AT_ONCE), "users_in_step") is not None


def test_waves_in_words() -> None:
    assert UsersInStep(512, 27.94, 3, 0.921).sentence == (
        "The 512 users keep in step: 92% of the answers end in one third of each 27.9 s, in 3 waves."
    )

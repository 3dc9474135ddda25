"""Users of a closed loop that keep in step, and what a window says of their rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from msgspec.structs import replace

from bench_records.record import Record
from reports.findings.in_flight import UsersInStep
from reports.metrics.catalogue import REQUEST_THROUGHPUT
from reports.metrics.requests import Requests
from reports.metrics.waves import Waves, waves_of
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

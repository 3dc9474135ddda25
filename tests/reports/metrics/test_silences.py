"""Silences of all streams at once, on runs of made-up streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from msgspec.structs import replace

from bench_records.record import Outcome, Record
from reports.metrics.requests import Requests
from reports.metrics.silences import Pause, find_pause

Make = Callable[..., Record]
MakeRequests = Callable[[Sequence[Record]], Requests]


def _run(answered: Make, streams: int, stops: Sequence[tuple[float, float]] = (), prompts: Sequence[int] = ()) -> list[Record]:
    """``streams`` at once for 20 s, each request with 50 tokens, one a step of 20 ms; at (ms, ms) all of them stop so long."""
    moved_ms = np.arange(0.0, 20_000.0, 20.0)
    for at_ms, length_ms in stops:
        moved_ms[moved_ms > at_ms] += length_ms
    records, number = [], 0
    for stream in range(streams):
        for start in range(stream, moved_ms.size - 60, 51):
            due_ms = float(moved_ms[start]) + 5.0
            tokens = [(float(at_ms), 1) for at_ms in moved_ms[start + 1 : start + 51]]
            input_tokens = prompts[number % len(prompts)] if prompts else 100
            records.append(answered(number, due_ms, due_ms, tokens, input_tokens=input_tokens))
            number += 1
    return sorted(records, key=lambda record: record.scheduled_ns)


def _ns(ms: float) -> int:
    return round(ms * 1e6)


def _found(make_requests: MakeRequests, records: list[Record]) -> Pause | None:
    return find_pause(make_requests(records))


def test_a_stop_of_all_streams_is_a_pause(make_requests: MakeRequests, answered: Make) -> None:
    pause = _found(make_requests, _run(answered, 8, [(7_000.0, 3_000.0)]))
    assert pause is not None
    assert (pause.at_s, pause.length_s, pause.usual_s, pause.pauses) == (7.0, 3.02, 0.02, 1)
    assert pause.in_flight >= 7


def test_steps_are_no_pauses(make_requests: MakeRequests, answered: Make) -> None:
    assert _found(make_requests, _run(answered, 8)) is None


@pytest.mark.parametrize(("length_ms", "found"), [(479.999, False), (480.0, True)])
def test_a_pause_is_half_a_second_at_least(make_requests: MakeRequests, answered: Make, length_ms: float, found: bool) -> None:
    assert (_found(make_requests, _run(answered, 8, [(7_000.0, length_ms)])) is not None) is found


@pytest.mark.parametrize(("other_ms", "found"), [(320.0, True), (320.001, False)])
def test_a_pause_is_thrice_as_long_as_what_happens_otherwise(
    make_requests: MakeRequests, answered: Make, other_ms: float, found: bool
) -> None:
    stops = [(1_000.0 * k, other_ms) for k in range(1, 15)]
    assert (_found(make_requests, _run(answered, 8, [*stops, (16_500.0, 1_000.0)])) is not None) is found


def test_of_several_pauses_the_longest_is_shown(make_requests: MakeRequests, answered: Make) -> None:
    pause = _found(make_requests, _run(answered, 8, [(3_000.0, 900.0), (9_000.0, 2_000.0), (14_000.0, 1_200.0)]))
    assert pause is not None
    assert (pause.length_s, pause.pauses, pause.usual_s) == (pytest.approx(2.02), 3, pytest.approx(0.02))


def test_what_happens_often_is_the_way_of_the_target(make_requests: MakeRequests, answered: Make) -> None:
    assert _found(make_requests, _run(answered, 8, [(3_000.0 * k, 1_000.0) for k in range(1, 7)])) is None


@pytest.mark.parametrize(("streams", "found"), [(1, False), (2, False), (4, True)])
def test_one_or_two_streams_may_be_held_up_alone(
    make_requests: MakeRequests, answered: Make, streams: int, found: bool
) -> None:
    assert (_found(make_requests, _run(answered, streams, [(7_000.0, 3_000.0)])) is not None) is found


def test_a_target_without_work_is_not_silent(make_requests: MakeRequests, answered: Make) -> None:
    """Two crowds of requests with a minute between them."""
    crowd = _run(answered, 8)[:60]
    later = [
        answered(1_000 + k, due, due, _moved(record))
        for k, record in enumerate(crowd)
        for due in [record.scheduled_ns / 1e6 + 60_000]
    ]
    assert _found(make_requests, [*crowd, *later]) is None


def _moved(record: Record) -> list[tuple[float, int]]:
    return [(time_ns / 1e6 + 60_000, 1) for time_ns in record.token_times_ns]


def test_the_step_of_a_prompt_longer_than_any_before_is_no_pause(make_requests: MakeRequests, answered: Make) -> None:
    records = _run(answered, 8, [(7_000.0, 3_000.0)])
    prompt = answered(10_000, 6_990.0, 6_990.0, [(10_021.0, 1)], input_tokens=30_000)
    assert _found(make_requests, [*records, prompt]) is None
    short = answered(10_000, 6_990.0, 6_990.0, [(10_021.0, 1)], input_tokens=100)
    assert _found(make_requests, [*records, short]) is not None


@pytest.mark.parametrize(("tokens", "found"), [(2_837, True), (2_838, False)])
@pytest.mark.parametrize("others", [False, True])
def test_a_prompt_takes_a_time_that_grows_with_its_square(
    make_requests: MakeRequests, answered: Make, tokens: int, found: bool, others: bool
) -> None:
    """In two steps of 20 ms at most 200 tokens begin, and no answer takes longer than 15 ms to begin: 3,020 ms are 201 times as
    long, which 14.19 times as many tokens may take. The prompt was sent as late as two other responses are apart.

    Requests whose first response came with the last one before the silence, or with the first one after it, and a long prompt
    whose step began two steps after the silence, change nothing.
    """
    records = [
        *_run(answered, 8, [(7_000.0, 3_000.0)]),
        answered(10_000, 7_020.0, 7_020.0, [(10_021.0, 1)], input_tokens=tokens),
    ]
    if others:
        records += [
            answered(10_001, 6_000.0, 6_000.0, [(7_000.0, 1)], input_tokens=0),
            answered(10_002, 9_000.0, 9_000.0, [(10_040.0, 1)], input_tokens=5_000),
            answered(10_003, 10_050.0, 10_050.0, [(10_060.0, 1)], input_tokens=3_000),
        ]
    assert (_found(make_requests, records) is not None) is found


def test_a_prompt_that_was_sent_while_the_target_was_silent_does_not_explain_it(
    make_requests: MakeRequests, answered: Make
) -> None:
    prompt = answered(10_000, 7_020.001, 7_020.001, [(10_021.0, 1)], input_tokens=30_000)
    assert _found(make_requests, [*_run(answered, 8, [(7_000.0, 3_000.0)]), prompt]) is not None


def test_of_equally_long_pauses_the_first_is_shown(make_requests: MakeRequests, answered: Make) -> None:
    pause = _found(make_requests, _run(answered, 8, [(3_000.0 * k, 2_000.0) for k in range(1, 5)]))
    assert pause is not None
    assert (pause.at_s, pause.length_s, pause.pauses) == (3.0, 2.02, 4)


def test_a_pause_before_the_first_tokens_of_users_in_step_is_one(make_requests: MakeRequests, answered: Make) -> None:
    """Eight users send together, each time when their last answers have ended; before the sixth time the target stops."""
    records, now = [], 0.0
    for wave in range(10):
        first = now + 100.0 + (2_000.0 if wave == 5 else 0.0)
        tokens = [(first + 20.0 * step, 1) for step in range(20)]
        records += [answered(8 * wave + k, now, now, tokens, input_tokens=100) for k in range(8)]
        now = tokens[-1][0]
    pause = _found(make_requests, records)
    assert pause is not None
    assert (pause.length_s, pause.usual_s, pause.in_flight) == (pytest.approx(2.1), pytest.approx(0.1), 8)


@pytest.mark.parametrize(("steps", "found"), [(20, False), (99, False), (100, True)])
def test_too_few_silences_tell_nothing(make_requests: MakeRequests, answered: Make, steps: int, found: bool) -> None:
    """They are the steps but the first, and a stop after the last."""
    records = [answered(k, 0, 0, [*((20.0 * step, 1) for step in range(1, steps + 1)), (5_400.0, 1)]) for k in range(4)]
    assert (_found(make_requests, records) is not None) is found


def test_a_run_without_any_response_has_no_pause(make_requests: MakeRequests, answered: Make) -> None:
    assert _found(make_requests, [answered(0, 0, 0, [], done=5.0)]) is None


# ---- light load: a target that is idle at times


def _served(answered: Make, due_ms: Sequence[float], stop: tuple[float, float] = (0.0, 0.0)) -> list[Record]:
    """One step of 20 ms at a time, which gives each request in the system a token, of 50; at (ms, ms) the target stops once."""
    records: list[Record] = []
    tokens: list[list[tuple[float, int]]] = [[] for _ in due_ms]
    now, begun, stop_ms = 0.0, 0, stop[1]
    while any(len(of) < 50 for of in tokens):
        running = [k for k in range(begun) if len(tokens[k]) < 50]
        now = now if running else max(now, due_ms[begun])
        while begun < len(due_ms) and due_ms[begun] <= now:
            running.append(begun)
            begun += 1
        if stop_ms and now >= stop[0] - 20.0:
            now, stop_ms = max(now, stop[0] + stop_ms), 0.0
        now += 20.0
        for k in running:
            tokens[k].append((now, 1))
    records += [answered(k, due, due, of) for k, (due, of) in enumerate(zip(due_ms, tokens, strict=True))]
    return records


_CROWD_MS = [20_000.0 + 100.0 * k for k in range(4)]  # in the system together for 0.7 s


@pytest.mark.parametrize("running", [0, 2], ids=["idle at first", "two at first"])
def test_a_stop_counts_from_when_enough_requests_wait(make_requests: MakeRequests, answered: Make, running: int) -> None:
    """The target stops from 10 to 14 s, and the third of those that wait for it is sent at 11.5 s."""
    sent_ms = [9_900.0] * running + [10_500.0, 11_000.0, 11_500.0, 12_000.0][running:]
    due_ms = [1_000.0 * k for k in range(3)] + sent_ms + [at + 2_000.0 * k for k in range(4) for at in _CROWD_MS]
    third_s = sorted(sent_ms)[2] / 1e3
    pause = _found(make_requests, _served(answered, due_ms, (10_000.0, 4_000.0)))
    assert pause is not None
    assert (pause.at_s, pause.length_s) == (pytest.approx(third_s), pytest.approx(14.02 - third_s))
    assert (pause.in_flight, pause.usual_s) == (4, pytest.approx(0.02))
    assert _found(make_requests, _served(answered, due_ms)) is None


def test_a_stop_that_two_requests_met_is_none_of_all_streams(make_requests: MakeRequests, answered: Make) -> None:
    due_ms = [0.0, 10_500.0, 11_000.0, 13_990.0] + [at + 2_000.0 * k for k in range(4) for at in _CROWD_MS]
    assert _found(make_requests, _served(answered, due_ms, (10_000.0, 4_000.0))) is None


def test_requests_wait_until_they_fail(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    """Three wait from 11 s on; one of them fails at 13 s, and the target goes on at 14 s."""
    crowds = [at + 2_000.0 * k for k in range(4) for at in _CROWD_MS]
    records = _served(answered, [0.0, 10_500.0, 11_000.0, *crowds], (10_000.0, 4_000.0))
    records.append(failed(100, 10_700.0, Outcome.STREAM_CUT, 10_700.0, 13_000.0))
    pause = _found(make_requests, records)
    assert pause is not None
    assert (pause.at_s, pause.length_s, pause.in_flight) == (pytest.approx(11.0), pytest.approx(2.0), 3)


@pytest.mark.parametrize("rate", [0.5, 1.0, 2.0])
def test_a_target_at_light_load_that_does_not_stop_has_no_pause(
    make_requests: MakeRequests, answered: Make, rate: float
) -> None:
    for seed in range(10):
        gaps_ms = np.random.default_rng(seed).gamma(0.2, 5_000.0 / rate, 100)  # in bursts
        assert _found(make_requests, _served(answered, np.cumsum(gaps_ms).tolist())) is None


# ---- a target that serves one request at a time


def _one_at_a_time(
    answered: Make, failed: Make, users: int, stop: tuple[float, float] = (0.0, 0.0), cut: Mapping[int, int] | None = None
) -> list[Record]:
    """A closed loop: the target answers in the order of sending, each after 40 ms with a token in 20 ms, 50 tokens.

    At (ms, ms) it stops once. By request, ``cut`` has the number of tokens with which its client goes, -1 before its turn. The
    target does not notice: it generates 200 tokens more.
    """
    cut = cut or {}
    records: list[Record] = []
    now, due_ms, stop_ms = 0.0, [0.0] * users, stop[1]
    for number in range(60):
        sent = due_ms.pop(0)
        now = max(now, sent) + 40.0
        received = cut.get(number)
        end = now
        times: list[float] = []
        for step in range(50 if received is None else 200):
            if stop_ms and now + 20.0 * step >= stop[0]:
                now, stop_ms = now + stop_ms, 0.0
            times.append(now + 20.0 * step)
        now, end = times[-1], times[-1]
        if received is None:
            records.append(answered(number, sent, sent, [(at, 1) for at in times]))
        else:
            end = times[0] - 30.0 if received < 0 else times[received - 1] + 1.0
            gone = failed(number, sent, Outcome.WITHDRAWN, sent, end, requested_output_tokens=200)
            times_ns = tuple(round(at * 1e6) for at in times[: max(0, received)])
            records.append(replace(gone, token_times_ns=times_ns))
        due_ms = sorted([*due_ms, end + 1.0])
    return records


@pytest.mark.parametrize(("users", "found"), [(2, False), (3, True), (4, True), (8, True)])
def test_the_stop_of_a_target_that_serves_one_request_at_a_time_is_a_pause(
    make_requests: MakeRequests, answered: Make, failed: Make, users: int, found: bool
) -> None:
    pause = _found(make_requests, _one_at_a_time(answered, failed, users, (20_000.0, 3_000.0)))
    assert (pause is not None) is found
    if pause is not None:
        assert (pause.length_s, pause.in_flight) == (pytest.approx(3.02), users)
    assert _found(make_requests, _one_at_a_time(answered, failed, users)) is None


@pytest.mark.parametrize("received", [-1, 1, 10])
def test_the_rest_of_a_cancelled_answer_is_no_pause(
    make_requests: MakeRequests, answered: Make, failed: Make, received: int
) -> None:
    """4 s in which the others wait, each time."""
    assert _found(make_requests, _one_at_a_time(answered, failed, 4, cut={5: 3, 20: received})) is None
    assert _found(make_requests, _one_at_a_time(answered, failed, 4, cut={20: received})) is None
    assert _found(make_requests, _one_at_a_time(answered, failed, 4, (20_000.0, 3_000.0), {50: received})) is not None


def test_a_pause_beside_the_rest_of_a_cancelled_answer_is_counted_alone(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    """The pause of 10 s, during an answer, is longer than the 4 s of the rest."""
    pause = _found(make_requests, _one_at_a_time(answered, failed, 4, (20_000.0, 10_000.0), {50: 10}))
    assert pause is not None
    assert (pause.length_s, pause.pauses) == (pytest.approx(10.02), 1)


@pytest.mark.parametrize(("late_ns", "found"), [(0, False), (1, True)])
def test_a_client_went_before_the_silence_where_it_waited_no_longer_than_usual(
    make_requests: MakeRequests, answered: Make, failed: Make, late_ns: int, found: bool
) -> None:
    """40 ms after the last token before it, the only one of an answer that the target gave between two others."""
    records = _one_at_a_time(answered, failed, 4, cut={20: -1})
    last_ns = records[19].token_times_ns[-1] + _ns(1.0)
    records[20] = replace(records[20], done_ns=last_ns + _ns(40.0) + late_ns)
    sent_ms = (records[20].sent_ns or 0) / 1e6 - 1.0
    records.insert(20, answered(1_000, sent_ms, sent_ms, [(last_ns / 1e6, 1)]))
    assert (_found(make_requests, records) is not None) is found


def test_a_client_that_went_does_not_explain_a_stop_while_an_earlier_answer_comes(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    """The next one's, who went before the stop."""
    cut = {26: -1}
    stop_ns = _one_at_a_time(answered, failed, 4, cut=cut)[25].token_times_ns[25]
    records = _one_at_a_time(answered, failed, 4, (stop_ns / 1e6, 3_000.0), cut)
    records[26] = replace(records[26], done_ns=stop_ns - _ns(100.0))
    pause = _found(make_requests, records)
    assert pause is not None
    assert (pause.length_s, pause.pauses) == (pytest.approx(3.02), 1)


@pytest.mark.parametrize("requested", [60, 93, 94, 120])
def test_a_silence_longer_than_the_cancelled_answer_is_a_pause(
    make_requests: MakeRequests, answered: Make, failed: Make, requested: int
) -> None:
    """3.84 s of silence are 94 tokens that take twice as long as others, and two usual silences of 40 ms."""
    records = _one_at_a_time(answered, failed, 4, cut={20: 10})
    records[20] = replace(records[20], requested_output_tokens=requested)
    assert (_found(make_requests, records) is not None) is (requested < 94)


def test_requests_that_are_given_up_during_a_stop_do_not_explain_it(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    """Six users, who wait for 7 s at most; the target stops for 10 s before an answer begins."""
    stop_ns = _one_at_a_time(answered, failed, 6)[25].token_times_ns[0] - 1_000_000
    records = _one_at_a_time(answered, failed, 6, (stop_ns / 1e6, 10_000.0))
    for number, record in enumerate(records):
        assert record.sent_ns is not None
        if record.sent_ns < stop_ns < record.token_times_ns[0]:
            sent_ms = record.sent_ns / 1e6
            records[number] = failed(number, sent_ms, Outcome.TIMEOUT, sent_ms, sent_ms + 7_000.0, requested_output_tokens=200)
    assert sum(record.outcome is Outcome.TIMEOUT for record in records) == 6
    assert _found(make_requests, records) is not None


def test_a_stop_while_an_answer_comes_is_a_pause_beside_cancelled_ones(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    """The client of the request before the one that is answered went, and the target noticed."""
    records = _one_at_a_time(answered, failed, 4, (20_000.0, 3_000.0))
    before = max((r for r in records if r.token_times_ns[-1] < 20_000_000_000), key=lambda r: r.token_times_ns[-1])
    cut = replace(before, outcome=Outcome.WITHDRAWN)
    pause = _found(make_requests, [cut if record is before else record for record in records])
    assert pause is not None
    assert pause.length_s == pytest.approx(3.02)


def test_a_client_that_went_before_others_had_their_answers_does_not_explain_a_later_stop(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    """The target stops before the 26th answer. The sixth, whose client went, was generated long before."""
    cut = {5: -1}
    stop_ms = _one_at_a_time(answered, failed, 4, cut=cut)[25].token_times_ns[0] / 1e6 - 1.0
    pause = _found(make_requests, _one_at_a_time(answered, failed, 4, (stop_ms, 3_000.0), cut))
    assert pause is not None
    assert pause.length_s == pytest.approx(3.04)
    assert pause.pauses == 1


def test_without_counts_of_the_server_a_prompt_is_as_long_as_it_was_to_be(make_requests: MakeRequests, answered: Make) -> None:
    records = [
        replace(record, input_tokens=None, requested_input_tokens=100) for record in _run(answered, 8, [(7_000.0, 3_000.0)])
    ]
    prompt = replace(answered(10_000, 6_990.0, 6_990.0, [(10_021.0, 1)]), input_tokens=None)
    assert _found(make_requests, [*records, replace(prompt, requested_input_tokens=30_000)]) is None
    assert _found(make_requests, [*records, replace(prompt, requested_input_tokens=100)]) is not None

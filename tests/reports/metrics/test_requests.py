"""Columns of a run's records: what is unknown stays unknown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields

import numpy as np
import pytest

from bench_records.record import Outcome, Record, TokenSource
from reports.metrics.requests import Requests

Make = Callable[..., Record]
MakeRequests = Callable[[Sequence[Record]], Requests]


def test_unknown_numbers_are_nan_and_never_zero(make_requests: MakeRequests, failed: Make) -> None:
    requests = make_requests([failed(0, 5, Outcome.NOT_SENT, error=None)])
    assert requests.scheduled_ns.tolist() == [5_000_000.0]
    for column in (
        requests.sent_ns,
        requests.done_ns,
        requests.input_tokens,
        requests.output_tokens,
        requests.first_token_ns,
        requests.last_token_ns,
    ):
        assert np.isnan(column).tolist() == [True]
    assert requests.errors == (None,)
    assert requests.has_tokens.tolist() == [False]
    assert requests.done.tolist() == [False]


def test_a_count_of_zero_is_zero(make_requests: MakeRequests, answered: Make) -> None:
    requests = make_requests([answered(0, 0, 0, [], input_tokens=0)])
    assert (requests.output_tokens.tolist(), requests.input_tokens.tolist()) == ([0.0], [0.0])
    assert requests.done.tolist() == [True]
    assert requests.has_tokens.tolist() == [False]


def test_token_times_stay_with_their_request(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    requests = make_requests(
        [
            answered(0, 0, 0, [(10, 1), (20, 2)]),
            failed(1, 1, Outcome.REFUSED, 1, 2),
            answered(2, 2, 2, [(15, 1), (25, 1), (35, 1)], token_counts=None),
            answered(3, 3, 3, []),
            answered(4, 4, 4, [(50, 4)]),
        ]
    )
    assert requests.token_starts.tolist() == [0, 2, 2, 5, 5, 6]
    assert (requests.token_times_ns / 1e6).tolist() == [10, 20, 15, 25, 35, 50]
    np.testing.assert_equal(requests.token_counts, [1, 2, np.nan, np.nan, np.nan, 4])
    np.testing.assert_equal(requests.first_token_ns / 1e6, [10, np.nan, 15, np.nan, 50])
    np.testing.assert_equal(requests.last_token_ns / 1e6, [20, np.nan, 35, np.nan, 50])


def test_flags_and_sources(make_requests: MakeRequests, answered: Make) -> None:
    requests = make_requests(
        [
            answered(0, 0, 0, [(1, 1)], prompt_echoed=True, ignore_eos=True, output_tokens_source=TokenSource.SERVER),
            answered(1, 0, 0, [(1, 1)], prompt_echoed=False, output_tokens_source=TokenSource.IDS),
            answered(2, 0, 0, [(1, 1)], prompt_echoed=None, output_tokens_source=TokenSource.IDS),
            answered(3, 0, 0, [(1, 1)]),
        ]
    )
    assert requests.prompt_echoed.tolist() == [True, False, False, False]
    assert requests.ignore_eos.tolist() == [True, False, False, False]
    assert requests.output_tokens_sources == ("ids", "server")


def test_nanoseconds_survive_exactly(make_requests: MakeRequests, answered: Make) -> None:
    late_ns = 90 * 24 * 3600 * 10**9 + 1  # 90 days: float64 still distinguishes it from its neighbours
    requests = make_requests([answered(0, 0, 0, [(1, 1)], sent_ns=late_ns, done_ns=late_ns + 1, token_times_ns=(late_ns,))])
    assert int(requests.sent_ns[0]) == late_ns
    assert int(requests.done_ns[0]) == late_ns + 1
    assert int(requests.token_times_ns[0]) == late_ns


def test_a_server_may_have_run_for_a_year(make_requests: MakeRequests, answered: Make) -> None:
    """Its clock counts from its host's start: more ns than float64 holds exactly."""
    year_ns = 365 * 86_400 * 10**9 + 1
    requests = make_requests([answered(0, 0, 0, [(1, 1)], server_arrival_ns=year_ns)])
    assert requests.server_arrival_ns[0] == pytest.approx(year_ns, abs=16, rel=0)


def test_each_request_keeps_its_number_in_the_schedule(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    requests = make_requests([failed(7, 0, Outcome.NOT_SENT), answered(2, 5, 5, [(9, 1)])])
    assert requests.index.tolist() == [7, 2]
    assert requests.outcome.tolist() == ["not_sent", "done"]


@pytest.mark.filterwarnings("error")
def test_a_run_of_no_requests_has_empty_columns(make_requests: MakeRequests) -> None:
    requests = make_requests([])
    assert requests.done.shape == (0,)
    assert requests.first_token_ns.shape == (0,)
    assert requests.errors == ()
    assert (requests.in_turns, requests.is_open_loop) == (False, True)
    assert (requests.outcome.dtype.kind, requests.index.dtype.kind) == ("U", "i")


def test_conversations_of_two_turns_that_come_at_their_own_times_are_no_closed_loop(
    make_requests: MakeRequests, answered: Make
) -> None:
    """Each second turn is due when the first ends: half of the requests."""
    turns = [(conversation, turn) for conversation in range(20) for turn in range(2)]
    requests = make_requests(
        [
            answered(k, due, due, [(due + 9, 1)], done=due + 30, parent=k - 1 if turn else None)
            for k, (conversation, turn) in enumerate(turns)
            for due in [100 * conversation + 30 * turn]
        ]
    )
    assert (requests.in_turns, requests.is_open_loop) == (False, False)


def test_each_request_has_the_place_of_its_class_among_the_names(make_requests: MakeRequests, answered: Make) -> None:
    names = ["chat", None, "code", "chat"]
    requests = make_requests([answered(k, k, k, [(9, 1)], traffic_class=name) for k, name in enumerate(names)])
    assert (requests.class_names, requests.class_of.tolist()) == (("chat", "code"), [0, -1, 1, 0])
    assert requests.class_of.dtype.kind == "i"
    assert requests.of_class("chat").tolist() == [True, False, False, True]
    assert requests.of_class("code").tolist() == [False, False, True, False]


def test_the_sources_of_counts_are_those_of_answers_that_were_not_cancelled(
    make_requests: MakeRequests, answered: Make
) -> None:
    cut = answered(1, 0, 0, [(1, 1)], outcome=Outcome.WITHDRAWN, output_tokens_source=TokenSource.TEXT)
    whole = answered(0, 0, 0, [(1, 1)], output_tokens_source=TokenSource.SERVER)
    assert make_requests([whole, cut]).output_tokens_sources == ("server",)


def test_a_request_without_a_finish_reason_has_an_empty_one(make_requests: MakeRequests, answered: Make) -> None:
    reasons = [None, "stop", "length", "stop", None]
    found = make_requests([answered(k, k, k, [(k + 5, 1)], finish_reason=reason) for k, reason in enumerate(reasons)])
    assert found.finish_reason.tolist() == ["", "stop", "length", "stop", ""]
    without = make_requests([answered(0, 0, 0, [(5, 1)])])
    assert (without.finish_reason.tolist(), without.end_marker_missing.tolist()) == ([""], [False])


def test_some_of_the_requests_are_as_if_they_had_been_read_alone(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    """In every column; names of classes and sources of counts stay those of the run."""
    records = [
        answered(0, 0, 1, [(10, 1), (20, 2)], traffic_class="chat", worker=1, planned_ns=4, parent=3, cached_input_tokens=2),
        answered(
            1,
            1,
            2,
            [(15, 1)],
            traffic_class="code",
            token_counts=None,
            input_tokens=7,
            server_counted_input=True,
            finish_reason="stop",
            end_marker_missing=True,
        ),
        failed(2, 2, Outcome.TIMEOUT, 3, 9, traffic_class="chat", error="late", requested_input_tokens=8),
        answered(3, 3, 4, [], traffic_class="code", released_ns=3, text_tokens=6, ignore_eos=True, prompt_echoed=True),
        answered(4, 4, 5, [(25, 1), (35, 3)], traffic_class="chat", has_reasoning=True, first_output_ns=35, input_tokens=5),
    ]
    whole = make_requests(records)
    for chosen in ([True, True, False, False, True], [False, True, True, True, False], [False] * 5):
        some = whole.only(np.array(chosen))
        alone = make_requests([record for record, kept in zip(records, chosen, strict=True) if kept])
        for name in (field.name for field in fields(some)):
            found, expected = getattr(some, name), getattr(alone, name)
            if name == "class_of":
                assert [some.class_names[k] for k in found] == [alone.class_names[k] for k in expected]
            elif name in ("class_names", "output_tokens_sources"):
                assert found == getattr(whole, name)
            else:
                np.testing.assert_array_equal(found, expected, err_msg=name)
                assert np.asarray(found).dtype.kind == np.asarray(expected).dtype.kind or not any(chosen), name

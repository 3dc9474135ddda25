"""Lengths of prompts and answers, as requested and as counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from bench_records.record import Outcome, Record
from reports.metrics.lengths import Lengths, input_lengths, output_lengths
from reports.metrics.requests import Requests

Make = Callable[..., Record]
MakeRequests = Callable[[Sequence[Record]], Requests]


def _prompts(make_requests: MakeRequests, answered: Make, lengths: Sequence[tuple[int | None, int | None]]) -> Requests:
    """Prompts of this many tokens as requested and as the server counted them."""
    return make_requests(
        [
            answered(k, k, k, [(k + 5, 1)], requested_input_tokens=asked, input_tokens=counted, server_counted_input=True)
            for k, (asked, counted) in enumerate(lengths)
        ]
    )


def test_prompts_are_compared_without_the_template_s_tokens(make_requests: MakeRequests, answered: Make) -> None:
    found = input_lengths(_prompts(make_requests, answered, [(10, 15), (20, 27), (30, 31)]), 4)
    assert found == Lengths(3, mean_requested=20.0, mean_actual=61 / 3, mean_deviation=7 / 3, template_tokens=4)
    assert found.deviation_share == pytest.approx(7 / 60)


def test_only_prompts_of_known_lengths_count(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    """Left out: a length that was not requested, one that the server did not count, one by the client, one of a failure."""
    known = {"requested_input_tokens": 10, "input_tokens": 12, "server_counted_input": True}
    unknown = [
        known | change for change in ({"requested_input_tokens": None}, {"input_tokens": None}, {"server_counted_input": False})
    ]
    records = [answered(k, k, k, [(k + 5, 1)], **fields) for k, fields in enumerate([known, *unknown])]
    found = input_lengths(make_requests([*records, failed(4, 4, Outcome.TIMEOUT, 4, 9, **known)]), 0)
    assert found == Lengths(1, 10.0, 12.0, 2.0)
    assert input_lengths(make_requests(records[1:]), 0) is None


@pytest.mark.parametrize(
    ("added", "template_tokens"),
    [
        ([3] * 10, 3),
        ([3] * 9 + [5], 3),  # nine in ten
        ([3] * 9 + [1], 3),
        ([3] * 8 + [5, 7], 0),  # eight in ten
        ([3], 3),  # without a probe, as of --warmup_requests 0
        ([24, 25, 26] * 30, 25),  # prompts merge with the template around them
        ([24, 25, 27] * 30, 0),
        ([24, 26] * 30, 0),  # none has 25
        ([-2] * 10, 0),  # a template adds tokens
        ([0] * 10, 0),
        ([1] * 10, 1),
    ],
)
def test_what_nearly_all_prompts_have_more_is_taken_for_the_template(
    make_requests: MakeRequests, answered: Make, added: list[int], template_tokens: int
) -> None:
    found = input_lengths(_prompts(make_requests, answered, [(10 + k, 10 + k + more) for k, more in enumerate(added)]), None)
    assert found is not None
    assert found.template_tokens == template_tokens
    assert found.mean_actual - found.mean_requested == pytest.approx(sum(added) / len(added) - template_tokens)


def test_answers_are_compared_with_what_was_asked_for(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    records = [
        answered(0, 0, 0, [(5, 4)], requested_output_tokens=6),
        answered(1, 0, 0, [(5, 9)], requested_output_tokens=8),
        answered(2, 0, 0, [(5, 9)], output_tokens=None),
        failed(3, 0, Outcome.STREAM_CUT, 0, 9, output_tokens=1),
    ]
    assert output_lengths(make_requests(records)) == Lengths(2, 7.0, 6.5, 1.5, 0)
    assert output_lengths(make_requests(records[2:])) is None


def test_answers_for_which_nothing_was_asked_have_no_share_of_deviation(make_requests: MakeRequests, answered: Make) -> None:
    found = output_lengths(make_requests([answered(0, 0, 0, [(5, 4)], requested_output_tokens=0)]))
    assert found == Lengths(1, 0.0, 4.0, 4.0)
    assert found.deviation_share == 0.0

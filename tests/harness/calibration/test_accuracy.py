"""Errors against the truth, computed by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_records.record import Outcome, Record
from harness.calibration.accuracy import Truth, errors_of, nearest_rank, spread, stamped_truths
from harness.calibration.null_server.stamps import Stamps, stamps_of_event
from harness.journal.worker_journal import Exchange


def _record(index: int, sent_ms: float, read_ms: list[float], outcome: Outcome = Outcome.DONE) -> Record:
    return Record(
        index=index,
        outcome=outcome,
        scheduled_ns=0,
        requested_output_tokens=len(read_ms),
        sent_ns=round(sent_ms * 1e6),
        token_times_ns=tuple(round(ms * 1e6) for ms in read_ms),
    )


def _truth(received_ms: float, sent_ms: list[float]) -> Truth:
    return Truth(round(received_ms * 1e6), np.array([round(ms * 1e6) for ms in sent_ms], np.int64))


def test_errors_are_ours_minus_the_truth() -> None:
    # The server's clock may show anything: only durations count.
    errors = errors_of([_record(0, 1.0, [22.0, 26.0, 31.5])], {0: _truth(1000.0, [1020.0, 1025.0, 1030.0])})
    assert errors.ttft_ms.tolist() == pytest.approx([1.0])
    assert errors.icl_ms.tolist() == pytest.approx([-1.0, 0.5])
    assert errors.e2e_ms.tolist() == pytest.approx([0.5])


def test_requests_are_matched_by_index_and_failures_left_out() -> None:
    records = [_record(4, 0, [10]), _record(2, 0, [11]), _record(3, 0, [], Outcome.TIMEOUT)]
    errors = errors_of(records, {2: _truth(0, [8]), 4: _truth(0, [9])})
    assert errors.ttft_ms.tolist() == pytest.approx([1.0, 3.0])
    assert errors.icl_ms.size == 0


@pytest.mark.parametrize("truths", [{}, {0: _truth(0, [5, 6])}, {0: _truth(0, [5, 6, 7, 8])}])
def test_a_response_missed_or_invented_is_no_error_in_ms_but_a_fault(truths: dict[int, Truth]) -> None:
    with pytest.raises(ValueError, match="request 0: 3 responses with tokens were read"):
        errors_of([_record(0, 0, [1, 2, 3])], truths)


def test_stamps_are_read_from_the_bodies_that_have_them() -> None:
    bodies = [b'{"received_ns":5,"sent_ns":    7}', b'{"received_ns":5,"sent_ns":9}', b'{"usage":{}}']
    fields: dict[str, Any] = {
        "index": 3, "due_ns": 0, "released_ns": 0, "sent_ns": 0, "done_ns": 9, "response_ns": [1, 2, 3], "bodies": bodies,
        "failure": None, "error": None,
    }  # fmt: skip
    (truth,) = (found := stamped_truths([Exchange(**fields)], stamps_of_event)).values()
    assert list(found) == [3]
    assert (truth.received_ns, truth.sent_ns.tolist()) == (5, [7, 9])
    assert stamps_of_event(b'{"sent_ns":1}') is None
    assert stamps_of_event(bodies[0]) == Stamps(5, 7)


def test_a_spread_keeps_the_sign_in_the_mean_alone() -> None:
    found = spread(np.array([-3.0, 1.0, 1.0, 1.0]))
    assert found is not None
    assert (found.n, found.mean_ms, found.size_mean_ms, found.size_p50_ms, found.size_p99_ms) == (4, 0.0, 1.5, 1.0, 3.0)
    assert found.stdev_ms == pytest.approx(np.sqrt(3))
    assert spread(np.empty(0)) is None


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0.01, 1))
def test_nearest_rank_is_the_reports(values: list[float], share: float) -> None:
    from reports.statistics.percentiles import nearest_rank as of_reports

    assert nearest_rank(np.array(values), share) == of_reports(np.sort(np.array(values)), share)

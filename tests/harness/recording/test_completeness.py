"""Answers that a server cut, by the finish reasons of the run."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bench_records.record import Outcome, Record
from harness.clients.openai_chat import OpenAIChatClient
from harness.clients.transport.url import Origin
from harness.journal.worker_journal import Ended
from harness.recording.accounting import WorkerEnd, account_for_all
from harness.recording.completeness import FinishReasonWatch, judge_completeness
from harness.recording.recorder import Recorder
from harness.recording.schedule_summary import summarise_schedule
from workloads.elements.request import Request
from workloads.schedule.schedule import Schedule, SessionSchedule


def _record(index: int, finish_reason: str | None, outcome: Outcome = Outcome.DONE) -> Record:
    return Record(index, outcome, 0, requested_output_tokens=4, sent_ns=0, done_ns=9, finish_reason=finish_reason, target=0)


_records = st.lists(
    st.tuples(st.sampled_from([None, None, "stop", "length"]), st.sampled_from([*Outcome, *[Outcome.DONE] * 9])), max_size=12
).map(lambda answers: [_record(index, *answer) for index, answer in enumerate(answers)])


@given(records=_records, expected=st.booleans())
def test_an_answer_is_incomplete_where_the_server_sends_finish_reasons_and_this_one_has_none(
    records: list[Record], expected: bool
) -> None:
    sends = expected or any(record.finish_reason for record in records)
    for before, after in zip(records, judge_completeness(records, frozenset({0} if expected else ())), strict=True):
        if sends and before.outcome is Outcome.DONE and before.finish_reason is None:
            assert after.outcome is Outcome.INCOMPLETE
            assert "without a finish_reason" in (after.error or "")
        else:
            assert after is before


@given(records=_records)
def test_a_run_that_goes_on_is_judged_alike_behind_its_first_finish_reason(records: list[Record]) -> None:
    watch = FinishReasonWatch()
    judged = [watch.judged(record) for record in records]
    first = next((k for k, record in enumerate(records) if record.finish_reason), len(records))
    assert judged[:first] == records[:first]
    assert judged[first:] == list(judge_completeness(records, frozenset()))[first:]


def test_what_the_trial_request_saw_counts_for_the_run() -> None:
    schedule = Schedule((Request(4, prompt="x"),) * 2, (0, 0), 0)
    for sends, outcome in ((True, Outcome.INCOMPLETE), (False, Outcome.DONE)):
        client = OpenAIChatClient(Origin("http", "127.0.0.1", 1), "m", sends_finish_reason=sends)
        records = {index: _record(index, None) for index in range(2)}
        accounted = account_for_all(Recorder(summarise_schedule(schedule), client), records, [WorkerEnd(None, 2, "")])
        assert [record.outcome for record in accounted] == [outcome] * 2


def test_a_turn_after_an_answer_that_the_server_cut_was_not_sent() -> None:
    schedule = SessionSchedule((Request(4, prompt="x"),) * 2, (0, None), (None, 0), (0, 0), 0)
    client = OpenAIChatClient(Origin("http", "127.0.0.1", 1), "m", sends_finish_reason=True)
    recorder, end = Recorder(summarise_schedule(schedule), client), WorkerEnd(Ended(1), 1, "")
    first, later = account_for_all(recorder, {0: _record(0, None)}, [end])
    assert (first.outcome, later.outcome) == (Outcome.INCOMPLETE, Outcome.NOT_SENT)
    assert later.error == "request 0, whose answer it waited for, failed"

"""A simulation as the records and the result of a run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
from msgspec.structs import replace

from bench_cli.simulate.traffic import SimulatedTraffic
from bench_records.record import Outcome, Record, TokenSource
from harness.journal.worker_journal import Ended
from harness.recording.accounting import WorkerEnd, account_for_all
from harness.recording.recorder import Recorder
from harness.recording.run_result import RunResult
from simulator.answers import Answers
from simulator.recorded import Responses
from workloads.schedule.schedule import ClosedSchedule, Schedule, SessionSchedule

_NS = 1e9


def simulated_result(simulated: SimulatedTraffic, answers: Answers, responses: Responses, recorder: Recorder) -> RunResult:
    """The result of a run whose client sees exactly the simulated times."""
    schedule = simulated.schedule
    made = _records(simulated, answers, responses, recorder)
    if isinstance(schedule, SessionSchedule):  # the turns after a failed one are not sent
        ended = WorkerEnd(Ended(len(made), "the simulation ended"), None, "")
        made = list(account_for_all(recorder, {record.index: record for record in made}, [ended]))
    records = sorted(made, key=lambda record: (record.scheduled_ns, record.index))
    ended_s = max((record.done_ns or 0) for record in records) / _NS if records else 0.0
    return RunResult(
        records=tuple(records),
        started_at=datetime.now(UTC),
        duration_s=ended_s,
        interrupted=False,
        warm_up_failures=(),
        ran_out=isinstance(schedule, ClosedSchedule) and schedule.end_ns is not None and len(records) == len(schedule),
    )


def _records(simulated: SimulatedTraffic, answers: Answers, responses: Responses, recorder: Recorder) -> list[Record]:
    """One for each request that was sent."""
    known_until_s, answered = answers.ended_s, answers.were_answered
    found = []
    schedule, traffic = simulated.schedule, simulated.traffic
    inputs, outputs = traffic.input_tokens.tolist(), traffic.output_tokens.tolist()
    cached = None if traffic.prefixes is None else answers.cached_tokens.tolist()
    for index in np.flatnonzero(~np.isnan(answers.sent_s)).tolist():
        sent_ns = round(answers.sent_s[index] * _NS)
        due_ns = schedule.offsets_ns[index] if isinstance(schedule, Schedule) else sent_ns
        sent_ns = max(sent_ns, due_ns)
        times = _ns([at for at in responses.times_s[index] if at <= known_until_s[index]], sent_ns)
        counts = tuple(responses.counts[index][: len(times)])
        record = replace(
            recorder.unsent(index, due_ns, Outcome.DONE, None),
            released_ns=sent_ns,
            sent_ns=sent_ns,
            done_ns=max(round(known_until_s[index] * _NS), sent_ns),
            token_times_ns=times,
            token_counts=counts or None,
            input_tokens=inputs[index],
            cached_input_tokens=None if cached is None else cached[index],
            server_counted_input=True,
            output_tokens=outputs[index],
            output_tokens_source=TokenSource.SERVER,
            prompt_echoed=False,
            worker=0,
        )
        found.append(record if answered[index] else _failed(record, answers.replicas[index] >= 0))
    return found


def _failed(record: Record, was_taken: bool) -> Record:
    """The record of a request whose replica failed before its last token, or that no replica took."""
    cut = (Outcome.STREAM_CUT, "its replica failed before the answer was complete")
    outcome, error = cut if was_taken else (Outcome.CONNECT, "no replica took requests")
    return replace(
        record,
        outcome=outcome,
        error=error,
        input_tokens=record.requested_input_tokens,
        server_counted_input=None,
        cached_input_tokens=None,
        output_tokens=None if record.token_counts is None else sum(record.token_counts),
        output_tokens_source=None if record.token_counts is None else TokenSource.CHUNKS,
    )


def _ns(times_s: Sequence[float], least: int) -> tuple[int, ...]:
    return tuple(max(round(at * _NS), least) for at in times_s)

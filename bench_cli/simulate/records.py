"""A simulation as the records and the result of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import numpy as np
from msgspec.structs import replace

from bench_cli.simulate.traffic import SimulatedTraffic
from bench_records.record import Outcome, Record, TokenSource
from harness.recording.recorder import Recorder
from harness.recording.run_result import RunResult
from simulator.answers import Answers
from simulator.recorded import Responses
from workloads.schedule.schedule import ClosedSchedule, Schedule

_NS = 1e9


def simulated_result(simulated: SimulatedTraffic, answers: Answers, responses: Responses, recorder: Recorder) -> RunResult:
    """The result of a run whose client sees exactly the simulated times."""
    records = sorted(_records(simulated, answers, responses, recorder), key=lambda record: (record.scheduled_ns, record.index))
    schedule = simulated.schedule
    ended_s = max((record.done_ns or 0) for record in records) / _NS if records else 0.0
    return RunResult(
        records=tuple(records),
        started_at=datetime.now(UTC),
        duration_s=ended_s,
        interrupted=False,
        warm_up_failures=(),
        ran_out=isinstance(schedule, ClosedSchedule) and schedule.end_ns is not None and len(records) == len(schedule),
    )


def _records(simulated: SimulatedTraffic, answers: Answers, responses: Responses, recorder: Recorder) -> Iterator[Record]:
    """One for each request that was sent."""
    schedule, traffic = simulated.schedule, simulated.traffic
    inputs, outputs = traffic.input_tokens.tolist(), traffic.output_tokens.tolist()
    cached = None if traffic.prefixes is None else answers.cached_tokens.tolist()
    for index in np.flatnonzero(answers.replicas >= 0).tolist():
        sent_ns = round(answers.sent_s[index] * _NS)
        due_ns = schedule.offsets_ns[index] if isinstance(schedule, Schedule) else sent_ns
        sent_ns = max(sent_ns, due_ns)
        times = _ns(responses.times_s[index], sent_ns)
        yield replace(
            recorder.unsent(index, due_ns, Outcome.DONE, None),
            released_ns=sent_ns,
            sent_ns=sent_ns,
            done_ns=times[-1],
            token_times_ns=times,
            token_counts=tuple(responses.counts[index]),
            input_tokens=inputs[index],
            cached_input_tokens=None if cached is None else cached[index],
            server_counted_input=True,
            output_tokens=outputs[index],
            output_tokens_source=TokenSource.SERVER,
            prompt_echoed=False,
            worker=0,
        )


def _ns(times_s: Sequence[float], least: int) -> tuple[int, ...]:
    return tuple(max(round(at * _NS), least) for at in times_s)

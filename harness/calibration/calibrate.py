"""Calibration of the client on this machine: its errors at a quiet rate, and the highest rates that it holds.

A null server shares the machine with the client, as a local target would. So a limit is that of both together; where the
server itself fell behind its pace, the result contains that.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.calibration.accuracy import Spread, nearest_rank, spread
from harness.calibration.ladder import climb
from harness.calibration.null_server.http_messages import OPENAI_MODEL
from harness.calibration.null_server.pacing import Pace
from harness.calibration.null_server.server import NullServerAddresses
from harness.calibration.null_server.stamps import stamps_of_event, stamps_of_message
from harness.calibration.result import TransportCalibration, WorkersLimits
from harness.calibration.trial import OverrunError, Subject, TrialResult, run_trial
from harness.clients.openai_chat import OpenAIChatClient
from harness.clients.transport.url import Origin
from harness.clients.triton.grpc import TritonGrpcClient, inspect_model
from harness.errors import RunError
from harness.observation.machine_sampler import core_times
from workloads.arrivals.processes import Exponential
from workloads.elements.request import Request
from workloads.schedule.schedule import Schedule, make_schedule

PACE = Pace(first_token_ns=20_000_000, gap_ns=5_000_000)
HELD_SLIP_MS = 1.0  # p99 of the schedule slip
HELD_ERROR_MS = 2.0  # p99 of the size of the errors of TTFT and ICL
_INPUT_TOKENS = 64
_SEED = 20_260_101
_TOP_PER_S = 1_000_000.0
_MAX_WORKERS = 8
_PROC_STAT = Path("/proc/stat")


@dataclass(frozen=True, slots=True)
class Effort:
    """The extent of a calibration. ``budget_s`` bounds the total, except the trial in progress; rates are the first tried, each
    held for ``rung_s``.
    """

    budget_s: float
    quiet_s: float
    rung_s: float
    quiet_requests_per_s: float = 20.0
    quiet_tokens: int = 20
    first_requests_per_s: float = 500.0
    first_responses_per_s: float = 8_000.0
    long_answer_tokens: int = 100


FULL = Effort(budget_s=90.0, quiet_s=4.0, rung_s=1.0)
QUICK = Effort(budget_s=15.0, quiet_s=1.5, rung_s=0.5)

Report = Callable[[str], None]


def subjects_of(addresses: NullServerAddresses) -> dict[str, Subject]:
    """The client over each transport, pointed at a null server of ``PACE``. Raises TargetError."""
    grpc_client = TritonGrpcClient(addresses.grpc, inspect_model(addresses.grpc, "tensorrt_llm"), streaming=True)
    host, _, port = addresses.http.rpartition(":")
    chat_client = OpenAIChatClient(Origin("http", host, int(port)), OPENAI_MODEL)
    return {"grpc": Subject(grpc_client, stamps_of_message, PACE), "sse": Subject(chat_client, stamps_of_event, PACE)}


def busy_cores(interval_s: float) -> float | None:
    """The number of available cores that other processes and guests of the hypervisor keep busy; None where unknown."""
    cores = os.sched_getaffinity(0)
    began_ns = time.monotonic_ns()
    before = core_times(_PROC_STAT.read_text(encoding="ascii"), cores)
    time.sleep(interval_s)
    after = core_times(_PROC_STAT.read_text(encoding="ascii"), cores)
    if before is None or after is None:
        return None
    used = after.since(before)
    return (used.busy_ns + used.steal_ns) / (time.monotonic_ns() - began_ns)


def worker_counts(cores: float) -> tuple[int, ...]:
    """The worker counts to calibrate: one, and one a core."""
    return (1,) if cores < 2 else (1, min(int(cores), _MAX_WORKERS))


def calibrate(
    subjects: Mapping[str, Subject], worker_counts: Sequence[int], effort: Effort, report: Report
) -> tuple[TransportCalibration, ...]:
    """Calibrate each of ``subjects`` (by transport) with each count of workers; the quiet rate is tried with the first.

    Raises RunError where requests fail at the quiet rate, or are seconds late, and KeyboardInterrupt where a trial was
    interrupted.
    """
    time_slices = _TimeSlices(effort.budget_s, parts=len(subjects) * 2 * len(worker_counts))
    calibrators = [_Calibrator(name, subject, effort, report) for name, subject in subjects.items()]
    for calibrator in calibrators:
        calibrator.measure_quiet(worker_counts[0])
    for workers in worker_counts:
        for calibrator in calibrators:
            calibrator.find_limits(workers, time_slices)
    return tuple(calibrator.result() for calibrator in calibrators)


def trial_schedule(requests_per_s: float, tokens: int, duration_s: float) -> Schedule:
    """Requests of ``tokens`` output tokens, sent at this rate for ``duration_s``, with exponential gaps.

    They are scaled to that rate: eighty drawn gaps may be a third too short by chance, and always the same third.
    """
    count = max(2, round(requests_per_s * duration_s))
    request = Request(
        tokens, prompt="word " * _INPUT_TOKENS, input_ids=tuple(range(1, _INPUT_TOKENS + 1)), input_tokens=_INPUT_TOKENS
    )
    drawn = make_schedule([request] * count, Exponential(requests_per_s), _SEED)
    scale = (count - 1) * 1e9 / requests_per_s / (drawn.offsets_ns[-1] - drawn.offsets_ns[0])
    return replace(drawn, offsets_ns=tuple(round(offset_ns * scale) for offset_ns in drawn.offsets_ns))


def rung_schedule(responses_per_s: float, tokens: int, rung_s: float, pace: Pace) -> Schedule:
    """The requests by which ``responses_per_s`` arrive for ``rung_s``, in answers of ``tokens`` at the server's ``pace``.

    The sending goes on for the length of an answer more: until the first answer ends, fewer responses arrive.
    """
    answer_s = pace.unstreamed(tokens).first_token_ns / 1e9
    return trial_schedule(responses_per_s / tokens, tokens, answer_s + rung_s)


class _TimeSlices:
    """Divides the rest of a time budget evenly among the remaining parts."""

    def __init__(self, budget_s: float, parts: int) -> None:
        self._end = time.monotonic() + budget_s
        self._parts = parts

    def next(self) -> Callable[[], bool]:
        """Begin the next part; returns a function that returns whether it still has time."""
        now = time.monotonic()
        until = now + max(0.0, self._end - now) / self._parts
        self._parts -= 1
        return lambda: time.monotonic() < until


class _Calibrator:
    """The calibration of one transport."""

    def __init__(self, transport: str, subject: Subject, effort: Effort, report: Report) -> None:
        self._transport = transport
        self._subject = subject
        self._effort = effort
        self._report = report
        self._quiet: TrialResult | None = None
        self._limits: list[WorkersLimits] = []
        self._best: dict[int, TrialResult] = {}  # the trial of the highest rate held, by tokens of an answer

    def measure_quiet(self, workers: int) -> None:
        """Measure the client's errors at a rate far below its limits."""
        effort = self._effort
        schedule = trial_schedule(effort.quiet_requests_per_s, effort.quiet_tokens, effort.quiet_s)
        try:
            result = self._try(schedule, workers)
        except OverrunError as error:
            raise RunError(f"{self._transport}, quiet: {error}; calibrate while the machine is idle") from error
        if result.failed:
            raise RunError(f"{self._transport}: {result.failed} of {result.requests} requests to the null server failed")
        self._quiet = result
        self._report(f"{self._transport}, quiet: {_summary(result)}")

    def find_limits(self, workers: int, time_slices: _TimeSlices) -> None:
        """Find the requests/s and the responses/s that ``workers`` hold, beginning at the rates that fewer workers held."""
        effort = self._effort
        before = self._limits[-1] if self._limits else None
        requests_from = (before and before.requests.held_per_s) or effort.first_requests_per_s
        responses_from = (before and before.responses.held_per_s) or effort.first_responses_per_s
        requests = climb(lambda rate: self._attempt(rate, 1, workers), requests_from, _TOP_PER_S, time_slices.next())
        responses = climb(
            lambda rate: self._attempt(rate, effort.long_answer_tokens, workers), responses_from, _TOP_PER_S, time_slices.next()
        )
        self._limits.append(WorkersLimits(workers, requests, responses))

    def result(self) -> TransportCalibration:
        effort, quiet = self._effort, self._quiet
        assert quiet is not None
        per_request, per_response = self._cpu_us()
        return TransportCalibration(
            transport=self._transport,
            quiet_requests_per_s=effort.quiet_requests_per_s,
            quiet_responses_per_s=effort.quiet_requests_per_s * effort.quiet_tokens,
            ttft=_known(spread(quiet.errors.ttft_ms)),
            icl=_known(spread(quiet.errors.icl_ms)),
            e2e=_known(spread(quiet.errors.e2e_ms)),
            limits=tuple(self._limits),
            cpu_us_per_request=per_request,
            cpu_us_per_response=per_response,
        )

    def _attempt(self, responses_per_s: float, tokens: int, workers: int) -> str | None:
        """Try a rate of responses in answers of ``tokens`` each; returns the reason why it was not held, or None."""
        load = f"{responses_per_s:,.0f} {'requests' if tokens == 1 else 'responses'}/s, {workers} worker{'s'[: workers > 1]}"
        try:
            result = self._try(rung_schedule(responses_per_s, tokens, self._effort.rung_s, self._subject.pace), workers)
        except (OverrunError, RunError) as error:
            self._report(f"{self._transport}, {load}: not held, {error}")
            return str(error)
        problem = reason_not_held(result)
        self._report(f"{self._transport}, {load}: {'held' if problem is None else 'not held'}, {_summary(result)}")
        if problem is None and workers == 1:
            self._best[tokens] = result  # held rates only rise
        return problem

    def _try(self, schedule: Schedule, workers: int) -> TrialResult:
        result = run_trial(self._subject, schedule, workers)
        if result.interrupted:
            raise KeyboardInterrupt
        return result

    def _cpu_us(self) -> tuple[float | None, float | None]:
        """CPU time of a request with one token, and of each further token of a long answer."""
        short, long = self._best.get(1), self._best.get(self._effort.long_answer_tokens)
        per_request = None if short is None else short.cpu_s / short.requests
        if long is None or per_request is None:
            return _us(per_request), None
        return _us(per_request), _us(max(0.0, long.cpu_s - long.requests * per_request) / (long.responses - long.requests))


def reason_not_held(result: TrialResult) -> str | None:
    """The limit that a load exceeded, with the numbers; None where the client held it."""
    slip_ms = nearest_rank(result.slip_ms, 0.99) if result.slip_ms.size else 0.0
    problem = None
    if result.failed:
        problem = f"{result.failed:,} requests failed"
    elif slip_ms > HELD_SLIP_MS:
        problem = f"schedule slip p99 {slip_ms:.2f} ms"
    for name, errors_ms in (("TTFT", result.errors.ttft_ms), ("inter-chunk latency", result.errors.icl_ms)):
        errors = spread(errors_ms)
        if problem is None and errors is not None and errors.size_p99_ms > HELD_ERROR_MS:
            problem = f"{name} error p99 {errors.size_p99_ms:.2f} ms"
    late_ms = nearest_rank(result.server_late_ms, 0.99) if result.server_late_ms.size else 0.0
    if problem is not None and late_ms > HELD_SLIP_MS:
        problem += f" (the null server itself was {late_ms:.2f} ms late)"
    return problem


def _summary(result: TrialResult) -> str:
    slip_ms = nearest_rank(result.slip_ms, 0.99) if result.slip_ms.size else float("nan")
    parts = [f"slip p99 {slip_ms:.2f} ms"]
    for name, errors_ms in (("TTFT", result.errors.ttft_ms), ("ICL", result.errors.icl_ms)):
        errors = spread(errors_ms)
        if errors is not None:
            parts.append(f"{name} error mean {errors.mean_ms:.2f}, p99 {errors.size_p99_ms:.2f} ms")
    return ", ".join(parts)


def _known(errors: Spread | None) -> Spread:
    assert errors is not None  # no request failed, and each had several tokens
    return errors


def _us(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e6

"""What is said about a phase: where its time is measured, what the percentile without it assumes, and what shortens it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from bench_records.record import Outcome
from reports.metrics.metric import Metric
from reports.metrics.phase_shares import PercentileParts, PhaseShare, RequestParts
from reports.metrics.request_phases import Phase
from reports.metrics.requests import Requests
from reports.render.counts import counted
from reports.render.tables import three_digits
from reports.run_report import RunReport
from reports.statistics.estimate import Cause, Reason
from reports.statistics.percentiles import percentile_key, required_samples
from reports.why.answer import PartsDifference
from reports.why.step_log import LoggedRun

LEAST_SHARE = 0.005  # that the answer names
_LEAST_CHANGE = 0.01  # of all changes, that the answer of two runs names
LEAST_SHOWN_MS = 0.05
_LONG_WAIT_MS = 50.0
_BEFORE_THE_ENGINE_ANSWERS = (Phase.CEILING, Phase.SEND, Phase.ROUTER, Phase.FRONT_END, Phase.QUEUE, Phase.PREFILL)
_LEAST_CHANGE_MS = 0.005  # that two decimals show
_WITHOUT = {Outcome.DONE.value: "its answer has no token", Outcome.NOT_SENT.value: "it was not sent"}


@dataclass(frozen=True, slots=True)
class PhaseWords:
    """``source`` is whose clock measures the phase. ``assumes`` goes with the percentile without it, ``remedy`` with a large
    share of it; both are sentences.
    """

    source: str
    assumes: str
    remedy: str


_ALONE = "This takes away the phase's own time alone"
_ON_VLLM = "start it with --enable-per-request-metrics, and measure with --server_timings"
WORDS: Mapping[Phase, PhaseWords] = MappingProxyType(
    {
        Phase.SLIP: PhaseWords(
            "client",
            f"{_ALONE}: requests sent on time would meet others at the server.",
            "The client sent late. Give it more processes (--workers) or a machine of its own; bench calibrate finds what it "
            "can send.",
        ),
        Phase.CEILING: PhaseWords(
            "client",
            f"{_ALONE}: without the ceiling more requests would be at the server at once.",
            "Requests waited at --max_concurrency. Raise it, or lower the rate: bench capacity finds the load that the target "
            "holds.",
        ),
        Phase.CONNECT: PhaseWords(
            "client",
            f"{_ALONE}: over connections that are open requests would reach the server in another order.",
            "Requests waited for connections: the server or a proxy closed earlier ones, more requests were in flight than "
            "ever before, or over gRPC the server allowed no more requests on a connection. Over HTTP let idle connections "
            "live longer, or use gRPC, where requests share them; over gRPC open more (--connections).",
        ),
        Phase.SEND: PhaseWords(
            "client",
            f"{_ALONE}: requests that reach the server earlier may wait there instead.",
            "The kernel took the requests slowly, since the server, a router or the network did. Send shorter prompts or token "
            "ids, give the front end more processes, or place the client nearer.",
        ),
        Phase.ROUTER: PhaseWords(
            "router, client",
            f"{_ALONE}: requests that reach the server earlier may wait there instead.",
            "Requests spent their time in the router, or on the network to it. Give it more processes or cores, let it keep "
            "connections to the servers open, or place the client nearer; a run against a server without it shows its cost.",
        ),
        Phase.FIRST_BYTE: PhaseWords(
            "client",
            f"{_ALONE}: requests that the server begins to answer earlier may wait later instead.",
            "The head of the answer came late. A server that sends it with the first token, as Triton does, has queue and "
            "prefill in this time; one that sends it at once, as vLLM does, has network and front end alone. The server's own "
            "times of each request divide it; without them, treat it as a queue: lower the rate, or add a replica.",
        ),
        Phase.FRONT_END: PhaseWords(
            "client, server",
            f"{_ALONE}: requests that reach the engine earlier may wait in its queue instead.",
            "Before the engine come network, HTTP or gRPC, tokenizing and Triton's queue. Give the front end more processes or "
            "instances (vLLM: --api-server-count; Triton: instances of preprocessing), or send token ids to the core model.",
        ),
        Phase.QUEUE: PhaseWords(
            "server",
            "This takes away the waiting alone, not its effect on batching: in larger batches prefill and decode take longer.",
            "Requests waited for a place in the batch. Allow more sequences at once (vLLM: --max-num-seqs; bench serve: "
            "--max_num_sequences) if the KV cache has room, lower the rate, or add a replica; bench capacity finds the load "
            "that the target holds.",
        ),
        Phase.PREFILL: PhaseWords(
            "server",
            f"{_ALONE}: requests after a shorter prefill would also wait less.",
            "The prompts took long to process. Try another number of tokens a step (vLLM: --max-num-batched-tokens; bench "
            "serve: --max_num_tokens), prefix caching where prompts share a beginning, or shorter prompts.",
        ),
        Phase.DECODE: PhaseWords(
            "server",
            f"{_ALONE}: requests that end earlier would also make room for others.",
            "Generating took long. Ask for fewer tokens, or let fewer sequences share a step (vLLM: --max-num-seqs; bench "
            "serve: --max_num_sequences), which lengthens the queue.",
        ),
        Phase.DECODE_BESIDE_PREFILL: PhaseWords(
            "step log",
            "This takes away whole steps: without the prompts of others they would have been shorter, not gone.",
            "Tokens came late because steps also processed the prompts of other requests. Let a step take fewer tokens of a "
            "prompt (bench serve: --max_num_tokens, with --enable_chunked_context; vLLM: --max-num-batched-tokens), which "
            "lengthens the prefill; use prefix caching where prompts share a beginning; or run prefill and decode on separate "
            "replicas.",
        ),
        Phase.STREAM: PhaseWords(
            "client",
            f"{_ALONE}: requests that end earlier would also make room for others.",
            "The time from the first token to the last is decoding and sending together. Ask for fewer tokens, or let fewer "
            "sequences share a step; the server's own times would part the two (--server_timings).",
        ),
        Phase.RETURN: PhaseWords(
            "server, client",
            f"{_ALONE}: the engine would do the same work.",
            "Between the engine's token and the client come detokenizing, sending and the network. Give the front end more "
            "processes or instances, or stream fewer responses.",
        ),
        Phase.UNATTRIBUTED: PhaseWords("none", f"{_ALONE}, whatever it consists of.", ""),
    }
)


def percentile_name(q: float) -> str:
    """ "p99" for 0.99, "p99.9" for 0.999."""
    return percentile_key(q).replace("_", ".")


def answer(metric: Metric, parts: PercentileParts) -> str:
    """The percentile and the shares of its phases, the largest first and what is unattributed last."""
    name = f"{percentile_name(parts.q)} {metric.label}"
    if parts.percentile.lower_bound is not None:
        return (
            f"{name} is at least {three_digits(parts.percentile.lower_bound)} ms; requests that were cut off leave it "
            "open. A lower --percentile may be known."
        )
    if parts.value_ms is None:
        return (
            f"{name} falls among requests that failed or were cut off, of which no whole latency is known; a lower "
            "--percentile may have one."
        )
    shares = shares_text(parts)
    return f"{name} {three_digits(parts.value_ms)} ms{f': {shares}' if shares else ''}."


def shares_text(parts: PercentileParts) -> str:
    """The shares of the phases, the largest first and what is unattributed last."""
    return ", ".join(f"{100.0 * (share.share.value or 0.0):.0f} % {share.phase.value}" for share in _ranked(parts.shares))


def phases_text(request: RequestParts) -> str:
    """The phases of one request, without those of less than 0.05 ms; what is unattributed comes last, wherever it passed."""
    passed = [f"{three_digits(ms)} {phase.value}" for phase, ms in request.phases_ms.items() if ms >= LEAST_SHOWN_MS]
    if request.contradiction_ms:
        passed.append(f"{three_digits(request.contradiction_ms)} contradiction")
    return ", ".join(passed)


def without_latency(metric: Metric, number: int, requests: Requests) -> str:
    """That the request of this number in the schedule, one of ``requests``, has no such latency, and why."""
    outcome = str(requests.outcome[requests.index == number][0])
    return f"Request {number} has no {metric.label}: {_WITHOUT.get(outcome, 'it failed or was cut off')}."


def without_largest(metric: Metric, parts: PercentileParts) -> str:
    """The percentile without the largest phase, and what that assumes; "" where there is neither."""
    largest = parts.largest
    if largest is None or largest.without_ms is None or parts.value_ms is None:
        return ""
    words = WORDS[largest.phase]
    limits = largest.without.limits_text(three_digits) if largest.without.interval is not None else ""
    interval = f" (95 % interval {limits})" if limits else ""
    return f"Without the {largest.phase.value} it would be {three_digits(largest.without_ms)} ms{interval}. {words.assumes}"


def remedy(parts: PercentileParts) -> str:
    """What shortens the phase with the largest share; "" where that is unattributed."""
    return "" if parts.largest is None or parts.value_ms is None else WORDS[parts.largest.phase].remedy


def remarks(run: RunReport, parts: PercentileParts) -> tuple[str, ...]:
    """What the parts cannot show, and how to get it."""
    if not parts.around:
        return tuple(
            filter(
                None, (f"No whole latency of the {counted(parts.left_out, 'request')} around it is known.", _unsupported(parts))
            )
        )
    return tuple(
        filter(
            None,
            (
                _around(parts),
                _after_a_wait(parts),
                _unsupported(parts),
                _untimed(run, parts),
                _unstamped(parts),
                _contradicted(parts),
            ),
        )
    )


STEP_COLUMNS = (
    "Sequences and waiting are mean numbers of requests. Alone: steps with decode and no prompt. Beside: steps with prompts, "
    "while a request of the run was in decode, and what the prompts added to these. KV blocks: the most in use."
)


def steps_text(logged: LoggedRun) -> str:
    """What the engine's steps say of decode beside prefill, and of how many requests they divide it."""
    if logged.divided < logged.timed:
        divided = (
            f"The decode is not divided: the step log knows the steps of {logged.divided:,} of the {logged.timed:,} requests "
            "that the server timed, and shares of all of them would be wrong."
        )
    else:
        divided = "The step log divides the decode of each request that the server timed."
    [whole] = logged.facts()
    of_known = "" if whole.known == whole.steps else f" The contents of {whole.known:,} of them are known."
    lead = f"{divided} {counted(whole.steps, 'step')} had a request of the run.{of_known}"
    if not whole.beside or whole.beside_ms is None:
        return lead if not whole.known else f"{lead} None with prompts delayed a sequence in decode."
    lead = (
        f"{lead} While a request was in decode, {counted(whole.beside, 'step')} processed prompts, and took "
        f"{three_digits(whole.beside_ms)} ms on average."
    )
    if whole.added_ms is None:
        return f"{lead} What the prompts added is unknown: no steps without prompts had as many sequences."
    compared = "" if whole.compared == whole.beside else f" (in the {whole.compared:,} that can be compared)"
    return (
        f"{lead} That is {three_digits(whole.added_ms)} ms more than steps of about as many sequences took without "
        f"prompts{compared}: what the prompts added. The rest is the decode itself."
    )


def missing_intervals(parts: PercentileParts) -> Reason | None:
    """Why no share has an interval; None where one has."""
    if any(share.share.interval is not None for share in parts.shares):
        return None
    return next((share.share.reason for share in parts.shares if share.share.reason is not None), Cause.NO_VALUE)


def change(difference: PartsDifference) -> str:
    """The percentile of both runs, and which phases the change consists of, the largest first."""
    a, b = difference.a, difference.b
    name = f"{percentile_name(a.q)} {difference.metric.label}"
    if a.value_ms is None or b.value_ms is None:
        return f"{name} falls among requests that failed or were cut off in one of the runs; a lower --percentile may not."
    mean_ms = difference.mean_ms
    lead = f"{name} {_signed(b.value_ms - a.value_ms)} ms ({three_digits(a.value_ms)} to {three_digits(b.value_ms)} ms)."
    changes = [
        (phase.difference.value, phase.phase)
        for phase in difference.phases
        if phase.difference is not None and phase.difference.value is not None
    ]
    total = sum(abs(value) for value, _ in changes)
    named = [(value, phase) for value, phase in changes if abs(value) >= max(_LEAST_CHANGE * total, _LEAST_CHANGE_MS)]
    named.sort(key=lambda pair: -abs(pair[0]))
    parts = ", ".join(f"{_signed(value)} {phase.value}" for value, phase in named)
    around = f"The requests around it took {_signed(mean_ms)} ms on the mean"
    return f"{lead} {around}{f': {parts}' if parts else ''}."


def unlike_sources(difference: PartsDifference) -> str:
    """That the runs have sources of different phases; "" where they do not."""
    if difference.same_sources:
        return ""
    return (
        "Only one of the runs has a source of some phases: what is unattributed in one is attributed in the other, so compare "
        "the sums alone, or measure both with --server_timings."
    )


def without_intervals(difference: PartsDifference) -> str:
    """Why no difference has an interval; "" where one has."""
    known = [phase.difference for phase in difference.phases if phase.difference is not None]
    if any(found.interval is not None for found in (*known, difference.percentile)):
        return ""
    reason = next((found.reason for found in (*known, difference.percentile) if found.reason is not None), Cause.NO_VALUE)
    return f"The differences have no intervals: {reason}."


def _ranked(shares: Iterable[PhaseShare]) -> list[PhaseShare]:
    named = [share for share in shares if (share.share.value or 0.0) >= LEAST_SHARE]
    return sorted(named, key=lambda share: (share.phase is Phase.UNATTRIBUTED, -(share.share.value or 0.0)))


def _around(parts: PercentileParts) -> str:
    others = counted(parts.left_out, "other of them", "others of them")
    left_out = f"; {others} failed or were cut off" if parts.left_out else ""
    return (
        f"Times are means of the {parts.around:,} of {counted(parts.n, 'request')} ranked around {percentile_name(parts.q)}"
        f"{left_out}. "
        f"The percentile without a phase is that of all requests.{_no_intervals(parts)}"
    )


def _after_a_wait(parts: PercentileParts) -> str:
    """That what follows a wait is slower where client and server share a host (``benchmarks/injected_delays.py``); "" where
    none is long.
    """
    largest = parts.largest
    if parts.clock_error_ms != 0.0 or largest is None or largest.phase not in _BEFORE_THE_ENGINE_ANSWERS:
        return ""
    if (largest.mean_ms.value or 0.0) < _LONG_WAIT_MS:
        return ""
    return (
        f"Client and server share a host: after a long {largest.phase.value} the next phases take some ms longer, as processes "
        "slept and caches are cold. The percentile without it still has these ms."
    )


def _no_intervals(parts: PercentileParts) -> str:
    reason = missing_intervals(parts)
    return "" if reason is None else f" The shares have no intervals: {reason}."


def _unsupported(parts: PercentileParts) -> str:
    needed = required_samples(parts.q)
    if parts.n >= needed:
        return ""
    return f"{percentile_name(parts.q)} is not yet supported: {counted(parts.n, 'request')}, {needed:,} needed."


def _untimed(run: RunReport, parts: PercentileParts) -> str:
    if parts.timed == 0:
        rest = _undivided(parts)
        sourced = [share for share in parts.shares if share.phase in (Phase.QUEUE, Phase.PREFILL, Phase.DECODE)]
        known = [share.phase.value for share in sourced if share.mean_ms.value]
        if not sourced or known == [Phase.DECODE.value]:
            alone = _decode_alone(run, rest)
            if alone:
                return alone
        if known:
            return (
                f"The server returned nothing but the {' and the '.join(known)} of these requests: what else passed before "
                f"their first token is {rest}."
            )
        if sourced:
            return (
                f"The server timed none of these {parts.around:,} requests: what passed between their send and their first "
                f"token is {rest}."
            )
        before = f"no times of single requests: what passed between the send and the first token is {rest}."
        if run.manifest.simulation is not None:
            return f"A simulated server returns {before}"
        return f"The server returned {before} {_how_to_time(run)}{_through_a_router(parts)}{_means(run)}"
    if parts.timed < parts.around:
        return f"The server timed {parts.timed:,} of these {parts.around:,} requests; of the others its part is unattributed."
    return ""


def _decode_alone(run: RunReport, rest: str) -> str:
    """That the server says nothing of what came before its decode, of which TTFT has no phase; "" where it gave no decode."""
    requests = run.requests
    if np.isnan(requests.server_decode_ns).all() or not np.isnan(requests.server_queue_ns + requests.server_prefill_ns).all():
        return ""
    return (
        "The server returned nothing but the decode of its requests, as Dynamo does where it notes no start of the prefill: "
        f"what passed before their first token, on one worker or on two, is {rest}."
    )


def _undivided(parts: PercentileParts) -> str:
    """What the time between the send and the first token is, of requests of which the server said little."""
    waits = parts.by_phase.get(Phase.FIRST_BYTE)
    if waits is None or not waits.mean_ms.value:
        return "unattributed"
    return "the wait for the first byte, undivided, and from there on unattributed"


def _unstamped(parts: PercentileParts) -> str:
    """What the server's clock leaves open, where it timed a request."""
    if parts.timed == 0:
        return ""
    if Phase.FRONT_END not in parts.by_phase:
        return (
            "The server returned durations, or its clock is not the client's: front end, network and the way back are "
            "unattributed."
        )
    if parts.clock_error_ms:
        return (
            "As far as the order of events, or the clocks of the workers, show, the server's stamps are right to ± "
            f"{three_digits(parts.clock_error_ms)} ms, and so are front end and return; the sum of both is exact."
        )
    return ""


def _how_to_time(run: RunReport) -> str:
    match run.target.protocol:
        case "openai" | "openai_completions":
            return f"bench serve returns them: measure with --server_timings. vLLM does, too: {_ON_VLLM}."
        case "openai_responses":
            return f"vLLM returns them: {_ON_VLLM}."
        case "vllm_tokens":
            return (
                "vLLM returns none over vllm_tokens, but over -i openai_completions, which sends the same token ids: "
                f"{_ON_VLLM}."
            )
        case _:
            return "Measure with --server_timings to get them."


def _through_a_router(parts: PercentileParts) -> str:
    if Phase.ROUTER not in parts.by_phase:
        return ""
    return " A router that writes answers anew, as LiteLLM does, leaves them out: measure a server at its own address."


def _means(run: RunReport) -> str:
    times = None if run.server is None else run.server.times
    if times is None:
        return ""
    means = ((times.queue_ms, "queue"), (times.prefill_ms, "prefill"), (times.decode_ms, "decode"))
    known = ", ".join(f"{three_digits(mean_ms)} ms of {name}" for mean_ms, name in means if mean_ms is not None)
    return f" The engine's means over all requests are {known}; what these requests had of it is unknown." if known else ""


def _contradicted(parts: PercentileParts) -> str:
    if not parts.contradicted:
        return ""
    return (
        f"Sources contradict each other in {parts.contradicted:,} of these requests: by the server their phases took longer "
        f"than the client waited. The phases add up to {three_digits(-parts.contradiction_ms)} ms more than the mean latency."
    )


def _signed(value: float) -> str:
    return f"{'+' if value >= 0 else '-'}{three_digits(abs(value))}"

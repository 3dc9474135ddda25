"""Findings from the engine's own view: time in the front end, preempted requests, and clocks of GPUs that were held down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from reports.findings.finding import Finding, RunFacts, Severity
from reports.findings.target import MAY_DELAY, delayed_by
from reports.metrics.gpu_use import ClockLimit
from reports.render.counts import counted
from reports.render.tables import three_digits

_FRONT_END_SHARE = 0.1
_FRONT_END_FLOOR_MS = 10.0
_LIMITED_SHARE = 0.01


@dataclass(frozen=True)
class FrontEndTime(Finding):
    """Means of the same requests by the server's own clocks: E2E latency, and queue, prefill and decode in its engine.

    ``beside`` is the code of another finding of the run that may explain it; None without one.
    """

    front_end_ms: float
    share: float
    e2e_ms: float
    engine_ms: float
    beside: str | None = None

    code = "server_front_end"
    severities = (Severity.NOTE,)
    when = (
        f"more than {_FRONT_END_SHARE:.0%} and {_FRONT_END_FLOOR_MS:g} ms of the mean E2E latency, by the server's metrics, "
        "are neither in its engine's queue nor in prefill nor in decode"
    )
    advices = (
        "The front end receives, tokenizes, detokenizes and sends; its answers come late while the engine has gone on. More "
        "front-end processes (api_server_count of vLLM), or more cores for them, can shorten this; a faster GPU cannot.",
        "The target stopped for a time, and its front end with it: see target_paused, and measure again.",
        "Other programs took CPU time from the server's front end: see machine_shared, and measure again.",
    )
    briefs = (
        "Time in the server's front end: more front-end processes can help",
        "Time in the server's front end: the target stopped, measure again",
        "Time in the server's front end: others used the machine",
    )

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        times = None if facts.final_metrics is None else facts.final_metrics.times
        if times is None or not times.e2e_ms or times.engine_ms is None or times.front_end_ms is None:
            return None
        share = times.front_end_ms / times.e2e_ms
        if share <= _FRONT_END_SHARE or times.front_end_ms <= _FRONT_END_FLOOR_MS:
            return None
        return cls(times.front_end_ms, share, times.e2e_ms, times.engine_ms, delayed_by(facts))

    @property
    def advice(self) -> str:
        codes = [None, *(kind.code for kind in MAY_DELAY)]
        return self.advices[codes.index(self.beside)]

    def _sentence(self) -> str:
        return (
            f"{self.front_end_ms:,.0f} of {self.e2e_ms:,.0f} ms ({self.share:.0%}) of the server's own mean E2E latency passed "
            f"in its front end; the engine, with its queue, took {self.engine_ms:,.0f} ms."
        )


@dataclass(frozen=True)
class RequestsPreempted(Finding):
    """``preemptions`` during the run, by the engine's counter; one request can be preempted more than once."""

    preemptions: int
    requests: int

    code = "requests_preempted"
    severities = (Severity.NOTE,)
    when = "the engine took the KV cache of running requests for others"
    advices = (
        "The KV cache was full, and the tokens of these requests were computed again. A larger KV cache "
        "(gpu_memory_utilization of vLLM) or fewer requests at once (max_num_seqs) avoids it.",
    )
    briefs = ("Requests were preempted: a larger KV cache or fewer at once",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        preemptions = None if facts.server is None else facts.server.preemptions
        return cls(round(preemptions), facts.sent_requests.done.size) if preemptions else None

    def _sentence(self) -> str:
        times, requests = counted(self.preemptions, "time"), counted(self.requests, "request")
        return f"The engine preempted running requests {times}, in a run of {requests}."


@dataclass(frozen=True)
class GpuClocksLimited(Finding):
    """The longest limit of a GPU's clocks: its ``reason``, for how long, and the lowest SM clock meanwhile, None is unknown."""

    reason: str
    seconds: float
    lowest_mhz: float | None
    gpus: int

    code = "gpu_clocks_limited"
    severities = (Severity.NOTE,)
    when = f"power or heat held the clocks of a GPU of the target down for at least {_LIMITED_SHARE:.0%} of the run"
    advices = (
        "The GPU is at its power cap or too hot, so it is slower than at its full clocks. Compare only with runs under the "
        "same limit, and on a GPU that is as warm.",
    )
    briefs = ("The GPU's clocks were held down: compare runs under the same limit",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        gpus = () if facts.gpus is None else facts.gpus.gpus
        limits = [max(gpu.limits, key=_seconds) for gpu in gpus if gpu.limits]
        window_s = facts.metrics.window_s
        if not limits or not window_s:
            return None
        longest = max(limits, key=_seconds)
        if longest.seconds < _LIMITED_SHARE * window_s:
            return None
        return cls(longest.reason, longest.seconds, longest.lowest_mhz, len(limits))

    def _sentence(self) -> str:
        fell = "clocks were held down" if self.lowest_mhz is None else f"clocks fell to {self.lowest_mhz:,.0f} MHz"
        on = "" if self.gpus == 1 else f", on {self.gpus} GPUs"
        return f"{self.reason[:1].upper()}{self.reason[1:]}: {fell}, for {three_digits(self.seconds)} s{on}."


def _seconds(limit: ClockLimit) -> float:
    return limit.seconds

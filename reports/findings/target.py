"""Findings about the target: whether it stopped for a time, and whether it had its machine to itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from reports.findings.finding import Finding, RunFacts, Severity
from reports.metrics.machine_use import machine_use
from reports.metrics.silences import FEWEST_IN_FLIGHT, FLOOR_S, RATIO, find_pause
from reports.render.counts import counted

_OTHERS_SHARE = 0.10  # of the machine; what an idle system does by itself is below a few hundredths
_CLIENT_STOPPED = 0.5  # of a pause: a client that woke so late was stopped, too


@dataclass(frozen=True)
class TargetPaused(Finding):
    """The longest of ``pauses``. ``client_lag_max_ms`` is for how much of it an event loop of the client woke late, None is
    unknown.
    """

    at_s: float
    length_s: float
    in_flight: int
    usual_s: float
    pauses: int
    client_lag_max_ms: float | None

    code = "target_paused"
    severities = (Severity.WARNING,)
    when = (
        f"in a streamed run with {FEWEST_IN_FLIGHT} or more requests in flight, no stream had a token for at least {FLOOR_S:g} "
        f"s, {RATIO:g} times as long as other such silences, and neither longer prompts than at other times nor a cancelled "
        "answer that the target generated to its end before the next one explain it"
    )
    advices = (
        "The target, its machine or the network stopped for that time; requests in flight then took longer. "
        "Look for the reason in the target's log and on its machine, and measure again.",
        "The client was stopped as well, so look for a pause of the whole machine, as of a virtual machine; and measure again.",
    )
    briefs = (
        "All streams stopped at once: see the target's log, measure again",
        "Client and streams stopped: look for a pause of the machine",
    )

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        pause = find_pause(facts.sent_requests) if facts.metrics.streamed else None
        if pause is None:
            return None
        begin_ns, end_ns = pause.at_s * 1e9, (pause.at_s + pause.length_s) * 1e9
        delay_ms = None if facts.wake_ups is None else facts.wake_ups.longest_delay_ms(begin_ns, end_ns)
        return cls(pause.at_s, pause.length_s, pause.in_flight, pause.usual_s, pause.pauses, delay_ms)

    @property
    def advice(self) -> str:
        stopped = (self.client_lag_max_ms or 0.0) / 1e3 >= _CLIENT_STOPPED * self.length_s
        return self.advices[1 if stopped else 0]

    def _sentence(self) -> str:
        requests = counted(self.in_flight, "request was", "requests were")
        others = f" It is the longest of {self.pauses} such pauses." if self.pauses > 1 else ""
        return (
            f"No stream had a token for {self.length_s:.2f} s from {self.at_s:.2f} s on, at the end of which "
            f"{requests} in flight; at other times the longest silence was {self.usual_s:.3f} s.{others}"
        )


@dataclass(frozen=True)
class MachineShared(Finding):
    """CPU time of a run in cores of the machine that has client and target."""

    others_cores: float
    others_share: float
    client_cores: float
    target_cores: float
    cores: int

    code = "machine_shared"
    severities = (Severity.WARNING,)
    when = (
        f"the target is on this machine, and other processes than the target's and the client's used at least "
        f"{_OTHERS_SHARE:.0%} of its CPU during the run. Not checked if the target's processes are unknown (another "
        "user's, or reached through a forwarder of ports), and in distributed runs"
    )
    advices = (
        "Other programs took CPU time from the target, so its latencies depend on them, and the next run may differ "
        "severalfold. Stop them, or measure on a machine that is free.",
    )
    briefs = ("Other programs used the target's machine: stop them, measure again",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        use = machine_use(facts.manifest)
        if use is None or use.others_share < _OTHERS_SHARE:
            return None
        return cls(use.others_cores, use.others_share, use.client_cores, use.target_cores, use.cores)

    def _sentence(self) -> str:
        return (
            f"Other programs used {self.others_cores:.2f} of the {self.cores:,} cores of the machine on average "
            f"({self.others_share:.0%} of its CPU time), the target {self.target_cores:.2f} and the client "
            f"{self.client_cores:.2f}."
        )


MAY_DELAY: tuple[type[Finding], ...] = (TargetPaused, MachineShared)  # what delays a front end without a fault of its own


def delayed_by(facts: RunFacts) -> str | None:
    """The code of the first finding of ``MAY_DELAY`` that the run has; None without one."""
    return next((kind.code for kind in MAY_DELAY if kind.check(facts) is not None), None)

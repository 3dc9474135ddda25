"""Findings from the server's own numbers: whether they and the client's are about the same requests, and its cache."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from bench_records.manifest import OneTarget, RepeatedPrefix
from bench_records.record import TIMEOUTS, Outcome
from reports.findings.finding import Finding, RunFacts, Severity
from reports.findings.target import MAY_DELAY, delayed_by
from reports.metrics.model_statistics import counted_by, counted_requests, failed_by, failed_requests
from reports.metrics.phases import ENGINE_E2E, ENGINE_TTFT
from reports.metrics.requests import Requests
from reports.metrics.target_numbers import TargetNumbers
from reports.render.counts import counted, percent

_TOKENS_TOLERANCE = 0.01  # a server may count end tokens, or what a stop word cuts off
_PHASES_TOLERANCE = 0.05
_PHASES_FLOOR_MS = 1.0
_OUTSIDE_SHARE = 0.1
_OUTSIDE_FLOOR_MS = 10.0
_SPANS = {ENGINE_TTFT: "TTFT", ENGINE_E2E: "E2E"}  # the names in a sentence
_TRITON = ("grpc", "http", "http_infer")  # protocols
_ENDED_BY_CLIENT = [outcome.value for outcome in (*TIMEOUTS, Outcome.CANCELLED, Outcome.WITHDRAWN)]
_REUSE_NOTE = 0.01
_FILES = ("dataset", "trace")  # in the manifest of runs that send what a file has
_REUSE_WARNING = 0.25

_OTHER_CLIENTS = (
    "Other clients sent requests to this server during the run: the numbers do not cover this load alone; measure without "
    "those clients."
)
_FEWER_REQUESTS = "The server restarted during the run, or does not count all that it answers; see its log."
_OTHER_METRICS = "The metrics may belong to another server: check --metrics_url."
_MORE_TOKENS = (
    "Tokens were generated that did not arrive. Possible reasons: other clients, tokens after a stop word, draft tokens."
)
_FEWER_TOKENS = "The server counts fewer tokens than it sent; do not rely on tokens/s before you know the cause."


@dataclass(frozen=True)
class CountersDisagree(Finding):
    """Each kind of counter is a subclass."""

    counter: str = field(init=False)

    code = "counters_disagree"
    severities = (Severity.WARNING,)
    when = (
        "the server counted more or fewer requests than the client, or its metrics than its statistics, or more or fewer "
        f"output tokens than the client (by more than {_TOKENS_TOLERANCE:.0%}). Metrics are used only if they were read after "
        "the last answer, which those of a server that died were not"
    )
    advices = (_OTHER_CLIENTS, _FEWER_REQUESTS, _OTHER_METRICS, _MORE_TOKENS, _FEWER_TOKENS)
    briefs = (
        "Other clients used the server: measure without them",
        "The server's counters disagree: see its log",
        "The metrics may belong to another server: check --metrics_url",
        "Tokens were made that did not arrive: see the report",
        "The server counts fewer tokens than it sent: see the report",
    )

    @classmethod
    def check(cls, facts: RunFacts) -> CountersDisagree | None:
        """Requests first: where they disagree, the other counters must disagree, too."""
        return RequestsDisagree.check(facts) or MetricsDisagree.check(facts) or TokensDisagree.check(facts)


@dataclass(frozen=True)
class RequestsDisagree(CountersDisagree):
    """Requests that the server counted, against the client's that must have reached it and those that may have.

    ``server`` is what its count grew by; below 0 where it fell, as of a server that began anew.
    """

    counter: str = field(default="requests", init=False)
    ours_least: int
    ours_most: int
    server: float
    target: str | None = None  # the address of the one that disagrees, of several

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        """Each of several targets first: differences of two may cancel each other."""
        targets = zip(facts.targets, facts.manifest.targets or (), strict=True)
        return next(filter(None, (cls._of_target(facts, *target) for target in targets)), cls._of_all(facts))

    @classmethod
    def _of_target(cls, facts: RunFacts, numbers: TargetNumbers, target: OneTarget) -> Self | None:
        counted, requests = numbers.counted.requests, facts.sent_requests
        if counted is None:  # or it fell
            counted = counted_by(target.server_statistics, facts.target.model)
        if counted is None:
            return None
        own = requests.only(requests.target == numbers.number)
        least, most = _requests_at_server(own, failed_by(target.server_statistics, facts.target.model))
        most += int((np.isnan(requests.target) & (requests.outcome == Outcome.LOST.value)).sum())
        return None if _agrees(facts, least, most, counted) else cls(least, most, counted, numbers.address)

    @classmethod
    def _of_all(cls, facts: RunFacts) -> Self | None:
        counted: float | None = counted_requests(facts.manifest, facts.target.model)
        if counted is None and facts.final_metrics is not None:
            counted = facts.final_metrics.finished_requests
        if counted is None:
            return None
        least, most = _requests_at_server(facts.sent_requests, failed_requests(facts.manifest, facts.target.model))
        return None if _agrees(facts, least, most, counted) else cls(least, most, counted)

    @property
    def advice(self) -> str:
        return _OTHER_CLIENTS if self.server > self.ours_most else _FEWER_REQUESTS

    def _sentence(self) -> str:
        ours = f"{self.ours_least:,}"
        if self.ours_least != self.ours_most:
            ours += f" to {self.ours_most:,}"
        at = "" if self.target is None else f" at {self.target}"
        if self.server < 0:
            return f"The count of requests of the server{at} fell by {-self.server:,.0f}; {ours} of this run reached it."
        return f"The server{at} counted {counted(self.server, 'request')}; {ours} of this run reached it."


def _agrees(facts: RunFacts, least: int, most: int, counted: float) -> bool:
    """Whether the server's count may be that of this run alone. A lost worker's users may have sent more requests than the
    last of each, of which there is a record.
    """
    return least <= counted and (counted <= most or (facts.load.closed and bool(facts.requests.lost.any())))


def _requests_at_server(requests: Requests, failed: int) -> tuple[int, int]:
    """How many requests must have reached the server, and how many may have, each as often as it may be counted: a failure that
    the client ended may be counted twice, of the ``failed`` ones that the server counts.
    """
    may = ~np.isnan(requests.sent_ns) & (requests.outcome != Outcome.CONNECT.value)
    may |= requests.outcome == Outcome.LOST.value
    ended_by_client = int(np.isin(requests.outcome, _ENDED_BY_CLIENT).sum())
    twice = min(ended_by_client, failed // 2)
    return int(requests.done.sum()), int(may.sum()) + twice


@dataclass(frozen=True)
class MetricsDisagree(CountersDisagree):
    """Requests in the metrics, against the statistics of the server: two accounts of one server agree."""

    counter: str = field(default="metrics", init=False)
    statistics: int
    metrics: float
    url: str | None

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        statistics = counted_requests(facts.manifest, facts.target.model)
        metrics = None if facts.final_metrics is None else facts.final_metrics.metrics_requests
        if statistics is None or metrics is None or metrics == statistics:
            return None
        return cls(statistics, metrics, None if facts.manifest.telemetry is None else facts.manifest.telemetry.url)

    @property
    def advice(self) -> str:
        return _OTHER_METRICS

    def _sentence(self) -> str:
        at = "" if self.url is None else f" at {self.url}"
        return f"The metrics{at} count {counted(self.metrics, 'request')}; the server's statistics {self.statistics:,}."


@dataclass(frozen=True)
class TokensDisagree(CountersDisagree):
    """Output tokens, where every request was answered in full and its tokens were counted from ids."""

    counter: str = field(default="tokens", init=False)
    ours: float
    server: float

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        requests = facts.sent_requests
        generated = None if facts.final_metrics is None else facts.final_metrics.generated_tokens
        ours = float(requests.output_tokens.sum())
        if generated is None or np.isnan(ours) or not requests.done.all() or requests.counted_from_text.any():
            return None
        return None if abs(generated - ours) <= _TOKENS_TOLERANCE * max(generated, ours) else cls(ours, generated)

    @property
    def advice(self) -> str:
        return _MORE_TOKENS if self.server > self.ours else _FEWER_TOKENS

    def _sentence(self) -> str:
        return f"The server counted {self.server:,.0f} output tokens; {self.ours:,.0f} arrived."


@dataclass(frozen=True)
class PhasesExceedLatency(Finding):
    phase: str
    server_ms: float
    client_ms: float

    code = "phases_exceed_latency"
    severities = (Severity.WARNING,)
    when = (
        f"the server reports a longer mean time for a part (by {_PHASES_TOLERANCE:.0%} and {_PHASES_FLOOR_MS:g} ms) than the "
        "client measured for the whole"
    )
    advices = (
        "A part cannot be longer than the whole: one of the two clocks or counts is wrong; find out which before you compare.",
    )
    briefs = ("A phase is longer than the whole: a clock is wrong; see the report",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        exceeding = [
            phase for phase in facts.phases if phase.server_ms > phase.whole_ms * (1 + _PHASES_TOLERANCE) + _PHASES_FLOOR_MS
        ]
        if not exceeding:
            return None
        worst = min(exceeding, key=lambda phase: phase.whole_ms - phase.server_ms)
        return cls(worst.name, worst.server_ms, worst.whole_ms)

    def _sentence(self) -> str:
        whole = f"where the client measured {self.client_ms:.2f} ms for the whole"
        return f"{self.phase}: {self.server_ms:.2f} ms on average, {whole}."


@dataclass(frozen=True)
class OutsideServerClock(Finding):
    """TTFT or E2E latency, means from the send: the one with the larger share outside of the server's own time.

    ``beside`` is the code of another finding of the run that may explain it; None without one. ``protocol`` is the run's.
    """

    span: str
    outside_ms: float
    share: float
    client_ms: float
    server_ms: float
    beside: str | None = None
    protocol: str | None = None

    code = "outside_server_clock"
    severities = (Severity.NOTE,)
    when = (
        f"more than {_OUTSIDE_SHARE:.0%} and {_OUTSIDE_FLOOR_MS:g} ms of the mean TTFT or E2E latency are not in the time that "
        "the server itself reports for it; only E2E latency counts where most answers come in one response"
    )
    advices = (
        "This is neither the engine's time nor the network's alone: connections wait to be accepted, and requests wait in "
        "the server's HTTP front end and tokenizer. More front-end processes can shorten it; a faster engine cannot.",
        "This is neither the engine's time nor the network's alone: requests wait in Triton's front end, and in the models "
        "before and after the engine. More instances of these models can shorten it; a faster engine cannot.",
        "The target stopped for a time, and what was sent then waited before the server's clock started: see target_paused, "
        "and measure again.",
        "Other programs took CPU time from the server's front end, too, which waits before the server's clock starts: see "
        "machine_shared, and measure again.",
    )
    briefs = (
        "Time outside the server's clock: more front-end processes can help",
        "Time outside the server's clock: more instances of models can help",
        "Time outside the server's clock: the target stopped, measure again",
        "Time outside the server's clock: others used the machine",
    )

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        spans = [
            cls(
                phase.name,
                phase.client_ms - phase.server_ms,
                1 - phase.server_ms / phase.client_ms,
                phase.client_ms,
                phase.server_ms,
            )
            for phase in facts.phases
            if phase.name in _SPANS and phase.client_ms  # which a part has not
        ]
        beyond = [span for span in spans if span.share > _OUTSIDE_SHARE and span.outside_ms > _OUTSIDE_FLOOR_MS]
        if not beyond:
            return None
        worst = max(beyond, key=lambda span: span.share)
        return replace(worst, beside=delayed_by(facts), protocol=facts.manifest.target.protocol)

    @property
    def advice(self) -> str:
        if self.beside is None:
            return self.advices[1 if self.protocol in _TRITON else 0]
        return self.advices[2 + [kind.code for kind in MAY_DELAY].index(self.beside)]

    def _sentence(self) -> str:
        return (
            f"Mean {_SPANS[self.span]} from the send is {self.client_ms:,.1f} ms, the server's own {self.server_ms:,.1f} ms: "
            f"{self.outside_ms:,.1f} ms ({self.share:.0%}) passed outside of the server's clock, most likely before it started."
        )


@dataclass(frozen=True)
class PrefixCacheWarmed(Finding):
    """The share of prompts that the server found in its cache; where it does not report it, the share that could be there.

    ``limit_share`` is what an infinite cache can reuse of prompts with requested shared prefixes; None for other prompts.
    ``repeated_share`` is the same in blocks of ours, ``most_share`` in blocks of any size; None where it was not computed.
    ``prompts_of_file``: the prompts are those of a dataset or trace, whatever the seed.
    """

    reused_share: float | None
    repeated_share: float | None
    unit: str | None
    limit_share: float | None = None
    most_share: float | None = None
    prompts_of_file: bool = False

    code = "prefix_cache_warmed"
    severities = (Severity.NOTE, Severity.WARNING)
    when = (
        f"at least {_REUSE_NOTE:.0%} of the prompts begin like earlier prompts of this run or of one before it; a warning "
        f"where the server found {_REUSE_WARNING:.0%} or more in its cache, and more than the requested shared prefixes"
    )
    advices = (
        "Prompts begin like earlier prompts of the run; compare only with runs of the same prompts.",
        "Prompts were in the cache before this run began; restart the server, or use another --seed or --reset_prefix_cache.",
        "Prompts of the file were in the cache before this run began; restart the server, or use --reset_prefix_cache.",
    )
    briefs = (
        "Prompts share prefixes: compare runs of the same prompts only",
        "Prompts were in the cache already: restart the server, or new --seed",
        "Prompts were in the cache already: restart the server",
    )

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        workload = facts.manifest.workload
        planned = workload.repeated_prefix or RepeatedPrefix()
        reuse = None if facts.server is None else facts.server.cache_reuse
        finding = cls(
            reused_share=None if reuse is None else reuse.share,
            repeated_share=planned.share,
            unit=planned.unit if reuse is None else reuse.unit,
            limit_share=workload.shared_prefix_limit,
            most_share=planned.most_share,
            prompts_of_file=not workload.parameters.keys().isdisjoint(_FILES) and not workload.parameters.get("synthetic"),
        )
        share = finding.repeated_share if finding.reused_share is None else finding.reused_share
        return None if share is None or share < _REUSE_NOTE else finding

    @property
    def severity(self) -> Severity:
        large = self.reused_share is not None and self.reused_share >= _REUSE_WARNING
        intended = self.limit_share is not None and not self._was_warm
        return Severity.WARNING if large and not intended else Severity.NOTE

    @property
    def advice(self) -> str:
        return self.advices[0 if not self._was_warm else 2 if self.prompts_of_file else 1]

    @property
    def _was_warm(self) -> bool:
        """Whether the server found more than the run itself can have left in its cache."""
        if self.reused_share is None or self.repeated_share is None:
            return False
        return self.reused_share > max(self.repeated_share, self.limit_share or 0.0, self.most_share or 0.0) + _REUSE_NOTE

    def _sentence(self) -> str:
        share = self.repeated_share
        repeated = "" if share is None else f" {percent(share)} of what was sent repeats an earlier prompt."
        if self.reused_share is None:
            return f"A prefix cache may have helped:{repeated}"
        return f"The server found {self.reused_share:.0%} of the prompts' {self.unit} in its prefix cache.{repeated}"

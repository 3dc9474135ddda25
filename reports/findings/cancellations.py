"""Findings about requests that the client cut off, as by a planned cancellation (--cancel)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np

from bench_records.record import Outcome
from reports.findings.finding import Finding, RunFacts, Severity
from reports.metrics.metric import Anchored
from reports.metrics.run_metrics import Metrics
from reports.render.counts import counted, percent
from reports.statistics.arrays import known

_GENERATED_ON = 0.5
_NOTICED_WITHIN_MS = 250.0  # servers look for cancellations only so often, the embedded pipeline every 100 ms
_RETOKENISED_SHORT = 0.75  # text may encode to this share of the tokens that it was made of
_IN_WORDS = {
    Outcome.WITHDRAWN.value: "cancelled as planned",
    Outcome.TIMEOUT.value: "timed out",
    Outcome.FIRST_TOKEN_TIMEOUT.value: "without a token for too long",
    Outcome.TOKEN_GAP_TIMEOUT.value: "without a further token for too long",
    Outcome.CANCELLED.value: "in flight when the run was stopped",
}


@dataclass(frozen=True)
class LatenciesCutOff(Finding):
    """``shortest_ms`` and ``median_ms`` are from the schedule to the cut. ``bounds`` names the numbers that are only lower
    bounds for this reason, such as ``p99_ttft``, from the schedule.
    """

    requests: int
    share: float
    by_kind: dict[str, int]
    shortest_ms: float
    median_ms: float
    bounds: list[str]

    code = "latencies_cut_off"
    severities = (Severity.NOTE, Severity.WARNING)
    when = (
        "the client ended requests before their answer ended: cancelled as planned (`--cancel`), timed out, or in flight when "
        "the run was stopped; a warning where this makes a percentile a lower bound"
    )
    advices = (
        "These requests would have taken longer, so numbers with ≥ are lower bounds. To measure the values themselves, leave "
        "out --cancel or cancel later; raise the time-outs, such as --request_timeout; or let the run end.",
    )
    briefs = ("Requests were cut off: numbers with ≥ are lower bounds",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        requests = facts.requests
        cut_off = requests.cut_off
        if not cut_off.any():
            return None
        cuts_ms = known((requests.done_ns - requests.scheduled_ns)[cut_off] / 1e6)
        kinds, counts = np.unique(requests.outcome[cut_off], return_counts=True)
        return cls(
            requests=int(cut_off.sum()),
            share=float(cut_off.sum() / (~np.isnan(requests.sent_ns)).sum()),
            by_kind=dict(zip(kinds.tolist(), counts.tolist(), strict=True)),
            shortest_ms=float(cuts_ms.min(initial=np.inf)),
            median_ms=float(np.median(cuts_ms)),
            bounds=list(_bounds(facts.metrics)),
        )

    @property
    def severity(self) -> Severity:
        only_ends = all(name.startswith(("mean_", "max_")) for name in self.bounds)
        return Severity.NOTE if only_ends else Severity.WARNING

    def _sentence(self) -> str:
        kinds = ", ".join(f"{n:,} {_IN_WORDS[kind]}" for kind, n in self.by_kind.items())
        bounds = f"Therefore these are lower bounds: {', '.join(self.bounds)}."
        if self.requests == 1:
            cut = f"was cut off before its answer ended, after {self.shortest_ms:,.0f} ms: {kinds}."
            return f"1 request ({percent(self.share, 1)}) {cut} {bounds}"
        return (
            f"{self.requests:,} requests ({percent(self.share, 1)}) were cut off before their answer ended: {kinds}. The "
            f"shortest had taken {self.shortest_ms:,.0f} ms by then, half of them at most {self.median_ms:,.0f} ms. {bounds}"
        )


def _bounds(metrics: Metrics) -> Iterator[str]:
    for metric, latency in metrics.latencies.items():
        if isinstance(latency, Anchored) and latency.scheduled is not None:
            yield from (f"{name}_{metric.name}" for name in latency.scheduled.bounds)


@dataclass(frozen=True)
class GeneratedOn(Finding):
    """Tokens that the server generated and that did not arrive, compared with the rest of what the cancelled requests
    requested.

    Where all other requests were answered in full, only cancelled answers can explain the difference.
    """

    withdrawn: int
    generated_beyond: float
    still_asked: float

    code = "generated_after_cancellation"
    severities = (Severity.WARNING,)
    when = (
        f"the server generated tokens that did not arrive: more than it generates in the {_NOTICED_WITHIN_MS:g} ms after each "
        f"planned cancellation, and {_GENERATED_ON:.0%} of the other requested tokens of these requests. Checked in streamed "
        "runs where the server counts its tokens, those of complete answers are not counted from text, and no request failed"
    )
    advices = (
        "The server goes on computing answers that the client has cancelled, so users who left cost capacity. Check whether "
        "the server, or a proxy before it, passes on the reset of a stream and the end of a connection.",
    )
    briefs = ("Cancelled answers are still computed: the server misses cancellations",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        requests = facts.sent_requests
        generated = None if facts.server is None else facts.server.generated_tokens
        tpot_ms = facts.metrics.tpot_ms
        withdrawn = requests.withdrawn
        received = np.where(withdrawn & ~requests.has_tokens, 0.0, requests.output_tokens)
        from_text = requests.counted_from_text
        most = np.minimum(received / _RETOKENISED_SHORT, np.maximum(received, requests.requested_output_tokens))
        received = np.where(from_text, most, received)
        is_known = not np.isnan(received).any() and not (from_text & ~withdrawn).any()
        if (
            generated is None
            or tpot_ms is None
            or not tpot_ms.mean.value  # 0 where a proxy holds answers back: how fast the server is remains unknown
            or not withdrawn.any()
            or not (requests.done | withdrawn).all()
            or not is_known
        ):
            return None
        still_asked = (requests.requested_output_tokens - received)[withdrawn]
        noticed = np.minimum(still_asked, _NOTICED_WITHIN_MS / tpot_ms.mean.value)
        beyond = generated - float(received.sum())
        if beyond <= float(noticed.sum() + _GENERATED_ON * (still_asked - noticed).sum()):
            return None
        return cls(int(withdrawn.sum()), beyond, float(still_asked.sum()))

    def _sentence(self) -> str:
        cancelled = counted(self.withdrawn, "cancelled request")
        return (
            f"The server generated {counted(self.generated_beyond, 'token')} that did not arrive; {cancelled} had "
            f"{self.still_asked:,.0f} of the requested tokens left."
        )

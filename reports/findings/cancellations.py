"""Findings about requests that the client cancelled as planned (--cancel)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from harness.records.record import TokenSource
from reports.findings.finding import Finding, RunFacts, Severity

_LEFT_OUT = 0.01
_GENERATED_ON = 0.5
_NOTICED_WITHIN_MS = 250.0  # servers look for cancellations only so often, the embedded pipeline every 100 ms


@dataclass(frozen=True)
class WithdrawnBeforeFirstToken(Finding):
    """``share`` is that of the requests which were answered or cancelled as planned."""

    requests: int
    share: float

    code = "withdrawn_before_first_token"
    severities = (Severity.NOTE, Severity.WARNING)
    when = (
        "requests were cancelled as planned (`--cancel`) before their first token, so TTFT leaves out the ones that waited "
        f"longest; a warning above {_LEFT_OUT:.0%} of the requests"
    )
    advices = ("TTFT is too low by that: cancel later, or with a token (--cancel 5%:after=20tokens), which cuts no TTFT off.",)
    briefs = ("Cancelled before the first token: TTFT is too low; cancel later",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        requests = facts.requests
        unanswered = int((requests.withdrawn & ~requests.has_tokens).sum())
        if not facts.metrics.streamed or not unanswered:
            return None
        return cls(unanswered, unanswered / int((requests.done | requests.withdrawn).sum()))

    @property
    def severity(self) -> Severity:
        return Severity.WARNING if self.share > _LEFT_OUT else Severity.NOTE

    def _sentence(self) -> str:
        return f"{self.requests:,} requests ({self.share:.1%}) were cancelled as planned before their first token."


@dataclass(frozen=True)
class GeneratedOn(Finding):
    """Tokens that the server generated and that did not arrive, against those that the cancelled requests still asked for.

    Where all other requests were answered in full, nothing but answers that were cancelled can explain the difference.
    """

    withdrawn: int
    generated_beyond: float
    still_asked: float

    code = "generated_after_cancellation"
    severities = (Severity.WARNING,)
    when = (
        "the server generated tokens that did not arrive: more than those of "
        f"{_NOTICED_WITHIN_MS:g} ms behind each planned cancellation and {_GENERATED_ON:.0%} of the others that these requests "
        "still asked for. Checked in streamed runs where the server counts its tokens, the client's are from its counts or "
        "ids, and no request failed"
    )
    advices = (
        "The server computes answers on that their client has cancelled: capacity is lost to users who went away. See whether "
        "it, or a proxy before it, passes on that a stream was reset or a connection closed.",
    )
    briefs = ("Cancelled answers are computed on: the server misses cancellations",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        requests = facts.sent_requests
        generated = None if facts.server is None else facts.server.generated_tokens
        tpot_ms = facts.metrics.tpot_ms
        withdrawn = requests.withdrawn
        received = np.where(withdrawn & ~requests.has_tokens, 0.0, requests.output_tokens)
        is_known = not np.isnan(received).any() and TokenSource.TEXT.value not in requests.output_tokens_sources
        if generated is None or tpot_ms is None or not withdrawn.any() or not (requests.done | withdrawn).all() or not is_known:
            return None
        still_asked = (requests.requested_output_tokens - received)[withdrawn]
        noticed = np.minimum(still_asked, _NOTICED_WITHIN_MS / tpot_ms.mean.value)
        beyond = generated - float(received.sum())
        if beyond <= float(noticed.sum() + _GENERATED_ON * (still_asked - noticed).sum()):
            return None
        return cls(int(withdrawn.sum()), beyond, float(still_asked.sum()))

    def _sentence(self) -> str:
        return (
            f"The server generated {self.generated_beyond:,.0f} tokens that did not arrive; the {self.withdrawn:,} requests "
            f"that were cancelled still asked for {self.still_asked:,.0f}."
        )

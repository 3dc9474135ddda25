"""Planned cancellations: a share of the requests, drawn from the seed, that the client cancels while they are answered."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from workloads.elements.random_streams import Stream, generator
from workloads.elements.request import LONGEST_TOKENS, CancelPoint
from workloads.elements.spelling import SpeltTexts, number_of, number_text, parse_texts
from workloads.schedule.schedule import AnySchedule

_FORMS = "5%:after=2s or 5%:after=20tokens"
_TOKENS = re.compile(r"([0-9]+)\s*tokens?", re.IGNORECASE)
_LONGEST_S = 1e6


@dataclass(frozen=True, slots=True)
class Cancellation:
    """``percent`` of the requests are cancelled at ``point``."""

    percent: float
    point: CancelPoint

    def __str__(self) -> str:
        """The spelling that ``parse_cancellation`` reads."""
        tokens, after_ns = self.point.after_tokens, self.point.after_ns or 0
        after = f"{number_text(after_ns / 1e9)}s" if tokens is None else f"{tokens}tokens"
        return f"{number_text(self.percent)}%:after={after}"


def parse_cancellation(text: str) -> Cancellation:
    """The cancellations that ``text`` spells. Raises WorkloadError."""
    spelt = parse_texts(text, "cancel", _FORMS)
    spelt.check_names(("after",))
    amount = spelt.name[:-1].strip() if spelt.name.endswith("%") else ""
    percent = number_of(amount) if amount[-1:].isdigit() else None
    if percent is None or not 0 < percent < 100:
        raise spelt.error(f"{spelt.name!r} is not a share above 0% and below 100%")
    return Cancellation(percent, _point(spelt))


def _point(spelt: SpeltTexts) -> CancelPoint:
    after = spelt.one("after")
    if after is None:
        raise spelt.error("it needs its 'after'")
    tokens = _TOKENS.fullmatch(after)
    if tokens is not None:
        count = int(tokens[1])
        if not 0 < count <= LONGEST_TOKENS:
            raise spelt.error(f"the tokens must be from 1 to {LONGEST_TOKENS:,}")
        return CancelPoint(after_tokens=count)
    seconds = None if after[-1:].isdigit() else number_of(after.lower())
    if seconds is None:
        raise spelt.error(f"{after!r} is neither a time with its unit nor a number of tokens")
    after_ns = round(seconds * 1e9) if seconds <= _LONGEST_S else None
    if not after_ns:
        raise spelt.error(f"the time must be above 0 s, and at most {_LONGEST_S:,.0f} s")
    return CancelPoint(after_ns=after_ns)


def with_cancellations(schedule: AnySchedule, cancellation: Cancellation, seed: int) -> AnySchedule:
    """``schedule`` with its share of requests to cancel. Each is drawn by itself: a larger share adds to those of a smaller."""
    chosen = (generator(seed, Stream.CANCELLATIONS).random(len(schedule)) * 100.0 < cancellation.percent).tolist()
    requests = (
        replace(request, cancel=cancellation.point) if is_chosen else request
        for request, is_chosen in zip(schedule.requests, chosen, strict=True)
    )
    return replace(schedule, requests=tuple(requests))

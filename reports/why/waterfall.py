"""When the phases of one request passed, as far as that is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reports.metrics.phase_shares import RequestParts
from reports.metrics.request_phases import Phase
from reports.why.words import LEAST_SHOWN_MS

_AT_FIRST = (Phase.SLIP, Phase.CEILING, Phase.CONNECT)  # by the client's clock, one after the other
_BETWEEN = (Phase.ROUTER, Phase.FRONT_END, Phase.QUEUE, Phase.PREFILL, Phase.DECODE, Phase.RETURN)
_AT_LAST = (Phase.STREAM,)  # by the client's clock, up to the end


@dataclass(frozen=True, slots=True)
class Span:
    """A phase that took ``ms`` of a request, from ``from_ms`` after it was due; None where that is unknown."""

    phase: Phase
    from_ms: float | None
    ms: float


def spans(request: RequestParts) -> tuple[Span, ...]:
    """The phases that took time, in their order. Without a source of what passed between the connection and the first token,
    that is unattributed, at its place. Else what is unattributed, or what sources contradict each other by, may be anywhere
    between the phases of that time, so that their places are unknown.
    """
    took_ms = {phase: ms for phase, ms in request.phases_ms.items() if ms >= LEAST_SHOWN_MS}
    between = [phase for phase in _BETWEEN if phase in took_ms]
    is_open = bool(between) and (Phase.UNATTRIBUTED in took_ms or request.contradiction_ms != 0.0)
    first_ms = sum(request.phases_ms.get(phase, 0.0) for phase in _AT_FIRST)
    last_ms = request.latency_ms - request.phases_ms.get(Phase.STREAM, 0.0)
    unplaced = [Span(phase, None, took_ms[phase]) for phase in (*between, Phase.UNATTRIBUTED) if phase in took_ms]
    return (
        *_following(request, _AT_FIRST, 0.0),
        *(unplaced if is_open else _following(request, (*_BETWEEN, Phase.UNATTRIBUTED), first_ms)),
        *_following(request, _AT_LAST, last_ms),
    )


def _following(request: RequestParts, phases: tuple[Phase, ...], from_ms: float) -> Iterator[Span]:
    """The phases that took time, each from the end of the one before."""
    for phase in phases:
        ms = request.phases_ms.get(phase, 0.0)
        if ms >= LEAST_SHOWN_MS:
            yield Span(phase, from_ms, ms)
        from_ms += ms

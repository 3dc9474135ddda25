"""When the phases of one request passed, as far as that is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reports.metrics.phase_shares import RequestParts
from reports.metrics.request_phases import Phase
from reports.why.words import LEAST_SHOWN_MS

_AT_FIRST = (Phase.SLIP, Phase.CEILING, Phase.CONNECT, Phase.SEND)  # by the client's clock, one after the other
_TO_HEAD = (*_AT_FIRST, Phase.FIRST_BYTE)  # where no router had a part of the wait for the head
_BETWEEN = (
    *(Phase.ROUTER, Phase.FIRST_BYTE, Phase.FRONT_END, Phase.QUEUE, Phase.PREFILL),
    *(Phase.DECODE, Phase.DECODE_BESIDE_PREFILL, Phase.RETURN),
)  # the decode beside prefill alternates with the decode, and is shown after it
_AT_LAST = (Phase.STREAM,)  # by the client's clock, up to the end


@dataclass(frozen=True, slots=True)
class Span:
    """A phase that took ``ms`` of a request, from ``from_ms`` after it was due; None where that is unknown."""

    phase: Phase
    from_ms: float | None
    ms: float


def spans(request: RequestParts) -> tuple[Span, ...]:
    """The phases that took time, in their order. Without a source of what passed between the send, or the head of the answer,
    and the first token, that is unattributed, at its place. Else what is unattributed, or what sources contradict each other
    by, may be anywhere between the phases of that time, so that their places are unknown.
    """
    took_ms = {phase: ms for phase, ms in request.phases_ms.items() if ms >= LEAST_SHOWN_MS}
    at_first = _AT_FIRST if Phase.ROUTER in took_ms else _TO_HEAD
    between = [phase for phase in _BETWEEN if phase in took_ms and phase not in at_first]
    is_open = bool(between) and (Phase.UNATTRIBUTED in took_ms or request.contradiction_ms != 0.0)
    first_ms = sum(request.phases_ms.get(phase, 0.0) for phase in at_first)
    in_between = tuple(phase for phase in (*_BETWEEN, Phase.UNATTRIBUTED) if phase not in at_first)
    last_ms = request.latency_ms - request.phases_ms.get(Phase.STREAM, 0.0)
    unplaced = [Span(phase, None, took_ms[phase]) for phase in (*between, Phase.UNATTRIBUTED) if phase in took_ms]
    return (
        *_following(request, at_first, 0.0),
        *(unplaced if is_open else _following(request, in_between, first_ms)),
        *_following(request, _AT_LAST, last_ms),
    )


def _following(request: RequestParts, phases: tuple[Phase, ...], from_ms: float) -> Iterator[Span]:
    """The phases that took time, each from the end of the one before."""
    for phase in phases:
        ms = request.phases_ms.get(phase, 0.0)
        if ms >= LEAST_SHOWN_MS:
            yield Span(phase, from_ms, ms)
        from_ms += ms

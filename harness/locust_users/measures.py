"""What Locust's table shows of one request, by the definitions of ``bench``."""

from __future__ import annotations

from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from bench_records.record import Outcome, Record

_NS_PER_MS = 1e6


class Measure(StrEnum):
    """The measures of a request, as the types of Locust's events; times are in ms. E2E is the request's own."""

    E2E = "E2E"
    TTFT = "TTFT"
    TPOT = "TPOT"
    ITL = "ITL"
    ICL = "ICL"
    TOKENS = "tokens"


class Value(NamedTuple):
    """A value of a measure: ms, or a number of tokens."""

    measure: Measure
    value: float


def e2e_ms(record: Record) -> float | None:
    """The last generated token after the sending; None for a failure or an answer without tokens."""
    if record.outcome is not Outcome.DONE or not record.token_times_ns or record.sent_ns is None:
        return None
    return (record.token_times_ns[-1] - record.sent_ns) / _NS_PER_MS


def parts_of(record: Record) -> list[Value]:
    """The measures besides E2E; none of a failure, and none that is unknown.

    ITL where the tokens of each response are known: a gap divided by the tokens of the later response, once for each of them.
    Else ICL: the gap itself.
    """
    if record.outcome is not Outcome.DONE or not record.token_times_ns or record.sent_ns is None:
        return []
    times_ns, tokens = record.token_times_ns, record.output_tokens
    values = [Value(Measure.TTFT, (times_ns[0] - record.sent_ns) / _NS_PER_MS)]
    if tokens is not None:
        values.append(Value(Measure.TOKENS, tokens))
        if tokens >= 2 and len(times_ns) >= 2:
            values.append(Value(Measure.TPOT, (times_ns[-1] - times_ns[0]) / _NS_PER_MS / (tokens - 1)))
    gaps_ms = [(later - earlier) / _NS_PER_MS for earlier, later in pairwise(times_ns)]
    if record.token_counts is None:
        return values + [Value(Measure.ICL, gap_ms) for gap_ms in gaps_ms]
    counted = zip(gaps_ms, record.token_counts[1:], strict=True)
    return values + [Value(Measure.ITL, gap_ms / count) for gap_ms, count in counted for _ in range(count)]

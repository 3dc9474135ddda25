"""Findings about the target's batch, of batches that are written by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from bench_records.manifest import Manifest
from reports.findings.finding import RunFacts, Severity
from reports.findings.in_flight import RareQueues
from reports.metrics.full_batch import FullBatch

_KNOWN = SimpleNamespace(interval=(90.0, 110.0))
_UNKNOWN = SimpleNamespace(interval=None)


def _found(batch: FullBatch | None, p99: Any = _KNOWN, *, has_ttft: bool = True, scheduled: bool = True) -> RareQueues | None:
    """The finding of a run with this batch, whose p99 TTFT has an interval."""
    distribution = SimpleNamespace(percentile=lambda q: p99 if q == 0.99 else None)
    ttft = SimpleNamespace(scheduled=distribution if scheduled else None) if has_ttft else None
    metrics: Any = SimpleNamespace(full_batch=batch, ttft_ms=ttft)
    return RareQueues.check(RunFacts(cast("Any", None), metrics, Manifest()))


@pytest.mark.parametrize(
    ("batch", "severity"),
    [
        # 3 spells may hold 300 of 2,000 answers elsewhere, where p99 leaves out 20.
        (FullBatch(answers=2_000, largest=64, waited=9, spells=3), Severity.WARNING),
        (FullBatch(answers=2_000, largest=64, waited=9, spells=3, limit=128), Severity.WARNING),
        (FullBatch(answers=2_000, largest=61, waited=0, spells=0, limit=64, near_limit=True), Severity.WARNING),
        (FullBatch(answers=2_000, largest=61, waited=0, spells=0), Severity.NOTE),
        (FullBatch(answers=2_000, largest=64, waited=90, spells=30), None),
        (FullBatch(answers=40_000, largest=64, waited=9, spells=1), None),
        (FullBatch(answers=2_000, largest=61, waited=0, spells=0, limit=64), None),
        (None, None),
    ],
)
def test_batches_that_were_full_too_rarely_or_of_unknown_size_are_named(
    batch: FullBatch | None, severity: Severity | None
) -> None:
    found = _found(batch)
    assert (None if found is None else found.severity) == severity
    if found is not None and batch is not None:
        assert found == RareQueues(batch.largest, batch.limit, batch.near_limit, batch.waited, batch.spells)
        assert found.advice == found.advices[0 if severity is Severity.WARNING else 1]


def test_a_batch_of_unknown_size_is_noted_where_p99_has_an_interval_alone() -> None:
    batch = FullBatch(answers=2_000, largest=61, waited=0, spells=0)
    assert _found(batch) is not None
    assert _found(batch, _UNKNOWN) is _found(batch, has_ttft=False) is _found(batch, scheduled=False) is None
    near = FullBatch(answers=2_000, largest=61, waited=0, spells=0, limit=64, near_limit=True)
    for found in (_found(near, _UNKNOWN), _found(near, has_ttft=False), _found(near, scheduled=False)):
        assert found == RareQueues(61, 64, near_limit=True, waited=0, spells=0)

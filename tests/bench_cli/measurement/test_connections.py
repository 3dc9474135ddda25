"""HTTP/2 connections of the client: their limits, and their entry in the manifest."""

from __future__ import annotations

from bench_cli.measurement.manifest import connections_of
from bench_records.manifest import Connections
from harness.clients.protocol import ConnectionUsage
from harness.clients.transport.http2_pool import DEFAULT_LIMITS, ConnectionLimits
from harness.protocols.triton_grpc import connection_limits


def test_a_given_number_is_exact() -> None:
    assert connection_limits(3) == ConnectionLimits(at_start=3, at_most=3)
    assert connection_limits(None) == DEFAULT_LIMITS
    assert DEFAULT_LIMITS.at_most > DEFAULT_LIMITS.at_start


def test_the_entry_has_the_sums_over_workers_and_the_longest_wait() -> None:
    usages = [
        ConnectionUsage(2, 2, limit_reached=3, total_wait_ns=9_000_000, longest_wait_ns=5_000_000),
        None,
        ConnectionUsage(2, 4, limit_reached=1, total_wait_ns=1_000_000, longest_wait_ns=1_000_000, unstamped_reads=7),
        ConnectionUsage(2, 2),
    ]
    assert connections_of(usages) == Connections(
        per_worker=2,
        opened=8,
        limit_reached=4,
        longest_wait_ms=5.0,
        total_wait_ms=10.0,
        unstamped_reads=7,
        workers_told=3,
    )


def test_workers_with_different_numbers_have_the_largest_in_the_entry() -> None:
    entry = connections_of([ConnectionUsage(8, 8), None, ConnectionUsage(9, 9)])
    assert entry is not None
    assert (entry.per_worker, entry.opened) == (9, 17)


def test_without_waits_there_is_no_longest_wait_and_without_reports_no_entry() -> None:
    entry = connections_of([ConnectionUsage(1, 1)])
    assert entry is not None
    assert (entry.limit_reached, entry.longest_wait_ms) == (0, None)
    assert connections_of([None, None]) is None

"""The client's connections: from the option to the client, and from what they were put to into the manifest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.clients.http2_connections import DEFAULT_LIMITS, ConnectionLimits
from harness.clients.protocol import ConnectionUsage


def connection_limits(asked: int | None) -> ConnectionLimits:
    """As many as were asked for, no more and no less; unasked, what measured best, and more where that is too few."""
    return DEFAULT_LIMITS if asked is None else ConnectionLimits(asked, asked)


def described_connections(usages: Sequence[ConnectionUsage | None]) -> dict[str, Any] | None:
    """The connections of all workers for the manifest; None where no worker came to tell.

    ``limit_reached`` counts the requests that waited because the server takes no more at once; the counts of a worker that
    died are missing from it, ``workers_told`` says of how many it is.
    """
    told = [usage for usage in usages if usage is not None]
    if not told:
        return None
    longest_ns = max((usage.longest_wait_ns for usage in told if usage.longest_wait_ns is not None), default=None)
    return {
        "per_worker": told[0].per_worker,
        "opened": sum(usage.opened for usage in told),
        "limit_reached": sum(usage.limit_reached for usage in told),
        "longest_wait_ms": None if longest_ns is None else longest_ns / 1e6,
        "total_wait_ms": sum(usage.total_wait_ns for usage in told) / 1e6,
        "unstamped_reads": sum(usage.unstamped_reads for usage in told),
        "workers_told": len(told),
    }

"""Telling a full server from a failing one by what it says."""

from __future__ import annotations

import re

_FULL = re.compile(
    r"exceeds maximum queue size|maximum queue size of"  # Triton
    r"|request queue is full|queue is full|queue full"  # SGLang, and proxies
    r"|overloaded|too many (concurrent )?requests",  # text-generation-inference, gateways
    re.IGNORECASE,
)


def says_full(message: str) -> bool:
    """Whether an error means that the server takes no more for now."""
    return _FULL.search(message) is not None

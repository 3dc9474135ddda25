"""The clients of all protocols as one tagged union, by which a file of a run or a message to a worker encodes its client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Union

from harness.protocols.listed import PROTOCOLS

if TYPE_CHECKING:
    from harness.clients.protocol import Client as KnownClient
else:
    KnownClient = Union[tuple(protocol.load().client_type for protocol in PROTOCOLS.values())]  # noqa: UP007

__all__ = ["KnownClient"]

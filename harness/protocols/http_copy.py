"""A copy of Triton's HTTP protocol: what a new protocol touches."""

from __future__ import annotations

from typing import ClassVar

from harness.clients.protocol import Client
from harness.clients.transport.url import Origin
from harness.clients.triton.http import TritonHttpClient
from harness.clients.triton.model import TritonModel
from harness.protocols.protocol import ClientSettings
from harness.protocols.triton import EndAndPad
from harness.protocols.triton_http import TritonHttp


class HttpCopyClient(TritonHttpClient, frozen=True, tag="http_copy"):
    """The same client, with a tag of its own in files and messages."""


class HttpCopy(TritonHttp):
    """Triton's generate extension by another name."""

    name: ClassVar[str] = "http_copy"
    client_type: ClassVar[type] = HttpCopyClient

    def client(
        self, origin: Origin, model: TritonModel, streaming: bool, end_and_pad: EndAndPad, settings: ClientSettings
    ) -> Client:
        return HttpCopyClient(origin, model, streaming, *end_and_pad, settings.headers, settings.limits, settings.secrets)

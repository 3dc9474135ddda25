"""Triton over HTTP, by the inference protocol of KServe v2."""

from __future__ import annotations

from typing import ClassVar

from harness.clients.protocol import Client
from harness.clients.transport.url import Origin
from harness.clients.triton.http_infer import TritonHttpInferClient
from harness.clients.triton.model import TritonModel
from harness.errors import TargetError
from harness.protocols.protocol import ClientSettings
from harness.protocols.triton import EndAndPad
from harness.protocols.triton_http import TritonHttp


class TritonHttpInfer(TritonHttp):
    """Triton's ``infer``: one answer to a request, of a model that is not decoupled."""

    name: ClassVar[str] = "http_infer"
    client_type: ClassVar[type] = TritonHttpInferClient

    def client(
        self, origin: Origin, model: TritonModel, streaming: bool, end_and_pad: EndAndPad, settings: ClientSettings
    ) -> Client:
        """Raises TargetError for a model that Triton would refuse."""
        if model.decoupled:
            raise TargetError(
                f"--model {model.name}: it is decoupled, and Triton answers infer only for other models; measure it with "
                "-i http, or deploy it with --no_decoupled_mode"
            )
        return TritonHttpInferClient(
            origin,
            model,
            False,
            *end_and_pad,
            settings.headers,
            settings.limits,
            settings.secrets,
            settings.connection_timeout_s,
        )

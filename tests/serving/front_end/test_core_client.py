"""An exchange with the core model over gRPC: how its errors, which are texts on a stream, become errors of the front end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, cast

import grpc.aio
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from serving.errors import SERVER_FAILURE
from serving.front_end.api_error import ApiError
from serving.front_end.core_client import CoreClient
from serving.front_end.core_request import core_request
from serving.front_end.core_response import CoreResponse
from serving.front_end.generation import Generation
from serving.repository.tensors import CORE_INPUTS, CORE_OUTPUTS, parse_tensors

if TYPE_CHECKING:
    from serving.front_end.core_events import CoreEvents


class _Triton(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]  # no types
    """Answers with these error texts, "" for a final response; records how each call ended."""

    def __init__(self, *texts: str) -> None:
        self._texts = texts
        self.metadata: dict[str, Any] = {}
        self.whole = 0  # calls whose client sent the end of its requests, and read to the end

    async def ModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802  its name
        inputs, outputs = (
            [service_pb2.ModelMetadataResponse.TensorMetadata(name=tensor.name) for tensor in parse_tensors(text, release=None)]
            for text in (CORE_INPUTS, CORE_OUTPUTS)
        )
        return service_pb2.ModelMetadataResponse(name=request.name, inputs=inputs, outputs=outputs)

    async def ModelStreamInfer(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:  # noqa: N802
        self.metadata = dict(context.invocation_metadata())
        count = 0
        async for _ in requests:
            count += 1
            for text in self._texts:
                answer = service_pb2.ModelStreamInferResponse(error_message=text)
                if not text:
                    answer.infer_response.parameters["triton_final_response"].bool_param = True
                yield answer
        assert count == 1
        self.whole += 1


async def _generate(triton: _Triton) -> list[CoreResponse]:
    server = grpc.aio.server()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(triton, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            client = CoreClient(channel, "tensorrt_llm", cast("CoreEvents", None))
            request = core_request(await client.interface(), [5, 6], Generation(max_tokens=3), (2,), "r1")
            return [response async for response in client.generate(request)]
    finally:
        await server.stop(None)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("input_ids holds 9, which is outside the vocabulary", 400),
        (f"{SERVER_FAILURE}the engine stopped", 500),
        ("Stub process 'tensorrt_llm_0_0' is not healthy.", 500),
        (f"{SERVER_FAILURE}Maximum queue size of 2 has been reached", 429),
    ],
)
def test_the_text_of_an_error_decides_its_status(text: str, status: int) -> None:
    triton = _Triton(text)
    with pytest.raises(ApiError) as caught:
        asyncio.run(_generate(triton))
    assert (caught.value.status, str(caught.value)) == (status, text)
    assert "triton_grpc_error" not in triton.metadata  # 24.10 crashes with it


@pytest.mark.parametrize(("text", "error"), [("", nullcontext()), ("no", pytest.raises(ApiError, match="no"))])
def test_an_exchange_is_read_to_its_end_and_not_cancelled(text: str, error: AbstractContextManager[Any]) -> None:
    triton = _Triton(text)
    with error:
        [response] = asyncio.run(_generate(triton))
        assert response.is_final
    assert triton.whole == 1


def test_the_error_of_one_sequence_is_raised_after_another_has_ended_well() -> None:
    with pytest.raises(ApiError, match="no memory") as caught:
        asyncio.run(_generate(_Triton(f"{SERVER_FAILURE}no memory", "")))
    assert caught.value.status == 500

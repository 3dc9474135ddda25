"""gRPC of Triton through bounds: each message passes as bytes, whole, as soon as it is there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from serving.proxy.call_sweep import CallProgress, CallSweep
from serving.proxy.settings import ProxyBounds

_SERVICES = ("inference.GRPCInferenceService", "grpc.health.v1.Health")
_METADATA_BYTES = 16384
_PING_TIMEOUT_MS = 20_000
_HANDSHAKE_MS = 10_000
_NOT_PASSED = (
    *("user-agent", "origin", "te", "content-type"),  # gRPC makes its own
    "triton_grpc_error",  # with it, Triton 24.10 crashes where several requests of streams fail at once
)
_RESERVED = ("grpc-", ":")
_Failure = tuple[grpc.StatusCode, str, tuple[tuple[str, str | bytes], ...]]


class GrpcProxy(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """Forwards every method of Triton's services over ``channel``, the only connection to Triton."""

    def __init__(self, channel: grpc.aio.Channel, sweep: CallSweep) -> None:
        self._channel = channel
        self._sweep = sweep

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """The handler of a call; None, which gRPC answers with UNIMPLEMENTED, for services that Triton has not."""
        method: str = handler_call_details.method
        if method.split("/")[1:2] not in ([service] for service in _SERVICES):
            return None

        async def handle(_: AsyncIterator[bytes], context: Any) -> None:
            await self._handle(method, context)

        return grpc.stream_stream_rpc_method_handler(handle)

    async def _handle(self, method: str, context: Any) -> None:
        """One call, of one request and response or of many: on the wire they are the same."""
        metadata = context.invocation_metadata() or ()
        if any(key == "origin" for key, _ in metadata):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "this call comes from a web page")
        scope = asyncio.timeout(None)
        with self._sweep.watching(scope) as progress:
            try:
                async with scope:
                    failure = await self._forward(method, context, progress)
            except TimeoutError:
                failure = grpc.StatusCode.RESOURCE_EXHAUSTED, progress.ended_because or "the call was ended", ()
        if failure is not None:
            await context.abort(*failure)

    async def _forward(self, method: str, context: Any, progress: CallProgress) -> _Failure | None:
        """Pass the messages of both sides until Triton's last; its failure, if any."""
        first = await context.read()
        progress.has_received = True
        metadata = tuple((key, value) for key, value in context.invocation_metadata() or () if _is_passed(key))
        call = self._channel.stream_stream(method)(
            _messages(first, context, progress), metadata=metadata, timeout=context.time_remaining()
        )
        time = asyncio.get_running_loop().time
        try:
            while (response := await call.read()) is not grpc.aio.EOF:
                progress.sending_since = time()
                await context.write(response)
                progress.sending_since = None
            code, trailing = await call.code(), tuple(await call.trailing_metadata() or ())
        except grpc.aio.AioRpcError as error:
            return error.code(), error.details() or "", tuple(error.trailing_metadata() or ())
        finally:
            call.cancel()  # the client is gone, or Triton's answer has ended
        if code is not grpc.StatusCode.OK:
            return code, await call.details() or "", trailing
        context.set_trailing_metadata(trailing)
        return None


async def _messages(first: Any, context: Any, progress: CallProgress) -> AsyncIterator[bytes]:
    message, time = first, asyncio.get_running_loop().time
    while message is not grpc.aio.EOF:
        progress.receiving_since = None
        yield message
        progress.receiving_since = time()
        message = await context.read()
    progress.receiving_since = None


def _is_passed(key: str) -> bool:
    return key not in _NOT_PASSED and not key.startswith(_RESERVED)


def open_channel(address: str) -> grpc.aio.Channel:
    """The connection to Triton. Its answers are not bounded: those of logits are long."""
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    return grpc.aio.insecure_channel(address, options)


async def listen(proxy: GrpcProxy, host: str, port: int, bounds: ProxyBounds) -> grpc.aio.Server:
    """A server that listens at ``host``:``port``. Raises OSError."""
    timeout_ms = int(bounds.receive_timeout_s * 1000)
    server = grpc.aio.server(
        options=[
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", bounds.body_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_metadata_size", _METADATA_BYTES),
            ("grpc.absolute_max_metadata_size", 2 * _METADATA_BYTES),
            ("grpc.max_concurrent_streams", bounds.connections),
            ("grpc.max_allowed_incoming_connections", bounds.connections),
            ("grpc.max_connection_idle_ms", timeout_ms),
            ("grpc.keepalive_time_ms", timeout_ms),
            ("grpc.keepalive_timeout_ms", _PING_TIMEOUT_MS),
            ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
        ],
        maximum_concurrent_rpcs=bounds.connections,
    )
    server.add_generic_rpc_handlers((proxy,))
    try:
        server.add_insecure_port(f"{host}:{port}")
    except RuntimeError as error:
        raise OSError(f"cannot listen on {host}:{port}") from error
    await server.start()
    return server

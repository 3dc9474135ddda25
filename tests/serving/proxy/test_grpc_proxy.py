"""gRPC through the proxy's process: messages as bytes, in both directions, within bounds."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from tests.serving.proxy.conftest import BOUNDS, MANY, Proxied, many_connections

_INFER = "/inference.GRPCInferenceService/ModelInfer"
_STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
_WAIT_S = 20.0


@pytest.fixture
def channel(proxied: Proxied) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(proxied.addresses.grpc, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield channel


def _infer(channel: grpc.Channel, message: bytes, method: str = _INFER, **metadata: str) -> Any:
    headers = tuple((name.replace("_", "-"), value) for name, value in metadata.items())
    return channel.unary_unary(method)(message, timeout=_WAIT_S, metadata=headers)


def _failure(channel: grpc.Channel, message: bytes, method: str = _INFER, **metadata: str) -> Any:
    with pytest.raises(grpc.RpcError) as caught:
        _infer(channel, message, method, **metadata)
    return caught.value


def test_request_passes_with_its_metadata(proxied: Proxied, channel: grpc.Channel) -> None:
    assert _infer(channel, b"m", triton_grpc_protocol_triton_admin_key="k3y") == b"echo m"
    ((method, metadata, message),) = proxied.upstream.calls
    assert (method, message, metadata["triton-grpc-protocol-triton-admin-key"]) == ("ModelInfer", b"m", "k3y")


def test_metadata_that_crashes_triton_does_not_pass(proxied: Proxied, channel: grpc.Channel) -> None:
    channel.unary_unary(_INFER)(b"m", timeout=_WAIT_S, metadata=(("triton_grpc_error", "true"),))
    ((_, metadata, _),) = proxied.upstream.calls
    assert "triton_grpc_error" not in metadata


def test_failure_passes_with_its_code_words_and_trailing_metadata(channel: grpc.Channel) -> None:
    failure = _failure(channel, b"fail")
    assert (failure.code(), failure.details()) == (grpc.StatusCode.NOT_FOUND, "no such model")
    assert ("why", "asked") in failure.trailing_metadata()


def test_each_message_of_a_stream_passes_before_the_next_is_there(proxied: Proxied, channel: grpc.Channel) -> None:
    messages: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    answers = channel.stream_stream(_STREAM)(iter(messages.get, None), timeout=_WAIT_S)
    for message in (b"one", b"two", b"three"):
        messages.put(message)
        assert next(answers) == b"echo " + message
    messages.put(None)
    assert list(answers) == []
    assert answers.code() is grpc.StatusCode.OK


def test_cancelled_call_is_cancelled_at_the_server(proxied: Proxied, channel: grpc.Channel) -> None:
    answers = channel.stream_stream(_STREAM)(iter((b"first", b"wait")), timeout=_WAIT_S)
    assert next(answers) == b"echo first"
    while len(proxied.upstream.calls) < 2:
        pass
    answers.cancel()
    assert proxied.upstream.client_left.wait(_WAIT_S)


def test_message_longer_than_the_bound_is_refused_also_where_it_is_compressed(proxied: Proxied, channel: grpc.Channel) -> None:
    longer = b"\0" * (BOUNDS.body_bytes + 1)
    assert _failure(channel, longer).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(_INFER)(longer * 100, timeout=_WAIT_S, compression=grpc.Compression.Gzip)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert not proxied.upstream.calls


def test_metadata_longer_than_the_bound_is_refused(proxied: Proxied, channel: grpc.Channel) -> None:
    assert _failure(channel, b"m", x="a" * 60_000).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert not proxied.upstream.calls


def test_web_pages_and_services_that_triton_has_not_are_refused(proxied: Proxied, channel: grpc.Channel) -> None:
    assert _failure(channel, b"m", origin="http://evil.example").code() is grpc.StatusCode.PERMISSION_DENIED
    assert _failure(channel, b"m", "/other.Service/Method").code() is grpc.StatusCode.UNIMPLEMENTED
    assert not proxied.upstream.calls


def test_call_without_a_message_ends_in_time(proxied: Proxied, channel: grpc.Channel) -> None:
    messages: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    answers = channel.stream_stream(_STREAM)(iter(messages.get, None), timeout=_WAIT_S)
    with pytest.raises(grpc.RpcError) as caught:
        next(answers)
    assert caught.value.details() == "no whole message within 1.5 s"
    messages.put(None)


def test_calls_beyond_the_bound_are_refused_and_the_others_served(proxied: Proxied, channel: grpc.Channel) -> None:
    others = [grpc.insecure_channel(proxied.addresses.grpc, [("grpc.use_local_subchannel_pool", 1)]) for _ in range(2)]
    messages: list[queue.SimpleQueue[bytes | None]] = []
    answers = []
    for number in range(2 * BOUNDS.connections):
        messages.append(queue.SimpleQueue())
        messages[-1].put(b"m")
        answers.append(others[number % 2].stream_stream(_STREAM)(iter(messages[-1].get, None), timeout=_WAIT_S))
    codes = []
    for answer in answers:
        try:
            codes.append(next(answer))
        except grpc.RpcError as error:
            codes.append(error.code())
    assert codes.count(b"echo m") == BOUNDS.connections
    assert codes.count(grpc.StatusCode.RESOURCE_EXHAUSTED) == BOUNDS.connections
    for waiting in messages:
        waiting.put(None)
    for other in others:
        other.close()
    while _is_refused(channel):  # until those calls have ended
        pass


def test_connections_beyond_the_bound_are_closed_and_the_others_served(proxied: Proxied, channel: grpc.Channel) -> None:
    assert _infer(channel, b"m") == b"echo m"
    with many_connections(proxied.addresses.host, proxied.addresses.grpc_port) as closed:
        assert _infer(channel, b"m") == b"echo m"
        assert closed >= MANY - BOUNDS.connections


def _is_refused(channel: grpc.Channel) -> bool:
    try:
        _infer(channel, b"m")
    except grpc.RpcError as error:
        return bool(error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED)
    return False

"""The null server, asked by our own client, by gRPC's and tritonclient's, and by plain HTTP clients."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import queue
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
import psutil
import pytest
import uvloop
from tritonclient import grpc as triton
from tritonclient.grpc import service_pb2

from harness.calibration.null_server.server import NullServerAddresses, NullServerOptions, null_server
from harness.calibration.null_server.stamps import Stamps, stamps_of_event, stamps_of_message
from harness.clients.transport.http2_frames import PREFACE, FrameType, Setting, frame
from harness.clients.triton.grpc import TritonGrpcClient, inspect_model
from harness.errors import RunError
from harness.host.clock import now_ns
from tests.harness.calibration.conftest import FIRST_TOKEN_NS, GAP_NS
from workloads.elements.request import Request

_REQUEST = Request(output_tokens=7, input_ids=(5, 6, 7), prompt="two words")


def _ask(addresses: NullServerAddresses, model: str, requests: Sequence[Request], streaming: bool = True) -> list[list[bytes]]:
    """The bodies of each request's answer, all sent at once."""
    client = TritonGrpcClient(addresses.grpc, inspect_model(addresses.grpc, model), streaming)

    async def ask() -> list[list[bytes]]:
        connection = await client.connect(10.0)
        bodies: list[list[bytes]] = [[] for _ in requests]
        exchanges = (
            connection.exchange(client.encode(index, request), lambda _, arrived, own=bodies[index]: own.extend(arrived), 60.0)
            for index, request in enumerate(requests)
        )
        await asyncio.gather(*exchanges)
        await connection.close()
        return bodies

    return uvloop.run(ask())


def _stamps(bodies: Sequence[bytes], read: Callable[[bytes], Stamps | None] = stamps_of_message) -> list[Stamps]:
    found = [read(body) for body in bodies]
    assert None not in found
    return [stamps for stamps in found if stamps is not None]


# ---- gRPC


@pytest.mark.parametrize(
    ("model", "streaming", "responses"),
    [
        ("tensorrt_llm", True, 7),
        ("tensorrt_llm", False, 1),
        ("tensorrt_llm_unary", False, 1),
        ("ensemble", True, 7),
        ("ensemble", False, 1),
        ("ensemble_unary", False, 1),
    ],
)
def test_as_many_tokens_come_as_were_asked_for(
    unpaced: NullServerAddresses, model: str, streaming: bool, responses: int
) -> None:
    (bodies,) = _ask(unpaced, model, [_REQUEST], streaming)
    client = TritonGrpcClient(unpaced.grpc, inspect_model(unpaced.grpc, model), streaming)
    answers = [client.decode(body) for body in bodies]
    assert len(answers) == responses
    assert sum(answer.server_tokens or len(answer.token_ids or ()) for answer in answers) == 7
    if model.startswith("ensemble"):
        assert "".join(answer.text or "" for answer in answers) == " token" * 7


def test_every_request_gets_its_own_answer_with_its_id(unpaced: NullServerAddresses) -> None:
    answers = _ask(unpaced, "tensorrt_llm", [Request(k + 1, input_ids=(1,)) for k in range(150)])
    for index, bodies in enumerate(answers):
        messages = [service_pb2.ModelStreamInferResponse.FromString(body).infer_response for body in bodies]
        assert [message.id for message in messages] == [str(index)] * (index + 1)


@pytest.mark.parametrize("model", ["tensorrt_llm", "ensemble"])
def test_stamps_are_of_this_clock_and_in_order(paced: NullServerAddresses, model: str) -> None:
    before = now_ns()
    answers = _ask(paced, model, [_REQUEST] * 20)
    after = now_ns()
    for bodies in answers:
        stamps = _stamps(bodies)
        assert len({stamp.received_ns for stamp in stamps}) == 1
        assert before < stamps[0].received_ns
        assert stamps[-1].sent_ns < after
        for position, stamp in enumerate(stamps):  # never early; how late depends on the machine
            assert stamp.sent_ns >= stamp.received_ns + FIRST_TOKEN_NS + position * GAP_NS
        assert [stamp.sent_ns for stamp in stamps] == sorted(stamp.sent_ns for stamp in stamps)


def test_an_unstreamed_answer_takes_as_long_as_its_tokens_would(paced: NullServerAddresses) -> None:
    for model in ("tensorrt_llm", "tensorrt_llm_unary"):
        ((body,),) = _ask(paced, model, [_REQUEST], streaming=False)
        (stamps,) = _stamps([body])
        assert stamps.sent_ns >= stamps.received_ns + FIRST_TOKEN_NS + 6 * GAP_NS


def test_a_joined_answer_has_the_same_content_in_fewer_packets(unpaced_joined: NullServerAddresses) -> None:
    (bodies,) = _ask(unpaced_joined, "tensorrt_llm", [Request(40, input_ids=(1,))])
    stamps = _stamps(bodies)
    assert len(stamps) == 40
    assert len({stamp.sent_ns for stamp in stamps}) == 1


def test_tritonclient_is_served_with_several_requests_on_one_stream(unpaced: NullServerAddresses) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    inputs = []
    for name, value in (("input_ids", [[1, 2]]), ("input_lengths", [[2]]), ("request_output_len", [[3]])):
        tensor = triton.InferInput(name, list(np.shape(value)), "INT32")
        tensor.set_data_from_numpy(np.array(value, np.int32))
        inputs.append(tensor)
    streaming = triton.InferInput("streaming", [1, 1], "BOOL")
    streaming.set_data_from_numpy(np.array([[True]]))
    with triton.InferenceServerClient(unpaced.grpc) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("tensorrt_llm")
        assert not client.is_model_ready("other")
        assert client.get_server_metadata().name == "null"
        assert [tensor.datatype for tensor in client.get_model_metadata("ensemble").inputs][:3] == ["BYTES", "INT32", "BOOL"]
        before = client.get_inference_statistics("tensorrt_llm").model_stats[0].inference_count
        client.start_stream(lambda result, error: answers.put((result, error)))
        for number in range(5):
            client.async_stream_infer("tensorrt_llm", [*inputs, streaming], request_id=str(number))
        got = [answers.get(timeout=120) for _ in range(15)]
        client.stop_stream()
        after = client.get_inference_statistics("tensorrt_llm").model_stats[0].inference_count
    assert [error for _, error in got] == [None] * 15
    assert sorted(result.get_response().id for result, _ in got) == sorted("01234" * 3)
    assert all(result.as_numpy("output_ids").shape == (1, 1, 1) for result, _ in got)
    assert after - before == 5


@pytest.mark.parametrize(
    ("method", "request_message", "code"),
    [
        ("ModelConfig", service_pb2.ModelConfigRequest(name="other"), grpc.StatusCode.NOT_FOUND),
        ("ModelInfer", service_pb2.ModelInferRequest(model_name="tensorrt_llm"), grpc.StatusCode.INVALID_ARGUMENT),
        ("ModelInfer", service_pb2.ModelInferRequest(model_name="ensemble_unary"), grpc.StatusCode.INVALID_ARGUMENT),
        ("TraceSetting", service_pb2.TraceSettingRequest(), grpc.StatusCode.UNIMPLEMENTED),
    ],
)
def test_what_cannot_be_answered_ends_with_a_status(
    unpaced: NullServerAddresses, method: str, request_message: Any, code: grpc.StatusCode
) -> None:
    with grpc.insecure_channel(unpaced.grpc) as channel:
        call = channel.unary_unary(f"/inference.GRPCInferenceService/{method}")
        with pytest.raises(grpc.RpcError) as failure:
            call(request_message.SerializeToString(), timeout=60)
    assert failure.value.code() is code
    assert failure.value.details()


@pytest.mark.parametrize("tokens", [0, -3, 2_000_000])
def test_an_impossible_number_of_tokens_is_refused(unpaced: NullServerAddresses, tokens: int) -> None:
    with pytest.raises(Exception, match="tokens can be requested"):
        _ask(unpaced, "tensorrt_llm", [Request(tokens, input_ids=(1,))])


def test_a_response_that_fits_no_window_is_refused_instead_of_never_sent(unpaced: NullServerAddresses) -> None:
    with pytest.raises(Exception, match="do not fit one response"):
        _ask(unpaced, "tensorrt_llm", [Request(20_000, input_ids=(1,))], streaming=False)
    ((body,),) = _ask(unpaced, "tensorrt_llm", [Request(12_000, input_ids=(1,))], streaming=False)  # of several frames
    client = TritonGrpcClient(unpaced.grpc, inspect_model(unpaced.grpc, "tensorrt_llm"), False)
    assert len(client.decode(body).token_ids or ()) == 12_000


def test_a_client_that_reads_slowly_gets_everything(unpaced: NullServerAddresses) -> None:
    """grpcio opens its windows as it reads, so the server must stop and go on with it."""
    model = inspect_model(unpaced.grpc, "tensorrt_llm")
    message = TritonGrpcClient(unpaced.grpc, model, True).encode(0, Request(30_000, input_ids=(1,)))
    with grpc.insecure_channel(unpaced.grpc) as channel:
        call = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")(iter([message]), timeout=60)
        bodies = [next(call)]
        time.sleep(0.5)
        bodies += call
    stamps = [stamps.sent_ns for stamps in _stamps(bodies)]
    assert len(stamps) == 30_000
    assert stamps == sorted(stamps)


def _messages(connection: socket.socket, are_all: Callable[[Sequence[bytes]], bool]) -> list[bytes]:
    """The gRPC messages that come, each in a DATA frame of its own, until they are all, and what comes after them at once."""
    connection.settimeout(60.0)
    received = b""
    while not are_all(_messages_in(received)):
        part = connection.recv(65_536)
        assert part, "the server ended the connection"
        received += part
    connection.settimeout(0.2)
    with suppress(TimeoutError):
        received += connection.recv(65_536)
    return _messages_in(received)


def _messages_in(received: bytes) -> list[bytes]:
    messages = []
    while len(received) >= 9 and len(received) >= 9 + (size := int.from_bytes(received[:3])):
        messages += [received[9 : 9 + size]] if received[3] == FrameType.DATA else []
        received = received[9 + size :]
    return messages


def test_no_more_is_sent_than_the_clients_window_allows_and_stamped_when_it_goes(unpaced: NullServerAddresses) -> None:
    host, _, port = unpaced.grpc.rpartition(":")
    client = TritonGrpcClient(unpaced.grpc, inspect_model(unpaced.grpc, "tensorrt_llm"), True)
    message = client.encode(0, Request(10, input_ids=(1,)))
    headers = b"".join(
        b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value
        for name, value in ((b":path", b"/inference.GRPCInferenceService/ModelStreamInfer"), (b":method", b"POST"))
    )
    with socket.create_connection((host, int(port)), timeout=120) as connection:
        small = struct.pack(">HI", Setting.INITIAL_WINDOW_SIZE, 500)
        connection.sendall(PREFACE + frame(FrameType.SETTINGS, 0, 0, small) + frame(FrameType.HEADERS, 4, 1, headers))
        connection.sendall(frame(FrameType.DATA, 1, 1, struct.pack(">BI", 0, len(message)) + message))
        first = _messages(connection, lambda came: bool(came) and sum(map(len, came)) + len(came[0]) > 500)
        resumed_ns = now_ns()
        connection.sendall(frame(FrameType.WINDOW_UPDATE, 0, 1, struct.pack(">I", 10_000)))
        rest = _messages(connection, lambda came: len(first) + len(came) >= 10)
    assert sum(map(len, first)) <= 500 < sum(map(len, first)) + len(first[0])
    assert len(first) + len(rest) == 10
    assert all(stamps.sent_ns < resumed_ns for stamps in _stamps([body[5:] for body in first]))
    assert all(stamps.sent_ns > resumed_ns for stamps in _stamps([body[5:] for body in rest]))


def test_a_broken_off_stream_is_not_answered_further_and_the_connection_goes_on(paced: NullServerAddresses) -> None:
    client = TritonGrpcClient(paced.grpc, inspect_model(paced.grpc, "tensorrt_llm"), True)

    async def ask() -> int:
        connection = await client.connect(10.0)
        bodies: list[bytes] = []
        for _ in range(3):
            endless = client.encode(0, Request(1_000_000, input_ids=(1,)))
            broken_off = asyncio.create_task(connection.exchange(endless, lambda _, arrived: None, 60.0))
            await asyncio.sleep(0.05)
            broken_off.cancel()
            await connection.exchange(client.encode(1, _REQUEST), lambda _, arrived: bodies.extend(arrived), 60.0)
        await connection.close()
        return len(bodies)

    assert uvloop.run(ask()) == 21


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\n\r\n", PREFACE + b"\xff" * 64, PREFACE + frame(FrameType.HEADERS, 4, 1, b"\xff")]
)
def test_garbage_ends_its_own_connection_alone(unpaced: NullServerAddresses, garbage: bytes) -> None:
    host, _, port = unpaced.grpc.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=120) as connection:
        connection.sendall(garbage)
        try:
            while connection.recv(65_536):
                pass
        except ConnectionResetError:
            pass
    assert len(_ask(unpaced, "tensorrt_llm", [_REQUEST])[0]) == 7


# ---- HTTP


@dataclass(frozen=True)
class _Answer:
    status: int
    content_type: str
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[bytes]:
        assert self.status == 200
        assert self.content_type.startswith("text/event-stream")
        events = self.body.split(b"\n\n")
        assert events.pop() == b""
        assert all(event.startswith(b"data: ") for event in events)
        return [event.removeprefix(b"data: ") for event in events]


def _http(addresses: NullServerAddresses, method: str, path: str, body: Any = None) -> _Answer:
    connection = http.client.HTTPConnection(addresses.http, timeout=120)
    connection.request(method, path, body if isinstance(body, bytes | None) else json.dumps(body))
    response = connection.getresponse()
    answer = _Answer(response.status, response.headers["content-type"], response.read())
    connection.close()
    return answer


def _chat(**fields: Any) -> dict[str, Any]:
    return {"model": "any", "messages": [{"role": "user", "content": "two words"}], "max_tokens": 7} | fields


def test_chat_completions_stream_chunks_as_openai_does(paced: NullServerAddresses) -> None:
    asked = _chat(stream=True, stream_options={"include_usage": True})
    *chunks, end, usage, done = _http(paced, "POST", "/v1/chat/completions", asked).events
    assert done == b"[DONE]"
    texts = [json.loads(chunk)["choices"][0]["delta"]["content"] for chunk in chunks]
    assert texts == [" token"] * 7
    assert json.loads(end)["choices"][0]["finish_reason"] == "length"
    assert json.loads(usage)["choices"] == []
    assert json.loads(usage)["usage"] == {"prompt_tokens": 2, "completion_tokens": 7, "total_tokens": 9}
    assert len({json.loads(event)["id"] for event in (*chunks, end, usage)}) == 1
    for position, stamp in enumerate(_stamps(chunks, stamps_of_event)):
        assert stamp.sent_ns >= stamp.received_ns + FIRST_TOKEN_NS + position * GAP_NS
    assert json.loads(chunks[0])["sent_ns"] == _stamps(chunks, stamps_of_event)[0].sent_ns


def test_chat_completions_have_the_usage_only_where_requested(unpaced: NullServerAddresses) -> None:
    events = _http(unpaced, "POST", "/v1/chat/completions", _chat(stream=True)).events
    assert len(events) == 7 + 2
    assert b"usage" not in b"".join(events)


def test_chat_completions_unstreamed(unpaced: NullServerAddresses) -> None:
    answer = _http(unpaced, "POST", "/v1/chat/completions", _chat()).document
    assert answer["choices"][0]["message"]["content"] == " token" * 7
    assert answer["usage"]["completion_tokens"] == 7
    assert answer["sent_ns"] >= answer["received_ns"] > 0


@pytest.mark.parametrize(("prompt", "prompt_tokens"), [("two words", 2), ([5, 6, 7], 3)])
def test_completions_continue_text_and_token_ids(unpaced: NullServerAddresses, prompt: Any, prompt_tokens: int) -> None:
    asked = {"prompt": prompt, "max_tokens": 7}
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": 7, "total_tokens": prompt_tokens + 7}
    whole = _http(unpaced, "POST", "/v1/completions", asked).document
    assert (whole["object"], whole["choices"][0]["text"], whole["usage"]) == ("text_completion", " token" * 7, usage)
    streamed = asked | {"stream": True, "stream_options": {"include_usage": True}}
    *chunks, end, counted, done = _http(unpaced, "POST", "/v1/completions", streamed).events
    assert [json.loads(chunk)["choices"][0]["text"] for chunk in chunks] == [" token"] * 7
    assert (json.loads(end)["choices"][0]["finish_reason"], json.loads(counted)["usage"]) == ("length", usage)
    assert done == b"[DONE]"


@pytest.mark.parametrize(
    ("model", "asked", "field", "content"),
    [
        ("ensemble", {"text_input": "hi", "max_tokens": 7, "stream": True}, "text_output", " token"),
        ("tensorrt_llm", {"input_ids": [1, 2], "request_output_len": 7, "streaming": True}, "output_ids", 1000),
    ],
)
def test_generate_stream_gives_an_event_a_token(
    unpaced: NullServerAddresses, model: str, asked: dict[str, Any], field: str, content: Any
) -> None:
    events = _http(unpaced, "POST", f"/v2/models/{model}/generate_stream", asked).events
    assert [json.loads(event)[field] for event in events] == [content] * 7
    assert len(_stamps(events, stamps_of_event)) == 7


def test_generate_gives_everything_at_once(unpaced: NullServerAddresses) -> None:
    asked = {"text_input": "hi", "max_tokens": 7}
    answer = _http(unpaced, "POST", "/v2/models/ensemble_unary/generate", asked).document
    assert answer["text_output"] == " token" * 7


def test_one_connection_serves_one_request_after_the_other(unpaced: NullServerAddresses) -> None:
    connection = http.client.HTTPConnection(unpaced.http, timeout=120)
    for path, body in (
        ("/v1/chat/completions", _chat(stream=True)),
        ("/v1/chat/completions", _chat()),
        ("/v2/models/ensemble/generate_stream", {"max_tokens": 2, "stream": True}),
    ):
        connection.request("POST", path, json.dumps(body))
        response = connection.getresponse()
        assert response.status == 200
        assert response.read()
    local_port = connection.sock.getsockname()[1]
    connection.request("GET", "/v1/models")
    assert json.loads(connection.getresponse().read())["data"][0]["id"] == "null"
    assert connection.sock.getsockname()[1] == local_port
    connection.close()


def test_clients_that_send_no_more_behind_their_request_are_answered(unpaced: NullServerAddresses) -> None:
    host, _, port = unpaced.http.rpartition(":")
    ends = [socket.create_connection((host, int(port)), timeout=120) for _ in range(30)]
    for end in ends:
        end.sendall(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")
        end.shutdown(socket.SHUT_WR)
    for end in ends:
        with end:
            assert b"200 OK" in b"".join(iter(lambda end=end: end.recv(65536), b""))


def test_requests_sent_ahead_are_answered_in_their_order(unpaced: NullServerAddresses) -> None:
    host, _, port = unpaced.http.rpartition(":")
    bodies = [json.dumps(_chat(stream=True, model=f"m{number}")).encode() for number in range(3)]
    requests = [b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body) for body in bodies]
    whole = b"".join(requests) + b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=120) as connection:
        for start in range(0, len(whole), 50):  # torn anywhere
            connection.sendall(whole[start : start + 50])
        received = b""
        while part := connection.recv(65_536):
            received += part
    assert received.count(b"HTTP/1.1 200 OK") == 4
    order = [received.index(b'"model":"m%d"' % number) for number in range(3)]
    assert order == sorted(order)


def test_an_http_client_that_reads_slowly_gets_everything(unpaced: NullServerAddresses) -> None:
    asked = {"max_tokens": 150_000, "stream": True}  # 24 MB, more than any socket buffers
    connection = http.client.HTTPConnection(unpaced.http, timeout=120)
    connection.request("POST", "/v2/models/ensemble/generate_stream", json.dumps(asked))
    response = connection.getresponse()
    received = response.read(100)
    time.sleep(0.5)
    resumed_ns = now_ns()
    received += response.read()
    connection.close()
    events = received.split(b"\n\n")[:-1]
    assert len(events) == 150_000
    assert _stamps(events[-1:], stamps_of_event)[0].sent_ns > resumed_ns


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/chat/completions", b"{", 400),
        ("/v1/chat/completions", b"[]", 400),
        ("/v1/chat/completions", b'{"model": "\xe4"}', 400),
        ("/v1/chat/completions", b"[" * 1_200, 400),
        ("/v1/chat/completions", b'{"max_tokens": "7"}', 400),
        ("/v1/chat/completions", b'{"max_tokens": 0}', 400),
        ("/v2/models/ensemble_unary/generate_stream", b'{"max_tokens": 3, "stream": true}', 400),
        ("/v2/models/other/generate", b"{}", 404),
        ("/nowhere", b"{}", 404),
    ],
)
def test_bad_http_requests_get_the_reason(unpaced: NullServerAddresses, path: str, body: bytes, status: int) -> None:
    answer = _http(unpaced, "POST", path, body)
    assert answer.status == status
    assert answer.document["error"]


def test_models_are_described_alike_over_both_protocols(unpaced: NullServerAddresses) -> None:
    for name in ("tensorrt_llm", "tensorrt_llm_unary", "ensemble", "ensemble_unary"):
        config = _http(unpaced, "GET", f"/v2/models/{name}/config").document
        model = inspect_model(unpaced.grpc, name)
        assert config["model_transaction_policy"]["decoupled"] is model.decoupled
        assert {tensor["name"] for tensor in config["input"]} == model.inputs
        assert {tensor["name"] for tensor in config["output"]} == model.outputs
        assert _http(unpaced, "GET", f"/v2/models/{name}/ready").status == 200
    assert _http(unpaced, "GET", "/v2/models/other/ready").status == 404


# ---- the process


def test_it_ends_with_the_block() -> None:
    with null_server() as addresses:
        assert psutil.pid_exists(addresses.pid)
    assert not psutil.pid_exists(addresses.pid)


def test_it_ends_when_its_owner_is_killed() -> None:
    script = (
        "import time; from harness.calibration.null_server.server import null_server\n"
        "with null_server() as a: print(a.pid, flush=True); time.sleep(60)"
    )
    owner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    server = psutil.Process(int(owner.stdout.readline()))
    owner.kill()
    owner.wait()
    owner.stdout.close()
    server.wait(timeout=120)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_as_a_command_it_prints_its_ports_and_ends_on_a_signal(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "harness.calibration.null_server.server", "--grpc_port", "0"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        addresses = json.loads(server.stdout.readline())
        assert addresses["pid"] == server.pid
        assert len(_ask(NullServerAddresses(**addresses), "tensorrt_llm", [_REQUEST])[0]) == 7
        os.kill(server.pid, number)
        assert server.wait(timeout=120) == 0
        assert server.stderr.read() == b""


def test_a_port_that_is_taken_is_an_error_and_no_hang(unpaced: NullServerAddresses) -> None:
    port = int(unpaced.grpc.rpartition(":")[2])
    with pytest.raises(RunError, match="did not start"), null_server(NullServerOptions(grpc_port=port)):
        pass

"""Triton's generate extension, of ``bench -i http``, and its infer, compared with gRPC on the same real server."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import uvloop

from bench_records.record import Outcome
from bench_records.run_folder import RunFolder
from harness.clients.protocol import Client, ExchangeFailedError, Response
from harness.clients.triton import grpc as triton_grpc
from harness.clients.triton import http as triton_http
from harness.clients.triton.grpc import TritonGrpcClient
from harness.clients.triton.http import TritonHttpClient
from harness.clients.triton.http_infer import TritonHttpInferClient
from harness.protocols.triton_http import TritonHttp
from serving.launch.server import Server
from tests.end_to_end.test_bench import assert_all_done, bench
from tests.end_to_end.triton_calls import generated_tokens, wait_until_busy, wait_until_idle
from workloads.elements.request import Request

_SAME = ("outcome", "input_tokens", "output_tokens", "output_tokens_source", "prompt_echoed", "requested_output_tokens")
_REQUESTS = [
    Request(output_tokens=12, prompt="What is machine learning?", input_ids=(5, 6, 7)),
    Request(output_tokens=30, prompt="Grüße an die Welt 🌍", input_ids=tuple(range(20, 60))),
    Request(output_tokens=1, prompt="x", input_ids=(9,)),
    Request(output_tokens=40, prompt="The sea\nis wide.", input_ids=(11, 12), ignore_eos=True),
]


async def _answers(client: Client) -> list[list[Response]]:
    connection = await client.connect(10.0)

    async def one(number: int, request: Request) -> list[Response]:
        bodies: list[bytes] = []
        await connection.exchange(client.encode(number, request), lambda _, arrived: bodies.extend(arrived), 60.0)
        return [client.decode(body) for body in bodies]

    answers = await asyncio.gather(*(one(number, request) for number, request in enumerate(_REQUESTS)))
    await connection.close()
    return list(answers)


def _whole(answer: Sequence[Response]) -> tuple[object, ...]:
    """An answer, independent of the distribution of its tokens over responses."""
    assert not [response.error for response in answer if response.error is not None]
    return (
        tuple(token for response in answer for token in response.token_ids or ()),
        "".join(response.text or "" for response in answer),
        sum(response.server_tokens or 0 for response in answer),
        {response.server_input_tokens for response in answer},
    )


@pytest.mark.parametrize("model", ["tensorrt_llm", "ensemble", "tensorrt_llm_bls"])
@pytest.mark.parametrize(
    ("mode", "streaming"), [("decoupled_server", True), ("decoupled_server", False), ("plain_server", False)]
)
def test_answers_are_those_of_grpc(request: pytest.FixtureRequest, model: str, mode: str, streaming: bool) -> None:
    server: Server = request.getfixturevalue(mode)
    origin = TritonHttp().address(server.addresses.http, None)
    by_grpc, by_http = triton_grpc.inspect_model(server.addresses.grpc, model), triton_http.inspect_model(origin, model, {})
    assert by_http == by_grpc
    of_grpc = uvloop.run(_answers(TritonGrpcClient(server.addresses.grpc, by_grpc, streaming, 2, 0)))
    of_http = uvloop.run(_answers(TritonHttpClient(origin, by_http, streaming, 2, 0)))
    assert [_whole(answer) for answer in of_http] == [_whole(answer) for answer in of_grpc]
    assert all(len(answer) == 1 for answer in of_http) or streaming
    if not by_http.decoupled:
        of_infer = uvloop.run(_answers(TritonHttpInferClient(origin, by_http, False, 2, 0)))
        assert [_whole(answer) for answer in of_infer] == [_whole(answer) for answer in of_grpc]
        assert [answer[0].request_id for answer in of_infer] == ["0", "1", "2", "3"]
    assert [len(tokens) or count for tokens, _, count, _ in map(_whole, of_http)][2:] == [1, 40]  # type: ignore[arg-type]


@pytest.mark.parametrize("model", ["tensorrt_llm", "ensemble", "tensorrt_llm_bls"])
@pytest.mark.slow
def test_one_schedule_over_http_and_grpc_gives_the_same_records(decoupled_server: Server, tmp_path: Path, model: str) -> None:
    addresses = decoupled_server.addresses
    found = []
    for protocol, url in (("grpc", addresses.grpc), ("http", f"http://{addresses.http}")):
        target = ["-i", protocol, "--url", url, "--model", model, "--run_dir", protocol]
        assert_all_done(
            bench("dataset", "--num_requests", "20", "--request_rate", "20", *target, cwd=tmp_path), tmp_path / protocol
        )
        folder = RunFolder(tmp_path / protocol)
        rows = [[row[name] for name in _SAME] for row in folder.read_requests().to_pylist()]
        found.append((rows, folder.read_document()[0]["schedule"]))
    assert found[0] == found[1]


def test_embedded_pipeline_is_driven_over_http(tmp_path: Path) -> None:
    traffic = ["--num_requests", "5", "--warmup_requests", "1", "--request_rate", "20"]
    result = bench("dataset", "-i", "http", "-m", "ensemble", *traffic, "--run_dir", "run", cwd=tmp_path)
    assert_all_done(result, tmp_path / "run")
    target = json.loads((tmp_path / "run" / "run.json").read_text())["target"]
    assert (target["protocol"], target["embedded"], target["streaming"]) == ("http", True, True)
    assert target["address"].startswith("http://127.0.0.1:")


def test_model_error_is_a_server_error_with_its_message(decoupled_server: Server) -> None:
    origin = TritonHttp().address(decoupled_server.addresses.http, None)
    client = TritonHttpClient(origin, triton_http.inspect_model(origin, "tensorrt_llm", {}), streaming=True)

    async def run() -> ExchangeFailedError:
        connection = await client.connect(10.0)
        payload = client.encode(0, Request(output_tokens=3, input_ids=(5, 99_999_999)))
        with pytest.raises(ExchangeFailedError) as caught:
            await connection.exchange(payload, lambda _, arrived: None, 30.0)
        await connection.close()
        return caught.value

    failed = uvloop.run(run())
    assert failed.outcome is Outcome.SERVER_ERROR
    assert "HTTP status 400: input_ids holds 99999999" in str(failed)


def test_requests_beyond_a_full_queue_are_rejected(narrow_server: Server, tmp_path: Path) -> None:
    lengths = ["--input_mean", "20", "--input_stdev", "0", "--output_mean", "300", "--output_stdev", "0"]
    target = ["-i", "http", "--url", narrow_server.addresses.http, "--run_dir", "run", "--warmup_requests", "0"]
    load = ["--num_requests", "8", "--workers", "1"]  # all sent before the first answer ends
    result = bench("token_norm_dist", *lengths, *load, *target, cwd=tmp_path)
    assert result.returncode == 1
    requests = json.loads((tmp_path / "run" / "summary.json").read_text())["requests"]
    assert (requests["done"], requests["by_kind"]) == (3, {"refused": 5})  # one runs, two wait


def test_server_is_notified_of_a_cancelled_request(decoupled_server: Server) -> None:
    origin = TritonHttp().address(decoupled_server.addresses.http, None)
    client = TritonHttpClient(origin, triton_http.inspect_model(origin, "tensorrt_llm", {}), streaming=True)

    async def run() -> None:
        connection = await client.connect(10.0)
        payload = client.encode(0, Request(output_tokens=1_000, input_ids=(5, 6, 7), ignore_eos=True))
        tasks = [asyncio.create_task(connection.exchange(payload, lambda _, arrived: None, 60.0)) for _ in range(24)]
        await asyncio.to_thread(wait_until_busy, decoupled_server, len(tasks))
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ended)
        await connection.close()

    before = generated_tokens(wait_until_idle(decoupled_server))
    uvloop.run(run())
    assert generated_tokens(wait_until_idle(decoupled_server)) - before < 12_000

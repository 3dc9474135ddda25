"""The OpenAI front end before the real server: the same tokens and texts as over gRPC, errors, and requests that end early."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyarrow.parquet import read_table

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.front_end.settings import FrontEndSettings, front_end_command
from serving.launch.server import Server
from serving.text.tokenizer import load_tokenizer
from tests.end_to_end.test_bench import bench, descendants_of
from tests.end_to_end.triton_calls import (
    core_inputs,
    generated_tokens,
    ids_of,
    int32,
    stream,
    wait_until_busy,
    wait_until_idle,
)
from tests.free_port import free_addresses

_TOKENIZER = load_tokenizer(DEMO_ENGINE_DIR)
_PROMPT = "The meaning of life is"
_IDS = _TOKENIZER.encode(_PROMPT)
_TOKENS = 24
_CONTEXT = 4096
_GREEDY = {"model": "demo", "temperature": 0, "max_tokens": _TOKENS, "ignore_eos": True}
_CHAT = {"messages": [{"role": "user", "content": _PROMPT}]}
_WAIT_S = 60.0


@dataclass(frozen=True)
class _FrontEnd:
    """A running front end."""

    host: str
    port: int

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=_WAIT_S)
        text = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, text, headers)
        return connection.getresponse()

    def post(self, path: str, **body: Any) -> Any:
        answer = self.request("POST", path, body)
        assert answer.status == 200, answer.read()
        return json.load(answer)

    def events(self, path: str, **body: Any) -> list[Any]:
        """The events of a stream, without the marker of its end."""
        answer = self.request("POST", path, {**body, "stream": True})
        assert answer.status == 200, answer.read()
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        *events, done, rest = answer.read().decode().split("\n\n")
        assert (done, rest) == ("data: [DONE]", "")
        return [json.loads(event.removeprefix("data: ")) for event in events]

    def error(self, path: str, **body: Any) -> tuple[int, Any]:
        answer = self.request("POST", path, body)
        return answer.status, json.load(answer)["error"]


@pytest.fixture(scope="module")
def front_end(decoupled_server: Server) -> Iterator[_FrontEnd]:
    """Before the session's server; the process that ``bench serve --openai_port`` starts."""
    addresses = free_addresses()
    server = decoupled_server.addresses
    settings = FrontEndSettings(
        addresses.host,
        addresses.http_port,
        server.grpc,
        f"http://{server.http}",
        f"http://{server.metrics}/metrics",
        "demo",
        str(DEMO_ENGINE_DIR),
        _CONTEXT,
    )
    process = subprocess.Popen(front_end_command(settings))
    front_end = _FrontEnd(settings.host, settings.port)
    try:
        _wait_until(lambda: _is_healthy(front_end, process))
        yield front_end
    finally:
        process.terminate()
        assert process.wait(_WAIT_S) == 0


def _is_healthy(front_end: _FrontEnd, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None
    try:
        return front_end.request("GET", "/health").status == 200
    except OSError:
        return False


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def expected_ids(decoupled_server: Server) -> list[int]:
    """The greedy answer to the prompt over gRPC."""
    [responses] = stream(decoupled_server, "tensorrt_llm", [core_inputs(_IDS, _TOKENS, end_id=int32(-1))])
    ids = ids_of([response for response in responses if response.as_numpy("output_ids") is not None])
    assert len(ids) == _TOKENS
    return ids


def test_every_form_gives_the_tokens_and_text_of_grpc(front_end: _FrontEnd, expected_ids: list[int]) -> None:
    text = _TOKENIZER.decode(expected_ids, skip_special_tokens=True)
    usage = {"prompt_tokens": len(_IDS), "completion_tokens": _TOKENS, "total_tokens": len(_IDS) + _TOKENS}
    for prompt in (_PROMPT, _IDS):
        answer = front_end.post("/v1/completions", prompt=prompt, return_token_ids=True, **_GREEDY)
        [choice] = answer["choices"]
        assert (choice["text"], choice["token_ids"], choice["finish_reason"]) == (text, expected_ids, "length")
        assert (choice["prompt_token_ids"], answer["usage"]) == (_IDS, usage)
    answer = front_end.post("/v1/chat/completions", **_CHAT, **_GREEDY)
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": text}
    assert answer["usage"] == usage
    options = {"stream_options": {"include_usage": True}, "return_token_ids": True}
    for path, prompt_fields, read in (
        ("/v1/completions", {"prompt": _IDS}, lambda choice: choice["text"]),
        ("/v1/chat/completions", _CHAT, lambda choice: choice["delta"]["content"]),
    ):
        *chunks, last = front_end.events(path, **prompt_fields, **options, **_GREEDY)
        choices = [choice for chunk in chunks for choice in chunk["choices"]]
        assert "".join(map(read, choices)) == text
        assert [id_ for choice in choices for id_ in choice.get("token_ids", ())] == expected_ids
        assert [choice["finish_reason"] for choice in choices][-2:] == [None, "length"]
        whole = chunks if path == "/v1/chat/completions" else choices
        assert [of.get("prompt_token_ids") for of in whole] == [_IDS, *[None] * (len(whole) - 1)]
        assert (last["choices"], last["usage"]) == ([], usage)
        assert {chunk["usage"] for chunk in chunks} == {None}


def test_several_prompts_with_several_choices_each(front_end: _FrontEnd, expected_ids: list[int]) -> None:
    answer = front_end.post("/v1/completions", prompt=[_IDS, [*_IDS, 9]], n=2, echo=True, return_token_ids=True, **_GREEDY)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    first, second, third, fourth = (choice["token_ids"] for choice in answer["choices"])
    assert first == second == expected_ids
    assert third == fourth != expected_ids
    assert answer["usage"]["completion_tokens"] == 4 * _TOKENS
    for echo in (False, True):
        fields = {"prompt": [_IDS, [*_IDS, 9]], "n": 2, "echo": echo, "return_token_ids": True}
        by_index: dict[int, list[int]] = {index: [] for index in range(4)}
        prompts: dict[int, list[list[int] | None]] = {index: [] for index in range(4)}
        for [choice] in (chunk["choices"] for chunk in front_end.events("/v1/completions", **fields, **_GREEDY)):
            by_index[choice["index"]] += choice.get("token_ids", [])
            prompts[choice["index"]].append(choice.get("prompt_token_ids"))
        assert list(by_index.values()) == [first, second, third, fourth]
        assert [ids for ids, *_ in prompts.values()] == [_IDS, _IDS, [*_IDS, 9], [*_IDS, 9]]
        assert not any(any(later) for _, *later in prompts.values())


def test_stop_text_and_length_end_an_answer(front_end: _FrontEnd, expected_ids: list[int]) -> None:
    text = _TOKENIZER.decode(expected_ids, skip_special_tokens=True)
    stop = text[12:15]
    answer = front_end.post("/v1/completions", prompt=_IDS, stop=[stop], **_GREEDY)
    [choice] = answer["choices"]
    assert (choice["text"], choice["finish_reason"]) == (text[: text.index(stop)], "stop")
    assert answer["usage"]["completion_tokens"] < _TOKENS
    ended = front_end.post("/v1/completions", prompt=_IDS, stop_token_ids=[expected_ids[3]], **_GREEDY)
    assert ended["choices"][0]["finish_reason"] == "stop"
    assert ended["usage"]["completion_tokens"] == expected_ids.index(expected_ids[3]) + 1


def test_log_probabilities_of_the_engine_and_of_the_logits_agree(front_end: _FrontEnd) -> None:
    alone = front_end.post("/v1/chat/completions", logprobs=True, **_CHAT, **_GREEDY)["choices"][0]["logprobs"]["content"]
    beside = front_end.post("/v1/chat/completions", logprobs=True, top_logprobs=2, **_CHAT, **_GREEDY)
    content = beside["choices"][0]["logprobs"]["content"]
    assert [token["token"] for token in alone] == [token["token"] for token in content]
    assert len(alone) == _TOKENS
    assert [token["logprob"] for token in alone] == pytest.approx([token["logprob"] for token in content], abs=1e-3)
    assert all(token["top_logprobs"][0]["logprob"] == token["logprob"] for token in content)  # greedy: the likeliest


@pytest.mark.parametrize(("path", "prompt"), [("/v1/completions", {"prompt": _IDS}), ("/v1/chat/completions", _CHAT)])
def test_times_of_the_engine_are_in_the_form_of_vllm(front_end: _FrontEnd, path: str, prompt: dict[str, Any]) -> None:
    fields = {**prompt, **_GREEDY, "include_metrics": True}
    began_ns = time.monotonic_ns()
    whole = front_end.post(path, **fields)["metrics"]
    waited_ms = (time.monotonic_ns() - began_ns) / 1e6
    *chunks, last = front_end.events(path, **fields, stream_options={"include_usage": True})
    assert not any("metrics" in chunk for chunk in chunks)
    for metrics in (whole, last["metrics"]):
        prefill_ms, decode_ms = metrics["time_to_first_token_ms"], metrics["generation_time_ms"]
        assert min(prefill_ms, decode_ms, metrics["queue_time_ms"]) > 0.0
        assert metrics["mean_itl_ms"] == pytest.approx(decode_ms / (_TOKENS - 1))
        assert metrics["tokens_per_second"] == pytest.approx(_TOKENS / (prefill_ms + decode_ms) * 1e3)
    assert whole["queue_time_ms"] + whole["time_to_first_token_ms"] + whole["generation_time_ms"] < waited_ms
    unrequested = front_end.post(path, **prompt, **_GREEDY)
    several = front_end.post(path, **fields, n=2)
    assert "metrics" not in unrequested.keys() | several.keys()
    assert not any("metrics" in chunk for chunk in front_end.events(path, **fields))  # no chunk has a usage


@pytest.mark.parametrize("protocol", ["openai", "openai_completions"])
def test_measurement_has_the_times_of_the_engine(front_end: _FrontEnd, tmp_path: Path, protocol: str) -> None:
    """As vLLM, the front end sends no arrival, so that the time before and after the engine has no source."""
    target = ("-i", protocol, "--url", f"http://{front_end.host}:{front_end.port}", "--server_timings", "--run_dir", "run")
    load = ("--num_requests", "20", "--request_rate", "40", "--ignore_eos", "--isl", "32", "--osl", "9")
    done = bench("token_norm_dist", *load, *target, cwd=tmp_path)
    assert done.returncode in (0, 3), done.stderr  # a busy machine may send late
    for request in read_table(tmp_path / "run" / "requests.parquet").to_pylist():
        assert min(request[f"server_{phase}_ns"] for phase in ("queue", "prefill", "decode")) > 0
        assert request["server_arrival_ns"] is None
    explained = bench("why", "run", "--format", "json", cwd=tmp_path)
    for latency in json.loads(explained.stdout)["runs"][0]["latencies"]:
        last = latency["percentiles"][-1]
        phases = {phase["phase"]: phase["mean_ms"]["value"] for phase in last["phases"]}
        assert (last["timed"], last["contradicted"]) == (20, 0)
        assert min(phases["queue"], phases["prefill"], phases["unattributed"]) > 0.0
        assert sum(phases.values()) == pytest.approx(last["mean_ms"])


def test_seed_repeats_an_answer(front_end: _FrontEnd) -> None:
    def sampled(**fields: Any) -> Any:
        return front_end.post("/v1/completions", **_GREEDY | {"prompt": _IDS, "temperature": 1.0} | fields)["choices"][0][
            "text"
        ]

    assert sampled(seed=7) == sampled(seed=7) != sampled(seed=8)
    assert sampled() != sampled()


@pytest.mark.parametrize(
    ("fields", "status", "message", "code"),
    [
        ({"model": "gpt"}, 404, "The model 'gpt' does not exist", "model_not_found"),
        (
            {"max_tokens": 5000},
            400,
            "This model's maximum context length is 4096 tokens. However, you",
            "context_length_exceeded",
        ),
        ({"prompt": [1, 99999]}, 400, "input_ids holds 99999, which is outside the vocabulary", None),
        ({"prompt": [1, 99999], "stream": True}, 400, "input_ids holds 99999, which is outside the vocabulary", None),
        ({"foo": 1}, 400, "Unrecognized request argument supplied: foo", None),
    ],
)
def test_error_has_openais_form(
    front_end: _FrontEnd, fields: dict[str, Any], status: int, message: str, code: str | None
) -> None:
    answered, error = front_end.error("/v1/completions", **{"prompt": _IDS} | _GREEDY | fields)
    assert (answered, error["type"], error["code"]) == (status, "invalid_request_error", code)
    assert error["message"].startswith(message)


def test_an_error_names_the_field_of_its_endpoint(front_end: _FrontEnd) -> None:
    too_long = {**_GREEDY, "max_tokens": _CONTEXT}
    assert front_end.error("/v1/completions", prompt=_PROMPT, **too_long)[1]["param"] == "prompt"
    assert front_end.error("/v1/chat/completions", **_CHAT, **too_long)[1]["param"] == "messages"


@pytest.mark.parametrize("stream", [False, True])
def test_no_token_and_no_text_ends_an_answer_before_its_least_tokens(
    front_end: _FrontEnd, expected_ids: list[int], stream: bool
) -> None:
    first, second = expected_ids[2], expected_ids[9]
    assert first not in expected_ids[8:], "the answer is not what this test needs"
    assert second not in expected_ids[:8], "the answer is not what this test needs"
    bodies = (
        {"stop_token_ids": [second, first]},  # the engine knows the first of them, and does not choose it before
        {"stop": [_TOKENIZER.decode([first]), _TOKENIZER.decode([second])]},
    )
    for body in bodies:
        request = {"prompt": _IDS, "min_tokens": 8, "return_token_ids": True, **_GREEDY, **body}
        if stream:
            choices = [event["choices"][0] for event in front_end.events("/v1/completions", **request)]
        else:
            choices = front_end.post("/v1/completions", **request)["choices"]
        assert [token for choice in choices for token in choice["token_ids"]] == expected_ids[:10]
        assert choices[-1]["finish_reason"] == "stop"


def test_invalid_requests_at_once_leave_the_server_running(front_end: _FrontEnd, decoupled_server: Server) -> None:
    def ask(number: int) -> int:
        return front_end.error("/v1/completions", **_GREEDY | {"prompt": [[number, 99999]] * 8})[0]

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(ask, range(100))) == {400}
    assert decoupled_server.is_running()


def test_routes_and_ids(front_end: _FrontEnd) -> None:
    assert [model["id"] for model in json.load(front_end.request("GET", "/v1/models"))["data"]] == ["demo"]
    assert json.load(front_end.request("GET", "/v1/models/demo"))["max_model_len"] == _CONTEXT
    assert front_end.request("GET", "/v1/models/other").status == 404
    assert "nv_inference_request_success" in front_end.request("GET", "/metrics").read().decode()
    assert json.load(front_end.request("GET", "/v1/engines"))["error"]["message"] == "Unknown request URL: GET /v1/engines."
    assert front_end.request("GET", "/v1/completions").status == 405
    assert front_end.request("POST", "/v1/completions", b"{").status == 400
    assert front_end.request("GET", "/v1/models", Origin="http://evil.example").status == 403
    for path, body, prefix in (("/v1/completions", {"prompt": _IDS}, "cmpl-"), ("/v1/chat/completions", _CHAT, "chatcmpl-")):
        for streams in (False, True):
            answer = front_end.request("POST", path, {**_GREEDY, **body, "stream": streams}, **{"X-Request-ID": "mine-1"})
            assert answer.headers["X-Request-ID"] == "mine-1"
            assert f'"id":"{prefix}mine-1"' in answer.read().decode()
    assert re.fullmatch("[0-9a-f]{32}", front_end.request("GET", "/health").headers["X-Request-ID"])
    listed = json.load(front_end.request("GET", "/v1/models"))["data"]
    assert json.load(front_end.request("GET", "/server_info")) == {"served_model_name": listed[0]["id"]}


def test_client_that_leaves_ends_its_request_at_the_engine(front_end: _FrontEnd, decoupled_server: Server) -> None:
    before = generated_tokens(wait_until_idle(decoupled_server))
    for streams in (True, False):
        connection = http.client.HTTPConnection(front_end.host, front_end.port, timeout=_WAIT_S)
        body = _GREEDY | {"prompt": _IDS, "max_tokens": 4000, "stream": streams}
        connection.request("POST", "/v1/completions", json.dumps(body))
        wait_until_busy(decoupled_server)
        connection.close()
        page = wait_until_idle(decoupled_server)
    assert generated_tokens(page) - before < 2 * 4000


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["openai", "openai_completions"])
def test_measurement_without_a_url_deploys_the_front_end(tmp_path: Path, protocol: str) -> None:
    greedy = json.dumps({"temperature": 0})
    command = ("token_norm_dist", "-i", protocol, "--extra_body", greedy, "--num_requests", "4", "--ignore_eos", "--osl", "9")
    done = bench(*command, "--run_dir", "run", cwd=tmp_path)
    assert done.returncode in (0, 3), done.stderr  # a busy machine may send late
    requests = read_table(tmp_path / "run" / "requests.parquet").to_pylist()
    assert [request["output_tokens"] for request in requests] == [9] * 4
    assert not descendants_of(str(tmp_path))

"""Requests and answers of Triton's infer over HTTP."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.clients.answer_limits import DEFAULT_ANSWER_LIMITS
from harness.clients.protocol import MalformedResponseError, Response
from harness.clients.server_times import STAMPS, ServerTimes
from harness.clients.transport.url import Origin
from harness.clients.triton.http_infer import TritonHttpInferClient
from harness.clients.triton.model import TritonModel
from harness.errors import TargetError
from harness.protocols.protocol import ClientSettings
from harness.protocols.triton_http_infer import TritonHttpInfer
from workloads.elements.request import Request, Variant

_ORIGIN = Origin("http", "127.0.0.1", 8000)
_CORE = TritonModel(
    name="tensorrt_llm",
    decoupled=False,
    inputs=frozenset(
        {"input_ids", "input_lengths", "request_output_len", "streaming", "end_id", "pad_id", "exclude_input_in_output"}
    ),
    outputs=frozenset({"output_ids", "sequence_length", "cum_log_probs", *STAMPS}),
    parameters=(),
)
_TEXT = TritonModel(
    name="old one",
    decoupled=False,
    inputs=frozenset({"text_input", "max_tokens", "stream", "return_num_output_tokens"}),
    outputs=frozenset({"text_output", "num_output_tokens"}),
    parameters=(),
)


def _client(model: TritonModel, **settings: Any) -> TritonHttpInferClient:
    return TritonHttpInferClient(_ORIGIN, model, False, **settings)


def _encoded(client: TritonHttpInferClient, request: Request) -> tuple[str, dict[str, Any]]:
    head, _, body = client.encode(17, request).partition(b"\r\n\r\n")
    return head.split(b"\r\n")[0].decode(), json.loads(body)


def test_the_core_model_gets_the_tensors_of_grpc_and_names_the_outputs_that_are_read() -> None:
    request = Request(output_tokens=20, input_ids=(5, 6, 7), ignore_eos=True, variant=Variant(lora_task_id=3))
    line, body = _encoded(_client(_CORE, end_id=2, pad_id=0), request)
    assert line == "POST /v2/models/tensorrt_llm/infer HTTP/1.1"
    assert body["id"] == "17"
    assert {tensor["name"]: (tensor["datatype"], tensor["shape"], tensor["data"]) for tensor in body["inputs"]} == {
        "input_ids": ("INT32", [1, 3], [5, 6, 7]),
        "input_lengths": ("INT32", [1, 1], [3]),
        "request_output_len": ("INT32", [1, 1], [20]),
        "streaming": ("BOOL", [1, 1], [False]),
        "end_id": ("INT32", [1, 1], [-1]),
        "pad_id": ("INT32", [1, 1], [0]),
        "lora_task_id": ("UINT64", [1, 1], [3]),
        "exclude_input_in_output": ("BOOL", [1, 1], [True]),
    }
    assert body["outputs"] == [{"name": "output_ids"}, {"name": "sequence_length"}]


def test_a_text_model_gets_text() -> None:
    line, body = _encoded(_client(_TEXT), Request(output_tokens=9, prompt="Grüße\ud800"))
    assert line == "POST /v2/models/old%20one/infer HTTP/1.1"
    assert {tensor["name"]: tensor["data"] for tensor in body["inputs"]} == {
        "text_input": ["Grüße?"], "max_tokens": [9], "stream": [False], "return_num_output_tokens": [True],
    }  # fmt: skip


@pytest.mark.parametrize(("model", "request_"), [(_CORE, Request(1, prompt="x")), (_TEXT, Request(1, input_ids=(1,)))])
def test_the_prompt_is_needed_in_the_form_of_the_model(model: TritonModel, request_: Request) -> None:
    with pytest.raises(ValueError, match="this request has none"):
        _client(model).encode(0, request_)


def _outputs(**values: Any) -> bytes:
    tensors = [{"name": name, "datatype": "X", "shape": [1, 1, len(data)], "data": data} for name, data in values.items()]
    return json.dumps({"id": "17", "model_name": "m", "model_version": "1", "outputs": tensors}).encode()


@pytest.mark.parametrize(
    ("body", "response"),
    [
        (_outputs(output_ids=[7, 8, 0], sequence_length=[2]), Response(token_ids=(7, 8), request_id="17")),
        (_outputs(output_ids=[], cum_log_probs=[0.5]), Response(token_ids=(), request_id="17")),
        (_outputs(text_output=["The sea"], num_output_tokens=[2], num_input_tokens=[3]),
         Response(text="The sea", server_tokens=2, server_input_tokens=3, request_id="17")),
        (b'{"error": "Exceeds maximum queue size"}', Response(error="Exceeds maximum queue size", refused=True)),
        (b'{"error": {"message": "it broke"}}', Response(error="it broke")),
        (_outputs(output_ids=[7]).replace(b"{", b'{"error": "", ', 1), Response(token_ids=(7,), request_id="17")),
    ],
)  # fmt: skip
def test_answers_of_every_shape(body: bytes, response: Response) -> None:
    assert _client(_CORE).decode(body) == response


def test_the_engines_times_are_read_where_they_were_asked_for() -> None:
    stamps = dict(zip(STAMPS, ([10], [30], [60], [100]), strict=True))
    asking = TritonModel(**{name: getattr(_CORE, name) for name in _CORE.__slots__} | {"asks_for_times": True})
    body = _outputs(output_ids=[7], **stamps)
    assert _client(asking).decode(body).server_times == ServerTimes(20, 30, 40, 10)
    assert _client(_CORE).decode(body).server_times is None


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b'{"outputs": []}', _outputs(sequence_length=[1]), _outputs(output_ids=["a"]), b'{"outputs": [{}]}', b"\xff",
     _outputs(text_output=[5])],
)  # fmt: skip
def test_what_is_no_answer_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedResponseError, match="not a Triton response"):
        _client(_CORE).decode(body)


@given(st.binary(max_size=60))
def test_any_bytes_are_an_answer_or_malformed(body: bytes) -> None:
    with suppress(MalformedResponseError):
        assert isinstance(_client(_CORE).decode(body), Response)


def test_a_decoupled_model_is_refused_before_it_is_asked() -> None:
    decoupled = TritonModel("ensemble", True, _TEXT.inputs, _TEXT.outputs, ())
    settings = ClientSettings(None, None, {}, {}, (), None, DEFAULT_ANSWER_LIMITS)
    with pytest.raises(TargetError, match="--model ensemble: it is decoupled, and Triton answers infer only for other models"):
        TritonHttpInfer().client(_ORIGIN, decoupled, True, (None, None), settings)

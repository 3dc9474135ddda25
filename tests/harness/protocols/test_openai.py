"""Addresses of OpenAI's protocols, and how each sends a prompt."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler

import pytest

from harness.clients.answer_limits import DEFAULT_ANSWER_LIMITS
from harness.clients.openai_client import OpenAIClient
from harness.clients.openai_completions import OpenAICompletionsClient
from harness.clients.openai_server import models_path
from harness.protocols.openai import OpenAIProtocol
from harness.protocols.openai_chat import OpenAIChat
from harness.protocols.openai_completions import OpenAICompletions
from harness.protocols.openai_responses import OpenAIResponses
from harness.protocols.protocol import ClientSettings, TwoPathsError, UrlError
from harness.protocols.set_up_deadline import SetUpDeadline
from harness.protocols.vllm_tokens import VllmTokens
from tests.harness.threaded_http import threaded_http

_BOTH = [OpenAIChat(), OpenAICompletions(), OpenAIResponses()]


@pytest.mark.parametrize("protocol", _BOTH, ids=lambda protocol: protocol.name)
@pytest.mark.parametrize(
    ("url", "path", "address"),
    [
        ("h", None, "http://h:8000/v1{}"),
        ("https://h/v1/", None, "https://h:443/v1{}"),
        ("h/openai/v1", None, "http://h:8000/openai/v1{}"),
        ("h/v1{}", None, "http://h:8000/v1{}"),
        ("h", "/go?key=1", "http://h:8000/go?key=1"),
    ],
)
def test_a_server_its_base_path_and_its_whole_url_are_one_address(
    protocol: OpenAIProtocol, url: str, path: str | None, address: str
) -> None:
    assert str(protocol.address(url.format(protocol.endpoint), path)) == address.format(protocol.endpoint)


@pytest.mark.parametrize(
    ("url", "path", "address"),
    [
        ("h", None, "http://h:8000/inference/v1/generate"),
        ("https://h/v1/", None, "https://h:443/inference/v1/generate"),
        ("h/proxy/v1", None, "http://h:8000/proxy/inference/v1/generate"),
        ("h/inference/v1/generate", None, "http://h:8000/inference/v1/generate"),
        ("h", "/go", "http://h:8000/go"),
    ],
)
def test_tokens_of_vllm_go_beside_the_base_path(url: str, path: str | None, address: str) -> None:
    assert str(VllmTokens().address(url, path)) == address


def test_the_models_of_a_server_are_below_its_base_path_whatever_the_protocol() -> None:
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/inference/v1/generate", "/go"):
        assert models_path(path) == "/v1/models"
    assert models_path("/proxy/inference/v1/generate") == models_path("/proxy/v1/responses") == "/proxy/v1/models"


def test_the_path_of_one_protocol_is_refused_by_the_other() -> None:
    with pytest.raises(UrlError, match=r"is a path of -i openai; give http://host:port/v1 to -i openai_completions"):
        OpenAICompletions().address("h/v1/chat/completions", None)
    with pytest.raises(UrlError, match=r"is a path of -i openai_completions; give .* to -i openai$"):
        OpenAIChat().address("h/v1/completions", None)


@pytest.mark.parametrize("protocol", _BOTH, ids=lambda protocol: protocol.name)
def test_a_query_goes_with_the_path_and_a_path_is_given_once(protocol: OpenAIProtocol) -> None:
    with pytest.raises(UrlError, match=f"--endpoint '/v1{protocol.endpoint}") as caught:
        protocol.address("h/v1?key=1", None)
    assert caught.value.without_query
    with pytest.raises(TwoPathsError):
        protocol.address("h/v1", "/go")


@pytest.mark.parametrize("as_ids", [True, False])
def test_a_model_of_completions_takes_ids_or_text_as_the_user_wants_and_answers_with_text(as_ids: bool) -> None:
    settings = ClientSettings(None, None, {}, {}, (), None, DEFAULT_ANSWER_LIMITS, token_ids=as_ids)
    protocol = OpenAICompletions()
    model = protocol.model("m", settings)
    assert (model.takes_token_ids, model.returns_text, model.takes_messages) == (as_ids, True, False)
    client = protocol.client(protocol.address("h", None), "m", settings)
    assert isinstance(client, OpenAICompletionsClient)
    assert (client.token_ids, client.streaming) == (as_ids, True)


@pytest.mark.parametrize(
    ("owner", "wanted", "fields"),
    [
        ("nvidia", True, {"nvext": {"extra_fields": ["timing"]}}),
        ("vllm", True, {"include_metrics": True}),
        (None, True, {"include_metrics": True}),
        ("tensorrt_llm", True, {}),
        ("nvidia", False, {}),
    ],
)
def test_a_server_is_asked_for_its_times_in_its_own_way(owner: str | None, wanted: bool, fields: dict[str, object]) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"data": [{"id": "m", "owned_by": owner}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    settings = ClientSettings(None, None, {}, {}, (), None, DEFAULT_ANSWER_LIMITS, server_timings=wanted)
    protocol = OpenAIChat()
    with threaded_http(Handler) as port:
        connected = protocol.connect(protocol.address(f"127.0.0.1:{port}", None), settings, SetUpDeadline.of(10.0))
        client = connected.make_client(None, None)
    assert isinstance(client, OpenAIClient)
    assert client.times_fields == fields

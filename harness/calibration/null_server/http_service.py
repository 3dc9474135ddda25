"""The null server's HTTP endpoints: Triton's and OpenAI's."""

from __future__ import annotations

import re
from collections import Counter

import msgspec

from harness.calibration.null_server.http_channel import HttpChannel, HttpRequest
from harness.calibration.null_server.http_messages import (
    CHAT_FORM,
    COMPLETION_FORM,
    OPENAI_MODEL,
    HttpAnswer,
    OpenAIForm,
    generate_answer,
    openai_answer,
    read_json,
    read_request,
)
from harness.calibration.null_server.models import NULL_MODELS, BadRequestError, NullModel
from harness.calibration.null_server.pacing import Pace

_MODEL_PATH = re.compile(r"/v2/models/([^/]+)(?:/versions/1)?(?:/(\w+))?")
_FORMS = {"/v1/chat/completions": CHAT_FORM, "/v1/completions": COMPLETION_FORM}
_HEALTH_PATHS = ("/health", "/v2/health/live", "/v2/health/ready")
_JSON = "application/json"


class HttpService:
    """Answers the requests of every channel. ``inferences`` counts the accepted ones, by model."""

    def __init__(self, pace: Pace, inferences: Counter[str]) -> None:
        self._pace = pace
        self._inferences = inferences

    def on_request(self, channel: HttpChannel, request: HttpRequest) -> None:
        """Answer one request, with status 400 where it is invalid."""
        try:
            if request.method == "GET":
                self._get(channel, request.path)
            elif request.method == "POST":
                self._infer(channel, request)
            else:
                raise BadRequestError(f"the method {request.method} is not supported")
        except BadRequestError as error:
            channel.reply("400 Bad Request", _JSON, msgspec.json.encode({"error": str(error)}))

    def _get(self, channel: HttpChannel, path: str) -> None:
        model_path = _MODEL_PATH.fullmatch(path)
        model = NULL_MODELS.get(model_path[1]) if model_path else None
        if path in _HEALTH_PATHS or (model is not None and model_path is not None and model_path[2] == "ready"):
            channel.reply("200 OK", _JSON, b"")
        elif path == "/v2":
            channel.reply("200 OK", _JSON, msgspec.json.encode({"name": "null", "version": "1", "extensions": []}))
        elif path == "/v1/models":
            listed = [{"id": OPENAI_MODEL, "object": "model", "owned_by": "inflight-bench"}]
            channel.reply("200 OK", _JSON, msgspec.json.encode({"object": "list", "data": listed}))
        elif model is not None and model_path is not None and model_path[2] in (None, "config"):
            channel.reply("200 OK", _JSON, msgspec.json.encode(model.config_json()))
        else:
            self._not_found(channel, path)

    def _infer(self, channel: HttpChannel, request: HttpRequest) -> None:
        form = _FORMS.get(request.path)
        if form is not None:
            self._complete(channel, request, form)
            return
        model_path = _MODEL_PATH.fullmatch(request.path)
        model = NULL_MODELS.get(model_path[1]) if model_path else None
        if model is None or model_path is None or model_path[2] not in ("generate", "generate_stream"):
            self._not_found(channel, request.path)
            return
        self._generate(channel, request, model, streamed=model_path[2] == "generate_stream")

    def _complete(self, channel: HttpChannel, request: HttpRequest, form: OpenAIForm) -> None:
        document = read_json(request.body)
        inference = read_request(document, ("max_completion_tokens", "max_tokens"), "stream")
        self._inferences[OPENAI_MODEL] += 1
        answer = openai_answer(form, document, inference, request.received_ns)
        self._answer(channel, answer, inference.tokens, request.received_ns)

    def _generate(self, channel: HttpChannel, request: HttpRequest, model: NullModel, streamed: bool) -> None:
        inference = read_request(read_json(request.body), (model.token_count_input,), model.streaming_input)
        if inference.streaming and not (streamed and model.decoupled):
            raise BadRequestError("a stream needs generate_stream and a decoupled model")
        self._inferences[model.name] += 1
        answer = generate_answer(model, inference, streamed, request.received_ns)
        self._answer(channel, answer, inference.tokens, request.received_ns)

    def _answer(self, channel: HttpChannel, answer: HttpAnswer, tokens: int, received_ns: int) -> None:
        pace = self._pace if answer.responses.count == tokens else self._pace.unstreamed(tokens)
        channel.answer(answer, pace, received_ns)

    def _not_found(self, channel: HttpChannel, path: str) -> None:
        named = _MODEL_PATH.fullmatch(path)
        problem = f"the null server has no {path}"
        if named is not None and named[1] not in NULL_MODELS:
            problem = f"Request for unknown model: '{named[1]}' is not found"
        channel.reply("404 Not Found", _JSON, msgspec.json.encode({"error": problem}))

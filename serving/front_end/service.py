"""The endpoints: each request is read, generated at Triton, and answered in its endpoint's form."""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from aiohttp import ClientError, ClientSession, ClientTimeout, web

from serving.client.request import GenerationRequest
from serving.front_end.api_error import SERVER_ERROR, ApiError
from serving.front_end.bodies import ChatBody, CompletionBody, read_body
from serving.front_end.choices import Choice, Piece
from serving.front_end.core_client import CoreClient
from serving.front_end.core_request import core_request
from serving.front_end.formats import (
    DONE,
    AnswerHead,
    ChatFormat,
    CompletionFormat,
    Format,
    Usage,
    model_body,
    models_body,
    usage_of,
)
from serving.front_end.generation import Generation, chat_generation, completion_generation
from serving.front_end.prompts import Prompt, PromptReader
from serving.front_end.request_times import Metrics
from serving.front_end.settings import FrontEndSettings
from serving.proxy.request_guard import refusal

_REQUEST_ID = "X-Request-ID"
_USABLE_ID = re.compile(r"[!-~]{1,200}")
_JSON = "application/json"
_METRICS_TIMEOUT = ClientTimeout(total=10)
_EVENTS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
_CHAT, _COMPLETION = ChatFormat(), CompletionFormat()
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Vocabulary:
    """The tokens with a meaning: those without text, and those that end a sequence, the tokenizer's first."""

    special_ids: frozenset[int]
    end_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Job:
    """One request, read: its prompts, each with ``generation.n`` choices in turn."""

    head: AnswerHead
    generation: Generation
    prompts: Sequence[Prompt]
    choices: Sequence[Choice]
    requests: Sequence[GenerationRequest]

    @property
    def usage(self) -> Usage:
        return usage_of(sum(len(prompt.token_ids) for prompt in self.prompts), sum(choice.tokens for choice in self.choices))

    @property
    def metrics(self) -> Metrics | None:
        return self.choices[0].metrics


class OpenAIService:
    """The endpoints of one model."""

    def __init__(
        self,
        settings: FrontEndSettings,
        reader: PromptReader,
        vocabulary: Vocabulary,
        core: CoreClient,
        session: ClientSession,
    ) -> None:
        """``session`` fetches the metrics of Triton."""
        self._settings = settings
        self._session = session
        self._reader = reader
        self._vocabulary = vocabulary
        self._core = core
        self._created = int(time.time())
        self._is_ending = False

    def application(self) -> web.Application:
        """The routes."""
        application = web.Application(middlewares=[self._guard], client_max_size=self._settings.body_bytes)
        application.add_routes(
            [
                web.get("/health", self._health),
                web.get("/metrics", self._metrics),
                web.get("/server_info", self._server_info),
                web.get("/v1/models", self._models),
                web.get("/v1/models/{name:.+}", self._model),
                web.post("/v1/chat/completions", self._chat),
                web.post("/v1/completions", self._completion),
            ]
        )
        return application

    def refuse_requests(self) -> None:
        """Take no more requests; those in flight go on."""
        self._is_ending = True

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse the requests of web pages, give each its id, and answer with errors in OpenAI's form."""
        identity = request.headers.get(_REQUEST_ID, "")
        request["id"] = identity if _USABLE_ID.fullmatch(identity) else uuid.uuid4().hex
        try:
            headers = request.headers
            reason = refusal(
                headers.get("Host"), headers.get("Origin"), headers.get("Sec-Fetch-Site"), self._settings.allowed_hosts
            )
            if reason is not None:
                raise ApiError(reason, 403)
            answer = await handler(request)
        except ApiError as error:
            answer = _error_response(error)
        except web.HTTPException as error:
            answer = _error_response(_of_http(error, request))
        if not answer.prepared:
            answer.headers[_REQUEST_ID] = request["id"]
        return answer

    async def _health(self, request: web.Request) -> web.StreamResponse:
        if self._is_ending or not await self._core.is_ready():
            raise ApiError("the model is not ready", 503, SERVER_ERROR)
        return web.Response()

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        """Triton's own page, which clients of OpenAI's servers look for here."""
        try:
            async with self._session.get(self._settings.metrics, timeout=_METRICS_TIMEOUT) as page:
                return web.Response(
                    status=page.status, body=await page.read(), headers={"Content-Type": page.headers["Content-Type"]}
                )
        except (ClientError, TimeoutError) as error:
            raise ApiError("Triton's metrics do not answer", 502, SERVER_ERROR) from error

    async def _server_info(self, request: web.Request) -> web.StreamResponse:
        """The model's name where routers of SGLang (sglang-router 0.3.2) look for it."""
        return web.json_response({"served_model_name": self._settings.model})

    async def _models(self, request: web.Request) -> web.StreamResponse:
        settings = self._settings
        return web.Response(body=models_body(settings.model, self._created, settings.context_tokens), content_type=_JSON)

    async def _model(self, request: web.Request) -> web.StreamResponse:
        self._check_model(request.match_info["name"])
        settings = self._settings
        return web.Response(body=model_body(settings.model, self._created, settings.context_tokens), content_type=_JSON)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = read_body(await self._received(request), ChatBody)
        self._check_model(body.model)
        return await self._answer(request, _CHAT, chat_generation(body), [self._reader.chat(body)])

    async def _completion(self, request: web.Request) -> web.StreamResponse:
        body = read_body(await self._received(request), CompletionBody)
        self._check_model(body.model)
        return await self._answer(request, _COMPLETION, completion_generation(body), self._reader.completion(body))

    async def _received(self, request: web.Request) -> bytes:
        if self._is_ending:
            raise ApiError("the server is ending", 503, SERVER_ERROR)
        timeout_s = self._settings.receive_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                return await request.read()
        except TimeoutError:
            raise ApiError(f"the body took longer than {timeout_s:g} s", 408) from None

    def _check_model(self, name: str | None) -> None:
        if name != self._settings.model:
            raise ApiError(f"The model '{name}' does not exist", 404, param="model", code="model_not_found")

    async def _answer(
        self, request: web.Request, form: Format, generation: Generation, prompts: Sequence[Prompt]
    ) -> web.StreamResponse:
        job = await self._job(request["id"], form, generation, prompts)
        if not generation.stream:
            return web.Response(body=await _whole(self._pieces(job), job), content_type=_JSON)
        async with aclosing(self._pieces(job)) as pieces:
            first = await anext(pieces)  # an error until here has a status
            stream = web.StreamResponse(headers={**_EVENTS, _REQUEST_ID: request["id"]})
            await stream.prepare(request)
            await _send(stream, job, first, pieces)
        await stream.write_eof()
        return stream

    async def _job(self, request_id: str, form: Format, generation: Generation, prompts: Sequence[Prompt]) -> _Job:
        """The request to send to Triton. Raises ApiError."""
        generation = replace(
            generation,
            max_tokens=self._max_tokens(generation, max(len(p.token_ids) for p in prompts), form),
            include_metrics=generation.include_metrics and _has_metrics(generation, prompts),
        )
        own_ends = () if generation.ignore_eos else self._vocabulary.end_ids
        end_ids = tuple(dict.fromkeys((*own_ends, *generation.stop_token_ids)))
        model = await self._core.interface()
        requests = [core_request(model, prompt.token_ids, generation, end_ids, request_id) for prompt in prompts]
        choices = [
            Choice(index, generation, self._reader.tokenizer, self._vocabulary.special_ids, end_ids)
            for index in range(len(prompts) * generation.n)
        ]
        head = AnswerHead(form, request_id, int(time.time()), self._settings.model, generation.include_usage)
        return _Job(head, generation, prompts, choices, requests)

    def _max_tokens(self, generation: Generation, prompt_tokens: int, form: Format) -> int:
        """The most tokens of a sequence. Raises ApiError where the context has no room for them."""
        context = self._settings.context_tokens
        requested = generation.max_tokens
        if context is None:
            return 16 if requested is None else requested
        if prompt_tokens + (1 if requested is None else requested) > context:
            of_output = "" if requested is None else f", {requested} in the completion"
            raise ApiError(
                f"This model's maximum context length is {context} tokens. However, you requested "
                f"{prompt_tokens + (requested or 0)} tokens ({prompt_tokens} in the prompt{of_output}). "
                "Please reduce the length of the prompt or completion.",
                param="messages" if form is _CHAT else "prompt",
                code="context_length_exceeded",
            )
        return context - prompt_tokens if requested is None else requested

    async def _pieces(self, job: _Job) -> AsyncGenerator[Piece, None]:
        """What the model generates, of all prompts at once. Closing the iterator ends its requests at the engine."""
        if len(job.prompts) == 1:
            async with aclosing(self._pieces_of(job, 0)) as pieces:
                async for piece in pieces:
                    yield piece
            return
        arrived: asyncio.Queue[Piece | Exception | None] = asyncio.Queue()

        async def collect(number: int) -> None:
            try:
                async with aclosing(self._pieces_of(job, number)) as pieces:
                    async for piece in pieces:
                        arrived.put_nowait(piece)
                arrived.put_nowait(None)
            except Exception as error:  # any, or the answer would wait for ever
                arrived.put_nowait(error)

        tasks = [asyncio.create_task(collect(number)) for number in range(len(job.prompts))]
        try:
            left = len(tasks)
            while left:
                match await arrived.get():
                    case None:
                        left -= 1
                    case Exception() as error:
                        raise error
                    case piece:
                        yield piece
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _pieces_of(self, job: _Job, number: int) -> AsyncGenerator[Piece, None]:
        """What is generated for one prompt. The engine's own end is awaited, since an exchange that ends before cancels it."""
        count = job.generation.n
        choices = job.choices[number * count : (number + 1) * count]
        async with aclosing(self._core.generate(job.requests[number])) as responses:
            async for response in responses:
                choice = choices[response.index]
                choice.note_times(response)
                if not choice.is_finished and (response.token_ids or response.is_final):
                    yield choice.add(response)
                    if all(other.is_finished for other in choices) and any(other.is_cut for other in choices):
                        return
        for choice in choices:
            if not choice.is_finished:
                yield choice.end()


async def _whole(pieces: AsyncGenerator[Piece, None], job: _Job) -> bytes:
    """The JSON of an answer that is not streamed."""
    by_choice: list[list[Piece]] = [[] for _ in job.choices]
    async for piece in pieces:
        by_choice[piece.index].append(piece)
    generation, form = job.generation, job.head.format
    choices = []
    for index, of_choice in enumerate(by_choice):
        prompt = job.prompts[index // generation.n]
        returned = prompt.token_ids if generation.return_token_ids else None
        choices.append(form.whole(of_choice, prompt.text if generation.echo else "", returned))
    of_chat = job.prompts[0].token_ids if generation.return_token_ids and form is _CHAT else None
    return job.head.whole(choices, job.usage, of_chat, job.metrics)


async def _send(stream: web.StreamResponse, job: _Job, first: Piece, pieces: AsyncGenerator[Piece, None]) -> None:
    """Stream the chunks. An error from here on is an event of the stream, as vLLM sends it."""
    chunks = _Chunks(job)
    try:
        await stream.write(chunks.opening() + chunks.of(first))
        async for piece in pieces:
            await stream.write(chunks.of(piece))
        if job.generation.include_usage:
            await stream.write(job.head.last_chunk(job.usage, job.metrics))
    except ApiError as error:
        await stream.write(b"data: " + error.body() + b"\n\n")
    await stream.write(DONE)


def _has_metrics(generation: Generation, prompts: Sequence[Prompt]) -> bool:
    """Whether the answer has times of the engine, as vLLM's: one sequence, whole or with a chunk for its usage."""
    return len(prompts) * generation.n == 1 and (generation.include_usage or not generation.stream)


class _Chunks:
    """The chunks of a stream. The first one of each choice of a completion returns its prompt, as vLLM's."""

    def __init__(self, job: _Job) -> None:
        self._job = job
        self._begun: set[int] = set()

    def opening(self) -> bytes:
        """The chunks before the first piece: the roles of a chat, the prompts of completions that repeat them."""
        job, form = self._job, self._job.head.format
        chunks = []
        for index in range(len(job.choices)):
            opening = form.opening(index)
            if opening is not None:
                returned = self._returned(index) if index == 0 else None
                chunks.append(job.head.chunk((opening,), _running(job), returned))
            elif job.generation.echo:
                echoed = form.streamed(Piece(index, self._prompt(index).text, ()), False, self._returned(index))
                chunks.append(job.head.chunk((echoed,), _running(job)))
        return b"".join(chunks)

    def of(self, piece: Piece) -> bytes:
        job, returned = self._job, self._returned(piece.index)
        choice = job.head.format.streamed(piece, job.generation.return_token_ids, returned)
        return job.head.chunk((choice,), _running(job))

    def _prompt(self, index: int) -> Prompt:
        return self._job.prompts[index // self._job.generation.n]

    def _returned(self, index: int) -> Sequence[int] | None:
        """The ids of a choice's prompt, once, where they are requested."""
        if index in self._begun or not self._job.generation.return_token_ids:
            return None
        self._begun.add(index)
        return self._prompt(index).token_ids


def _running(job: _Job) -> Usage | None:
    return job.usage if job.generation.continuous_usage else None


def _error_response(error: ApiError) -> web.Response:
    return web.Response(status=error.status, body=error.body(), content_type=_JSON)


def _of_http(error: web.HTTPException, request: web.Request) -> ApiError:
    match error.status:
        case 404:
            return ApiError(f"Unknown request URL: {request.method} {request.path}.", 404, code="unknown_url")
        case 405:
            return ApiError(f"Not allowed to {request.method} on {request.path}.", 405, code="method_not_supported")
        case 413:
            return ApiError("the body is too long", 413)
    return ApiError(error.reason, error.status)

"""What OpenAI's protocols share: the form of a URL, the models of a server, the trial request, the cache reset."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Literal

from msgspec.structs import replace

from harness.clients.deployment import openai_deployment
from harness.clients.openai_client import OpenAIClient
from harness.clients.openai_server import (
    BASE,
    CHAT,
    COMPLETIONS,
    RESPONSES,
    VLLM_TOKENS,
    choose_model,
    models_owner,
    served_models,
    unlisted_model,
)
from harness.clients.openai_trial import TRIAL, try_openai
from harness.clients.prefix_cache_reset import find_prefix_cache_reset
from harness.clients.protocol import Client
from harness.clients.server_times import fields_asking_for_times, polled_path
from harness.clients.transport.url import HttpUrl, Origin, parse_base
from harness.protocols.protocol import (
    HTTP_PORTS,
    METRICS_PATH,
    CacheReset,
    ClientSettings,
    ConnectedModel,
    EmbeddedPort,
    MeasuredModel,
    ServingProtocol,
    Tried,
    TwoPathsError,
    UrlError,
)
from harness.protocols.set_up_deadline import SetUpDeadline
from workloads.elements.request import Variant

_METRICS_OF_TRTLLM = "/prometheus/metrics"  # trtllm-serve, whose /metrics is JSON
_PROTOCOL_OF = {  # a path may end as two do: the longer one is its own
    VLLM_TOKENS: "vllm_tokens",
    CHAT: "openai",
    COMPLETIONS: "openai_completions",
    RESPONSES: "openai_responses",
}


class OpenAIProtocol(ServingProtocol):
    """What vLLM, trtllm-serve, SGLang and NVIDIA NIM serve. An address is the URL of the ``endpoint``."""

    client_type: ClassVar[type[OpenAIClient]]
    endpoint: ClassVar[str]
    """The path below the base path."""
    calibrated_as: ClassVar[Literal["grpc", "sse"]] = "sse"
    embedded_port: ClassVar[EmbeddedPort | None] = None
    takes_own_fields: ClassVar[bool] = True
    supports_ignore_eos: ClassVar[bool] = False

    @abstractmethod
    def model(self, name: str, settings: ClientSettings) -> MeasuredModel:
        """The model of this name, as requests to it depend on it."""

    def client(self, address: HttpUrl, name: str, settings: ClientSettings) -> OpenAIClient:
        """The client for the model ``name``."""
        return self.client_type(
            origin=address.origin,
            model=name,
            path=address.path,
            streaming=settings.streaming is not False,
            headers=settings.headers,
            extra=settings.extra_body,
            limits=settings.limits,
            secrets=settings.secrets,
            connection_timeout_s=settings.connection_timeout_s,
        )

    def address(self, url: str, path: str | None) -> HttpUrl:
        """``url`` may be a server, or its base path as OpenAI's clients take it (``…/v1``)."""
        try:
            base = parse_base(url, HTTP_PORTS)
        except ValueError as error:
            if "?" in url:
                remedy = f"give that with the path, for example --endpoint '{self.path_of(BASE)}?NAME=VALUE'"
                raise UrlError(f"has a query; {remedy}", without_query=True) from error
            raise UrlError("is no HTTP address; give http://host:port, or http://host:port/v1") from error
        if not base.path:
            return base.origin.url(self.path_of(BASE) if path is None else path)
        if path is not None:
            raise TwoPathsError(f"--url has the path {base.path} and --endpoint another; give the path once")
        own = next((endpoint for endpoint in _PROTOCOL_OF if base.path.endswith(endpoint)), None)
        if own is None:
            return base.origin.url(self.path_of(base.path))
        if own != self.endpoint:
            raise UrlError(f"is a path of -i {_PROTOCOL_OF[own]}; give http://host:port/v1 to -i {self.name}")
        return base

    def path_of(self, base: str) -> str:
        """The path of requests to a server with this base path."""
        return f"{base}{self.endpoint}"

    def connect(self, address: Origin, settings: ClientSettings, deadline: SetUpDeadline) -> ConnectedModel:
        at = _url(address)
        served = deadline.call(lambda left_s: served_models(at.origin, at.path, settings.headers, left_s))
        name = choose_model(settings.model, served)
        owner = self._owner(at, settings, deadline)
        fields, path = (self.times_fields(owner), polled_path(owner)) if settings.server_timings else ({}, None)
        client = replace(self.client(at, name, settings), times_fields=fields)
        return ConnectedModel(
            self.model(name, settings),
            lambda end_id, pad_id: client,
            check_variant=partial(_check_variant, served),
            describe=partial(openai_deployment, at.origin, at.path, settings.headers),
            warning=_unlisted(name, served),
            times_url=None if path is None else at.origin.url(path),
        )

    def times_fields(self, owner: str | None) -> Mapping[str, Any]:
        """What asks a server whose models are ``owner``'s for its times of each request."""
        return fields_asking_for_times(owner)

    def _owner(self, at: HttpUrl, settings: ClientSettings, deadline: SetUpDeadline) -> str | None:
        """Whose the server's models are, where its times of each request are wanted, which depend on it."""
        if not settings.server_timings:
            return None
        return deadline.call(lambda left_s: models_owner(at.origin, at.path, settings.headers, left_s))

    def try_out(self, client: Client, left_s: Callable[[], float]) -> Tried | None:
        assert isinstance(client, OpenAIClient)
        trial = try_openai(client, left_s)
        knowing = replace(client, continuous_usage=trial.continuous_usage, sends_finish_reason=trial.finish_reason)
        return Tried(knowing, client.prompt_sent(TRIAL), trial.prompt_tokens)

    def find_cache_reset(self, address: Origin, model: MeasuredModel, headers: Mapping[str, str]) -> CacheReset:
        at = _url(address)
        return find_prefix_cache_reset(at.origin, at.path, headers)

    def metrics_urls(self, origin: Origin) -> tuple[HttpUrl, ...]:
        return tuple(map(origin.url, (METRICS_PATH, _METRICS_OF_TRTLLM)))


def _url(address: Origin) -> HttpUrl:
    assert isinstance(address, HttpUrl)
    return address


def _unlisted(name: str, served: tuple[str, ...] | None) -> str | None:
    """A warning about a --model that is not among the ``served`` ones; None where it is, or the server has no list."""
    problem = unlisted_model(name, served)
    return None if problem is None else f"--model {name}: {problem}"


def _check_variant(served: tuple[str, ...] | None, variant: Variant) -> str | None:
    """The same of a class's model."""
    return None if variant.model is None else unlisted_model(variant.model, served)

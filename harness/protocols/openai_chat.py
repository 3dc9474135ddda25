"""OpenAI's chat completions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import ClassVar, Literal

from msgspec.structs import replace

from harness.clients.deployment import openai_deployment
from harness.clients.openai_chat import (
    COMPLETIONS,
    DEFAULT_PATH,
    OpenAIChatClient,
    choose_model,
    served_models,
    unlisted_model,
)
from harness.clients.openai_probe import PROBE, probe_chat
from harness.clients.prefix_cache_reset import find_prefix_cache_reset
from harness.clients.protocol import Client
from harness.clients.transport.url import HttpUrl, Origin, parse_base
from harness.errors import TargetError
from harness.protocols.protocol import (
    HTTP_PORTS,
    METRICS_PATH,
    CacheReset,
    ClientSettings,
    ConnectedModel,
    MeasuredModel,
    Probed,
    ServingProtocol,
    TwoPathsError,
    UrlError,
)
from harness.protocols.set_up_deadline import SetUpDeadline
from workloads.elements.request import Variant

_METRICS_OF_TRTLLM = "/prometheus/metrics"  # trtllm-serve, whose /metrics is JSON


class OpenAIChat(ServingProtocol):
    """What vLLM, trtllm-serve, SGLang and NVIDIA NIM serve. An address is the URL of the chat completions."""

    name: ClassVar[str] = "openai"
    client_type: ClassVar[type] = OpenAIChatClient
    calibrated_as: ClassVar[Literal["grpc", "sse"]] = "sse"
    embedded_port: ClassVar[Literal["grpc", "http"] | None] = None
    takes_own_fields: ClassVar[bool] = True
    takes_messages: ClassVar[bool] = True

    def address(self, url: str, path: str | None) -> HttpUrl:
        """``url`` may be a server, or its base path as OpenAI's clients take it (``…/v1``)."""
        try:
            base = parse_base(url, HTTP_PORTS)
        except ValueError as error:
            if "?" in url:
                remedy = f"give that with the path, for example --endpoint '{DEFAULT_PATH}?NAME=VALUE'"
                raise UrlError(f"has a query; {remedy}", without_query=True) from error
            raise UrlError("is no HTTP address; give http://host:port, or http://host:port/v1") from error
        if not base.path:
            return base.origin.url(DEFAULT_PATH if path is None else path)
        if path is not None:
            raise TwoPathsError(f"--url has the path {base.path} and --endpoint another; give the path once")
        return base if base.path.endswith(COMPLETIONS) else base.origin.url(base.path + COMPLETIONS)

    def connect(self, address: Origin, settings: ClientSettings, deadline: SetUpDeadline) -> ConnectedModel:
        origin, path = _parts(address)
        served = deadline.call(lambda left_s: served_models(origin, path, settings.headers, left_s))
        name = choose_model(settings.model, served)
        client = OpenAIChatClient(
            origin,
            name,
            settings.streaming is not False,
            path,
            settings.headers,
            settings.extra_body,
            limits=settings.limits,
            secrets=settings.secrets,
            asks_for_times=settings.server_timings,
        )
        return ConnectedModel(
            MeasuredModel(name, takes_token_ids=False, supports_ignore_eos=False, takes_messages=True),
            lambda end_id, pad_id: client,
            check_variant=partial(_check_variant, served),
            describe=partial(openai_deployment, origin, path, settings.headers),
            warning=unlisted_model(name, served),
        )

    def probe(self, client: Client, left_s: Callable[[], float]) -> Probed | None:
        assert isinstance(client, OpenAIChatClient)
        probe = probe_chat(client, left_s)
        knowing = replace(client, continuous_usage=probe.continuous_usage, sends_finish_reason=probe.finish_reason)
        return Probed(knowing, PROBE.prompt or "", probe.prompt_tokens)

    def find_cache_reset(self, address: Origin, model: MeasuredModel, headers: Mapping[str, str]) -> CacheReset:
        return find_prefix_cache_reset(*_parts(address), headers)

    def metrics_urls(self, origin: Origin) -> tuple[HttpUrl, ...]:
        return tuple(map(origin.url, (METRICS_PATH, _METRICS_OF_TRTLLM)))


def _parts(address: Origin) -> tuple[Origin, str]:
    assert isinstance(address, HttpUrl)
    return address.origin, address.path


def _check_variant(served: tuple[str, ...] | None, variant: Variant) -> None:
    """Raises TargetError for a model that is not among the ``served`` ones, where the server lists any."""
    if variant.model is not None and served and variant.model not in served:
        raise TargetError(f"the server has no such model as {variant.model}; it lists {', '.join(served)}")

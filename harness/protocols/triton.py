"""What Triton's protocols have in common: a model with a configuration, metrics on port 8002, the embedded engine's reset."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import ClassVar

from bench_records.manifest import Deployment
from harness.clients.protocol import Client
from harness.clients.transport.http_get import Headers
from harness.clients.transport.url import HttpUrl, Origin
from harness.clients.triton.model import (
    DEFAULT_MODEL,
    TritonModel,
    check_inputs,
    deployed_tokenizer_dir,
)
from harness.clients.triton.model_kinds import LORA_INPUT
from harness.clients.triton.prefix_cache_reset import ResetCall, find_triton_prefix_cache_reset
from harness.clients.triton.statistics import StatisticsError
from harness.errors import NoSuchModelError, TargetError
from harness.protocols.protocol import (
    METRICS_PATH,
    CacheReset,
    ClientSettings,
    ConnectedModel,
    MeasuredModel,
    ServingProtocol,
)
from harness.protocols.set_up_deadline import SetUpDeadline
from workloads.elements.request import Variant

_METRICS_PORT = 8002
_INSPECTION_S = 10.0
_MOST_NAMED = 8  # models, in a message

EndAndPad = tuple[int | None, int | None]


class TritonProtocol(ServingProtocol):
    """A protocol of Triton."""

    takes_lora_task_id: ClassVar[bool] = True

    @abstractmethod
    def inspect(self, origin: Origin, name: str, headers: Mapping[str, str], timeout_s: float) -> TritonModel:
        """Fetch a model's configuration. Raises TargetError."""

    @abstractmethod
    def client(
        self, origin: Origin, model: TritonModel, streaming: bool, end_and_pad: EndAndPad, settings: ClientSettings
    ) -> Client:
        """The client for a model. ``end_and_pad`` are the ids of those tokens, None where unknown."""

    @abstractmethod
    def deployment(self, origin: Origin, headers: Headers, timeout_s: float) -> Deployment | None:
        """What the server says of itself and of all its models; None where it says nothing."""

    @abstractmethod
    def reset_call(self, origin: Origin, model: str, headers: Mapping[str, str]) -> ResetCall:
        """The request that empties the prefix cache of the engine that ``model`` asks."""

    def connect(self, address: Origin, settings: ClientSettings, deadline: SetUpDeadline) -> ConnectedModel:
        def inspect(name: str) -> TritonModel:
            return deadline.call(lambda left_s: self.inspect(address, name, settings.headers, left_s))

        try:
            model = inspect(settings.model or DEFAULT_MODEL)
        except NoSuchModelError as error:
            raise TargetError(f"{error}{self._models(address, settings)}") from error
        streaming = _streaming(settings.streaming, model)
        if settings.server_timings:
            model = model.asking_for_times()

        def make_client(end_id: int | None, pad_id: int | None) -> Client:
            return self.client(address, model, streaming, (end_id, pad_id), settings)

        return ConnectedModel(
            MeasuredModel(
                model.name,
                model.takes_token_ids,
                supports_ignore_eos=model.kind.ignores_eos,
                refuses_ignore_eos=not model.kind.ignores_eos,
                decoupled=model.decoupled,
                parameters=model.parameters,
                returns_text=not model.takes_token_ids,
            ),
            make_client,
            deployed_tokenizer_dir(model, inspect),
            partial(_check_variant, model, inspect),
            partial(self.deployment, address, tuple(settings.headers.items())),
        )

    def _models(self, address: Origin, settings: ClientSettings) -> str:
        """What a message about a missing model adds: the names of those that the server has; "" where it does not say."""
        read = self.statistics(address, tuple(settings.headers.items()))
        names: list[str] = []
        if read is not None:
            with suppress(StatisticsError):
                names = sorted(read())
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        return f"; it has {', '.join(names[:_MOST_NAMED])}{more}" if names else ""

    def find_cache_reset(self, address: Origin, model: MeasuredModel, headers: Mapping[str, str]) -> CacheReset:
        return find_triton_prefix_cache_reset(
            lambda name: self.inspect(address, name, headers, _INSPECTION_S),
            model.name if model.takes_token_ids else DEFAULT_MODEL,
            lambda name: self.reset_call(address, name, headers),
        )

    def metrics_urls(self, origin: Origin) -> tuple[HttpUrl, ...]:
        return (HttpUrl("http", origin.host, _METRICS_PORT, METRICS_PATH),)

    def named_in_metrics(self, model: MeasuredModel) -> str | None:
        return model.name


def _streaming(requested: bool | None, model: TritonModel) -> bool:
    """Whether to stream. Raises TargetError for a model that cannot be driven, or cannot stream where that is requested."""
    check_inputs(model)
    streaming = model.decoupled if requested is None else requested
    if streaming and not model.decoupled:
        raise TargetError(f"--streaming: the model {model.name} is not decoupled, so it cannot stream")
    return streaming


def _check_variant(model: TritonModel, inspect: Callable[[str], TritonModel], variant: Variant) -> str | None:
    """Raises TargetError."""
    if variant.lora_task_id is not None and LORA_INPUT not in model.inputs:
        raise TargetError(f"the model {model.name} has no input {LORA_INPUT}")
    if variant.model is None:
        return None
    other = inspect(variant.model)
    if (other.decoupled, other.inputs, other.outputs) != (model.decoupled, model.inputs, model.outputs):
        raise TargetError(f"the model {variant.model} has other inputs and outputs than {model.name}; measure it by itself")
    return None

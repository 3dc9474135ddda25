"""What a protocol is to a measurement: one object, from the form of its URL to the statistics of its server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from bench_records.manifest import Deployment
from harness.clients.answer_limits import AnswerLimits
from harness.clients.protocol import Client
from harness.clients.transport.http_get import Headers
from harness.clients.transport.url import HttpUrl, Origin
from harness.clients.triton.statistics import ReadStatistics
from harness.errors import TargetError
from harness.protocols.set_up_deadline import SetUpDeadline
from workloads.elements.request import Variant

METRICS_PATH = "/metrics"
HTTP_PORTS = {"http": 8000, "https": 443}  # 8000: Triton's, vLLM's and others'

MakeClient = Callable[[int | None, int | None], Client]
CheckVariant = Callable[[Variant], str | None]
"""A warning about the requests of a class, or None. Raises TargetError for those that the model cannot serve."""
DescribeServer = Callable[[float], Deployment | None]
"""What the server says of itself, asked within these seconds; None where it says nothing."""


class UrlError(Exception):
    """An URL has not the form of the protocol's. The text follows the URL in a sentence, ``without_query`` the URL's query."""

    def __init__(self, problem: str, *, without_query: bool = False) -> None:
        super().__init__(problem)
        self.without_query = without_query


class TwoPathsError(Exception):
    """The URL and --endpoint both have a path; the text is a whole sentence."""


class CacheReset(Protocol):
    """A call that empties the server's prefix cache; its text names the call. Raises TargetError."""

    def __call__(self) -> None: ...


@dataclass(frozen=True)
class ClientSettings:
    """What the user wants of model and client. None: ``model`` is the protocol's default, ``streaming`` where the model can,
    ``connections`` as many as measured best. ``secrets`` are those among ``headers`` and ``extra_body``. ``server_timings``:
    each request asks for what the server measures of it. ``token_ids``: prompts are sent as token ids where the protocol takes
    ids or text. ``connection_timeout_s`` None: the protocol's default.
    """

    model: str | None
    streaming: bool | None
    headers: Mapping[str, str]
    extra_body: Mapping[str, Any]
    secrets: tuple[str, ...]
    connections: int | None
    limits: AnswerLimits
    server_timings: bool = False
    token_ids: bool = False
    connection_timeout_s: float | None = None


@dataclass(frozen=True)
class MeasuredModel:
    """A model as far as a measurement depends on it, whatever the protocol.

    ``supports_ignore_eos``: every server of this kind can generate beyond the end of the sequence; ``refuses_ignore_eos``: none
    can; where neither, some can. ``takes_messages``: it takes the messages of a chat, and makes the prompt of them.
    ``returns_text``: its answers are text, which a tokenizer can count. ``decoupled`` is None and ``parameters`` is empty where
    the protocol has no such information.
    """

    name: str
    takes_token_ids: bool
    supports_ignore_eos: bool
    decoupled: bool | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    takes_messages: bool = False
    returns_text: bool = True
    refuses_ignore_eos: bool = False


def takes_no_variant(variant: Variant) -> str | None:
    """The check of a target that serves its one model alone."""
    if variant != Variant():
        raise TargetError("the target serves its own model alone")
    return None


def says_nothing(timeout_s: float) -> None:
    """The description of a server that cannot be asked."""


@dataclass(frozen=True)
class ConnectedModel:
    """A model that answered. ``make_client`` takes the ids of the end and the padding token, None where unknown.

    ``tokenizer_dir`` is the folder that the deployment itself uses, None where it is unknown or not on this machine.
    ``warning`` is a sentence for the user. ``times_url`` is where the server has its times of requests that ended, where they
    are wanted and it does not have them in its answers.
    """

    model: MeasuredModel
    make_client: MakeClient
    tokenizer_dir: Path | None = None
    check_variant: CheckVariant = takes_no_variant
    describe: DescribeServer = says_nothing
    warning: str | None = None
    times_url: HttpUrl | None = None


@dataclass(frozen=True)
class Tried:
    """What one answer before the run has shown: the ``client`` that knows it, and the server's count of the tokens of
    ``prompt`` (text, or token ids) with what it adds, a chat template or special tokens; None where it sent none.
    """

    client: Client
    prompt: str | Sequence[int]
    prompt_tokens: int | None


EmbeddedPort = Literal["grpc", "http", "openai"]


class ServingProtocol(ABC):
    """One protocol, its server and its options. An address is an Origin, or a URL where the protocol has a path of its own."""

    name: ClassVar[str]
    """As ``-i`` and the manifest name it."""
    client_type: ClassVar[type]
    """The Client, a frozen ``msgspec.Struct`` with a unique tag and plain values, since files of a run and messages to workers
    have one: to decode it executes nothing that they contain."""
    calibrated_as: ClassVar[Literal["grpc", "sse"]]
    """The transport whose calibration applies."""
    embedded_port: ClassVar[EmbeddedPort | None]
    """The port of the embedded pipeline that speaks it; None where none does."""
    pools_connections: ClassVar[bool] = False
    """Whether requests in flight share connections, whose number can be set."""
    takes_headers: ClassVar[bool] = True
    takes_own_fields: ClassVar[bool] = False
    """Whether the path and the body of requests can be the user's."""
    takes_messages: ClassVar[bool] = False
    """Whether a request can have the messages of a chat."""
    takes_ids_or_text: ClassVar[bool] = False
    """Whether prompts can be sent as token ids and as text, so that the user chooses."""
    takes_lora_task_id: ClassVar[bool] = False
    supports_ignore_eos: ClassVar[bool] = True
    """Whether servers can generate beyond the end of the sequence, all of them or all whose model has an input for it."""

    @abstractmethod
    def address(self, url: str, path: str | None) -> Origin:
        """The address in a user's ``url``; ``path`` is that of --endpoint. Raises UrlError and TwoPathsError."""

    def shown(self, origin: Origin) -> str:
        """An address as the manifest has it."""
        return str(origin)

    @abstractmethod
    def connect(self, address: Origin, settings: ClientSettings, deadline: SetUpDeadline) -> ConnectedModel:
        """Inspect the model. Raises TargetError for one that is missing or cannot be driven, and where no server answers."""

    def try_out(self, client: Client, left_s: Callable[[], float]) -> Tried | None:
        """Ask once before the warm-up; None where the protocol has nothing to find. ``left_s`` returns the seconds left."""
        return None

    @abstractmethod
    def find_cache_reset(self, address: Origin, model: MeasuredModel, headers: Mapping[str, str]) -> CacheReset:
        """The call that empties the prefix cache, which it has done once. Raises TargetError where there is none."""

    @abstractmethod
    def metrics_urls(self, origin: Origin) -> tuple[HttpUrl, ...]:
        """The usual places of the server's metrics, one or more, in the order in which to look."""

    def named_in_metrics(self, model: MeasuredModel) -> str | None:
        """What metrics at the usual place must name, where another server may be there; None where none can."""
        return None

    def statistics(self, origin: Origin, headers: Headers) -> ReadStatistics | None:
        """How to read the statistics of the server's models; None where it has none."""
        return None

"""What a process of Locust sends: the requests of a dataset, encoded for one model, and the records of their answers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import SupportsIndex, overload

import workloads
from bench_records.record import Record
from harness.clients.openai_chat import OpenAIChatClient, choose_model, served_models, unlisted_model
from harness.clients.transport.url import Origin, parse_origin
from harness.clients.triton.http import TritonHttpClient, inspect_model
from harness.clients.triton.model import check_inputs
from harness.errors import TargetError
from harness.locust_users.event_exchange import EventConnection
from harness.locust_users.settings import DEFAULT_TRITON_MODEL, Settings
from harness.recording.completeness import FinishReasonWatch
from harness.recording.recorder import Recorder
from harness.recording.schedule_summary import RequestSummary, ScheduleSummary, summarise_schedule
from workloads.elements.request import Request
from workloads.prompts.dataset import OutputLengths, dataset_requests
from workloads.readers.detect import read_workload_file
from workloads.schedule.schedule import Schedule

_log = logging.getLogger(__name__)
_PORTS = {"http": 8000, "https": 443}
_NUMBERS_A_PROCESS = 1 << 32  # numbers are ids on the wire, so those of two workers differ
_APART = 97  # prompts between the first ones of two workers
_END_OF_CHAT = b"[DONE]"

HttpClient = TritonHttpClient | OpenAIChatClient
Connect = Callable[[Origin, Settings], HttpClient]


@dataclass(frozen=True, slots=True)
class Traffic:
    """The requests of one process, in the dataset's order from a place of its own, again and again.

    ``numbers`` and ``users`` count its requests and its users. ``watch`` knows whether the server sends a finish_reason.
    """

    client: HttpClient
    model: str
    requests: tuple[Request, ...]
    recorder: Recorder
    numbers: Iterator[int]
    users: Iterator[int]
    timeout_s: float
    watch: FinishReasonWatch

    def send_next(self, connection: EventConnection) -> tuple[Record, int]:
        """Send the next request; its record, made after its end, and the bytes of its answer."""
        number = next(self.numbers)
        payload = self.client.encode(number, self.requests[_place(number, len(self.requests))])
        exchange = connection.exchange(number, payload, self.timeout_s)
        return self.watch.judged(self.recorder.record(exchange, worker=0)), sum(map(len, exchange.bodies))

    def connection(self) -> EventConnection:
        return EventConnection(self.client.origin, _END_OF_CHAT if isinstance(self.client, OpenAIChatClient) else None)


@lru_cache(8)
def traffic_of(connect: Connect, host: str | None, settings: Settings, worker: int) -> Traffic:
    """The traffic of a process, made once. Raises TargetError for a host that cannot be driven, and WorkloadError."""
    client = connect(_origin(host), settings)
    requests = _requests(settings)
    schedule = summarise_schedule(Schedule(requests, tuple(range(len(requests))), settings.seed))
    summary = ScheduleSummary(schedule.digest, schedule.times, _Repeated(schedule.requests))
    model = client.model if isinstance(client.model, str) else client.model.name
    numbers = count(worker * _NUMBERS_A_PROCESS)
    recorder, watch = Recorder(summary, client), FinishReasonWatch()
    return Traffic(client, model, requests, recorder, numbers, count(), settings.request_timeout, watch)


def connect_triton(origin: Origin, settings: Settings) -> TritonHttpClient:
    """A client for a model of a Triton server that takes text. Raises TargetError."""
    model = inspect_model(origin, settings.model or DEFAULT_TRITON_MODEL, {})
    if "text_input" not in model.inputs:
        raise TargetError(f"--model {model.name}: it takes no text; give ensemble or tensorrt_llm_bls")
    check_inputs(model)
    return TritonHttpClient(origin, model, streaming=model.decoupled)


def connect_openai(origin: Origin, settings: Settings) -> OpenAIChatClient:
    """A client for a model of a server of chat completions. Raises TargetError."""
    served = served_models(origin, settings.chat_path, {})
    model = choose_model(settings.model, served)
    unlisted = unlisted_model(model, served)
    if unlisted is not None:
        _log.warning("%s", unlisted)
    return OpenAIChatClient(origin, model, path=settings.chat_path)


class _Repeated(tuple[RequestSummary, ...]):
    """The summaries of a dataset's requests, by the number of any later request."""

    __slots__ = ()

    @overload
    def __getitem__(self, key: SupportsIndex, /) -> RequestSummary: ...
    @overload
    def __getitem__(self, key: slice, /) -> tuple[RequestSummary, ...]: ...
    def __getitem__(self, key: SupportsIndex | slice, /) -> RequestSummary | tuple[RequestSummary, ...]:
        if isinstance(key, slice):
            return super().__getitem__(key)
        return super().__getitem__(_place(int(key), len(self)))


def _place(number: int, size: int) -> int:
    worker, own = divmod(number, _NUMBERS_A_PROCESS)
    return (worker * _APART + own) % size


def _requests(settings: Settings) -> tuple[Request, ...]:
    path = shipped_prompts() if settings.dataset is None else Path(settings.dataset)
    lengths = OutputLengths(settings.op_tokens_per_word, settings.output_tokens)
    workload = read_workload_file(path, None, False).workload
    return dataset_requests(workload, None, None, lengths, ignore_eos=settings.ignore_eos).requests


def shipped_prompts() -> Path:
    """The prompts that come with bench: beside the packages in a checkout, inside ``workloads`` in a wheel."""
    package = Path(workloads.__file__).parent
    in_wheel = package / "shipped" / "prompts.json"
    return in_wheel if in_wheel.is_file() else package.parent / "datasets" / "prompts.json"


def _origin(host: str | None) -> Origin:
    if not host:
        raise TargetError("--host: name the server, as http://127.0.0.1:8000")
    try:
        return parse_origin(host.rstrip("/"), _PORTS)
    except ValueError as error:
        raise TargetError(f"--host {host}: {error}") from error

"""Times of requests in a file that a server wrote, or that ``bench`` or its user saved: a reader a server."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from bench_records.record import LATEST_STAMP_NS
from bench_records.regular_file import read_bounded, regular
from reports.errors import ServerTimesError
from reports.metrics.request_phases import monotonic_start_ns
from reports.run_report import RunReport
from reports.why.joined_times import Stamps, joined

_MOST_BYTES = 1 << 30
_CORE_MODEL = "tensorrt_llm"


def with_server_times(report: RunReport, path: Path) -> RunReport:
    """The run with the times that its server wrote to the file at ``path``. Raises ServerTimesError, and OSError."""
    times = read_server_times(path, report.target.model)
    requests = joined(report.all_requests, times, monotonic_start_ns(report.manifest))
    return replace(report, all_requests=requests)


def read_server_times(path: Path, model: str) -> tuple[Stamps, ...]:
    """The requests to ``model`` in a trace of Triton, or all of a saved answer of trtllm-serve's ``/perf_metrics``.

    Raises ServerTimesError for another file, and OSError.
    """
    text = read_bounded(regular(path), _MOST_BYTES)
    try:
        found = of_perf_metrics(_entries(text)) or of_triton_trace(_objects(text), model)
    except (ValueError, RecursionError) as error:
        raise ServerTimesError(f"{path} is no JSON: {error}") from error
    if not found:
        of_model = f" to {model}" if model else ""
        raise ServerTimesError(
            f"{path} has no times of requests{of_model}: give a trace of Triton (--trace-config level=TIMESTAMPS), or the "
            "answer of trtllm-serve's /perf_metrics"
        )
    return found


def of_triton_trace(entries: Iterable[Mapping[str, Any]], model: str) -> tuple[Stamps, ...]:
    """The requests to ``model`` in a trace in Triton's own format (docs/user_guide/trace.md of triton-inference-server/server).

    The core model takes a request in when it queues it, and begins with it when it computes. Triton sees responses, and not the
    steps of an engine: the engine's own queue is a part of the time to the first token.
    """
    heads: dict[int, Mapping[str, Any]] = {}
    stamps: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for entry in entries:
        number = entry.get("id")
        if not isinstance(number, int):
            continue
        if "model_name" in entry:
            heads[number] = entry
        written = entry.get("timestamps")
        for stamp in written if isinstance(written, list) else ():
            if isinstance(stamp, dict) and isinstance(stamp.get("ns"), int):
                stamps[number][str(stamp.get("name"))].append(stamp["ns"])
    core_of = {head.get("parent_id"): number for number, head in heads.items() if head.get("model_name") == _CORE_MODEL}
    found = []
    for number, head in heads.items():
        if head.get("model_name") == model and "parent_id" not in head:
            core, own = stamps[core_of.get(number, number)], stamps[number]
            sends = [*own["GRPC_SEND_START"], *own["HTTP_SEND_START"]]
            first, last = [*own["INFER_RESPONSE_COMPLETE"], *sends], sends or own["INFER_RESPONSE_COMPLETE"]
            if core["QUEUE_START"] and core["COMPUTE_START"] and first:
                arrival, started = core["QUEUE_START"][0], core["COMPUTE_START"][0]
                found.append(Stamps(arrival, started, min(first), max(last), str(head.get("request_id", ""))))
    return tuple(request for request in found if request.in_order)


class _Timing(msgspec.Struct, frozen=True, gc=False):
    """In s of the steady clock, on Linux the monotonic one."""

    arrival_time: float
    first_scheduled_time: float
    first_token_time: float
    last_token_time: float


class _PerfMetrics(msgspec.Struct, frozen=True, gc=False):
    timing_metrics: _Timing


class _Entry(msgspec.Struct, frozen=True, gc=False):
    perf_metrics: _PerfMetrics


def of_perf_metrics(entries: Iterable[msgspec.Raw | Mapping[str, Any]]) -> tuple[Stamps, ...]:
    """The requests of an answer of trtllm-serve's ``/perf_metrics`` (``get_perf_metrics`` in its
    tensorrt_llm/serve/openai_server.py), undecoded or decoded; others than those that have all of their stamps are left out.
    """
    decode = msgspec.json.Decoder(_Entry).decode
    found = []
    for entry in entries:
        try:
            read = decode(entry) if isinstance(entry, msgspec.Raw) else msgspec.convert(entry, _Entry)
        except msgspec.DecodeError:
            continue
        timing = read.perf_metrics.timing_metrics
        seconds = (timing.arrival_time, timing.first_scheduled_time, timing.first_token_time, timing.last_token_time)
        if all(0 < value < LATEST_STAMP_NS / 1e9 for value in seconds):
            arrival, started, first, last = (round(value * 1e9) for value in seconds)
            found.append(Stamps(arrival, started, first, last))
    return tuple(request for request in found if request.in_order)


def _entries(text: bytes) -> Sequence[msgspec.Raw | Mapping[str, Any]]:
    """The items of a list, undecoded where that is possible; none of another document. Raises ValueError and RecursionError."""
    try:
        return msgspec.json.decode(text, type=list[msgspec.Raw])
    except msgspec.ValidationError:
        return []
    except msgspec.DecodeError:  # of NaN, UTF-16 and a byte order mark, too, which others write and json reads
        return _objects(text)


def _objects(text: bytes) -> list[Mapping[str, Any]]:
    """The objects in a list; none of another document. Raises ValueError and RecursionError."""
    entries = json.loads(text)
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []

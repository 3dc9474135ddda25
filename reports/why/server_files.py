"""Times of requests in a file that a server wrote, or that ``bench`` or its user saved: a reader a server."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench_records.regular_file import read_bounded, regular
from reports.errors import ServerTimesError
from reports.metrics.request_phases import monotonic_start_ns
from reports.run_report import RunReport
from reports.why.joined_times import LARGEST_NS, Stamps, joined

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
    try:
        entries = json.loads(read_bounded(regular(path), _MOST_BYTES))
    except (ValueError, RecursionError) as error:
        raise ServerTimesError(f"{path} is no JSON: {error}") from error
    known = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    of_trtllm = [entry for entry in known if isinstance(entry.get("perf_metrics"), dict)]
    found = of_perf_metrics(of_trtllm) if of_trtllm else of_triton_trace(known, model)
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
        for stamp in entry.get("timestamps") or ():
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


def of_perf_metrics(entries: Iterable[Mapping[str, Any]]) -> tuple[Stamps, ...]:
    """The requests of an answer of trtllm-serve's ``/perf_metrics``: seconds of the steady clock, on Linux the monotonic one
    (``get_perf_metrics`` in its tensorrt_llm/serve/openai_server.py).
    """
    names = ("arrival_time", "first_scheduled_time", "first_token_time", "last_token_time")
    found = []
    for entry in entries:
        timing = entry["perf_metrics"].get("timing_metrics")
        values = [timing.get(name) for name in names] if isinstance(timing, dict) else []
        seconds = [value for value in values if isinstance(value, int | float) and 0 < value < LARGEST_NS / 1e9]
        if len(seconds) == len(names):
            arrival, started, first, last = (round(value * 1e9) for value in seconds)
            found.append(Stamps(arrival, started, first, last))
    return tuple(request for request in found if request.in_order)

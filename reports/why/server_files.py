"""Times of requests in a file that a server wrote, or that its user saved: joined with the requests of a run.

A reader a server: Triton's trace names each request by the client's id. trtllm-serve's ``/perf_metrics`` has ids of its own
that no answer repeats, so that its entries are joined by their stamps, which must count on the client's clock.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench_records.regular_file import read_bounded, regular
from reports.errors import ServerTimesError
from reports.metrics.request_phases import monotonic_start_ns
from reports.metrics.requests import Requests
from reports.run_report import RunReport

_MOST_BYTES = 1 << 30
_TOLERANCE_NS = 1_000_000  # of the run's start on the monotonic clock
_LARGEST_NS = 1 << 53
_CORE_MODEL = "tensorrt_llm"
_LONGEST_RETURN_NS = 10_000_000_000
_COLUMNS = ("server_arrival_ns", "server_queue_ns", "server_prefill_ns", "server_decode_ns")


@dataclass(frozen=True, slots=True)
class Stamps:
    """One request by its server, in ns of the monotonic clock of its host: when the engine took it in, began with it, had its
    first token and its last one. ``name`` is the client's id of it, "" where the server has none.
    """

    arrival_ns: int
    started_ns: int
    first_ns: int
    last_ns: int
    name: str = ""

    @property
    def in_order(self) -> bool:
        return 0 < self.arrival_ns <= self.started_ns <= self.first_ns <= self.last_ns <= _LARGEST_NS


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
        raise ServerTimesError(
            f"{path} has no times of requests to {model}: give a trace of Triton (--trace-config level=TIMESTAMPS), or the "
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
        seconds = [value for value in values if isinstance(value, int | float) and 0 < value < _LARGEST_NS / 1e9]
        if len(seconds) == len(names):
            arrival, started, first, last = (round(value * 1e9) for value in seconds)
            found.append(Stamps(arrival, started, first, last))
    return tuple(request for request in found if request.in_order)


def joined(requests: Requests, times: Sequence[Stamps], start_ns: int | None) -> Requests:
    """The requests with these times, as far as they have any. ``start_ns`` is the run's start on the monotonic clock.

    Raises ServerTimesError where nothing can be joined.
    """
    fits = _by_name(requests, times, start_ns) if any(found.name for found in times) else {}
    if not fits and start_ns is not None:
        fits = _by_stamps(requests, [found for found in times if not found.name], start_ns)
    if not fits:
        raise ServerTimesError("none of the server's times belongs to a request of the run, or the server has another clock")
    columns = {name: getattr(requests, name).copy() for name in _COLUMNS}
    for place, found in fits.items():
        columns["server_arrival_ns"][place] = found.arrival_ns
        columns["server_queue_ns"][place] = found.started_ns - found.arrival_ns
        columns["server_prefill_ns"][place] = found.first_ns - found.started_ns
        columns["server_decode_ns"][place] = found.last_ns - found.first_ns
    return replace(requests, **columns)


def _by_name(requests: Requests, times: Sequence[Stamps], start_ns: int | None) -> dict[int, Stamps]:
    """By position of the request. Warm-ups and other runs have the same names: where the clock is the client's, a request of
    the run arrived after it was sent and before it was done; else the last one of a name counts.
    """
    place_of = {str(index): place for place, index in enumerate(requests.index.tolist())}
    named = [(place_of[found.name], found) for found in sorted(times, key=_arrival) if found.name in place_of]
    if start_ns is None:
        return dict(named)
    from_ns, to_ns = requests.sent_ns + start_ns - _TOLERANCE_NS, requests.done_ns + start_ns + _TOLERANCE_NS
    inside = {place: found for place, found in named if from_ns[place] <= found.arrival_ns <= to_ns[place]}
    return inside or dict(named)


def _by_stamps(requests: Requests, times: Sequence[Stamps], start_ns: int) -> dict[int, Stamps]:
    """By position of the request: each, in the order of their sends, takes the first arrival since then whose tokens fit.
    Requests that could be swapped were sent and answered at nearly the same times.
    """
    left = sorted(times, key=_arrival)
    arrivals = [found.arrival_ns for found in left]
    taken, fits = [False] * len(left), {}
    sent_ns, first_ns, last_ns = (
        column + start_ns for column in (requests.sent_ns, requests.first_token_ns, requests.last_token_ns)
    )
    for place in np.argsort(sent_ns, kind="stable")[: np.count_nonzero(~np.isnan(sent_ns))].tolist():
        for k in range(bisect_left(arrivals, sent_ns[place] - _TOLERANCE_NS), len(left)):
            found = left[k]
            if not found.arrival_ns <= first_ns[place]:  # NaN, too
                break
            late_ns = first_ns[place] - found.first_ns
            if (
                not taken[k]
                and -_TOLERANCE_NS <= late_ns <= _LONGEST_RETURN_NS
                and found.last_ns <= last_ns[place] + _TOLERANCE_NS
            ):
                taken[k], fits[place] = True, found
                break
    return fits


def _arrival(found: Stamps) -> int:
    return found.arrival_ns

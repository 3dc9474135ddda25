"""The commands that try what shortens the largest phase of a percentile, and show whether it did."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np

from bench_records.manifest import LoadFacts
from reports.metrics.phase_shares import PercentileParts
from reports.metrics.request_phases import Phase
from reports.metrics.requests import Requests
from reports.run_report import RunReport
from reports.statistics.arrays import FloatArray

_MORE = 2  # as many, or as few: enough to be seen
_OVER_GRPC = "grpc"
_TIMINGS = "--server_timings"
_WITHOUT_TIMES = "vllm_tokens"  # a protocol over which no server returns them
_WORKERS, _CEILING, _CONNECTIONS = "workers", "max_concurrency", "connections"
_SEQUENCES, _TOKENS = "max_num_sequences", "max_num_tokens"  # settings of an engine, and options of bench
_CHUNKED = "enable_chunked_context"  # without it a step takes whole prompts, however long
_LIMITS = {_WORKERS: 256, _CEILING: 2**31 - 1, _CONNECTIONS: 1_024, _SEQUENCES: 65_536, _TOKENS: 2**31 - 1}  # of the options


def trial(report: RunReport, parts: PercentileParts) -> tuple[str, ...]:
    """``bench replay`` with the change that belongs to the largest phase, where an option of bench makes it, and ``bench why``
    of both runs, or of the new one alone where the change divides the phase. Without such an option the server is changed
    before, as the remedy says. None where the largest phase is unattributed, the run was simulated, or it did not come near the
    setting that the option changes.
    """
    manifest, largest = report.manifest, parts.largest
    if largest is None or parts.value_ms is None or manifest.simulation is not None:
        return ()
    change = _change(report, largest.phase)
    if change is None:
        return ()
    run, tried = (shlex.quote(str(path)) for path in (report.folder.path, _beside(report.folder.path)))
    explained = tried if change == _TIMINGS else f"{run} {tried}"
    if change and largest.phase is Phase.DECODE_BESIDE_PREFILL:  # which a step log alone shows, that of one run
        log = f"--step_log {tried}.csv"
        change, explained = f"{change} {log}", f"{tried} {log}"
    return (" ".join(filter(None, ("bench replay", run, change, f"--run_dir {tried}"))), f"bench why {explained}")


def _beside(run: Path) -> Path:
    """The folder of the changed run. A repeat, such as runs/now/1, has it outside of the folder of repeats, in which it would
    be compared as one.
    """
    if run.name.isdigit() and run.parent.name not in ("", ".."):
        return run.parent.with_name(f"{run.parent.name}-{run.name}-tried")
    return run.with_name(f"{run.name}-tried") if run.name else Path(f"{run}-tried")


def is_by_option(report: RunReport, parts: PercentileParts) -> bool:
    """Whether the commands of ``trial`` make the change themselves."""
    return parts.largest is not None and bool(_change(report, parts.largest.phase))


def divides(report: RunReport, parts: PercentileParts) -> bool:
    """Whether the change divides the largest phase into those of the server, rather than to shorten it."""
    return parts.largest is not None and _change(report, parts.largest.phase) == _TIMINGS


def _change(report: RunReport, phase: Phase) -> str | None:
    """The option that shortens the phase; "" where bench has none, or what the run had is not recorded; None where the run did
    not come near what it had, so that a change of it would show nothing.
    """
    manifest = report.manifest
    settings = {} if manifest.server is None else manifest.server.engine or {}
    load, workers, connections = manifest.load or LoadFacts(), manifest.workers, manifest.connections
    sequences, tokens = _recorded(settings.get(_SEQUENCES)), _recorded(settings.get(_TOKENS))
    match phase:
        case Phase.SLIP if workers is not None and manifest.distribution is None and load.concurrency is None:
            return _more(_WORKERS, _recorded(workers.count))
        case Phase.CEILING:
            return _more(_CEILING, _recorded(load.max_concurrency))
        case Phase.CONNECT if connections is not None and report.target.protocol == _OVER_GRPC:
            return _more(_CONNECTIONS, _recorded(connections.per_worker) // len(manifest.targets or (None,)))
        case Phase.FIRST_BYTE if report.target.protocol == _WITHOUT_TIMES:
            return None
        case Phase.FIRST_BYTE if not manifest.target.server_timings:
            return _TIMINGS
        case Phase.QUEUE if sequences:
            return _more(_SEQUENCES, sequences) if _most_in_flight(report.requests) >= sequences else None
        case Phase.PREFILL if tokens:
            return _more(_TOKENS, tokens) if _most_in_prefill(report.requests) >= tokens else None
        case Phase.DECODE_BESIDE_PREFILL if settings.get(_CHUNKED) is False:
            return f"--{_CHUNKED}"
        case Phase.DECODE_BESIDE_PREFILL if tokens:
            fewer = int(min(tokens, _most_in_prefill(report.requests))) // _MORE
            return f"--{_TOKENS} {fewer}" if fewer > _most_in_flight(report.requests) else None
        case Phase.DECODE | Phase.STREAM if sequences:
            fewer = sequences // _MORE
            return f"--{_SEQUENCES} {fewer}" if fewer and _most_in_flight(report.requests) > fewer else None
        case _:
            return ""


def _recorded(value: object) -> int:
    """What the run had; 0 where that is not recorded as a number."""
    return value if isinstance(value, int) else 0


def _more(option: str, recorded: int) -> str:
    return f"--{option} {recorded * _MORE}" if 0 < recorded * _MORE <= _LIMITS[option] else ""


def _most_in_flight(requests: Requests) -> float:
    return _most_at_once(requests.sent_ns, requests.done_ns, np.ones_like(requests.sent_ns))


def _most_in_prefill(requests: Requests) -> float:
    """The most tokens of prompts that were in prefill at once; the return of each is taken as equally long."""
    tokens = np.where(np.isnan(requests.input_tokens), requests.requested_input_tokens, requests.input_tokens)
    return _most_at_once(requests.first_token_ns - requests.server_prefill_ns, requests.first_token_ns, tokens)


def _most_at_once(from_ns: FloatArray, to_ns: FloatArray, weights: FloatArray) -> float:
    """The largest sum of the ``weights`` of requests whose spans overlap, shape [n] each; NaN is left out."""
    known = ~np.isnan(from_ns + to_ns + weights)
    order = np.argsort(np.concatenate([from_ns[known], to_ns[known]]), kind="stable")
    changes = np.concatenate([weights[known], -weights[known]])[order]
    return float(np.cumsum(changes).max(initial=0.0))

"""The commands that try what shortens the largest phase of a percentile, and show whether it did."""

from __future__ import annotations

import shlex

from bench_records.manifest import LoadFacts
from reports.metrics.phase_shares import PercentileParts
from reports.metrics.request_phases import Phase
from reports.run_report import RunReport

_MORE = 2  # as many, or as few: enough to be seen
_OVER_GRPC = "grpc"
_SEQUENCES, _TOKENS = "max_num_sequences", "max_num_tokens"  # settings of an engine, and options of bench


def trial(report: RunReport, parts: PercentileParts) -> tuple[str, ...]:
    """``bench replay`` with the change that belongs to the largest phase, where an option of bench makes it, and ``bench why``
    of both runs. Without such an option the server is changed before, as the remedy says. None where the largest phase is
    unattributed, or the run was simulated.
    """
    manifest, largest = report.manifest, parts.largest
    if largest is None or parts.value_ms is None or manifest.simulation is not None:
        return ()
    name = str(report.folder.path)
    run, tried = shlex.quote(name), shlex.quote(f"{name}-tried")
    change = _change(report, largest.phase)
    return (" ".join(filter(None, ("bench replay", run, change, f"--run_dir {tried}"))), f"bench why {run} {tried}")


def _change(report: RunReport, phase: Phase) -> str:
    """The option that shortens the phase; "" where bench has none, or what the run had is not recorded."""
    manifest = report.manifest
    settings = {} if manifest.server is None else manifest.server.engine or {}
    load, workers, connections = manifest.load or LoadFacts(), manifest.workers, manifest.connections
    match phase:
        case Phase.SLIP if workers is not None and manifest.distribution is None and load.concurrency is None:
            return _more("workers", workers.count)
        case Phase.CEILING:
            return _more("max_concurrency", load.max_concurrency)
        case Phase.CONNECT if connections is not None and report.target.protocol == _OVER_GRPC:
            return _more("connections", connections.per_worker)
        case Phase.QUEUE:
            return _more(_SEQUENCES, settings.get(_SEQUENCES))
        case Phase.PREFILL:
            return _more(_TOKENS, settings.get(_TOKENS))
        case Phase.DECODE | Phase.STREAM:
            return _fewer(_SEQUENCES, settings.get(_SEQUENCES))
        case _:
            return ""


def _more(option: str, recorded: object) -> str:
    return f"--{option} {recorded * _MORE}" if isinstance(recorded, int) and recorded > 0 else ""


def _fewer(option: str, recorded: object) -> str:
    return f"--{option} {recorded // _MORE}" if isinstance(recorded, int) and recorded >= _MORE else ""

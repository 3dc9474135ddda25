"""The runs of a sweep over a rate, or over users, as probes of what the target holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reports.capacity.limits import Limit, share_limits
from reports.capacity.probe import Probe
from reports.capacity.reading import is_evidence, probe_of, requests_that_show_the_queue
from reports.capacity.result import LoadUnit
from reports.capacity.stability import keeps_up
from reports.metrics.in_flight import QueueCourse, queue_of
from reports.run_report import RunReport
from reports.statistics.autocorrelation import FEWEST_VALUES

_UNITS = {"request_rate": LoadUnit.REQUESTS_PER_S, "concurrency": LoadUnit.USERS}
_BY_CHANCE = 0.1  # of runs at capacity that may seem to keep up


@dataclass(frozen=True, slots=True)
class AtLoad:
    """A run that shows whether its ``limits`` hold at a load."""

    unit: LoadUnit
    limits: tuple[Limit, ...]
    probe: Probe


def at_load(settings: tuple[tuple[str, str], ...], report: RunReport) -> AtLoad | None:
    """A run at ``settings``; None where the load is not what was swept, the run is no evidence, or its requirements are not all
    limits on a share of the requests.
    """
    if len(settings) != 1 or settings[0][0].replace("-", "_") not in _UNITS or not is_evidence(report):
        return None
    name, value = settings[0]
    try:
        load = float(value)
    except ValueError:
        return None
    goodput = report.metrics.goodput
    limits = share_limits([gate.requirement for gate in report.gates], () if goodput is None else goodput.objectives)
    if not limits or not load > 0.0:
        return None
    sent = int(np.count_nonzero(~np.isnan(report.requests.sent_ns)))
    return AtLoad(_UNITS[name.replace("-", "_")], limits, probe_of(load, sent, report.requests, report.judged.load, limits))


def shows_steady_queue(reports: Sequence[RunReport]) -> bool:
    """Whether runs at one load show that the target keeps up with it: at a load of capacity or more, queues as steady as theirs
    together come in about 10 % of runs (reports/capacity/stability.py). Users bound a queue; in an open loop it takes 100
    requests in each run, due over as long as several answers take.
    """
    queues = [_course(report) for report in reports if not report.judged.load.closed]
    known = [course for course in queues if course is not None]
    return len(known) == len(queues) and (not known or keeps_up(known, _BY_CHANCE))


def _course(report: RunReport) -> QueueCourse | None:
    """How the queue of a run moved; None where the run is too short to show that."""
    requests = report.judged.requests
    queue = queue_of(requests) if requests.outcome.size >= FEWEST_VALUES else None
    return None if queue is None or requests_that_show_the_queue(requests) else queue.course

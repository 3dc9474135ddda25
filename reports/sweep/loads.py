"""The runs of a sweep over a rate, or over users, as probes of what the target holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reports.capacity.limits import Limit, share_limits
from reports.capacity.probe import Probe
from reports.capacity.reading import is_evidence, probe_of, requests_that_show_the_queue
from reports.capacity.result import LoadUnit
from reports.metrics.in_flight import queue_of
from reports.run_report import RunReport
from reports.statistics.autocorrelation import FEWEST_VALUES

_UNITS = {"request_rate": LoadUnit.REQUESTS_PER_S, "concurrency": LoadUnit.USERS}


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


def shows_queue(report: RunReport) -> bool:
    """Whether a run would show that its queue grows: users bound it, and in an open loop it takes 100 requests, due over as
    long as several answers take.
    """
    requests = report.judged.requests
    if report.judged.load.closed:
        return True
    known = requests.outcome.size >= FEWEST_VALUES and queue_of(requests) is not None
    return known and not requests_that_show_the_queue(requests)

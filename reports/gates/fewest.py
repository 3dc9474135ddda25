"""How many requests a run must have to pass a gate, whatever they show: what can be said before it is sent."""

from __future__ import annotations

from reports.criteria import Requirement
from reports.gates.shares import fewest_to_pass
from reports.metrics.catalogue import ATTAINMENT, FAILED_SHARE, ICL, ITL
from reports.statistics.autocorrelation import FEWEST_VALUES

_SEVERAL_A_REQUEST = (ITL, ICL)  # gaps between tokens


def fewest_requests(requirement: Requirement) -> int | None:
    """The fewest requests with which a run can pass the gate; None where no number can.

    A run of fewer can still fail it.
    """
    metric = requirement.metric
    if metric in _SEVERAL_A_REQUEST:
        return 1
    if metric is FAILED_SHARE:
        return fewest_to_pass(requirement.limit, 1) if requirement.at_most else 1
    if metric is ATTAINMENT and not requirement.at_most:
        return fewest_to_pass(round(1.0 - requirement.limit, 12))
    if requirement.q is not None and requirement.at_most:
        return fewest_to_pass(round(1.0 - requirement.q, 12))
    return FEWEST_VALUES

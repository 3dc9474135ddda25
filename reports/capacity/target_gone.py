"""Whether a probe lost its target: nothing that it shows is then due to its load."""

from __future__ import annotations

import numpy as np

from bench_records.record import Outcome
from reports.metrics.requests import Requests

_LAST = 10  # requests that all found no server, or wait for one that is silent
_SILENT_NS = 5e9
_LONGER = 3.0  # times the longest silence before


def is_gone(requests: Requests, *, streamed: bool) -> bool:
    """Whether the last requests found no server, or one that had stopped answering: at the end no token of any request came for
    5 s, and for three times as long as ever before, while many waited. An overloaded server goes on with some of them.
    """
    sent = np.flatnonzero(~np.isnan(requests.sent_ns))
    last = sent[np.argsort(requests.sent_ns[sent], kind="stable")][-_LAST:]
    if not last.size:
        return False
    if (requests.outcome[last] == Outcome.CONNECT.value).all():
        return True
    tokens_ns = np.sort(requests.token_times_ns)
    if not tokens_ns.size and not streamed:  # how long an answer takes is not known
        return False
    at_ns = np.concatenate([[float(np.min(requests.sent_ns[sent]))], tokens_ns])
    silent_ns = float(np.max(requests.done_ns[sent])) - at_ns[-1]
    before_ns = float(np.diff(at_ns).max()) if tokens_ns.size else 0.0
    wait = requests.cut_off[sent] & (requests.sent_ns[sent] <= at_ns[-1] + silent_ns / 2.0)
    return bool(silent_ns > max(_SILENT_NS, _LONGER * before_ns) and np.count_nonzero(wait) >= _LAST)

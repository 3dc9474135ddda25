"""Which prompts of others the decode of a request met, by the times of all requests and by the rows of the step log: what the
decode beside prefill of ``bench why`` is compared with. Nothing here uses the code that divides the decode.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from reports.metrics.requests import Requests

_AT_ONCE_NS = 1_000  # between a token and the end of its step


def decode_ns(requests: Requests) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The first and the last token of each request by the engine, in ns of the monotonic clock, shape [n] each."""
    first_ns = requests.server_arrival_ns + requests.server_queue_ns + requests.server_prefill_ns
    return first_ns, first_ns + requests.server_decode_ns


def met_no_prompt(requests: Requests) -> NDArray[np.bool_]:
    """Which requests had no prefill of another one between their first and their last tokens, shape [n]."""
    first_ns, last_ns = decode_ns(requests)
    started_ns = requests.server_arrival_ns + requests.server_queue_ns
    met = (started_ns[None, :] <= last_ns[:, None] + _AT_ONCE_NS) & (first_ns[None, :] >= first_ns[:, None] - _AT_ONCE_NS)
    np.fill_diagonal(met, False)
    alone: NDArray[np.bool_] = ~met.any(axis=1) & ~np.isnan(last_ns)
    return alone


def steps_with_prompts_ns(requests: Requests, step_log: Path) -> NDArray[np.float64]:
    """How long the steps with prompts took that the log of one start of an engine has in the decode of each request, in ns,
    shape [n].
    """
    with step_log.open(newline="") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    with_prompts = [(int(row["start_ns"]), int(row["duration_ns"])) for row in rows if int(row["prefill_tokens"]) > 0]
    return np.array(
        [
            sum(took for start, took in with_prompts if _AT_ONCE_NS < start + took - first <= last - first + _AT_ONCE_NS)
            for first, last in zip(*decode_ns(requests), strict=True)
        ],
        dtype=np.float64,
    )

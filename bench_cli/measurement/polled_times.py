"""The times of requests that were polled from the server during a run, joined with its records."""

from __future__ import annotations

import numpy as np

from bench_records.run_folder import RunFolder
from bench_records.table import write_numbers


def with_polled_times(folder: RunFolder) -> str:
    """Write the times in ``perf_metrics.json`` into ``requests.parquet``; returns a sentence about how many requests have them.

    Raises OSError; requests.parquet then stays as it is.
    """
    from reports.errors import ServerTimesError
    from reports.metrics.request_phases import monotonic_start_ns
    from reports.metrics.requests import from_columns
    from reports.why.joined_times import TIMES_COLUMNS, joined
    from reports.why.server_files import read_server_times

    if folder.perf_metrics.stat().st_size <= len("[]"):
        return (
            "The server returned no times of requests: start trtllm-serve with return_perf_metrics: true, and with "
            "perf_metrics_max_requests above the requests that end in a second."
        )
    requests = from_columns(folder.read_requests)
    try:
        times = read_server_times(folder.perf_metrics, "")
        timed = joined(requests, times, monotonic_start_ns(folder.read_manifest()))
    except ServerTimesError as error:
        return f"No request has times of the server: {error}."
    write_numbers(folder.requests, {name: getattr(timed, name) for name in TIMES_COLUMNS})
    known = int(np.count_nonzero(timed.done & ~np.isnan(timed.server_arrival_ns)))
    return f"The server timed {known:,} of {int(np.count_nonzero(timed.done)):,} requests (/perf_metrics)."

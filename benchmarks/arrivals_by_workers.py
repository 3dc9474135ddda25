"""Arrival process of several workers together: exponential arrivals with 1, 2, 4 and 8 workers.

    python -m benchmarks.arrivals_by_workers [--rate 100] [--duration 30] [--workers 1 2 4 8] [--seed 0]

One schedule, sent by an increasing number of workers to the null server. The index of dispersion of the sends must be near 1
(Poisson; its standard error is printed), the Kolmogorov-Smirnov test must not reject the gaps, and the digest must not change.
The row "schedule" shows the scheduled times.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np

from benchmarks.open_loop import measure_open_loop
from harness.calibration.null_server.server import null_server
from reports.metrics.arrival_law import SIGNIFICANCE, check_arrivals, index_of_dispersion
from reports.metrics.configuration import Law
from reports.metrics.latency import schedule_slip_ms
from reports.metrics.requests import Requests
from workloads.arrivals.processes import Exponential


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--duration", type=float, default=30.0)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print("| workers | requests | index of dispersion | Kolmogorov-Smirnov p | slip p99 ms | digest | |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    law = Law("exponential", options.rate)
    for workers in options.workers:
        with null_server() as server:
            measured = measure_open_loop(server, Exponential(options.rate), options.duration, 1, workers, options.seed)
        sent = measured.requests
        if workers == options.workers[0]:
            print(row("schedule", replace(sent, sent_ns=sent.scheduled_ns), law, measured.schedule.digest))
        print(row(str(workers), sent, law, measured.schedule.digest), flush=True)


def row(name: str, requests: Requests, law: Law, digest: str) -> str:
    """Table row of one run."""
    test, index = check_arrivals(requests, law), index_of_dispersion(requests.sent_ns)
    assert test is not None, "too few arrivals: make the run longer"
    assert index is not None, "too few arrivals: make the run longer"
    assert test.p_value is not None
    error = np.sqrt(2.0 / (requests.sent_ns.size // 10))
    slip_ms = float(np.quantile(schedule_slip_ms(requests), 0.99, method="inverted_cdf"))
    holds = abs(index - 1.0) <= 3 * error and test.p_value >= SIGNIFICANCE
    cells = [name, f"{requests.sent_ns.size:,}", f"{index:.2f} ± {error:.2f}", f"{test.p_value:.2f}", f"{slip_ms:.2f}"]
    return "| " + " | ".join([*cells, digest[:12], "holds" if holds else "DOES NOT HOLD"]) + " |"


if __name__ == "__main__":
    main()

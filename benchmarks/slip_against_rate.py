"""Schedule slip by rate and number of workers, up to the rate at which the client collapses.

    python -m benchmarks.slip_against_rate [--workers 1 2] [--rates 100 250 …] [--duration 20] [--cores apart]

Open loops of exponential arrivals against the null server, which responds at once. Rates rise until the client no longer
reaches them. Prints a Markdown table; the server's share of a core shows whether the server was the bottleneck. The server has
one core of its own and the client the others (``--cores apart``), or both share all. "stolen" is the steal share of the
machine's CPU time: if it is not negligible, the row describes the host rather than the client. With ``--rounds``, the rates are
measured repeatedly.
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks.open_loop import APART, SHARED, Measured, cpu_placement, measure_open_loop
from harness.calibration.null_server.server import null_server
from reports.metrics.latency import schedule_slip_ms
from reports.metrics.output_events import mean_rate
from workloads.arrivals.processes import Exponential

RATES = [100, 250, 500, 750, 1000, 1500, 2000, 3000, 4000, 6000, 8000]
HELD_MS = 1.0  # p99 slip
COLLAPSED_SHARE = 0.95  # of the offered rate
COLLAPSED_MS = 100.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    parser.add_argument("--duration", type=float, default=20.0)
    parser.add_argument("--tokens", type=int, default=1)
    parser.add_argument("--cores", choices=(APART, SHARED), default=APART, help="of the null server and the client")
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    print(
        "| workers | offered requests/s | achieved | slip p50 ms | slip p99 ms | CPU µs/request | worker | server | stolen | |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for workers in options.workers * options.rounds:
        for rate in options.rates:
            with null_server() as server, cpu_placement(server.pid, options.cores):
                measured = measure_open_loop(server, Exponential(rate), options.duration, options.tokens, workers)
            line, verdict = row(workers, rate, measured)
            print(line, flush=True)
            if verdict == "collapsed":
                break


def row(workers: int, rate: float, measured: Measured) -> tuple[str, str]:
    """Table row and verdict of one run; "worker" and "server" are shares of a core."""
    slip_ms = schedule_slip_ms(measured.requests)
    p50, p99 = (float(np.quantile(slip_ms, q, method="inverted_cdf")) for q in (0.5, 0.99))
    offered, achieved = mean_rate(measured.requests.scheduled_ns), mean_rate(measured.requests.sent_ns)
    assert offered is not None
    assert achieved is not None
    verdict = "holds" if p99 <= HELD_MS else "late"
    if achieved < COLLAPSED_SHARE * offered or p99 > COLLAPSED_MS:
        verdict = "collapsed"
    sent = len(measured.requests.outcome)
    worker = measured.workers_cpu_s / workers / measured.length_s
    cells = [
        f"{workers}",
        f"{rate:,.0f}",
        f"{achieved:,.1f} of {offered:,.1f}",
        f"{p50:.2f}",
        f"{p99:.2f}",
        f"{measured.workers_cpu_s / sent * 1e6:.0f} + {measured.parent_cpu_s / sent * 1e6:.0f}",
        f"{worker:.0%}",
        f"{measured.server_cpu_s / measured.length_s:.0%}",
        f"{measured.stolen:.1%}",
        verdict if not measured.failed else f"{verdict}; {measured.failed} failed",
    ]
    return "| " + " | ".join(cells) + " |", verdict


if __name__ == "__main__":
    main()

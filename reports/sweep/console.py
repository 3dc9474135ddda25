"""A sweep on a terminal."""

from __future__ import annotations

from tabulate import tabulate

from reports.render.plain_text import printable
from reports.sweep.points import Sweep, SweepPoint
from reports.sweep.tables import FRONT_NOTE, counts_text


def render(sweep: Sweep) -> str:
    """The whole text, without a trailing newline; points on the Pareto front carry a star."""
    latency = sweep.latency
    percentiles = (f"{latency} p50 ms", f"{latency} p99 ms", "E2E p99 ms")
    headers = ("", "offered/s", "requests/s", "tokens/s", *percentiles, "failed", "findings")
    rows = [_row(point, number in sweep.front) for number, point in enumerate(sweep.points)]
    table = tabulate(rows, headers=headers, colalign=("left", *["right"] * 7, "left"), disable_numparse=True)
    aside = f"\n{len(sweep.points)} points, {counts_text(sweep)}." if counts_text(sweep) else ""
    return f"{table}\n\n* {FRONT_NOTE} {latency}.{aside}"


def _row(point: SweepPoint, on_front: bool) -> tuple[str, ...]:
    estimates = (
        point.request_throughput, point.output_token_throughput, point.latency_p50_ms, point.latency_p99_ms, point.e2e_p99_ms,
    )  # fmt: skip
    numbers = (point.offered_rate, *(estimate.value for estimate in estimates))
    invalid = () if point.valid else ("INVALID",)
    return (
        printable(f"{'*' if on_front else ' '} {point.name}"),
        *("–" if number is None else f"{number:,.2f}" for number in numbers),
        str(point.failed),
        ", ".join((*invalid, *point.findings)),
    )

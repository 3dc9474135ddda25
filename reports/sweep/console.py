"""A sweep on a terminal."""

from __future__ import annotations

from tabulate import tabulate

from reports.render.plain_text import printable
from reports.sweep.held import gates_of
from reports.sweep.points import Sweep, SweepPoint
from reports.sweep.tables import FRONT_NOTE, answer, counts_text, has_objectives, held_text
from reports.sweep.together import together_sentence


def render(sweep: Sweep) -> str:
    """The whole text, without a trailing newline; points on the Pareto front carry a star."""
    latency, objectives = sweep.latency, has_objectives(sweep)
    percentiles = (f"{latency} p50 ms", f"{latency} p99 ms", "E2E p99 ms")
    of_goodput = ("goodput/s", "attainment %") if objectives else ()
    headers = ("", "offered/s", "requests/s", "tokens/s", *percentiles, *of_goodput, "held", "failed", "findings")
    rows = [_row(point, number in sweep.front, objectives) for number, point in enumerate(sweep.points)]
    alignment = ("left", *["right"] * (len(headers) - 2), "left")
    table = tabulate(rows, headers=headers, colalign=alignment, disable_numparse=True)
    aside = f"\n{len(sweep.points)} points, {counts_text(sweep)}." if counts_text(sweep) else ""
    gates = "".join(f"\n{gate.status.value:>9}  {gate.requirement}: {printable(gate.why)}" for gate in gates_of(sweep))
    together = "".join(f"\n\n{text}" for text in (together_sentence(sweep),) if text)
    return f"{answer(sweep)}{gates}\n\n{table}\n\n* {FRONT_NOTE} {latency}.{aside}{together}"


def _row(point: SweepPoint, on_front: bool, with_goodput: bool) -> tuple[str, ...]:
    estimates = (
        point.request_throughput, point.output_token_throughput, point.latency_p50_ms, point.latency_p99_ms, point.e2e_p99_ms,
    )  # fmt: skip
    share = None if point.attainment is None else 100.0 * point.attainment
    of_goodput = (point.goodput.value, share) if with_goodput else ()
    numbers = (point.offered_rate, *(estimate.value for estimate in estimates), *of_goodput)
    invalid = () if point.valid else ("INVALID",)
    return (
        printable(f"{'*' if on_front else ' '} {point.name}"),
        *("–" if number is None else f"{number:,.2f}" for number in numbers),
        held_text(point),
        str(point.failed),
        ", ".join((*invalid, *point.findings)),
    )

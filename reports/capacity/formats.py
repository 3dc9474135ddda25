"""The formats of a search for capacity, and its rows of CSV: one for each probe, with four columns for each limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reports.capacity.documents import full_document, terminal_document
from reports.capacity.json_file import document
from reports.capacity.page import capacity_page
from reports.capacity.result import Capacity, ProbeRun
from reports.capacity.shares import share_interval
from reports.capacity.words import column_names
from reports.page.formats import Formats
from reports.render.plain_text import spreadsheet_text

_FIRST = ("folder", "load", "unit", "verdict", "requests", "seconds", "overloaded", "valid")
_LAST = ("request_throughput", "output_token_throughput", "goodput", "e2e_mean_ms", "findings", "command")


def rows(capacity: Capacity) -> Iterator[Sequence[object]]:
    """The rows of the file, with the names of the columns first."""
    of_limits = [
        f"{name}_{part}"
        for name in column_names(capacity.limits)
        for part in ("limit", "share_beyond", "share_beyond_low", "share_beyond_high")
    ]
    yield [*_FIRST, *of_limits, *_LAST]
    for run in capacity.probes:
        yield _row(capacity, run)


def _row(capacity: Capacity, run: ProbeRun) -> list[object]:
    probe = run.probe
    shares = [
        cell
        for limit, violations in zip(capacity.limits, probe.violations, strict=True)
        for cell in (limit.limit, violations.share, *(share_interval(violations) or (None, None)))
    ]
    return [
        spreadsheet_text(run.folder),
        probe.load,
        capacity.unit.value,
        run.verdict.value,
        probe.requests,
        run.seconds,
        int(probe.overloaded),
        int(run.valid),
        *shares,
        run.request_throughput,
        run.output_token_throughput,
        run.goodput,
        run.e2e_mean_ms,
        " ".join(run.findings),
        spreadsheet_text(run.command),
    ]


CAPACITY = Formats[Capacity](
    "capacity", terminal_document, full_document, document, rows, lambda capacity, _: capacity_page(capacity)
)

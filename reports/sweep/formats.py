"""The formats of a sweep, and its rows of CSV: one for each point, with a column for each varied setting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reports.metrics.catalogue import OFFERED_RATE
from reports.page.formats import Formats
from reports.render.plain_text import spreadsheet_text
from reports.sweep.documents import full_document, terminal_document
from reports.sweep.json_file import document
from reports.sweep.page import sweep_page
from reports.sweep.points import Sweep, SweepPoint

_STATES = ("runs", "valid", "pareto")
_COUNTS = ("attainment", "held", "failed", "findings", "latency")


def rows(sweep: Sweep) -> Iterator[Sequence[object]]:
    """The rows of the file, with the names of the columns first."""
    limits = [column for name in sweep.points[0].estimates for column in (name, f"{name}_low", f"{name}_high")]
    axes = [spreadsheet_text(axis) for axis in sweep.axes]
    yield ["point", *axes, *_STATES, OFFERED_RATE.key, *limits, *_COUNTS]
    for number, point in enumerate(sweep.points):
        yield _row(sweep, point, number in sweep.front)


def _row(sweep: Sweep, point: SweepPoint, on_front: bool) -> list[object]:
    settings = dict(point.settings)
    return [
        spreadsheet_text(point.name),
        *(
            spreadsheet_text(settings.get(axis, "")) if not _number(settings.get(axis, "")) else settings[axis]
            for axis in sweep.axes
        ),
        len(point.runs),
        int(point.valid),
        int(on_front),
        point.offered_rate,
        *(cell for estimate in point.estimates.values() for cell in (estimate.value, *(estimate.interval or (None, None)))),
        point.attainment,
        None if point.held is None else int(point.held),
        point.failed,
        " ".join(point.findings),
        sweep.latency,
    ]


def _number(text: str) -> bool:
    """Whether the text is a number: a leading minus is then no formula."""
    try:
        float(text)
    except ValueError:
        return False
    return True


SWEEP = Formats[Sweep](
    "sweep", terminal_document, full_document, document, rows, lambda sweep, _: sweep_page(sweep), width=None
)

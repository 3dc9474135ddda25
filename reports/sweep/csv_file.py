"""A sweep as CSV: one row for each point, with a column for each varied setting."""

from __future__ import annotations

import csv
from pathlib import Path

from reports.metrics.catalogue import OFFERED_RATE
from reports.render.plain_text import spreadsheet_text
from reports.sweep.points import Sweep, SweepPoint

_STATES = ("runs", "valid", "pareto")
_COUNTS = ("attainment", "held", "failed", "findings", "latency")


def write_csv(sweep: Sweep, path: Path) -> None:
    """Write the file; an unknown value is an empty cell. Raises OSError."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        limits = [column for name in sweep.points[0].estimates for column in (name, f"{name}_low", f"{name}_high")]
        axes = [spreadsheet_text(axis) for axis in sweep.axes]
        writer.writerow(["point", *axes, *_STATES, OFFERED_RATE.key, *limits, *_COUNTS])
        for number, point in enumerate(sweep.points):
            writer.writerow(_row(sweep, point, number in sweep.front))


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

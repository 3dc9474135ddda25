"""A sweep as JSON, schema 1 (docs/compare.md). It grows by new keys, never by a changed meaning."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from reports.sweep.points import Sweep

SCHEMA = 1


def document(sweep: Sweep) -> dict[str, Any]:
    """The document; what is unknown is null."""
    return {
        "schema": SCHEMA,
        "latency": sweep.latency,
        "points": [{**asdict(point), "pareto": number in sweep.front} for number, point in enumerate(sweep.points)],
    }


def write_json(sweep: Sweep, path: Path) -> None:
    path.write_text(json.dumps(document(sweep), indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")

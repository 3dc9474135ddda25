"""Markdown tables of the documentation that are generated from the metrics of the code."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from reports.criteria import QUANTILES
from reports.metrics.catalogue import METRICS, OBJECTIVE_METRICS
from reports.metrics.metric import Metric
from reports.statistics.percentiles import percentile_key
from tools.reference.functions import NUMBERS, Function, Number

_ROOT = Path(__file__).parents[2]


def metrics_markdown() -> str:
    """The table of metrics, from ``reports.metrics.catalogue.METRICS``."""
    return _table(("metric", "key", "definition", "unit", "better"), [_metric_row(metric) for metric in METRICS])


def criteria_markdown() -> str:
    """The table of what ``--slo`` and ``--fail_if`` may name: objectives of each request, and each kind of number of a run."""
    of_run = [metric for metric in METRICS if metric.in_criteria]
    latencies = [metric for metric in of_run if metric.unit == "ms"]
    shares = [metric for metric in of_run if metric.unit == "share"]
    rates = [metric for metric in of_run if metric not in (*latencies, *shares)]
    statistics = ", ".join(f"`{percentile_key(q)}_`" for q in QUANTILES)
    rows = [
        (f"{_names(OBJECTIVE_METRICS)} (`--slo` alone)", "each request; they make goodput"),
        (f"{statistics} or `mean_` before {_names(latencies)}", "the run's latency, from the schedule"),
        (_names(rates), "the run's rate, per second"),
        (_names(shares), "the run's share, from `0%` to `100%`; `0.01` is `1%`"),
    ]
    return _table(("criterion", "judged"), rows)


def _names(metrics: Iterable[Metric]) -> str:
    return ", ".join(f"`{metric.name}`" for metric in metrics)


def numbers_markdown() -> str:
    """The table "number in the report → function that computes it", from ``tools.reference.functions.NUMBERS``."""
    return _table(("number", "where", "computed by"), [_number_row(number) for number in NUMBERS])


def _metric_row(metric: Metric) -> tuple[str, ...]:
    better = "–" if metric.better is None else metric.better.value
    return metric.full_name, f"`{metric.key}`", metric.definition, metric.unit, better


def _number_row(number: Number) -> tuple[str, ...]:
    return number.name, f"`{number.key}`" if number.key else "–", ", ".join(map(_reference, number.functions))


def _reference(function: Function) -> str:
    """`file.py`: `function`."""
    return f"`{_path(function)}` `{function.__qualname__}`"


def _path(function: Any) -> str:
    return Path(inspect.getfile(inspect.unwrap(function))).relative_to(_ROOT).as_posix()


def _table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    cells = [columns, ("---",) * len(columns), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n" for row in cells)

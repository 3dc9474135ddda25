"""The table "number → functions": every number of a report is in it, and every function can be opened."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

from reports.metrics.catalogue import METRICS
from tools.reference.functions import NUMBERS, OF_METRICS, Number

_ROOT = Path(__file__).parents[2]
_NO_NUMBERS = {"schema", "validity", "findings", "requests.scheduled", "requests.done", "requests.failed", "schedule"}


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number.name)
def test_every_function_of_a_number_can_be_opened(number: Number) -> None:
    assert number.functions
    for function in map(inspect.unwrap, number.functions):
        source = inspect.getsource(function)
        assert f"def {function.__name__}(" in source
        assert inspect.getdoc(function), f"{function.__qualname__} has no docstring"
        assert Path(inspect.getfile(function)).is_relative_to(_ROOT / "reports")


def test_every_metric_has_its_functions() -> None:
    assert tuple(sorted(metric.key for metric in OF_METRICS)) == tuple(sorted(metric.key for metric in METRICS))


def test_every_key_of_the_summary_is_a_number_of_the_table() -> None:
    schema = json.loads((_ROOT / "docs" / "schemas" / "summary.schema.json").read_text(encoding="utf-8"))
    keys = {number.key for number in NUMBERS}
    sections = {key.partition(".")[0] for key in keys}
    assert set(schema["properties"]) - _NO_NUMBERS <= sections
    assert {f"metrics.{key}" for key in schema["properties"]["metrics"]["required"]} <= keys


def test_names_are_unique() -> None:
    names = [number.name for number in NUMBERS]
    assert len(set(names)) == len(names)

"""The server's metrics as series."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench_records.server_table import MetricSample, read_server_table, write_server_table
from reports.metrics.server_series import Level, Telemetry, telemetry_of
from tests.reports.watched import metric


def _read(folder: Path, samples: list[MetricSample]) -> Telemetry:
    write_server_table(samples, folder / "server.parquet")
    telemetry = telemetry_of(read_server_table(folder / "server.parquet"))
    assert telemetry is not None
    return telemetry


def test_no_table_and_no_rows_are_no_telemetry(tmp_path: Path) -> None:
    assert telemetry_of(None) is None
    write_server_table([], tmp_path / "server.parquet")
    assert telemetry_of(read_server_table(tmp_path / "server.parquet")) is None


def test_series_are_parted_by_name_and_labels_and_put_in_order(tmp_path: Path) -> None:
    telemetry = _read(
        tmp_path,
        metric("b", {2: 20, 1: 10}, model="x") + metric("a", {1: 1, 2: 2}) + metric("b", {1: 30, 2: 40}, model="y", kind="z"),
    )
    assert [series.values.tolist() for series in telemetry.select("b")] == [[10, 20], [30, 40]]
    assert [series.values.tolist() for series in telemetry.select("b", model="y")] == [[30, 40]]
    assert telemetry.select("b", model="y", kind="q") == ()
    assert telemetry.select("c") == ()
    assert telemetry.select("a")[0].times_ns.tolist() == [1e9, 2e9]


@pytest.mark.parametrize(
    ("values", "increase"),
    [
        ({-0.5: 10, 1: 12, 2: 15}, 5.0),
        ({-0.9: 3, -0.5: 10, 1: 12}, 2.0),  # from the last reading before the start
        ({0.5: 10, 2: 15}, 5.0),  # there was none
        ({-0.5: 10, 1: 12, 2: 3, 3: 20}, None),  # the server began anew
        ({-0.5: 10}, None),
        ({-0.5: 10, 1: float("nan")}, None),
        ({-0.5: 10, 1: 10}, 0.0),
    ],
)
def test_counters_are_taken_by_what_they_grew(tmp_path: Path, values: dict[float, float], increase: float | None) -> None:
    assert _read(tmp_path, metric("c", values)).increase("c") == increase


def test_increases_of_several_series_are_added_and_one_unknown_makes_the_sum_unknown(tmp_path: Path) -> None:
    known = metric("c", {-1: 0, 1: 2}, gpu="0") + metric("c", {-1: 5, 1: 8}, gpu="1")
    assert _read(tmp_path, known).increase("c") == 5.0
    assert _read(tmp_path, [*known, *metric("c", {-1: 5, 1: 4}, gpu="2")]).increase("c") is None
    assert _read(tmp_path, [*known, *metric("c", {-1: 5, 1: 4}, gpu="2")]).increase("c", gpu="1") == 3.0
    assert _read(tmp_path, known).increase("d") is None


@pytest.mark.parametrize(
    ("values", "increase"),
    [
        ({1: 3, 2: 50}, 50.0),  # it came between two readings of its page
        ({2: 4}, 4.0),
        ({-0.5: 3, 2: 50}, 47.0),  # it came before the start
        ({1: 3, 2: 1}, None),
        ({1: 3, 2: float("nan")}, None),
    ],
)
def test_a_counter_that_its_page_had_not_at_first_began_at_0(
    tmp_path: Path, values: dict[float, float], increase: float | None
) -> None:
    page = metric("requests", {-1: 100, 0.5: 100, 1: 120, 2: 300})
    assert _read(tmp_path, page + metric("finished", values, reason="stop")).increase("finished") == increase


def test_what_bench_read_itself_does_not_say_when_a_page_was_first_read(tmp_path: Path) -> None:
    own = metric("gpu_power_watts", {-1: 100, 2: 300})
    assert _read(tmp_path, own + metric("finished", {1: 3, 2: 50})).increase("finished") == 47.0


def test_gauges_are_added_up_at_each_reading_of_the_run(tmp_path: Path) -> None:
    telemetry = _read(
        tmp_path,
        metric("g", {-1: 100, 0: 1, 1: 3, 2: float("nan"), 9: 100}, gpu="0")
        + metric("g", {-1: 100, 0: 1, 1: 2, 9: 100}, gpu="1"),
    )
    assert telemetry.level(5e9, "g") == Level(3.5, 5.0, 2)
    assert telemetry.level(5e9, "g", gpu="1") == Level(1.5, 2.0, 2)
    assert telemetry.level(5e9, "h") is None
    assert telemetry.level(-1.0, "g") is None


@pytest.mark.parametrize(
    ("values", "increase"),
    [
        ({-1: 5, 0: 10, 1: 12}, 2.0),  # a reading at the very start
        ({0: 10, 1: 12}, 2.0),
        ({-2: 1, -1: 2, 0.5: 3}, 1.0),
        ({-2: 9, -1: 2, 0.5: 3}, 1.0),  # the server began anew before the run
        ({0.5: 1, 1: 1, 2: 1}, 0.0),
        ({0.5: 3}, None),
    ],
)
def test_an_increase_is_that_since_the_last_reading_at_the_start_or_before(
    tmp_path: Path, values: dict[float, float], increase: float | None
) -> None:
    assert _read(tmp_path, metric("c", values)).increase("c") == increase


def test_a_gauge_counts_until_the_end_included(tmp_path: Path) -> None:
    telemetry = _read(tmp_path, metric("g", {0: 1, 5: 3, 5.1: 100}))
    assert telemetry.level(5e9, "g") == Level(2.0, 3.0, 2)


def test_series_have_their_own_labels_and_values_whatever_the_order_of_the_rows(tmp_path: Path) -> None:
    """Three names and three labels, of which not every pair occurs."""
    telemetry = _read(
        tmp_path,
        metric("b", {3: 3, 1: 1}, gpu="2") + metric("c", {2: 20}, gpu="0") + metric("a", {1: 9}, gpu="1")
        + metric("b", {1: 4, 2: 5}, gpu="0") + metric("a", {2: 8}, gpu="2"),
    )  # fmt: skip
    found = {
        (series.name, series.labels["gpu"]): (series.times_ns.tolist(), series.values.tolist())
        for name in "abc"
        for series in telemetry.select(name)
    }
    assert found == {
        ("a", "1"): ([1e9], [9.0]),
        ("a", "2"): ([2e9], [8.0]),
        ("b", "0"): ([1e9, 2e9], [4.0, 5.0]),
        ("b", "2"): ([1e9, 3e9], [1.0, 3.0]),
        ("c", "0"): ([2e9], [20.0]),
    }

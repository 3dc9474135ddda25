"""The server's metrics as series."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench_records.server_table import MetricSample, read_server_table, write_server_table
from reports.metrics.server_series import Level, Series, Telemetry, place_of, telemetry_of
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


@pytest.mark.parametrize(
    ("values", "start_s", "end_s", "growth"),
    [
        ({0: 10, 10: 30, 20: 90}, 5, 15, 40.0),  # 20 to 60
        ({0: 10, 10: 30, 20: 90}, 0, 20, 80.0),
        ({0: 10, 10: 30, 20: 90}, 10, 20, 60.0),
        ({0: 10, 10: 30, 20: 90}, 0, 10, 20.0),
        ({0: 10, 10: 30, 20: 90}, 12, 14, 12.0),
        ({0: 10, 10: 30, 20: 90}, -1, 5, None),  # before the first reading
        ({0: 10, 10: 30, 20: 90}, 5, 21, None),
        ({0: 10, 10: 10}, 2, 8, 0.0),
        ({0: 10, 10: 9}, 2, 8, None),
        ({0: 90, 10: 1, 20: 5, 30: 0}, 10, 20, 4.0),  # it fell before and afterwards
        ({0: 90, 10: 1, 20: 5}, 9, 20, None),
        ({0: 1, 10: 5, 20: 0}, 0, 11, None),
        ({0: float("nan"), 10: 1, 20: 5, 30: float("inf")}, 10, 20, 4.0),
        ({0: 1, 10: float("nan"), 20: 5}, 5, 20, None),
    ],
)
def test_growth_is_interpolated_between_the_readings_around_a_time(
    values: dict[float, float], start_s: float, end_s: float, growth: float | None
) -> None:
    series = Series("c", {}, np.array([*values]) * 1e9, np.array([*values.values()], dtype=float))
    assert series.growth(start_s * 1e9, end_s * 1e9) == growth


@pytest.mark.parametrize(
    ("server", "place"),
    [
        ("http://a:8002/metrics", "a:8002"),
        ("https://a/prometheus/metrics", "a/prometheus"),
        ("http://a:1/stats", "a:1/stats"),
        ("http://a:1/probe?of=http://b:2", "a:1/probe?of=http://b:2"),
        ("a:1/metrics", "a:1/metrics"),
        ("", ""),
    ],
)
def test_a_page_is_named_by_its_host_and_port(server: str, place: str) -> None:
    assert place_of(server) == place


def test_series_of_several_pages_are_those_of_each(tmp_path: Path) -> None:
    """The second page was first read after the run's start, so that its counter may have been there before."""
    pages = {"http://b": metric("n", {-1: 0, 1: 5}), "http://a": metric("n", {0.5: 3, 2: 7})}
    samples = [replace(sample, server=url) for url, of_page in pages.items() for sample in of_page]
    own = metric("gpu_power_watts", {-1: 100, 2: 300}) + metric("host_cpu_energy_joules_total", {-1: 1, 2: 3})
    telemetry = _read(tmp_path, samples + own)
    assert telemetry.servers == ("http://a", "http://b")
    assert [telemetry.select(name)[0].server for name in ("n", "gpu_power_watts")] == ["http://b", ""]
    assert telemetry.increase("n") == 5.0 + 4.0
    of_a = telemetry.of_server("http://a")
    assert list(of_a.by_name) == ["n"]
    assert [series.values.tolist() for series in of_a.select("n")] == [[3, 7]]
    assert telemetry.served is not None
    assert list(telemetry.served.by_name) == ["n"]
    only_own = _read(tmp_path, own)
    assert (only_own.servers, only_own.served) == ((), None)


@pytest.mark.parametrize("labels", ["[1]", '{"gpu": 1}', '"x"', f"[{'1' * 90}]"])
def test_labels_that_are_no_object_of_texts_are_refused(tmp_path: Path, labels: str) -> None:
    write_server_table([MetricSample(0, 1, "a", labels, 1.0)], tmp_path / "server.parquet")
    with pytest.raises(ValueError, match=f"^labels: {re.escape(repr(labels[:80]))} is no JSON object of texts$"):
        telemetry_of(read_server_table(tmp_path / "server.parquet"))

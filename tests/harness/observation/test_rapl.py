"""Energy counters of a machine's CPU packages and DRAM, from trees of files: the test machines have none."""

from __future__ import annotations

import json
import math
import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_records.run_folder import RunFolder
from harness.clients.transport.url import HttpUrl
from harness.host.clock import now_ns
from harness.observation import observation as observation_module
from harness.observation.metrics_pages import MetricsSource
from harness.observation.observation import Observation, tabulate_observations
from harness.observation.rapl import Rapl, grown_uj
from tests.harness.observation.powercap import RANGE_UJ, count, two_sockets, zone

_S = 1_000_000_000
_CPU, _DRAM = "host_cpu_energy_joules_total", "host_dram_energy_joules_total"


def _read(rapl: Rapl, at_s: float) -> dict[tuple[str, str], float]:
    return {(name, json.loads(labels)["zone"]): value for name, labels, value in rapl.read(round(at_s * _S))}


def _total(rapl: Rapl, at_s: float) -> float:
    ((_, _, value),) = rapl.read(round(at_s * _S))
    return value


def test_packages_and_their_dram_are_read_and_nothing_that_contains_or_repeats_them(tmp_path: Path) -> None:
    rapl = Rapl(two_sockets(tmp_path))
    assert rapl.readable
    assert set(_read(rapl, 0)) == {(name, f"package-{socket}") for name in (_CPU, _DRAM) for socket in range(2)}
    count(tmp_path / "intel-rapl:1", 41_000_000)
    count(tmp_path / "intel-rapl:0:1", 3_500_000)
    assert _read(rapl, 1) == {
        (_CPU, "package-0"): 0.0, (_DRAM, "package-0"): 1.5, (_CPU, "package-1"): 40.0, (_DRAM, "package-1"): 0.0,
    }  # fmt: skip


def test_a_processor_of_amd_has_no_dram(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0")
    zone(tmp_path, "intel-rapl:0:0", "core")
    assert set(_read(Rapl(tmp_path), 0)) == {(_CPU, "package-0")}


def test_dies_of_a_package_are_zones_of_their_own(tmp_path: Path) -> None:
    for die in range(2):
        zone(tmp_path, f"intel-rapl:{die}", f"package-0-die-{die}")
    assert set(_read(Rapl(tmp_path), 0)) == {(_CPU, "package-0-die-0"), (_CPU, "package-0-die-1")}


def test_energy_continues_where_the_counter_wraps_around(tmp_path: Path) -> None:
    package = zone(tmp_path, "intel-rapl:0", "package-0", RANGE_UJ - 4_000_000)
    rapl = Rapl(tmp_path)
    assert _total(rapl, 0) == 0.0
    count(package, 6_000_000)
    assert _total(rapl, 0.1) == 10.0
    count(package, 7_000_000)
    assert _total(rapl, 0.2) == 11.0


@pytest.mark.parametrize("now_uj", [0, 200_000_000_000], ids=["reset", "jump"])
def test_a_counter_that_jumps_is_unknown_there(tmp_path: Path, now_uj: int) -> None:
    package = zone(tmp_path, "intel-rapl:0", "package-0", 90_000_000_000)
    rapl = Rapl(tmp_path)
    _total(rapl, 0)
    count(package, now_uj)
    assert math.isnan(_total(rapl, 0.1))
    count(package, now_uj + 5_000_000)
    assert _total(rapl, 0.2) == 5.0


def test_after_a_silence_in_which_it_may_have_wrapped_around_twice_a_counter_is_unknown(tmp_path: Path) -> None:
    package = zone(tmp_path, "intel-rapl:0", "package-0", 0)
    rapl = Rapl(tmp_path)
    _total(rapl, 0)
    count(package, 1_000_000)
    assert math.isnan(_total(rapl, 3600))


def test_a_counter_that_vanishes_is_unknown_and_not_zero(tmp_path: Path) -> None:
    package = zone(tmp_path, "intel-rapl:0", "package-0", 5)
    rapl = Rapl(tmp_path)
    assert _total(rapl, 0) == 0.0
    (package / "energy_uj").unlink()
    assert math.isnan(_total(rapl, 0.1))


@pytest.mark.parametrize("text", ["", "-1", "no number", "\u0663"])
def test_a_counter_that_is_no_number_is_unknown(tmp_path: Path, text: str) -> None:
    package = zone(tmp_path, "intel-rapl:0", "package-0", 5)
    rapl = Rapl(tmp_path)
    (package / "energy_uj").write_text(text, encoding="utf-8")
    assert math.isnan(_total(rapl, 0))
    assert not rapl.readable


def test_one_package_that_cannot_be_read_is_unknown_beside_the_other(tmp_path: Path) -> None:
    two_sockets(tmp_path)
    (tmp_path / "intel-rapl:1" / "energy_uj").unlink()
    (tmp_path / "intel-rapl:1" / "energy_uj").mkdir()  # root may read every file
    rapl = Rapl(tmp_path)
    assert rapl.readable
    found = _read(rapl, 0)
    assert found[_CPU, "package-0"] == 0.0
    assert math.isnan(found[_CPU, "package-1"])


def test_a_counter_of_unknown_range_is_not_readable(tmp_path: Path) -> None:
    package = zone(tmp_path, "intel-rapl:0", "package-0", 5)
    (package / "max_energy_range_uj").unlink()
    rapl = Rapl(tmp_path)
    assert not rapl.readable
    assert math.isnan(_total(rapl, 0))


def test_a_machine_without_counters_has_nothing_to_read(tmp_path: Path) -> None:
    rapl = Rapl(tmp_path / "none")
    assert not rapl.readable
    assert rapl.read(0) == []


@given(
    range_uj=st.integers(1_000, RANGE_UJ),
    start=st.integers(0, RANGE_UJ),
    shares=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=30),
)
def test_growths_add_up_across_any_number_of_wraps(range_uj: int, start: int, shares: list[float]) -> None:
    most_uj = range_uj - 1
    true_uj = [start % range_uj]
    for share in shares:
        true_uj.append(true_uj[-1] + round(share * most_uj))
    grown = [grown_uj(before % range_uj, after % range_uj, range_uj, most_uj) for before, after in pairwise(true_uj)]
    assert None not in grown
    assert sum(g for g in grown if g is not None) == true_uj[-1] - true_uj[0]


def _observed(folder: Path, powercap: Path, monkeypatch: pytest.MonkeyPatch, target: frozenset[int] | None) -> set[str]:
    """The names in the table of the server."""
    monkeypatch.setattr(observation_module, "POWERCAP", powercap)
    source = MetricsSource(HttpUrl("http", "127.0.0.1", 9, "/metrics"), 0.05)
    observation = Observation(RunFolder(folder), (), (source,), lambda note: None, lambda: target)
    with observation as begin:
        begin(now_ns())
    assert observation.observed.gpu_telemetry is None
    tabulate_observations(RunFolder(folder))
    table = RunFolder(folder).read_server()
    return set() if table is None else set(table["name"].to_pylist())


def test_counters_are_in_the_table_of_a_server_on_this_machine_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    powercap = two_sockets(tmp_path / "powercap")
    for name, target in (("here", frozenset([os.getpid()])), ("elsewhere", None)):
        (tmp_path / name).mkdir()
        found = _observed(tmp_path / name, powercap, monkeypatch, target)
        assert found == (set() if target is None else {_CPU, _DRAM})


def test_nothing_is_sampled_where_no_counter_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = zone(tmp_path / "powercap", "intel-rapl:0", "package-0")
    (package / "energy_uj").unlink()
    assert _observed(tmp_path, tmp_path / "powercap", monkeypatch, frozenset([os.getpid()])) == set()

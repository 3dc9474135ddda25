"""Energy of a machine's CPU packages and DRAM over a window."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from reports.metrics.catalogue import OUTPUT_TOKEN_THROUGHPUT, REQUEST_THROUGHPUT
from reports.metrics.host_energy import Drawn, HostEnergy, Zone, host_energy
from reports.metrics.server_series import Series, Telemetry
from reports.metrics.windows import Window
from reports.statistics.estimate import Estimate

_NAN = float("nan")


def _window(start_s: float = 10.0, end_s: float = 20.0, tokens_per_s: float | None = 500.0) -> Window:
    throughputs = {OUTPUT_TOKEN_THROUGHPUT: Estimate(tokens_per_s), REQUEST_THROUGHPUT: Estimate(1.0)}
    return Window(start_s, end_s, throughputs, None, None)


def _found(window: Window | None = None, **counters: Mapping[float, float]) -> HostEnergy | None:
    """``cpu`` and ``dram`` are the counters of one zone each, in J by s; ``cpu2`` is that of another package."""
    by_name: dict[str, tuple[Series, ...]] = {}
    for key, values in counters.items():
        name = f"host_{key.rstrip('2')}_energy_joules_total"
        zone = "package-1" if key.endswith("2") else "package-0"
        series = Series(name, {"zone": zone}, np.array(list(values)) * 1e9, np.array(list(values.values())))
        by_name[name] = (*by_name.get(name, ()), series)
    return host_energy(Telemetry(by_name), _window() if window is None else window)


def _at(watts: float) -> dict[float, float]:
    return {0.5 * k: watts * 0.5 * k for k in range(-2, 60)}


def test_energy_is_what_the_counters_of_all_packages_grew_by_in_the_window() -> None:
    found = _found(_window(10.2, 20.3), cpu=_at(60.0), cpu2=_at(35.0), dram=_at(12.0))
    assert found is not None
    assert found.cpu is not None
    assert found.dram is not None
    assert (found.cpu.energy_j, found.cpu.power_w) == (pytest.approx(95.0 * 10.1), pytest.approx(95.0))
    assert found.cpu.energy_error_j == pytest.approx(95.0 * 0.5)
    assert found.cpu.joules_per_token == pytest.approx(95.0 / 500.0)
    assert found.cpu.joules_per_token_error == pytest.approx(95.0 * 0.5 / (500.0 * 10.1))
    assert [(zone.zone, zone.power_w) for zone in found.cpu.zones] == [
        ("package-0", pytest.approx(60.0)),
        ("package-1", pytest.approx(35.0)),
    ]
    assert found.dram.power_w == pytest.approx(12.0)
    assert (found.start_s, found.end_s, found.period_s) == (10.2, 20.3, pytest.approx(0.5))


def test_every_number_of_a_machine_of_two_readings() -> None:
    """10 W and 32 W for 16 s between the readings, of which the window has a half."""
    found = _found(
        _window(4.0, 12.0, 5.0), cpu={0.0: 100.0, 16.0: 260.0}, cpu2={0.0: 0.0, 16.0: 512.0}, dram={0.0: 0, 16.0: 16}
    )
    zones = (Zone("package-0", 80.0, 10.0), Zone("package-1", 256.0, 32.0))
    cpu = Drawn(zones, 336.0, 672.0, 42.0, 8.4, 16.8)
    assert found == HostEnergy(4.0, 12.0, 16.0, 40.0, cpu, Drawn((Zone("package-0", 8.0, 1.0),), 8.0, 16.0, 1.0, 0.2, 0.4))


def test_a_zone_without_a_name_has_none_and_no_tokens_are_no_energy_a_token() -> None:
    series = Series("host_cpu_energy_joules_total", {}, np.array([0.0, 30e9]), np.array([0.0, 300.0]))
    found = host_energy(Telemetry({series.name: (series,)}), _window(tokens_per_s=0.0))
    assert found == HostEnergy(10.0, 20.0, 30.0, 0.0, Drawn((Zone("", 100.0, 10.0),), 100.0, 300.0, 10.0, None, None), None)


def test_an_unknown_reading_in_the_window_makes_its_energy_unknown_and_one_outside_does_not() -> None:
    assert _found(cpu={**_at(60.0), 15.0: _NAN}) is None
    partly = _found(cpu={**_at(60.0), 15.0: _NAN}, cpu2=_at(35.0))
    assert partly is not None
    assert partly.cpu is not None
    assert (partly.cpu.energy_j, partly.cpu.energy_error_j, partly.cpu.power_w) == (None, None, None)
    assert (partly.cpu.joules_per_token, partly.cpu.joules_per_token_error) == (None, None)
    assert [zone.energy_j for zone in partly.cpu.zones] == [None, pytest.approx(350.0)]
    outside = _found(cpu={**_at(60.0), 9.5: _NAN, 20.5: _NAN})
    assert outside is not None
    assert outside.cpu is not None
    assert outside.cpu.energy_j == pytest.approx(600.0)


def test_dram_alone_in_a_short_window() -> None:
    found = _found(_window(1.0, 1.5), dram={0.0: 0.0, 2.0: 4.0})
    assert found == HostEnergy(1.0, 1.5, 2.0, 250.0, None, Drawn((Zone("package-0", 1.0, 2.0),), 1.0, 4.0, 2.0, 0.004, 0.016))


def test_readings_that_do_not_cover_the_window_are_no_energy() -> None:
    assert _found(cpu={10.0: 60.0}) is None
    assert _found(cpu={k: 60.0 * k for k in (10.5, 15.0, 21.0)}) is None
    assert _found(cpu={k: 60.0 * k for k in (5.0, 15.0, 19.5)}) is None


def test_without_dram_tokens_or_a_window_the_rest_is_known() -> None:
    found = _found(_window(tokens_per_s=None), cpu=_at(60.0))
    assert found is not None
    assert found.cpu is not None
    assert (found.dram, found.output_tokens) == (None, None)
    assert (found.cpu.joules_per_token, found.cpu.joules_per_token_error) == (None, None)
    assert host_energy(Telemetry({}), _window()) is None
    assert host_energy(Telemetry({}), None) is None
    assert _found(_window(10.0, 10.0), cpu=_at(60.0)) is None

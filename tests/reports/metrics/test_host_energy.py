"""Energy of a machine's CPU packages and DRAM over a window."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from reports.metrics.catalogue import OUTPUT_TOKEN_THROUGHPUT, REQUEST_THROUGHPUT
from reports.metrics.host_energy import HostEnergy, host_energy
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


def test_readings_that_do_not_cover_the_window_are_no_energy() -> None:
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

"""Energy, power and clocks of GPUs over a window."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from reports.metrics.catalogue import OUTPUT_TOKEN_THROUGHPUT, REQUEST_THROUGHPUT
from reports.metrics.gpu_use import ClockLimit, GpuUse, gpu_use
from reports.metrics.server_series import Series, Telemetry
from reports.metrics.windows import Window
from reports.statistics.estimate import Estimate


def _window(start_s: float = 10.0, end_s: float = 20.0, tokens_per_s: float | None = 500.0) -> Window:
    throughputs = {OUTPUT_TOKEN_THROUGHPUT: Estimate(tokens_per_s), REQUEST_THROUGHPUT: Estimate(1.0)}
    return Window(start_s, end_s, throughputs, None, None)


def _series(name: str, values: Mapping[float, float], **labels: str) -> Series:
    return Series(name, labels, np.array(list(values), dtype=float) * 1e9, np.array(list(values.values()), dtype=float))


def _telemetry(*series: Series) -> Telemetry:
    by_name: dict[str, tuple[Series, ...]] = {}
    for each in series:
        by_name[each.name] = (*by_name.get(each.name, ()), each)
    return Telemetry(by_name)


def _use(*series: Series, window: Window | None = None) -> GpuUse:
    found = gpu_use(_telemetry(*series), _window() if window is None else window)
    assert found is not None
    return found


def _constant(name: str, value: float, *, uuid: str = "a", **labels: str) -> Series:
    return _series(name, {0.5 * k: value for k in range(-2, 60)}, uuid=uuid, **labels)


def _counter(watts: float, uuid: str = "a") -> Series:
    return _series("gpu_energy_joules_total", {0.5 * k: 1e6 + watts * 0.5 * k for k in range(-2, 60)}, uuid=uuid)


def test_energy_is_what_the_counter_grew_by_between_the_window_s_ends() -> None:
    found = _use(_constant("gpu_power_watts", 480.0), _counter(500.0), window=_window(10.2, 20.3))
    assert found.energy_j == pytest.approx(500.0 * 10.1)
    assert found.power_w == pytest.approx(500.0)
    assert found.joules_per_token == pytest.approx(1.0)
    assert found.energy_error_j == pytest.approx(500.0 * 0.5)
    assert found.gpus[0].power_w == pytest.approx(480.0)


def test_without_a_counter_energy_is_power_over_time() -> None:
    ramp = _series("gpu_power_watts", {float(k): 10.0 * k for k in range(31)}, uuid="a")
    assert _use(ramp, window=_window(10.5, 20.5)).energy_j == pytest.approx(10 * (20.5**2 - 10.5**2) / 2)


def test_gpus_are_added_and_one_without_energy_leaves_the_sum_unknown() -> None:
    both = _use(*(_constant("gpu_power_watts", watts, uuid=uuid) for uuid, watts in (("a", 300.0), ("b", 100.0))))
    assert both.energy_j == pytest.approx(4_000.0)
    late = _series("gpu_power_watts", {15.0: 100.0, 30.0: 100.0}, uuid="b")
    partly = _use(_constant("gpu_power_watts", 300.0), late)
    assert (partly.energy_j, partly.joules_per_token, partly.joules_per_token_error) == (None, None, None)
    assert [gpu.power_w for gpu in partly.gpus] == [300.0, 100.0]


def test_a_counter_that_fell_is_no_energy() -> None:
    fell = _series("gpu_energy_joules_total", {0.0: 100.0, 15.0: 50.0, 30.0: 900.0}, uuid="a")
    assert _use(_constant("gpu_power_watts", 300.0), fell).energy_j is None


@pytest.mark.parametrize(("renewed_s", "error_s"), [(0.5, 0.5), (2.0, 2.0), (5.0, 5.0), (12.0, 12.0), (30.0, None)])
def test_a_counter_is_as_precise_as_its_exporter_renews_it(renewed_s: float, error_s: float | None) -> None:
    """Read every half second; the page has the value of its last renewal."""
    counter = _series(
        "gpu_energy_joules_total", {0.5 * k: 200.0 * (0.5 * k // renewed_s) * renewed_s for k in range(-2, 60)}, uuid="a"
    )
    found = _use(_constant("gpu_power_watts", 200.0), counter)
    assert found.energy_error_j == (None if error_s is None else pytest.approx((found.energy_j or 0.0) * error_s / 10.0))
    if error_s is not None:
        assert abs((found.energy_j or 0.0) - 2_000.0) <= 200.0 * error_s
        assert found.period_s == pytest.approx(error_s)


def test_idle_power_is_read_before_the_start() -> None:
    power = _series("gpu_power_watts", {-2.0: 70.0, -0.1: 90.0, **{0.5 * k: 500.0 for k in range(1, 60)}}, uuid="a")
    assert _use(power).idle_power_w == 70.0


def test_what_held_the_clocks_down_has_its_time_and_the_lowest_clock() -> None:
    limited = _series("gpu_clocks_limited", {float(k): float(12 <= k < 15) for k in range(30)}, uuid="a", reason="power cap")
    never = _series("gpu_clocks_limited", {float(k): 0.0 for k in range(30)}, uuid="a", reason="heat")
    clock = _series("gpu_sm_clock_hertz", {float(k): 1.35e9 if k == 13 else 1.98e9 for k in range(30)}, uuid="a")
    (gpu,) = _use(_constant("gpu_power_watts", 700.0), limited, never, clock).gpus
    assert gpu.limits == (ClockLimit("power cap", 3.0, pytest.approx(1350.0)),)


def test_triton_s_page_and_dcgm_s_have_their_own_names_and_units() -> None:
    triton = _use(
        _series("nv_gpu_power_usage", {float(k): 400.0 for k in range(30)}, gpu_uuid="a"),
        _series("nv_energy_consumption", {float(k): 400.0 * k for k in range(30)}, gpu_uuid="a"),
        _series("nv_gpu_utilization", {float(k): 0.5 for k in range(30)}, gpu_uuid="a"),
    )
    assert (triton.source, triton.power_w, triton.busy_share) == ("triton", pytest.approx(400.0), 0.5)
    dcgm = _use(
        _series("DCGM_FI_DEV_POWER_USAGE", {float(k): 400.0 for k in range(30)}, UUID="a", gpu="0", modelName="H100"),
        _series("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", {float(k): 4e5 * k for k in range(30)}, UUID="a"),
        _series("DCGM_FI_DEV_GPU_UTIL", {float(k): 50.0 for k in range(30)}, UUID="a"),
        _series("DCGM_FI_DEV_FB_USED", {float(k): 1_000.0 for k in range(30)}, UUID="a"),
        _series("DCGM_FI_DEV_SM_CLOCK", {float(k): 1_980.0 for k in range(30)}, UUID="a"),
    )
    (gpu,) = dcgm.gpus
    assert (dcgm.source, dcgm.power_w, gpu.busy_share) == ("dcgm", pytest.approx(400.0), 0.5)
    assert (gpu.gpu, gpu.memory_used_bytes, gpu.sm_clock_mhz) == ("0: H100", 1_000.0 * 2**20, pytest.approx(1980.0))


def test_without_readings_or_a_window_nothing_is_known() -> None:
    assert gpu_use(_telemetry(), _window()) is None
    assert gpu_use(_telemetry(_constant("gpu_power_watts", 1.0)), None) is None
    assert gpu_use(_telemetry(_series("gpu_power_watts", {0.0: 1.0, 1.0: 1.0}, uuid="a")), _window()) is None
    assert _use(_constant("gpu_power_watts", 1.0), window=_window(tokens_per_s=None)).joules_per_token is None

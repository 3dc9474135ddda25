"""Energy, power and clocks of GPUs over a window."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from reports.metrics.catalogue import OUTPUT_TOKEN_THROUGHPUT, REQUEST_THROUGHPUT
from reports.metrics.gpu_use import ClockLimit, Gpu, GpuUse, gpu_use
from reports.metrics.server_series import Series, Telemetry
from reports.metrics.windows import Window
from reports.statistics.estimate import Estimate


def _window(start_s: float = 10.0, end_s: float = 20.0, tokens_per_s: float | None = 500.0) -> Window:
    throughputs = {OUTPUT_TOKEN_THROUGHPUT: Estimate(tokens_per_s), REQUEST_THROUGHPUT: Estimate(1.0)}
    return Window(start_s, end_s, throughputs, None, None)


def _series(name: str, values: Mapping[float, float], /, **labels: str) -> Series:
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


def _constant(name: str, value: float, /, *, uuid: str = "a", **labels: str) -> Series:
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
        assert found.period_s == error_s


def test_idle_power_is_read_before_the_start() -> None:
    power = _series("gpu_power_watts", {-2.0: 70.0, -0.1: 90.0, **{0.5 * k: 500.0 for k in range(1, 60)}}, uuid="a")
    assert _use(power).idle_power_w == 70.0


def test_what_held_the_clocks_down_has_its_time_and_the_lowest_clock() -> None:
    limited = _series("gpu_clocks_limited", {float(k): float(12 <= k < 15) for k in range(30)}, uuid="a", reason="power cap")
    never = _series("gpu_clocks_limited", {float(k): 0.0 for k in range(30)}, uuid="a", reason="heat")
    clock = _series("gpu_sm_clock_hertz", {float(k): 1.35e9 if k == 13 else 1.98e9 for k in range(30)}, uuid="a")
    (gpu,) = _use(_constant("gpu_power_watts", 700.0), never, limited, clock).gpus
    assert gpu.limits == (ClockLimit("power cap", 3.0, pytest.approx(1350.0)),)


def test_a_limit_counts_from_a_reading_in_the_run_to_the_next_one() -> None:
    """The last reading has no next one; the clock is read at other times, and before the run does not count."""
    limited = _series("gpu_clocks_limited", {-4.0: 1.0, -1.0: 1.0, 0.0: 1.0, 3.0: 0.0, 8.0: 1.0}, uuid="a")
    clock = _series("gpu_sm_clock_hertz", {-2.0: 1e6, 0.0: 1.5e9, 7.0: 1.2e9, 9.0: 1.4e9}, uuid="a")
    (gpu,) = _use(_constant("gpu_power_watts", 700.0), limited, clock).gpus
    assert gpu.limits == (ClockLimit("", 3.0, 1300.0),)
    (unclocked,) = _use(_constant("gpu_power_watts", 700.0), limited).gpus
    assert unclocked.limits == (ClockLimit("", 3.0, None),)
    before = _series("gpu_clocks_limited", {-1.0: 1.0, 0.0: 0.0, 1.0: 0.0}, uuid="a", reason="heat")
    other = _series("gpu_clocks_limited", {0.0: 1.0, 1.0: 1.0}, uuid="b", reason="heat")
    assert _use(_constant("gpu_power_watts", 700.0), before, other).gpus[0].limits == ()


_SOURCES = {  # the label of a GPU; power, energy, use, memory and clock
    "nvml": (
        "uuid",
        [
            f"gpu_{part}"
            for part in ["power_watts", "energy_joules_total", "utilization_ratio", "memory_used_bytes", "sm_clock_hertz"]
        ],
    ),
    "triton": ("gpu_uuid", ["nv_gpu_power_usage", "nv_energy_consumption", "nv_gpu_utilization", "nv_gpu_memory_used_bytes"]),
    "dcgm": (
        "UUID",
        [f"DCGM_FI_DEV_{part}" for part in ["POWER_USAGE", "TOTAL_ENERGY_CONSUMPTION", "GPU_UTIL", "FB_USED", "SM_CLOCK"]],
    ),
}


@pytest.mark.parametrize(
    ("source", "joule", "whole", "mebibyte", "mhz"),
    [("nvml", 1, 1, 2**20, 1e6), ("triton", 1, 1, 2**20, 0), ("dcgm", 1e3, 100, 1, 1)],
)
def test_every_number_of_two_gpus_by_the_names_and_units_of_each_source(
    source: str, joule: float, whole: float, mebibyte: float, mhz: float
) -> None:
    """Read every 4 s from 4 s before the run; the second GPU's counter is 100 J a reading, and it has no other number."""
    label, (power, energy, use, memory, *clock) = _SOURCES[source]
    times = [4.0 * k for k in range(-1, 8)]
    a, b = {label: "a"}, {label: "b"}
    series = [
        _series(power, {**dict.fromkeys(times, 300.0), -4.0: 70.0, 0.0: 50.0}, **a),
        _series(power, dict.fromkeys(times, 25.0), **b),
        _series(energy, {t: joule * (500.0 + 320.0 * t) for t in times}, **a),
        _series(energy, {t: joule * 25.0 * t for t in times}, **b),
        _series(use, {t: whole * (1.0 if t < 14 else 0.5) for t in times}, **a),
        _series(memory, {t: mebibyte * t for t in times}, **a),
        *(_series(name, {t: mhz * (1_000.0 + t) for t in times}, **a) for name in clock),
    ]
    found = _use(*series, window=_window(10.0, 20.0, 345.0))
    sm_clock = 1_016.0 if clock else None
    first = Gpu("a", 300.0, 50.0, pytest.approx(3_200.0), pytest.approx(2 / 3), 20.0 * 2**20, sm_clock, ())
    assert found == GpuUse(
        source=source,
        start_s=10.0,
        end_s=20.0,
        period_s=4.0,
        gpus=(first, Gpu("b", 25.0, 25.0, pytest.approx(250.0), None, None, None, ())),
        energy_j=pytest.approx(3_450.0),
        energy_error_j=pytest.approx(1_380.0),
        output_tokens=3_450.0,
    )
    assert (found.power_w, found.idle_power_w, found.busy_share) == (pytest.approx(345.0), 75.0, None)
    assert (found.joules_per_token, found.joules_per_token_error) == (pytest.approx(1.0), pytest.approx(0.4))


def test_the_first_source_with_a_gpu_in_the_window_counts() -> None:
    ours = _series("gpu_power_watts", {0.0: 1.0, 1.0: 1.0}, uuid="a")
    triton = _series("nv_gpu_power_usage", {float(k): 400.0 for k in range(30)}, gpu_uuid="a")
    assert _use(triton, ours).source == "triton"
    assert _use(triton, _constant("gpu_power_watts", 300.0)).source == "nvml"


def test_a_gpu_has_its_index_and_model_where_both_are_known() -> None:
    names: list[dict[str, str]] = [
        {"gpu": "0", "name": "H100"},
        {"gpu": "1", "modelName": "H200"},
        {"gpu": "2"},
        {"name": "A10"},
        {},
    ]
    power = [_constant("gpu_power_watts", 300.0, uuid=f"uuid-{k}", **labels) for k, labels in enumerate(names)]
    found = [gpu.gpu for gpu in _use(*power).gpus]
    assert found == ["0: H100", "1: H200", "uuid-2", "uuid-3", "uuid-4"]
    nameless = _series("gpu_power_watts", {float(k): 300.0 for k in range(30)})
    assert _use(nameless).gpus[0].gpu == ""


def test_use_is_a_mean_over_the_gpus_and_idle_power_their_sum() -> None:
    power = [_constant("gpu_power_watts", 300.0, uuid=uuid) for uuid in "ab"]
    found = _use(*power, _constant("gpu_utilization_ratio", 1.0), _constant("gpu_utilization_ratio", 0.5, uuid="b"))
    assert (found.busy_share, found.idle_power_w) == (0.75, 600.0)
    late = _series("gpu_power_watts", {0.5 * k: 300.0 for k in range(1, 60)}, uuid="c")
    assert _use(*power, late).idle_power_w is None


def test_unknown_readings_are_left_out() -> None:
    nan = float("nan")
    power = _series("gpu_power_watts", {0.0: 100.0, 10.0: nan, 20.0: 200.0, 30.0: nan}, uuid="a")
    unread = _series("gpu_energy_joules_total", {0.0: nan, 10.0: nan, 20.0: nan}, uuid="a")
    found = _use(power, unread)
    assert (found.energy_j, found.gpus[0].power_w, found.period_s) == (pytest.approx(1_750.0), 200.0, 20.0)


def test_energy_by_power_needs_readings_on_both_sides_of_the_window() -> None:
    for times in ([10.0, 20.0], [9.0, 21.0]):
        assert (
            _use(_series("gpu_power_watts", dict.fromkeys(times, 100.0), uuid="a"), _constant("gpu_power_watts", 1.0, uuid="b"))
            .gpus[0]
            .energy_j
            == 1_000.0
        )
    for times in ([10.5, 20.0], [10.0, 19.5], [15.0]):
        assert _use(_series("gpu_power_watts", dict.fromkeys(times, 100.0), uuid="a")).gpus[0].energy_j is None


def test_a_counter_of_two_renewals_and_power_of_one_reading_are_known() -> None:
    counter = _series("gpu_energy_joules_total", {9.0: 0.0, 15.0: 6.0, 15.5: 6.5, 21.0: 6.5}, uuid="a")
    found = _use(_series("gpu_power_watts", {10.0: 100.0}, uuid="a"), counter)
    assert (found.energy_j, found.period_s, found.gpus[0].power_w) == (5.5, 0.5, 100.0)


def test_the_readings_at_the_ends_of_a_window_count_however_short_it_is() -> None:
    power = _series("gpu_power_watts", {0.0: 9.0, 1.0: 100.0, 1.25: 300.0, 1.5: 200.0, 2.0: 9.0}, uuid="a")
    found = _use(power, window=_window(1.0, 1.5))
    assert (found.gpus[0].power_w, found.energy_j) == (200.0, pytest.approx(112.5))
    assert gpu_use(_telemetry(power), _window(1.0, 1.0)) is None


def test_without_readings_or_a_window_nothing_is_known() -> None:
    assert gpu_use(_telemetry(), _window()) is None
    assert gpu_use(_telemetry(_constant("gpu_power_watts", 1.0)), None) is None
    assert gpu_use(_telemetry(_series("gpu_power_watts", {0.0: 1.0, 1.0: 1.0}, uuid="a")), _window()) is None
    assert _use(_constant("gpu_power_watts", 1.0), window=_window(tokens_per_s=None)).joules_per_token is None
